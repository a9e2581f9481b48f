"""The view `beam`: a beam search as a tree with pruned hypotheses and scores; optionally repeated with another beam.

The tree is built from the steps that `decode/beam.py` records, so that it shows the search that the model uses.
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
    """A token of a hypothesis, pruned ones included."""

    parent: int | None
    token: int
    log_probability: float
    score: float  # the sum so far
    fate: str  # kept, ended or pruned


@dataclass(frozen=True)
class Search:
    """The search for one source: its results, best first, and its tree."""

    best: tuple[Hypothesis, ...]
    nodes: tuple[TreeNode, ...]


def recorded_search(
    decoder: Decoder, memory: Memory, prefix: tuple[int, ...], beam: Beam, limits: Limits
) -> Search:
    """Run a beam search for one source and return its tree."""
    result = beam_search(
        decoder, memory, Padded.from_rows([list(prefix)]), beam, limits, record=True
    )
    return Search(tuple(result.best[0]), _tree(result.steps, beam.width))


def _tree(steps: Sequence[Candidates], width: int) -> tuple[TreeNode, ...]:
    """Return the nodes in the order of the search, step by step."""
    nodes: list[TreeNode] = []
    last: dict[int, int] = {}  # the last node of each hypothesis in the beam
    for step in steps:
        next_last: dict[int, int] = {}
        live = step.live(width)[0].tolist()
        columns = (part[0].tolist() for part in (step.parents, step.tokens, step.scores, step.ends))
        for rank, (parent, token, score, ended) in enumerate(zip(*columns, strict=True)):
            if score == -torch.inf:
                continue
            fate = "ended" if ended and rank < width else "pruned"
            if rank in live and not ended:
                fate = "kept"
                next_last[live.index(rank)] = len(nodes)
            parent_node = last.get(parent)
            parent_score = 0.0 if parent_node is None else nodes[parent_node].score
            nodes.append(TreeNode(parent_node, token, score - parent_score, score, fate))
        last = next_last
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
    """Show the search tree; with `replay_*`, also the results of another beam and their paths in the tree."""
    greedy = bundle.recipe.decode.model_copy(update={"method": "greedy"})
    subject = subject_of(bundle, given, decode=greedy)
    if not subject.writes:
        raise UsageError(
            f"a '{bundle.recipe.task}' model does not use beam search",
            hint="use a model that writes text.",
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
    lines = _ranking("results", results)
    if replay_beam is not None or replay_penalty is not None:
        penalty = length_penalty if replay_penalty is None else replay_penalty
        data["replayed"] = results_of(search_with(Beam(replay_beam or beam, penalty)).best)
        lines += _ranking("results with the other settings", data["replayed"])
    return View(
        "beam",
        f"beam search of {bundle.recipe.name}: {len(search.nodes)} hypotheses looked at",
        data,
        [tree, *lines],
    )


def _continuation(bundle: Bundle) -> Limits:
    """Return the limits of a language model's continuation."""
    line = bundle.recipe.data.unit == "line"
    most = min(20, bundle.recipe.decode.max_length)
    return Limits(end=EOS if line else None, most=most, never=NEVER)


def _result(bundle: Bundle, hypothesis: Hypothesis, path: list[int]) -> dict[str, Any]:
    """Return a hypothesis as data, with its nodes in the tree."""
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
    """Return the nodes of a hypothesis from first to last, or an empty list if it is not in the tree."""
    indices = {(node.parent, node.token): index for index, node in enumerate(nodes)}
    path: list[int] = []
    for token in (*hypothesis.tokens, *[limits.end] * hypothesis.ended):
        step = (path[-1] if path else None, token)
        if step not in indices:
            return []
        path.append(indices[step])
    return path
