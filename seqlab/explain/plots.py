"""Line plots and scatter plots with axes, round ticks, titles and a legend; line plots also as text."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int
from rich.cells import cell_len

from seqlab.explain.canvas import Canvas, Circle, Item, Points, Polyline, Text, Vector, line
from seqlab.explain.figure_text import (
    LABEL_SIZE,
    MAX_LABEL,
    Pixels,
    Range,
    cut,
    max_text_width,
    number,
    pad_to_width,
    text_width,
)
from seqlab.explain.palette import CATEGORICAL, ansi_coloured, category_colour

BAND_OPACITY = 0.22
MARKERS = "•x+o*#"
BRAILLE = 0x2800  # the braille character without dots
DOT_BITS = np.array(
    [[1, 8], [2, 16], [4, 32], [64, 128]]
)  # of a braille character, by row and column
LABEL_STEPS = (1, 2, 5, 7, 10, 12, 20, 24, 30, 50, 100, 200, 365, 500)  # between labels of times


@dataclass(frozen=True)
class Curve:
    """A line of a chart. NaN is a gap; without `x`, the values are at 0, 1, 2, ..."""

    label: str
    y: Vector
    x: Vector | None = None
    colour: str = ""
    dashed: bool = False

    @property
    def positions(self) -> Vector:
        return np.arange(len(self.y), dtype=float) if self.x is None else self.x


@dataclass(frozen=True)
class Band:
    """The area between two lines."""

    label: str
    low: Vector
    high: Vector
    x: Vector | None = None
    colour: str = CATEGORICAL[0]

    @property
    def edges(self) -> tuple[Curve, Curve]:
        return Curve(self.label, self.low, self.x), Curve(self.label, self.high, self.x)


@dataclass(frozen=True)
class Lines:
    """Lines over shaded bands. `titles` are those of the axes; `mark` is an x with its label, for a vertical line."""

    curves: Sequence[Curve]
    bands: Sequence[Band] = ()
    title: str = ""
    titles: tuple[str, str] = ("", "")
    x_labels: Sequence[str] = ()
    mark: tuple[Pixels, str] | None = None
    size: tuple[Pixels, Pixels] = (720, 380)

    def draw(self) -> Canvas:
        """Draw the plot; lines without a colour get the next one of the palette."""
        palette = itertools.cycle(CATEGORICAL)
        curves = [replace(curve, colour=curve.colour or next(palette)) for curve in self.curves]
        all_curves = [*curves, *(edge for band in self.bands for edge in band.edges)]
        samples = [("--" if curve.dashed else "—", curve.label, curve.colour) for curve in curves]
        samples += [("■", band.label, band.colour) for band in self.bands]
        x_range = value_range(np.concatenate([curve.positions for curve in all_curves]), room=0)
        y_range = value_range(np.concatenate([curve.y for curve in all_curves]))
        at, items = axes(
            x_range, y_range, self.titles, samples, size=self.size, x_labels=self.x_labels
        )
        for band in self.bands:
            low, high = (at(edge.positions, edge.y) for edge in band.edges)
            outline = np.vstack([low, high[::-1]])
            outline = outline[np.isfinite(outline).all(1)]
            items.append(Polyline(outline, fill=band.colour, opacity=BAND_OPACITY, hint=band.label))
        if self.mark:
            (x, bottom), (_, top) = at(np.array([self.mark[0]] * 2), np.array(y_range)).tolist()
            offset, anchor = (-6, "end") if x > self.size[0] / 2 else (6, "start")
            items.append(line(x, top, x, bottom, "muted", dashed=True))
            items.append(Text(x + offset, top + 9, self.mark[1], LABEL_SIZE, "muted", anchor))
        for curve in curves:
            for part in _segments(at(curve.positions, curve.y)):
                items.append(
                    Polyline(part, curve.colour, 1.8, dashed=curve.dashed, hint=curve.label)
                )
                if len(part) == 1:
                    items.append(
                        Circle(part[0, 0], part[0, 1], 2.5, curve.colour, hint=curve.label)
                    )
        return Canvas(*self.size, items, self.title)

    def as_text(self, width: int = 80, colour: bool = False, *, height: int = 15) -> str:
        """Draw the lines, without bands, as braille dots; several lines without colour have a marker each."""
        x = np.concatenate([curve.positions for curve in self.curves])
        y = np.concatenate([curve.y for curve in self.curves])
        low, high = value_range(y)
        y_labels = {0: number(high), height // 2: number((low + high) / 2), height - 1: number(low)}
        margin = max(map(cell_len, y_labels.values()))
        wide = max(8, width - margin - 2)
        several = len(self.curves) > 1
        plot = [[" "] * wide for _ in range(height)]
        for k, curve in enumerate(self.curves):
            braille = _braille(curve, (float(x.min()), float(x.max())), (low, high), wide, height)
            for row, column in np.argwhere(braille > BRAILLE).tolist():
                character = chr(braille[row, column])
                if colour:
                    character = ansi_coloured(character, category_colour(k))
                elif several:
                    character = MARKERS[k % len(MARKERS)]
                plot[row][column] = character
        lines = [
            f"{y_labels.get(r, ''):>{margin}} ┤{''.join(row)}".rstrip()
            for r, row in enumerate(plot)
        ]
        left, right = (
            cut(self.x_labels[int(end)], wide // 2 - 1) if self.x_labels else number(float(end))
            for end in (x.min(), x.max())
        )
        indent = " " * (margin + 2)
        lines.append(indent + left + pad_to_width(right, wide - cell_len(left), right=True))
        for k, curve in enumerate(self.curves if several else []):
            marker = MARKERS[k % len(MARKERS)]
            if colour:
                marker = ansi_coloured("━", category_colour(k))
            lines.append(f"{indent}{marker} {cut(curve.label, wide - 2)}")
        return "\n".join(lines)


def scatter(
    points: Points,
    labels: Sequence[str],
    groups: Sequence[str] = (),
    *,
    joined: Sequence[int] = (),
    title: str = "",
    titles: tuple[str, str] = ("", ""),
    size: tuple[Pixels, Pixels] = (720, 520),
) -> Canvas:
    """Draw points, coloured by group; `joined` are the indices of points on a line.

    A label is placed where it overlaps least with others; if there is no such place, it is only shown on hover.
    """
    kinds = list(dict.fromkeys(groups))
    samples = [("●", kind, category_colour(k)) for k, kind in enumerate(kinds)]
    x_values, y_values = np.asarray(points, float).T
    at, items = axes(value_range(x_values), value_range(y_values), titles, samples, size=size)
    dots = at(x_values, y_values)
    if len(joined) > 1:
        items.append(Polyline(dots[list(joined)], "muted", dashed=True))
    occupied = np.concatenate([dots - 4, dots + 4], 1)
    for k, (x, y) in enumerate(dots.tolist()):
        fill = category_colour(kinds.index(groups[k]) if groups else 0)
        items.append(Circle(x, y, 3.5, fill, opacity=0.85, hint=labels[k]))
        name = cut(labels[k], MAX_LABEL + 6)
        width = text_width(name, LABEL_SIZE)
        corners = [
            (x + 6, y - 6),
            (x - 6 - width, y - 6),
            (x - width / 2, y - 18),
            (x - width / 2, y + 6),
        ]
        boxes = np.hstack([corners, np.add(corners, [width, 12])])
        ends = np.minimum(boxes[:, None, 2:], occupied[:, 2:])
        begins = np.maximum(boxes[:, None, :2], occupied[:, :2])
        outside = (boxes[:, 0] < 4) | (boxes[:, 2] > size[0] - 4)
        overlaps = (ends - begins).clip(0).prod(-1).sum(-1) + 1e3 * outside
        best = boxes[overlaps.argmin()]
        if overlaps.min() < 0.15 * 12 * width:
            items.append(Text(best[0], best[1] + 10, name, LABEL_SIZE))
            occupied = np.vstack([occupied, best])
    return Canvas(*size, items, title)


def axes(
    x_range: Range,
    y_range: Range,
    titles: tuple[str, str],
    samples: Iterable[tuple[str, str, str]],
    *,
    size: tuple[Pixels, Pixels],
    x_labels: Sequence[str] = (),
) -> tuple[Callable[[Vector, Vector], Points], list[Item]]:
    """Return a function from numbers to pixels, and the items of the legend, the axes, their labels and titles.

    `samples` are the symbols of the legend, each with its name and colour. `x_labels` are names for x = 0, 1, 2, ...;
    they are thinned until they do not overlap.
    """
    items, top = _legend(samples, size[0])
    rules = tick_labels(ticks(*y_range))
    left = 38 + max_text_width((name for _, name in rules), LABEL_SIZE)
    right = size[0] - 24
    bottom = size[1] - 48

    def at(x: Vector, y: Vector) -> Points:
        return np.stack(
            [np.interp(x, x_range, (left, right)), np.interp(y, y_range, (bottom, top))], 1
        )

    items += [
        line(left, bottom, right, bottom, "edge"),
        Text((left + right) / 2, bottom + 38, titles[0], 12, anchor="middle"),
        Text(18, (top + bottom) / 2, titles[1], 12, anchor="middle", rotation=-90),
    ]
    for tick, name in rules:
        y = np.interp(tick, y_range, (bottom, top))
        items += [line(left, y, right, y), Text(left - 8, y + 4, name, LABEL_SIZE, "muted", "end")]
    x_ticks = tick_labels(ticks(*x_range, most=max(2, int((right - left) / 70))))
    if x_labels:
        label_width = max_text_width(x_labels, LABEL_SIZE) + 16
        min_step = math.ceil(label_width * (x_range[1] - x_range[0]) / (right - left))
        step = next(step for step in (*LABEL_STEPS, min_step) if step >= min_step)
        shown = [k for k in range(0, len(x_labels), step) if x_range[0] <= k <= x_range[1]]
        x_ticks = [(k, x_labels[k]) for k in shown]
    for tick, name in x_ticks:
        x = np.interp(tick, x_range, (left, right))
        items += [
            line(x, bottom, x, bottom + 4, "edge"),
            Text(x, bottom + 17, name, LABEL_SIZE, "muted", "middle"),
        ]
    return at, items


def _legend(samples: Iterable[tuple[str, str, str]], width: Pixels) -> tuple[list[Item], float]:
    """Return the symbols of a legend with their names, in rows from the top left, and the height of the legend."""
    x = 24.0
    y = 24.0
    items: list[Item] = []
    for symbol, name, colour in samples:
        if name:
            entry_width = 18 + text_width(name, LABEL_SIZE)
            if x > 24 and x + entry_width > width - 24:
                x = 24.0
                y = y + 20
            items += [Text(x, y, symbol, 14, colour, bold=True), Text(x + 18, y, name, LABEL_SIZE)]
            x += entry_width + 18
    return items, y + 12 if items else 16.0


def ticks(low: Pixels, high: Pixels, *, most: int = 6) -> list[float]:
    """Return at most `most` round numbers within the range, in steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 5, 10, 20):
        step = power * factor
        multiples = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        if len(multiples) <= most:
            break
    return [round(step * k, 12) for k in multiples]


