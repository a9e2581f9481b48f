"""Attention: every layer and head, what each head follows, and how source and target are aligned."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from seqlab.errors import UsageError
from seqlab.explain.canvas import Grid, Matrix
from seqlab.explain.charts import PANEL, HeatMap, Panel, bipartite, farthest, panels
from seqlab.explain.palette import SEQUENTIAL, levels
from seqlab.explain.view import View
from seqlab.subject import Subject
from seqlab.trace import Trace

FOLLOWED = 0.5  # of a head's weight on one kind of place, for it to be called after that
LARGE = 64  # tokens from which numbers are not written out for every head


@dataclass(frozen=True)
class Map:
    """The weights of one attention: each row's weights over the columns sum to one, in every head."""

    name: str
    weights: Float[np.ndarray, "H T S"]
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    def follows(self, head: int) -> tuple[str, float]:
        """What a head looks at most of all, and with how much of its weight; nothing in particular is ''."""
        weights = self.weights[head]
        if self.rows != self.columns or len(weights) < 3:
            return "", 0.0
        places = {
            "the token before": np.diagonal(weights, -1),
            "the token itself": np.diagonal(weights),
            "the token after": np.diagonal(weights, 1),
            "the first token": weights[1:, 0],
            "the last token": weights[:-1, -1],
        }
        shares = {place: float(part.mean()) for place, part in places.items()}
        best = max(shares, key=shares.__getitem__)
        return best if shares[best] >= FOLLOWED else "", shares[best]

    def followed(self) -> list[tuple[str, float]]:
        """The same for each head."""
        return [self.follows(head) for head in range(len(self.weights))]

    def to_json(self) -> dict[str, Any]:
        """All weights of a short input; of a long one, what each row looks at most and how much."""
        heads = [{"follows": place, "share": share} for place, share in self.followed()]
        table = {"name": self.name, "rows": self.rows, "columns": self.columns, "heads": heads}
        if max(self.weights.shape[1:]) <= LARGE:
            return table | {"weights": self.weights}
        return table | {"looks_at": self.weights.argmax(-1), "weight": self.weights.max(-1)}


def attention_maps(subject: Subject, trace: Trace) -> list[Map]:
    """All attention weights that were recorded, with the tokens on both sides of each."""
    maps = []
    for name in trace.names():
        if name.endswith(".weights"):
            weights = trace[name][0].numpy()
            weights = weights[None] if weights.ndim == 2 else weights
            maps.append(
                Map(name.removesuffix(".weights"), weights, *_sides(subject, name, weights.shape))
            )
    if not maps:
        raise UsageError(
            "this model attends to nothing",
            hint="the view 'cells' shows the states of a recurrent model.",
        )
    return maps


def alignment(subject: Subject) -> Matrix:
    """Where each token of the answer looked in the source: of many heads, the mean in the last layer."""
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
    if name.startswith("pooling"):
        return tuple(f"hop {hop + 1}" for hop in range(shape[1])), subject.source
    if name.startswith("encoder"):
        return subject.source, subject.source
    if ".cross." in name or name.startswith("decoder.attention"):
        return subject.answer_names, subject.source
    return subject.written, subject.written


def attention_view(subject: Subject, *, layer: str | None = None, head: int | None = None) -> View:
    """Every layer and head side by side; of one layer (by its name) all heads large, of one head its lines too."""
    maps = attention_maps(subject, subject.trace())
    names = [m.name for m in maps]
    if layer is not None and layer not in names:
        raise UsageError(
            f"there is no layer '{layer}' with attention", hint=f"there are: {', '.join(names)}."
        )
    maps = [m for m in maps if layer in (None, m.name)]
    heads = [len(m.weights) for m in maps]
    if head is not None and not 1 <= head <= min(heads):
        raise UsageError(f"there is no head {head}", hint=f"heads are 1 to {min(heads)}.")
    last = maps[-1]
    weights = last.weights.mean(0) if head is None else last.weights[head - 1]
    name = f"{last.name}, {'mean of its heads' if head is None and heads[-1] > 1 else f'head {head or 1}'}"
    heat = HeatMap(
        weights, last.rows, last.columns, title=name, titles=("looks from", "at"), reach=(0.0, 1.0)
    )
    links = bipartite(
        weights, last.rows, last.columns, title=f"{name}: the strongest of its weights"
    )
    parts: list[Any] = [f"{name}: a row for each that looks", heat, links]
    if head is None and sum(heads) > 1:
        rows = [
            (m.name, [_panel(m, h, place) for h, (place, _) in enumerate(m.followed())])
            for m in maps
        ]
        parts.append(panels(rows, title="all heads"))
    lines = [
        f"{m.name} head {h} looks at {place}: {100 * share:.0f} % of its weight"
        for m in maps
        for h, (place, share) in enumerate(m.followed(), start=1)
        if place
    ]
    return View(
        "attention",
        f"attention of {subject.bundle.recipe.name}",
        {**subject.sides, "maps": [m.to_json() for m in maps]},
        [*parts, *lines],
    )


def _panel(m: Map, head: int, follows: str) -> Panel:
    """A small picture of one head, no finer than it is drawn."""
    down, across = (math.ceil(n / PANEL) for n in m.weights[head].shape)
    cells = levels(farthest(m.weights[head], down, across), 0.0, 1.0)
    tall = PANEL * min(1.0, len(m.rows) / max(1, len(m.columns)) + 0.05)
    grid = Grid(0.0, 0.0, PANEL, tall, cells, SEQUENTIAL, m.rows[::down], m.columns[::across])
    return f"{head + 1} {follows}", (grid,)
