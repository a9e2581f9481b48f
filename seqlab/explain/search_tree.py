"""A beam search as a tree, pruned hypotheses and all scores included; and the search again, without the model.

The search that is shown, and the one that is replayed, are the search of `decode/beam.py`: only the decoder is another,
one that remembers what the model said after each prefix, or only remembers.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqlab.bundle import Bundle
from seqlab.decode.beam import Beam, BeamStep, Hypothesis, beam_search
from seqlab.decode.generate import Limits
from seqlab.errors import UsageError
from seqlab.explain import tokens
from seqlab.explain.view import View
from seqlab.models.interface import Decoder, Memory
from seqlab.padded import Padded
from seqlab.tasks import subject as subject_of
from seqlab.tasks.writing import NEVER, target_limits
from seqlab.text import EOS
from seqlab.types import State

Logits = dict[tuple[int, ...], Float[Tensor, " V"]]  # after each prefix that the search came to


@dataclass(frozen=True)
class Node:
    """A token of one hypothesis, or of one that was cut off."""

    parent: int | None
    token: int
    log_probability: float
    score: float  # the sum so far
    fate: str  # kept, ended or pruned


@dataclass(frozen=True)
class Search:
    """One source's search: its results, its tree, and what is needed to search again without the model."""

    beam: Beam
    limits: Limits
    prefix: tuple[int, ...]
    best: tuple[Hypothesis, ...]
    nodes: tuple[Node, ...]
    logits: Logits


