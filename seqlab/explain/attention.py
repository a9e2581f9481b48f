"""The view `attention`: the weights of every layer and head, and how source and target are aligned."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from seqlab.errors import UsageError
from seqlab.explain.canvas import Grid, Matrix
from seqlab.explain.charts import PANEL, HeatMap, Panel, bipartite, largest_of_blocks, panels
from seqlab.explain.palette import SEQUENTIAL, levels
from seqlab.explain.stage_names import label
from seqlab.explain.view import View
from seqlab.subject import Subject
from seqlab.trace import Trace

MIN_SHARE = 0.5  # of a head's weight on one relative position, for the head to be named after it
MAX_TOKENS = 64  # above this, the data holds only the largest weight of each row


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one attention layer; in every head, the weights of a row sum to one over the columns."""

    name: str
    weights: Float[np.ndarray, "H T S"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    def focus(self, head: int) -> tuple[str, float]:
        """Return the relative position that gets most of a head's weight, or '' if none gets half; and its share."""
        weights = self.weights[head]
        if self.rows != self.columns or len(weights) < 3:
            return "", 0.0
        positions = {
            "the token before": np.diagonal(weights, -1),
            "the token itself": np.diagonal(weights),
            "the token after": np.diagonal(weights, 1),
            "the first token": weights[1:, 0],
            "the last token": weights[:-1, -1],
        }
        shares = {position: float(part.mean()) for position, part in positions.items()}
        best = max(shares, key=shares.__getitem__)
        return best if shares[best] >= MIN_SHARE else "", shares[best]

    def focuses(self) -> list[tuple[str, float]]:
        """Return the focus of each head."""
        return [self.focus(head) for head in range(len(self.weights))]

    def to_json(self) -> dict[str, Any]:
        """Return all weights of a short input; of a long one, the largest weight of each row and its column."""
        heads = [{"follows": position, "share": share} for position, share in self.focuses()]
        table = {"name": self.name, "rows": self.rows, "columns": self.columns, "heads": heads}
        if max(self.weights.shape[1:]) <= MAX_TOKENS:
            return table | {"weights": self.weights}
        return table | {"looks_at": self.weights.argmax(-1), "weight": self.weights.max(-1)}


def attention_maps(subject: Subject, trace: Trace) -> list[AttentionMap]:
    """Return all attention weights of a trace, with the tokens of their rows and columns."""
    maps = []
    for name in trace.names():
        if name.endswith(".weights"):
            weights = trace[name][0].numpy()
            weights = weights[None] if weights.ndim == 2 else weights
            rows, columns = _sides(subject, name, weights.shape)
            maps.append(AttentionMap(name.removesuffix(".weights"), weights, rows, columns))
    if not maps:
        raise UsageError(
            "this model has no attention",
            hint="the view 'cells' shows the states of a recurrent model.",
        )
    return maps


def alignment(subject: Subject) -> Matrix:
    """Return the weights of each output token over the source tokens: the mean of the heads of the last layer."""
    maps = [
        m
        for m in attention_maps(subject, subject.trace())
        if m.name.endswith((".cross", "decoder.attention"))
    ]
    if not maps or not subject.source:
        raise UsageError(
            "this model does not attend to its source",
            hint="an alignment needs a decoder with attention.",
        )
    return maps[-1].weights.mean(0)


def _sides(
    subject: Subject, name: str, shape: tuple[int, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tokens of the rows and of the columns of an attention."""
    if name.startswith("pooling"):
        return tuple(f"hop {hop + 1}" for hop in range(shape[1])), subject.source
    if name.startswith("encoder"):
        return subject.source, subject.source
    if ".cross." in name or name.startswith("decoder.attention"):
        return subject.answer_names, subject.source
    return subject.written, subject.written


def attention_view(subject: Subject, *, layer: str | None = None, head: int | None = None) -> View:
    """Show the attention weights of all layers and heads, or of one `layer` (by its name) and `head` (from 1)."""
    maps = attention_maps(subject, subject.trace())
    names = [m.name for m in maps]
    if layer is not None and layer not in names:
        raise UsageError(
            f"there is no attention layer '{layer}'", hint=f"use one of {', '.join(names)}."
        )
    maps = [m for m in maps if layer in (None, m.name)]
    heads = [len(m.weights) for m in maps]
    if head is not None and not 1 <= head <= min(heads):
        raise UsageError(f"there is no head {head}", hint=f"heads are 1 to {min(heads)}.")
    last = maps[-1]
    weights = last.weights.mean(0) if head is None else last.weights[head - 1]
    is_mean = head is None and heads[-1] > 1
    which = "mean of the heads" if is_mean else f"head {head or 1}"
    title = f"{label(last.name)}, {which}"
    heat = HeatMap(
        weights, last.rows, last.columns, title=title, titles=("query", "key"), reach=(0.0, 1.0)
    )
    links = bipartite(weights, last.rows, last.columns, title=f"{title}: the largest weights")
    parts: list[Any] = [f"{title} ({last.name}), a row for each query", heat, links]
    if head is None and sum(heads) > 1:
        parts.append(panels([_heads_of(m) for m in maps], title="all heads"))
    lines = [
        f"{m.name}, head {h}: {100 * share:.0f} % of the weight on {position}"
        for m in maps
        for h, (position, share) in enumerate(m.focuses(), start=1)
        if position
    ]
    return View(
        "attention",
        f"attention of {subject.bundle.recipe.name}",
        {**subject.sides, "maps": [m.to_json() for m in maps]},
        [*parts, *lines],
    )


def _heads_of(m: AttentionMap) -> tuple[str, list[Panel]]:
    """Return the heading of a layer and a small picture of each of its heads."""
    focuses = enumerate(m.focuses())
    return label(m.name), [_panel(m, head, position) for head, (position, _) in focuses]


def _panel(m: AttentionMap, head: int, focus: str) -> Panel:
    """Return a small picture of one head, reduced to at most one cell a pixel."""
    down, across = (math.ceil(n / PANEL) for n in m.weights[head].shape)
    cells = levels(largest_of_blocks(m.weights[head], down, across), 0.0, 1.0)
    tall = PANEL * min(1.0, len(m.rows) / max(1, len(m.columns)) + 0.05)
    grid = Grid(0.0, 0.0, PANEL, tall, cells, SEQUENTIAL, m.rows[::down], m.columns[::across])
    return f"{head + 1} {focus}", (grid,)
