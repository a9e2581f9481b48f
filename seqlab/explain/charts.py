"""Pictures of numbers: each a pure function from arrays and names to a canvas."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from jaxtyping import Float, Num

from seqlab.explain.axes import SMALL, cell, frame, legend, number, spread
from seqlab.explain.canvas import Anchor, Canvas, Circle, Grid, Group, Item, Polyline, Rect, Text, line
from seqlab.explain.palette import CATEGORICAL, DIVERGING, SEQUENTIAL, TOP, colour_of, ink_on, levels, limits
from seqlab.explain.width import Pixels, cut, text_width, widest

ANCHORS: dict[float, Anchor] = {0.0: "start", 0.5: "middle", 1.0: "end"}
LONGEST = 18  # columns of a label; what is longer is cut
SHADE = 0.22  # how opaque a band is


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of a chart; a value that is NaN is a gap. Without `x`, values stand at 0, 1, 2, ..."""

    label: str
    y: Num[np.ndarray, " N"]
    x: Num[np.ndarray, " N"] | None = None
    colour: str = ""
    dashed: bool = False

    @property
    def places(self) -> Num[np.ndarray, " N"]:
        return np.arange(len(self.y), dtype=float) if self.x is None else self.x


@dataclass(frozen=True, eq=False)
class Band:
    """What lies between two lines."""

    label: str
    low: Num[np.ndarray, " N"]
    high: Num[np.ndarray, " N"]
    x: Num[np.ndarray, " N"] | None = None
    colour: str = CATEGORICAL[0]

    @property
    def places(self) -> Num[np.ndarray, " N"]:
        return np.arange(len(self.low), dtype=float) if self.x is None else self.x


def line_chart(
    lines: Sequence[Curve],
    bands: Sequence[Band] = (),
    *,
    title: str = "",
    titles: tuple[str, str] = ("", ""),
    x_labels: Sequence[str] = (),
    mark: tuple[Pixels, str] | None = None,
    size: tuple[Pixels, Pixels] = (720, 380),
) -> Canvas:
    """Lines over shaded bands. `titles` are those of the axes; `mark` is an x and the name of what begins there."""
    free = iter(CATEGORICAL * len(lines))
    pens = [replace(curve, colour=curve.colour or next(free)) for curve in lines]
    x = np.concatenate([*(curve.places for curve in lines), *(band.places for band in bands)])
    x = x[np.isfinite(x)]
    y = np.concatenate([*(curve.y for curve in lines), *(edge for band in bands for edge in (band.low, band.high))])
    items, top = legend([*map(_stroke, pens), *_shades(bands)], width=size[0])
    x_range = (float(x.min()), float(x.max())) if np.ptp(x) else (float(x[0]) - 0.5, float(x[0]) + 0.5)
    axes, drawn = frame(x_range, spread(y), size=size, top=top, titles=titles, x_labels=x_labels)
    items += drawn
    for band in bands:
        around = np.vstack([axes.points(band.places, band.low), axes.points(band.places, band.high)[::-1]])
        items.append(Polyline(around[np.isfinite(around).all(1)], fill=band.colour, opacity=SHADE, hint=band.label))
    if mark:
        here, late = axes.x(mark[0]), axes.x(mark[0]) > (axes.left + axes.right) / 2
        items.append(line(here, axes.top, here, axes.bottom, "muted", dashed=True))
        items.append(Text(here + (-6 if late else 6), top + 9, mark[1], SMALL, "muted", "end" if late else "start"))
    for curve in pens:
        for part in _unbroken(axes.points(curve.places, curve.y)):
            items.append(Polyline(part, curve.colour, 1.8, dashed=curve.dashed, hint=curve.label))
            items += [Circle(part[0, 0], part[0, 1], 2.5, curve.colour, hint=curve.label)] if len(part) == 1 else []
    return Canvas(*size, tuple(items), title)


