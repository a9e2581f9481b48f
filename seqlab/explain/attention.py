"""Attention: every layer and head, what each head follows, and how source and target are aligned."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from seqlab.bundle import Bundle
from seqlab.errors import UsageError
from seqlab.explain import terminal
from seqlab.explain.canvas import Canvas, Grid, Item, Text
from seqlab.explain.charts import bipartite, heat_map
from seqlab.explain.palette import SEQUENTIAL, levels
from seqlab.explain.view import View
from seqlab.subject import Subject
from seqlab.tasks import subject as subject_of
from seqlab.trace import Trace

FOLLOWED = 0.5  # of a head's weight on one kind of place, for it to be called after that
LARGE = 64  # tokens from which numbers are not written out for every head


@dataclass(frozen=True, eq=False)
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
        shares = {
            "the token before": float(np.diagonal(weights, -1).mean()),
            "the token itself": float(np.diagonal(weights).mean()),
            "the token after": float(np.diagonal(weights, 1).mean()),
            "the first token": float(weights[1:, 0].mean()),
            "the last token": float(weights[:-1, -1].mean()),
        }
        best = max(shares, key=lambda what: shares[what])
        return best if shares[best] >= FOLLOWED else "", shares[best]


def attention_maps(subject: Subject, trace: Trace) -> list[Map]:
    """All attention weights that were recorded, with the tokens on both sides of each."""
    maps = []
    for name in trace.names():
        if name.endswith(".weights"):
            weights = trace[name][0].numpy()
            weights = weights[None] if weights.ndim == 2 else weights
            maps.append(Map(name.removesuffix(".weights"), weights, *_sides(subject, name, weights.shape)))
    if not maps:
        raise UsageError(
            "this model attends to nothing", hint="the view 'cells' shows the states of a recurrent model."
        )
    return maps


def alignment(subject: Subject) -> Float[np.ndarray, "T S"]:
    """Where each token of the answer looked in the source: of many heads, the mean in the last layer."""
    maps = [m for m in attention_maps(subject, subject.trace()) if m.name.endswith((".cross", "decoder.attention"))]
    if not maps or not subject.source:
        raise UsageError(
            "this model does not attend to its source", hint="an alignment needs a decoder with attention."
        )
    return maps[-1].weights.mean(0)


def _sides(subject: Subject, name: str, shape: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if name.startswith("pooling"):
        return tuple(f"hop {hop + 1}" for hop in range(shape[1])), subject.source
    if name.startswith("encoder"):
        return subject.source, subject.source
    if ".cross." in name or name.startswith("decoder.attention"):
        return subject.answered, subject.source
    return subject.written, subject.written


def attention_view(
    bundle: Bundle,
    given: Any,
    *,
    output: str | None = None,
    layer: str | None = None,
    head: int | None = None,
    hypothesis: int = 1,
) -> View:
    """Every layer and head side by side; of one layer (by its name) all heads large, of one head its lines too."""
    subject = subject_of(bundle, given, output=output, hypothesis=hypothesis)
    maps = attention_maps(subject, subject.trace())
    names = [m.name for m in maps]
    if layer is not None and layer not in names:
        raise UsageError(f"there is no layer '{layer}' with attention", hint=f"there are: {', '.join(names)}.")
    maps = [m for m in maps if layer in (None, m.name)]
    heads = [len(m.weights) for m in maps]
    if head is not None and not 1 <= head <= min(heads):
        raise UsageError(f"there is no head {head}", hint=f"heads are 1 to {min(heads)}.")
    last = maps[-1]
    weights = last.weights.mean(0) if head is None else last.weights[head - 1]
    name = f"{last.name}, {'mean of its heads' if head is None and heads[-1] > 1 else f'head {head or 1}'}"
    canvases = [
        heat_map(weights, last.rows, last.columns, title=name, titles=("looks from", "at"), reach=(0.0, 1.0)),
        bipartite(weights, last.rows, last.columns, title=f"{name}: the strongest of its weights"),
    ]
    if head is None and sum(heads) > 1:
        canvases.append(_all_heads(maps))

    def letters(width: int, colour: bool) -> str:
        drawn = terminal.heat_map(weights, last.rows, last.columns, width=width, colour=colour, reach=(0.0, 1.0))
        return "\n".join([f"{name}: a row for each that looks", drawn, *_followed(maps)])

    return View(
        "attention",
        f"attention of {bundle.recipe.name}",
        {"source": subject.source, "written": subject.written, "answered": subject.answered, "maps": _numbers(maps)},
        tuple(canvases),
        letters,
    )


def _numbers(maps: list[Map]) -> list[dict[str, Any]]:
    """All weights of short inputs; of long ones, what each row looks at most and how much."""
    table = []
    for m in maps:
        followed = [m.follows(head) for head in range(len(m.weights))]
        heads = [{"follows": what, "share": share} for what, share in followed]
        row: dict[str, Any] = {"name": m.name, "rows": m.rows, "columns": m.columns, "heads": heads}
        if max(m.weights.shape[1:]) <= LARGE:
            row["weights"] = m.weights
        else:
            row["looks_at"], row["weight"] = m.weights.argmax(-1), m.weights.max(-1)
        table.append(row)
    return table


def _followed(maps: list[Map]) -> list[str]:
    lines = []
    for m in maps:
        for h in range(len(m.weights)):
            what, share = m.follows(h)
            if what:
                lines.append(f"{m.name} head {h + 1} looks at {what}: {100 * share:.0f} % of its weight")
    return lines


def _all_heads(maps: list[Map]) -> Canvas:
    """Small pictures of all heads: a row for each layer, a column for each head."""
    side, gap, left = 132.0, 14.0, 24.0
    items, y, widest = list[Item](), 8.0, 0.0
    for m in maps:
        tall = side * min(1.0, len(m.rows) / max(1, len(m.columns)) + 0.05)
        items.append(Text(left, y + 12, m.name, 11, "muted"))
        for h, weights in enumerate(m.weights):
            x = left + h * (side + gap)
            down, across = (math.ceil(n / side) for n in weights.shape)  # no finer than it is drawn
            cells = levels(terminal.farthest(weights, down, across), 0.0, 1.0)
            names = (m.rows[::down], m.columns[::across])
            items.append(Grid(x, y + 20, side, tall, cells, SEQUENTIAL, *names, (0.0, 1.0)))
            items.append(Text(x, y + 34 + tall, f"{h + 1} {m.follows(h)[0]}", 10, "muted"))
            widest = max(widest, x + side)
        y += tall + 56
    return Canvas(widest + left, y, tuple(items), "all heads")
