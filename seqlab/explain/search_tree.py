"""A beam search as a tree, pruned hypotheses and all scores included; and the search again with another beam.

The search that is shown is the search of `decode/beam.py`, which gives its steps.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from seqlab.bundle import Bundle
from seqlab.decode.beam import Beam, Candidates, Hypothesis, beam_search
from seqlab.decode.generate import Limits
from seqlab.errors import UsageError
from seqlab.explain import token_figures
from seqlab.explain.view import View
from seqlab.models.interface import Decoder, Memory
from seqlab.padded import Padded
from seqlab.tasks import subject as subject_of
from seqlab.tasks.text_generation import NEVER, target_limits
from seqlab.text import EOS


@dataclass(frozen=True)
class TreeNode:
    """A token of one hypothesis, or of one that was cut off."""

    parent: int | None
    token: int
    log_probability: float
    score: float  # the sum so far
    fate: str  # kept, ended or pruned


@dataclass(frozen=True)
class Search:
    """One source's search: its results, best first, and its tree."""

    best: tuple[Hypothesis, ...]
    nodes: tuple[TreeNode, ...]


def recorded_search(
    decoder: Decoder, memory: Memory, prefix: tuple[int, ...], beam: Beam, limits: Limits
) -> Search:
    """Search for one source, and keep the tree."""
    result = beam_search(
        decoder, memory, Padded.from_rows([list(prefix)]), beam, limits, record=True
    )
    return Search(tuple(result.best[0]), _tree(result.steps, beam.width))


def _tree(steps: Sequence[Candidates], width: int) -> tuple[TreeNode, ...]:
    """The nodes in the order in which they were found; those of a step follow those of the step before."""
    nodes: list[TreeNode] = []
    last: dict[int, int] = {}  # of each hypothesis in the beam, its last node
    for step in steps:
        after: dict[int, int] = {}
        live = step.live(width)[0].tolist()
        columns = (part[0].tolist() for part in (step.parents, step.tokens, step.scores, step.ends))
        for rank, (parent, token, score, ended) in enumerate(zip(*columns, strict=True)):
            if score == -torch.inf:
                continue
            fate = "ended" if ended and rank < width else "pruned"
            if rank in live and not ended:
                fate = "kept"
                after[live.index(rank)] = len(nodes)
            above = last.get(parent)
            before = 0.0 if above is None else nodes[above].score
            nodes.append(TreeNode(above, token, score - before, score, fate))
        last = after
    return tuple(nodes)


@torch.inference_mode()
def beam_view(
    bundle: Bundle,
    given: Any,
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    replay_beam: int | None = None,
    replay_penalty: float | None = None,
) -> View:
    """The whole search tree; with `replay_*`, what another beam finds, and where that lies in the tree."""
    greedy = bundle.recipe.decode.model_copy(update={"method": "greedy"})
    subject = subject_of(bundle, given, decode=greedy)
    if not subject.writes:
        raise UsageError(
            f"a '{bundle.recipe.task}' model searches for nothing",
            hint="give one that writes text.",
        )
    prefix = subject.writes
    limits = _continuation(bundle)
    if subject.reads is not None:
        prefix = subject.writes[:1]
        limits = target_limits(bundle, bundle.recipe.decode)

    def search_with(beam: Beam) -> Search:
        return recorded_search(subject.decoder, subject.memory(), prefix, beam, limits)

    def results_of(best: Sequence[Hypothesis]) -> list[dict[str, Any]]:
        return [
            _result(bundle, hypothesis, _path(search.nodes, hypothesis, limits))
            for hypothesis in best
        ]

    search = search_with(Beam(beam, length_penalty))
    pieces = bundle.codec.target_tokenizer.pieces([node.token for node in search.nodes])
    results = results_of(search.best)
    path = results[0]["path"] if results else []
    drawn = [token_figures.Node("start", best=True)]
    nodes = []
    for k, (piece, node) in enumerate(zip(pieces, search.nodes, strict=True)):
        parent = 0 if node.parent is None else node.parent + 1
        drawn.append(
            token_figures.Node(piece, node.score, parent, node.fate == "pruned", k in path)
        )
        nodes.append({"piece": piece, **asdict(node)})
    tree = token_figures.Tree(drawn, title=f"beam {beam}, length penalty {length_penalty:g}")
    data: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty}
    data |= {"hypotheses": results, "nodes": nodes}
    lines = _ranking("found", results)
    if replay_beam is not None or replay_penalty is not None:
        penalty = length_penalty if replay_penalty is None else replay_penalty
        data["replayed"] = results_of(search_with(Beam(replay_beam or beam, penalty)).best)
        lines += _ranking("replayed", data["replayed"])
    return View(
        "beam",
        f"beam search of {bundle.recipe.name}: {len(search.nodes)} hypotheses looked at",
        data,
        [tree, *lines],
    )


def _continuation(bundle: Bundle) -> Limits:
    line = bundle.recipe.data.unit == "line"
    most = min(20, bundle.recipe.decode.max_length)
    return Limits(end=EOS if line else None, most=most, never=NEVER)


def _result(bundle: Bundle, hypothesis: Hypothesis, path: list[int]) -> dict[str, Any]:
    """A hypothesis that was found, and its nodes in the tree."""
    return {
        "output": bundle.codec.target_tokenizer.decode(list(hypothesis.tokens)),
        "score": hypothesis.score,
        "log_probability": hypothesis.log_probability,
        "ended": hypothesis.ended,
        "path": path,
    }


def _ranking(what: str, results: list[dict[str, Any]]) -> list[str]:
    return ["", f"{what}, best first:"] + [f"{h['score']:8.3f}  {h['output']}" for h in results]


def _path(nodes: Sequence[TreeNode], hypothesis: Hypothesis, limits: Limits) -> list[int]:
    """The nodes of one hypothesis, from the first to the last; none where it is not in the tree."""
    places = {(node.parent, node.token): place for place, node in enumerate(nodes)}
    path: list[int] = []
    for token in (*hypothesis.tokens, *[limits.end] * hypothesis.ended):
        step = (path[-1] if path else None, token)
        if step not in places:
            return []
        path.append(places[step])
    return path