def heat_map(
    matrix: Num[np.ndarray, "R C"],
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
    items += scale_of_colours(left, bottom + 16, stops, (low, high))
    width = max(right + (20 if flat else max(20, 0.71 * longest)), left + 190)
    return Canvas(width, bottom + 52, tuple(items), title)


def scatter(
    points: Num[np.ndarray, "N 2"],
    labels: Sequence[str],
    groups: Sequence[str] = (),
    *,
    joined: Sequence[int] = (),
    title: str = "",
    titles: tuple[str, str] = ("", ""),
    size: tuple[Pixels, Pixels] = (720, 520),
) -> Canvas:
    """Named points, coloured by group, some joined. A name stands where it covers least, or under the pointer."""
    kinds = list(dict.fromkeys(groups))
    items, top = legend([(kind, Circle(9, 0, 4.5, _nth(k))) for k, kind in enumerate(kinds)], width=size[0])
    across, up = np.asarray(points, float).T
    axes, drawn = frame(spread(across), spread(up), size=size, top=top, titles=titles)
    items += drawn
    dots = axes.points(across, up)
    items += [Polyline(dots[list(joined)], "muted", dashed=True)] if len(joined) > 1 else []
    taken = np.concatenate([dots - 4, dots + 4], 1)
    for k, (x, y) in enumerate(dots.tolist()):
        items.append(Circle(x, y, 3.5, _nth(kinds.index(groups[k]) if groups else 0), opacity=0.85, hint=labels[k]))
        name = cut(labels[k], LONGEST + 6)
        long = text_width(name, SMALL)
        corners = [(x + 6, y - 6), (x - 6 - long, y - 6), (x - long / 2, y - 18), (x - long / 2, y + 6)]
        boxes = np.array([[left, above, left + long, above + 12] for left, above in corners])
        covered = [_overlap(box, taken) + 1e3 * (box[0] < 4 or box[2] > size[0] - 4) for box in boxes]
        best = int(np.argmin(covered))
        if covered[best] < 0.15 * 12 * long:
            items.append(Text(boxes[best, 0], boxes[best, 1] + 10, name, SMALL))
            taken = np.vstack([taken, boxes[best]])
    return Canvas(*size, tuple(items), title)


def bars(
    values: Num[np.ndarray, " N"], labels: Sequence[str], *, title: str = "", x_title: str = "", width: Pixels = 640
) -> Canvas:
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
        items.append(Rect(min(zero, tip), y + 3, abs(tip - zero), 16, _nth(1 - above), hint=hint))
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


def scale_of_colours(x: Pixels, y: Pixels, stops: tuple[str, ...], reach: tuple[Pixels, Pixels]) -> list[Item]:
    """The colours of a map from its lowest to its highest number, 160 pixels long."""
    items: list[Item] = [Grid(x, y, 160, 8, np.arange(TOP + 1, dtype=np.uint8)[None], stops)]
    for share in (0.0, 0.5, 1.0):
        value = reach[0] + share * (reach[1] - reach[0])
        items.append(Text(x + 160 * share, y + 21, number(value), 10, "muted", ANCHORS[share]))
    return items


def _nth(k: int) -> str:
    return CATEGORICAL[k % len(CATEGORICAL)]


def _stroke(curve: Curve) -> tuple[str, Item]:
    return curve.label, Polyline(np.array([[0.0, 0.0], [18.0, 0.0]]), curve.colour, 1.8, dashed=curve.dashed)


def _shades(bands: Sequence[Band]) -> list[tuple[str, Item]]:
    """Samples of bands that lie upon one another, as those in the chart do."""
    sheets = [Rect(0, -6, 18, 12, band.colour, opacity=SHADE) for band in bands]
    return [(band.label, Group(0, 0, tuple(sheets[: k + 1]))) for k, band in enumerate(bands)]


def _unbroken(points: Float[np.ndarray, "N 2"]) -> list[np.ndarray]:
    """The parts of a line between its gaps."""
    there = np.isfinite(points).all(1)
    parts = np.split(points, np.flatnonzero(np.diff(there)) + 1) if len(points) else []
    return [part for part in parts if np.isfinite(part).all()]


def _overlap(box: Float[np.ndarray, "4"], others: Float[np.ndarray, "N 4"]) -> float:
    """The area that a box shares with others."""
    shared = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    return float(shared.clip(0).prod(1).sum())
