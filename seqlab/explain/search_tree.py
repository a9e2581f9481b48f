"""A beam search as a tree, pruned hypotheses and all scores included; and the search again, without the model.

The search that is shown, and the one that is replayed, are the search of `decode/beam.py`: only the decoder is another,
one that remembers what the model said after each prefix, or only remembers.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqlab.bundle import Bundle
from seqlab.decode.beam import Beam, BeamStep, Hypothesis, beam_search
from seqlab.decode.generate import Limits
from seqlab.errors import UsageError
from seqlab.explain import charts, terminal
from seqlab.explain.view import View
from seqlab.models.interface import Decoder, Memory
from seqlab.padded import Padded
from seqlab.tasks import subject
from seqlab.tasks.writing import NEVER, target_limits
from seqlab.text import EOS
from seqlab.types import State


@dataclass(frozen=True)
class Node:
    """A token of one hypothesis, or of one that was cut off."""

    parent: int | None
    token: int
    log_probability: float
    score: float  # the sum so far
    fate: str  # kept, ended or pruned


@dataclass
class Memo:
    """What the model said after each prefix that the search came to; the root is the prefix it was given."""

    logits: list[Float[Tensor, " V"]] = field(default_factory=list)
    children: list[dict[int, int]] = field(default_factory=lambda: [{}])  # of each place: token -> place

    def follow(self, place: int, token: int) -> int:
        """The place after a token, made where nobody was before."""
        if token not in self.children[place]:
            self.children[place][token] = len(self.children)
            self.children.append({})
        return self.children[place][token]


@dataclass(frozen=True)
class Search:
    """One source's search: its results, its tree, and what is needed to search again without the model."""

    beam: Beam
    limits: Limits
    prefix: tuple[int, ...]
    best: tuple[Hypothesis, ...]
    nodes: tuple[Node, ...]
    memo: Memo


