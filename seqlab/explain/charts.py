"""Charts: matrices, bars and tables of numbers, and tokens that are joined, coloured or grown into a tree."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from jaxtyping import Num

from seqlab.explain.canvas import Anchor, Canvas, Grid, Item, Matrix, Points, Polyline, Rect, Text, Vector, line
from seqlab.explain.labels import LONGEST, SMALL, Pixels, cell, cut, number, text_width, visible, widest
from seqlab.explain.palette import CATEGORICAL, DIVERGING, SEQUENTIAL, TOP, colour_of, ink_on, levels, limits, nth

ANCHORS: dict[float, Anchor] = {0.0: "start", 0.5: "middle", 1.0: "end"}
STRONG = CATEGORICAL[0]


def heat_map(
    matrix: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    titles: tuple[str, str] = ("", ""),
    diverging: bool = False,
    reach: tuple[Pixels, Pixels] | None = None,
) -> Canvas:
    """A cell for each number, rows downwards. `titles` are those of rows and columns, `reach` ends the colours."""
    stops, (low, high) = (DIVERGING if diverging else SEQUENTIAL), reach or limits(matrix, diverging=diverging)
    side = min(40.0, 640 / max(*matrix.shape, 1))
    tall, wide = (max(side, min(28.0, 200 / max(count, 1))) for count in matrix.shape)
    names, heads = [cut(name, LONGEST) for name in rows], [cut(name, LONGEST) for name in columns]
    longest, flat = widest(heads, SMALL), widest(heads, SMALL) <= wide - 2
    left = 22 + widest(names, SMALL) + (20 if titles[0] else 0)
    top = (28 if flat else 26 + 0.71 * longest) + (20 if titles[1] else 0)
    right, bottom = left + wide * matrix.shape[1], top + tall * matrix.shape[0]
    x, y = (
        corner + (np.arange(n) + 0.5) * size
        for corner, n, size in ((left, matrix.shape[1], wide), (top, len(matrix), tall))
    )
    cells = levels(matrix, low, high)
    items: list[Item] = [Grid(left, top, right - left, bottom - top, cells, stops, rows, columns, (low, high))]
    for name, middle in list(zip(names, y, strict=True))[:: 1 if tall >= 13 else math.ceil(18 / tall)]:
        items.append(Text(left - 8, middle + 4, name, SMALL, anchor="end"))
    lean: tuple[Pixels, Anchor, Pixels] = (0, "middle", 0) if flat else (3, "start", -45)
    for head, middle in list(zip(heads, x, strict=True))[:: 1 if flat or wide >= 15 else math.ceil(22 / wide)]:
        items.append(Text(middle + lean[0], top - 6, head, SMALL, "ink", *lean[1:]))
    for r, c in np.argwhere(np.isfinite(matrix)).tolist() if side >= 30 else []:
        ink = ink_on(colour_of(float(matrix[r, c]), stops, low, high))
        items.append(Text(x[c], y[r] + 3.5, cell(float(matrix[r, c])), 10, ink, "middle"))
    items += [Text(18, (top + bottom) / 2, titles[0], 12, "muted", "middle", -90)] if titles[0] else []
    items += [Text(left, 20, titles[1], 12, "muted")] if titles[1] else []
    items += _scale_of_colours(left, bottom + 16, stops, (low, high))
    width = max(right + (20 if flat else max(20, 0.71 * longest)), left + 190)
    return Canvas(width, bottom + 52, tuple(items), title)


def bars(values: Vector, labels: Sequence[str], *, title: str = "", x_title: str = "", width: Pixels = 640) -> Canvas:
    """A bar for each number, to the right of zero or, in another colour, to the left, with the number at its end."""
    names = [cut(name, 2 * LONGEST) for name in labels]
    left = 28 + widest(names, 12)
    low, high = min(0.0, float(np.nanmin(values, initial=0))), max(0.0, float(np.nanmax(values, initial=0)))
    room = 52 if low < 0 else 0
    unit = (width - left - 64 - room) / ((high - low) or 1.0)
    zero, bottom = left + room - low * unit, 12.0 + 24 * len(names)
    items: list[Item] = [line(zero, 8, zero, bottom, "edge")]
    for k, (name, value) in enumerate(zip(names, values.tolist(), strict=True)):
        y, tip = 12.0 + 24 * k, zero + np.nan_to_num(value) * unit
        above, hint = value >= 0, f"{name}: {number(value)}"
        items.append(Rect(min(zero, tip), y + 3, abs(tip - zero), 16, nth(1 - above), hint=hint))
        items.append(Text(left - 10, y + 15, name, anchor="end"))
        side: tuple[Pixels, Anchor] = (6, "start") if above else (-6, "end")
        items.append(Text(tip + side[0], y + 15, number(value), SMALL, "muted", side[1]))
    items += [Text((left + width) / 2, bottom + 22, x_title, anchor="middle")] if x_title else []
    return Canvas(width, bottom + (36 if x_title else 12), tuple(items), title)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> Canvas:
    """Words and figures in columns: the first begins at the left, the others end at the right."""
    columns = list(zip(header, *rows, strict=True))
    ends = np.cumsum([widest(column, 12) + 24 for column in columns]).tolist()
    items: list[Item] = []
    for k, row in enumerate([header, *rows]):
        for place, (end, words) in enumerate(zip(ends, row, strict=True)):
            x, anchor = (end, "end") if place else (4.0, "start")
            items.append(Text(x, 20 + 22 * k, words, 12, "ink" if k else "muted", cast(Anchor, anchor)))
    items.append(line(0, 28, ends[-1] + 4, 28))
    return Canvas(ends[-1] + 8, 22 * len(rows) + 34, tuple(items), title)


def bipartite(
    weights: Num[np.ndarray, "L R"], left: Sequence[str], right: Sequence[str], *, title: str = "", most: int = 300
) -> Canvas:
    """Two columns of tokens, and the `most` largest of the weights between them as lines, the larger the darker."""
    longer = max(len(left), len(right), 1)
    pitch = min(22.0, max(11.0, 700 / longer))
    size, top = min(12.0, pitch * 0.85), 16.0
    start = 28 + widest([cut(name, LONGEST) for name in left], size)
    end = start + 260
    y = [top + (np.arange(n) + 0.5 + (longer - n) / 2) * pitch for n in (len(left), len(right))]
    calm = min(1.0, (80 / longer) ** 0.5)  # among many tokens lines are thinner and paler
    items: list[Item] = []
    shares = np.nan_to_num(weights) / max(float(np.nan_to_num(weights).max(initial=0)), 1e-12)
    for place in np.argsort(shares, axis=None, kind="stable")[-most:].tolist():
        i, j = divmod(place, len(right))
        share, curve = float(shares[i, j]), _swing(start, y[0][i], end, y[1][j])
        if share > 0.01:
            hint = f"{visible(left[i])} → {visible(right[j])}: {number(float(weights[i, j]))}"
            thick, pale, tags = calm * (0.8 + 2.2 * share), calm * (0.06 + 0.84 * share), (f"left{i}", f"right{j}")
            items.append(Polyline(curve, STRONG, thick, opacity=pale, hint=hint, tags=tags))
    items += _column(left, start - 8, y[0], size, "end", "left")
    items += _column(right, end + 8, y[1], size, "start", "right")
    width = end + 28 + widest([cut(name, LONGEST) for name in right], size)
    return Canvas(width, top + longer * pitch + 16, tuple(items), title)


def coloured_text(tokens: Sequence[str], values: Vector, *, title: str = "", width: Pixels = 720) -> Canvas:
    """Running text, each token on the colour of its number; one below zero is underlined too, for print in grey."""
    reach = limits(values, diverging=True)
    items: list[Item] = []
    x, y, size = 24.0, 16.0, 14.0
    for token, value in zip(tokens, values.tolist(), strict=True):
        shown = cut(token.strip("\n") or token, 80) if token.strip(" ") else token
        long = text_width(shown, size, monospace=True) + 2
        if x > 24 and x + long > width - 24:
            x, y = 24.0, y + 28
        fill = colour_of(value, DIVERGING, *reach)
        items.append(Rect(x, y, long - 1, 23, fill, radius=3, hint=f"{visible(token)}: {number(value)}"))
        items.append(Text(x + 0.5, y + 16, shown if shown.strip(" ") else "", size, ink_on(fill), monospace=True))
        items += [Rect(x, y + 22, long - 1, 1, ink_on(fill), opacity=0.6)] if value < 0 else []
        x, y = (24.0, y + 28) if token.endswith("\n") else (x + long, y)
    items += _scale_of_colours(24, y + 40, DIVERGING, reach)
    return Canvas(width, y + 76, tuple(items), title)


@dataclass(frozen=True)
class Node:
    """A token of a search, and what it was reached from: an earlier place in the list, or None at the root."""

    text: str
    score: float | None = None
    parent: int | None = None
    pruned: bool = False
    best: bool = False


def tree(nodes: Sequence[Node], *, title: str = "") -> Canvas:
    """A search from left to right: what was given up is pale, the best path strong."""
    depth, y = _places(nodes)
    texts = [cut(node.text, LONGEST) for node in nodes]
    scores = ["" if node.score is None else number(round(node.score, 2) + 0.0) for node in nodes]
    long = [16 + text_width(t, 12) + (6 + text_width(s, 10) if s else 0) for t, s in zip(texts, scores, strict=True)]
    rooms = [max(long[k] for k in range(len(nodes)) if depth[k] == d) for d in range(max(depth, default=-1) + 1)]
    x = [24 + sum(rooms[:d]) + 44 * d for d in depth]
    edges, boxes = list[Item](), list[Item]()
    for k, node in enumerate(nodes):
        pale = 0.55 if node.pruned else 1.0
        if node.parent is not None:
            curve = _swing(x[node.parent] + long[node.parent], y[node.parent], x[k], y[k])
            strong = node.best and nodes[node.parent].best
            edges.append(Polyline(curve, STRONG if strong else "edge", 2.2 if strong else 1.2, opacity=pale))
        fill, ink, faint = (STRONG, "#ffffff", "#ffffff") if node.best else ("paper", "ink", "muted")
        boxes.append(Rect(x[k], y[k] - 11, long[k], 22, fill, STRONG if node.best else "edge", 6, opacity=pale))
        boxes.append(Text(x[k] + 8, y[k] + 4, texts[k], 12, "muted" if node.pruned else ink, opacity=pale))
        boxes.append(Text(x[k] + long[k] - 7, y[k] + 4, scores[k], 10, faint, "end", opacity=pale))
    return Canvas(48 + sum(rooms) + 44 * max(len(rooms) - 1, 0), max(y, default=0) + 30, (*edges, *boxes), title)


def _scale_of_colours(x: Pixels, y: Pixels, stops: tuple[str, ...], reach: tuple[Pixels, Pixels]) -> list[Item]:
    """The colours of a map from its lowest to its highest number, 160 pixels long."""
    items: list[Item] = [Grid(x, y, 160, 8, np.arange(TOP + 1, dtype=np.uint8)[None], stops)]
    for share in (0.0, 0.5, 1.0):
        value = reach[0] + share * (reach[1] - reach[0])
        items.append(Text(x + 160 * share, y + 21, number(value), 10, "muted", ANCHORS[share]))
    return items


def _places(nodes: Sequence[Node]) -> tuple[list[int], list[float]]:
    """The depth of each node, and its height: leaves one below another, a parent midway between its children."""
    children: list[list[int]] = [[] for _ in nodes]
    depth: list[int] = []
    for k, node in enumerate(nodes):
        depth.append(0 if node.parent is None else depth[node.parent] + 1)
        if node.parent is not None:
            children[node.parent].append(k)
    y, leaves = [0.0] * len(nodes), 0
    waiting = [(k, False) for k, node in reversed(list(enumerate(nodes))) if node.parent is None]
    while waiting:
        k, grown = waiting.pop()
        if grown:
            y[k] = (y[children[k][0]] + y[children[k][-1]]) / 2
        elif children[k]:
            waiting += [(k, True), *((child, False) for child in reversed(children[k]))]
        else:
            y[k] = 28.0 + 28 * leaves
            leaves += 1
    return depth, y


def _column(tokens: Sequence[str], x: Pixels, y: Vector, size: Pixels, anchor: Anchor, side: str) -> list[Item]:
    return [
        Text(x, middle + 0.35 * size, cut(token, LONGEST), size, anchor=anchor, tags=(f"{side}{k}",))
        for k, (token, middle) in enumerate(zip(tokens, y.tolist(), strict=True))
    ]


def _swing(x1: Pixels, y1: Pixels, x2: Pixels, y2: Pixels) -> Points:
    """A curve that leaves and arrives level, with more points where it bends."""
    share = (1 - np.cos(np.linspace(0, np.pi, 25))) / 2
    return np.stack([x1 + (x2 - x1) * share, y1 + (y2 - y1) * share**2 * (3 - 2 * share)], 1)