class Recorder:
    """A decoder that notes the logits after each prefix. Its state is the other one's, and each row's prefix."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.logits: Logits = {}

    def start(self, memory: Memory) -> tuple[State, State]:
        context, state = self.decoder.start(memory)
        return context, (*state, _no_prefix(memory))

    def read(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> tuple[Float[Tensor, "B T V"], State]:
        logits, after = self.decoder.read(tokens, context, state[:-1])
        return logits, (*after, state[-1])  # still before the first token that was chosen

    def step(self, token: Int[Tensor, " B"], context: State, state: State) -> tuple[Float[Tensor, "B V"], State]:
        logits, after = self.decoder.step(token, context, state[:-1])
        prefixes = torch.cat([state[-1], token[:, None]], dim=1)
        self.logits |= zip(map(tuple, prefixes.tolist()), logits.clone(), strict=True)
        return logits, (*after, prefixes)


class Player:
    """A decoder without a model: it repeats the noted logits. After any other prefix, nothing is likely."""

    def __init__(self, logits: Logits) -> None:
        self.logits = logits
        self.nothing = torch.full_like(next(iter(logits.values())), -torch.inf)

    def start(self, memory: Memory) -> tuple[State, State]:
        return (), (_no_prefix(memory),)

    def read(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> tuple[Float[Tensor, "B T V"], State]:
        return self.nothing.expand(*tokens.shape, -1), state

    def step(self, token: Int[Tensor, " B"], context: State, state: State) -> tuple[Float[Tensor, "B V"], State]:
        prefixes = torch.cat([state[0], token[:, None]], dim=1)
        rows = [self.logits.get(tuple(prefix), self.nothing) for prefix in prefixes.tolist()]
        return torch.stack(rows), (prefixes,)


def _no_prefix(memory: Memory) -> Int[Tensor, "B 0"]:
    return torch.zeros(memory.rows, 0, dtype=torch.long)


def recorded_search(decoder: Decoder, memory: Memory, prefix: tuple[int, ...], beam: Beam, limits: Limits) -> Search:
    """Search for one source, and keep everything."""
    recorder = Recorder(decoder)
    start = Padded.from_rows([list(prefix)])
    result = beam_search(recorder, memory, start, beam, limits, record=True)
    return Search(beam, limits, prefix, tuple(result.best[0]), _tree(result.steps, limits, beam), recorder.logits)


def replay(search: Search, *, width: int | None = None, length_penalty: float | None = None) -> tuple[Hypothesis, ...]:
    """What would have won with another beam: exact as long as it follows prefixes that the search has seen.

    A narrower beam may leave the wider one's tree; what it would have found there is not known, and is not told.
    """
    changes: dict[str, Any] = {"width": width, "length_penalty": length_penalty}
    beam = replace(search.beam, **{name: value for name, value in changes.items() if value is not None})
    start = Padded.from_rows([list(search.prefix)])
    return tuple(beam_search(Player(search.logits), Memory(1), start, beam, search.limits).best[0])


def _tree(steps: Sequence[BeamStep], limits: Limits, beam: Beam) -> tuple[Node, ...]:
    """The nodes in the order in which they were found; those of a step follow those of the step before."""
    nodes: list[Node] = []
    live: dict[int, int | None] = {0: None}  # of each hypothesis in the beam, its last node
    for step in steps:
        after: dict[int, int | None] = {}
        candidates = zip(step.parents, step.tokens, step.scores, step.places, strict=True)
        for rank, (parent, token, score, place) in enumerate(candidates):
            if score == -torch.inf or parent not in live:
                continue
            if place is not None:
                fate = "kept"
                after[place] = len(nodes)
            else:
                fate = "ended" if token == limits.end and rank < beam.width else "pruned"
            above = live[parent]
            before = 0.0 if above is None else nodes[above].score
            nodes.append(Node(above, token, score - before, score, fate))
        live = after
    return tuple(nodes)


def beam_view(
    bundle: Bundle,
    given: Any,
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    replay_beam: int | None = None,
    replay_penalty: float | None = None,
) -> View:
    """The whole search tree; with `replay_*`, what another beam would have found in it without the model."""
    subject = subject_of(bundle, given, decode=bundle.recipe.decode.model_copy(update={"method": "greedy"}))
    if not subject.writes:
        raise UsageError(f"a '{bundle.recipe.task}' model searches for nothing", hint="give one that writes text.")
    prefix = subject.writes
    limits = _continuation(bundle)
    if subject.reads is not None:
        prefix = subject.writes[:1]
        limits = target_limits(bundle, bundle.recipe.decode)
    with torch.inference_mode():
        search = recorded_search(subject.decoder, subject.memory(), prefix, Beam(beam, length_penalty), limits)
    pieces = bundle.codec.target_tokenizer.pieces([node.token for node in search.nodes])
    best = _path(search, search.best[0]) if search.best else []
    drawn = [tokens.Node("start", best=True)]
    for k, (piece, node) in enumerate(zip(pieces, search.nodes, strict=True)):
        parent = 0 if node.parent is None else node.parent + 1
        drawn.append(tokens.Node(piece, node.score, parent, node.fate == "pruned", k in best))
    tree = tokens.Tree(drawn, title=f"beam {beam}, length penalty {length_penalty:g}")
    results = [_result(search, bundle, hypothesis) for hypothesis in search.best]
    nodes = [{"piece": piece, **asdict(node)} for piece, node in zip(pieces, search.nodes, strict=True)]
    data: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "hypotheses": results, "nodes": nodes}
    lines = _ranking("found", results)
    if replay_beam is not None or replay_penalty is not None:
        others = replay(search, width=replay_beam, length_penalty=replay_penalty)
        data["replayed"] = [_result(search, bundle, hypothesis) for hypothesis in others]
        lines += _ranking("replayed", data["replayed"])
    return View(
        "beam",
        f"beam search of {bundle.recipe.name}: {len(search.nodes)} hypotheses looked at",
        data,
        [tree, *lines],
    )


def _continuation(bundle: Bundle) -> Limits:
    line = bundle.recipe.data.unit == "line"
    return Limits(end=EOS if line else None, most=min(20, bundle.recipe.decode.max_length), never=NEVER)


def _result(search: Search, bundle: Bundle, hypothesis: Hypothesis) -> dict[str, Any]:
    """A hypothesis that was found, and its nodes in the tree."""
    return {
        "output": bundle.codec.target_tokenizer.decode(list(hypothesis.tokens)),
        "score": hypothesis.score,
        "log_probability": hypothesis.log_probability,
        "ended": hypothesis.ended,
        "path": _path(search, hypothesis),
    }


def _ranking(what: str, results: list[dict[str, Any]]) -> list[str]:
    return ["", f"{what}, best first:"] + [f"{h['score']:8.3f}  {h['output']}" for h in results]


def _path(search: Search, hypothesis: Hypothesis) -> list[int]:
    """The nodes of one hypothesis, from the first to the last; none where it is not in the tree."""
    places = {(node.parent, node.token): place for place, node in enumerate(search.nodes)}
    path: list[int] = []
    for token in (*hypothesis.tokens, *[search.limits.end] * hypothesis.ended):
        step = (path[-1] if path else None, token)
        if step not in places:
            return []
        path.append(places[step])
    return path