class Remembering:
    """A decoder that notes the logits after each prefix. Its state is the other one's, and each row's place."""

    def __init__(self, decoder: Decoder, memo: Memo) -> None:
        self.decoder, self.memo = decoder, memo

    def start(self, memory: Memory) -> tuple[State, State]:
        context, state = self.decoder.start(memory)
        return context, (*state, torch.full((memory.rows,), -1))

    def read(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> tuple[Float[Tensor, "B T V"], State]:
        logits, after = self.decoder.read(tokens, context, state[:-1])
        return logits, (*after, state[-1])  # still before the first token that was chosen

    def step(self, token: Int[Tensor, " B"], context: State, state: State) -> tuple[Float[Tensor, "B V"], State]:
        logits, after = self.decoder.step(token, context, state[:-1])
        places = [_moved(self.memo, p, t) for p, t in zip(state[-1].tolist(), token.tolist(), strict=True)]
        for place, row in zip(places, logits, strict=True):
            if place == len(self.memo.logits):
                self.memo.logits.append(row.clone())
        return logits, (*after, torch.tensor(places))


class Remembered:
    """A decoder without a model: it says what was said before, and of a prefix nobody came to nothing is likely."""

    def __init__(self, memo: Memo) -> None:
        self.memo = memo

    def start(self, memory: Memory) -> tuple[State, State]:
        return (), (torch.full((memory.rows,), -1),)

    def read(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> tuple[Float[Tensor, "B T V"], State]:
        return self.memo.logits[0].expand(*tokens.shape, -1), state

    def step(self, token: Int[Tensor, " B"], context: State, state: State) -> tuple[Float[Tensor, "B V"], State]:
        known = len(self.memo.logits)
        places = []
        for place, chosen in zip(state[0].tolist(), token.tolist(), strict=True):
            after = 0 if place < 0 else self.memo.children[place].get(chosen, known) if place < known else known
            places.append(min(after, known))
        nowhere = torch.full_like(self.memo.logits[0], -torch.inf)
        return torch.stack([self.memo.logits[p] if p < known else nowhere for p in places]), (torch.tensor(places),)


def _moved(memo: Memo, place: int, token: int) -> int:
    return 0 if place < 0 else memo.follow(place, token)


def recorded_search(decoder: Decoder, memory: Memory, prefix: tuple[int, ...], beam: Beam, limits: Limits) -> Search:
    """Search for one source, and keep everything."""
    memo = Memo()
    found = beam_search(Remembering(decoder, memo), memory, Padded.from_rows([list(prefix)]), beam, limits, record=True)
    return Search(beam, limits, prefix, tuple(found.best[0]), _tree(found.steps, limits, beam), memo)


def replay(search: Search, *, width: int | None = None, length_penalty: float | None = None) -> tuple[Hypothesis, ...]:
    """What would have won with another beam: exact as long as it follows prefixes that the search has seen.

    A narrower beam may leave the wider one's tree; what it would have found there is not known, and is not told.
    """
    beam = replace(
        search.beam,
        width=search.beam.width if width is None else width,
        length_penalty=search.beam.length_penalty if length_penalty is None else length_penalty,
    )
    found = beam_search(
        Remembered(search.memo), Memory(1), Padded.from_rows([list(search.prefix)]), beam, search.limits
    )
    return tuple(found.best[0])


def _tree(steps: Sequence[BeamStep], limits: Limits, beam: Beam) -> tuple[Node, ...]:
    """The nodes in the order in which they were found; those of a step follow those of the step before."""
    nodes: list[Node] = []
    live: dict[int, int | None] = {0: None}
    for step in steps:
        after: dict[int, int | None] = {}
        candidates = zip(step.parents, step.tokens, step.scores, step.places, strict=True)
        for rank, (parent, token, score, place) in enumerate(candidates):
            if score == -torch.inf or parent not in live:
                continue
            above = live[parent]
            before = 0.0 if above is None else nodes[above].score
            ended = token == limits.end and rank < beam.width
            fate = "kept" if place is not None else "ended" if ended else "pruned"
            nodes.append(Node(above, token, score - before, score, fate))
            if place is not None:
                after[place] = len(nodes) - 1
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
    looked = subject(bundle, given, decode=bundle.recipe.decode.model_copy(update={"method": "greedy"}))
    if not looked.writes:
        raise UsageError(f"a '{bundle.recipe.task}' model searches for nothing", hint="give one that writes text.")
    tokenizer = bundle.codec.target_tokenizer
    writes = looked.writes if looked.reads is None else looked.writes[:1]
    limits = target_limits(bundle, bundle.recipe.decode) if looked.reads is not None else _continuation(bundle)
    with torch.inference_mode():
        search = recorded_search(looked.decoder, looked.memory(), writes, Beam(beam, length_penalty), limits)
    other = None
    if replay_beam is not None or replay_penalty is not None:
        other = replay(search, width=replay_beam, length_penalty=replay_penalty)
    pieces = tokenizer.pieces([node.token for node in search.nodes])
    best = _path(search, search.best[0]) if search.best else set()
    drawn = [charts.Node("start", None, None, best=True)] + [
        charts.Node(piece, node.score, 0 if node.parent is None else node.parent + 1, node.fate == "pruned", k in best)
        for k, (piece, node) in enumerate(zip(pieces, search.nodes, strict=True))
    ]
    shown = [_shown(search, bundle, hypothesis) for hypothesis in search.best]
    nodes = [{"piece": piece, **asdict(node)} for piece, node in zip(pieces, search.nodes, strict=True)]
    data: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "hypotheses": shown, "nodes": nodes}
    data |= {} if other is None else {"replayed": [_shown(search, bundle, hypothesis) for hypothesis in other]}
    return View(
        "beam",
        f"beam search of {bundle.recipe.name}: {len(search.nodes)} hypotheses looked at",
        data,
        (charts.tree(drawn, title=f"beam {beam}, length penalty {length_penalty:g}"),),
        lambda width, colour: "\n".join(
            [terminal.tree(drawn, width=width, colour=colour), *_ranking("found", shown)]
            + ([] if other is None else _ranking("replayed", data["replayed"]))
        ),
    )


def _continuation(bundle: Bundle) -> Limits:
    line = bundle.recipe.data.unit == "line"
    return Limits(end=EOS if line else None, most=min(20, bundle.recipe.decode.max_length), never=NEVER)


def _shown(search: Search, bundle: Bundle, found: Hypothesis) -> dict[str, Any]:
    """A result, and its nodes in the tree."""
    text = bundle.codec.target_tokenizer.decode(list(found.tokens))
    told = {"output": text, "score": found.score, "log_probability": found.log_probability, "ended": found.ended}
    return told | {"path": sorted(_path(search, found))}


def _ranking(what: str, found: list[dict[str, Any]]) -> list[str]:
    return ["", f"{what}, best first:"] + [f"{h['score']:8.3f}  {h['output']}" for h in found]


def _path(search: Search, best: Hypothesis) -> set[int]:
    """The nodes of one hypothesis."""
    tokens = (*best.tokens, search.limits.end) if best.ended else best.tokens
    for place in range(len(search.nodes) - 1, -1, -1):
        path, at = list[int](), place
        while at is not None:
            path.append(at)
            at = search.nodes[at].parent  # type: ignore[assignment]
        if tuple(search.nodes[k].token for k in reversed(path)) == tokens:
            return set(path)
    return set()