def tick_labels(values: list[float]) -> list[tuple[float, str]]:
    """Return ticks with their labels, all with the decimals that the step needs."""
    if len(values) < 2 or max(map(abs, values)) >= 1e7:
        return [(value, number(value)) for value in values]
    decimals = max(0, -math.floor(math.log10(values[1] - values[0]) + 1e-9))
    return [(value, f"{value:,.{decimals}f}".replace("-", "−")) for value in values]


def value_range(values: Vector, *, room: Pixels = 0.05) -> Range:
    """Return the range of the finite values with a margin, `room`, as a share of it."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = room * (high - low) if high > low else 0.5 * abs(high) or 0.5
    return low - room, high + room


def _segments(points: Points) -> list[np.ndarray]:
    """Return the parts of a line between its gaps."""
    finite = np.isfinite(points).all(1)
    parts = np.split(points, np.flatnonzero(np.diff(finite)) + 1) if len(points) else []
    return [part for part in parts if np.isfinite(part).all()]


def _braille(
    curve: Curve, x_range: Range, y_range: Range, wide: int, height: int
) -> Int[np.ndarray, "H W"]:
    """Return a line as braille characters, each with 4 x 2 dots."""
    x = np.linspace(*x_range, 2 * wide)
    y = np.interp(x, curve.positions, curve.y, left=np.nan, right=np.nan)
    rows = (y_range[1] - y) / (y_range[1] - y_range[0]) * (4 * height - 1)
    previous = np.append(np.nan, rows[:-1])
    previous = np.where(np.isnan(previous), rows, previous)
    top = np.minimum(rows, previous).round()
    bottom = np.maximum(rows, previous).round()
    row = np.arange(4 * height)[:, None]
    dots = ((row >= top) & (row <= bottom)).reshape(height, 4, wide, 2)
    return BRAILLE + (dots * DOT_BITS[:, None]).sum((1, 3))
