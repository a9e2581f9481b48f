"""Plots: lines and points in a frame with round ticks, titles and a legend; lines also in letters."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from rich.cells import cell_len

from seqlab.explain.canvas import Anchor, Canvas, Circle, Group, Item, Points, Polyline, Rect, Text, Vector, line
from seqlab.explain.labels import LONGEST, SMALL, Pixels, Range, cut, fitted, number, text_width, widest
from seqlab.explain.palette import CATEGORICAL, nth, painted

SHADE = 0.22  # how opaque a band is
MARKS = "•x+o*#"
EMPTY = 0x2800  # the braille letter without dots
DOTS = np.array([[1, 8], [2, 16], [4, 32], [64, 128]])  # the bits of a braille letter, where its dots stand
STEPS = (1, 2, 5, 7, 10, 12, 20, 24, 30, 50, 100, 200, 365, 500)  # between labels of times


@dataclass(frozen=True)
class Curve:
    """A line of a chart; a value that is NaN is a gap. Without `x`, values stand at 0, 1, 2, ..."""

    label: str
    y: Vector
    x: Vector | None = None
    colour: str = ""
    dashed: bool = False

    @property
    def places(self) -> Vector:
        return np.arange(len(self.y), dtype=float) if self.x is None else self.x


@dataclass(frozen=True)
class Band:
    """What lies between two lines."""

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
    """Lines over shaded bands. `titles` are those of the axes; `mark` is an x and the name of what begins there."""

    curves: Sequence[Curve]
    bands: Sequence[Band] = ()
    title: str = ""
    titles: tuple[str, str] = ("", "")
    x_labels: Sequence[str] = ()
    mark: tuple[Pixels, str] | None = None
    size: tuple[Pixels, Pixels] = (720, 380)

    def draw(self) -> Canvas:
        """Lines that have no colour get the next one of the palette."""
        free = itertools.cycle(CATEGORICAL)
        pens = [replace(curve, colour=curve.colour or next(free)) for curve in self.curves]
        everything = [*pens, *(edge for band in self.bands for edge in band.edges)]
        x = np.concatenate([curve.places for curve in everything])
        x = x[np.isfinite(x)]
        x_range = (float(x.min()), float(x.max())) if np.ptp(x) else (float(x[0]) - 0.5, float(x[0]) + 0.5)
        y_range = spread(np.concatenate([curve.y for curve in everything]))
        items, top = legend(self._samples(pens), width=self.size[0])
        axes = make_axes(x_range, y_range, size=self.size, top=top, titles=self.titles)
        items += axes.frame(self.x_labels)
        for band in self.bands:
            low, high = (axes.points(edge.places, edge.y) for edge in band.edges)
            around = np.vstack([low, high[::-1]])
            items.append(Polyline(around[np.isfinite(around).all(1)], fill=band.colour, opacity=SHADE, hint=band.label))
        if self.mark:
            here = axes.x(self.mark[0])
            late = here > (axes.left + axes.right) / 2
            items.append(line(here, axes.top, here, axes.bottom, "muted", dashed=True))
            aside: tuple[Pixels, Anchor] = (-6, "end") if late else (6, "start")
            items.append(Text(here + aside[0], top + 9, self.mark[1], SMALL, "muted", aside[1]))
        for curve in pens:
            for part in _unbroken(axes.points(curve.places, curve.y)):
                items.append(Polyline(part, curve.colour, 1.8, dashed=curve.dashed, hint=curve.label))
                if len(part) == 1:
                    items.append(Circle(part[0, 0], part[0, 1], 2.5, curve.colour, hint=curve.label))
        return Canvas(*self.size, items, self.title)

    def _samples(self, pens: Sequence[Curve]) -> Iterator[tuple[str, Item]]:
        """What stands in the legend for each line and band."""
        for curve in pens:
            stroke = np.array([[0.0, 0.0], [18.0, 0.0]])
            yield curve.label, Polyline(stroke, curve.colour, 1.8, dashed=curve.dashed)
        for band in self.bands:
            yield band.label, Rect(0, -6, 18, 12, band.colour, opacity=SHADE)

    def letters(self, width: int = 80, colour: bool = False, *, height: int = 15) -> str:
        """Lines in braille dots, without bands; several without colour in letters of their own."""
        x, y = (np.concatenate(parts) for parts in ([c.places for c in self.curves], [c.y for c in self.curves]))
        low, high = spread(y)
        sides = {0: number(high), height // 2: number((low + high) / 2), height - 1: number(low)}
        margin = max(map(cell_len, sides.values()))
        wide = max(8, width - margin - 2)
        several = len(self.curves) > 1
        plot = [[" "] * wide for _ in range(height)]
        for k, curve in enumerate(self.curves):
            braille = _braille(curve, (float(x.min()), float(x.max())), (low, high), wide, height)
            for row, column in np.argwhere(braille > EMPTY).tolist():
                sign = chr(braille[row, column]) if colour or not several else MARKS[k % len(MARKS)]
                plot[row][column] = painted(sign, nth(k)) if colour else sign
        lines = [f"{sides.get(r, ''):>{margin}} ┤{''.join(row)}".rstrip() for r, row in enumerate(plot)]
        left, right = (
            cut(self.x_labels[int(end)], wide // 2 - 1) if self.x_labels else number(float(end))
            for end in (x.min(), x.max())
        )
        indent = " " * (margin + 2)
        lines.append(indent + left + fitted(right, wide - cell_len(left), right=True))
        for k, curve in enumerate(self.curves if several else []):
            sign = painted("━", nth(k)) if colour else MARKS[k % len(MARKS)]
            lines.append(f"{indent}{sign} {cut(curve.label, wide - 2)}")
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
    """Named points, coloured by group, some joined. A name stands where it covers least, or under the pointer."""
    kinds = list(dict.fromkeys(groups))
    items, top = legend([(kind, Circle(9, 0, 4.5, nth(k))) for k, kind in enumerate(kinds)], width=size[0])
    across, up = np.asarray(points, float).T
    axes = make_axes(spread(across), spread(up), size=size, top=top, titles=titles)
    items += axes.frame()
    dots = axes.points(across, up)
    if len(joined) > 1:
        items.append(Polyline(dots[list(joined)], "muted", dashed=True))
    taken = np.concatenate([dots - 4, dots + 4], 1)
    for k, (x, y) in enumerate(dots.tolist()):
        fill = nth(kinds.index(groups[k]) if groups else 0)
        items.append(Circle(x, y, 3.5, fill, opacity=0.85, hint=labels[k]))
        name = cut(labels[k], LONGEST + 6)
        long = text_width(name, SMALL)
        corners = [(x + 6, y - 6), (x - 6 - long, y - 6), (x - long / 2, y - 18), (x - long / 2, y + 6)]
        boxes = np.hstack([corners, np.add(corners, [long, 12])])
        overlaps = [_overlap(box, taken) + 1e3 * (box[0] < 4 or box[2] > size[0] - 4) for box in boxes]
        best = boxes[np.argmin(overlaps)]
        if min(overlaps) < 0.15 * 12 * long:
            items.append(Text(best[0], best[1] + 10, name, SMALL))
            taken = np.vstack([taken, best])
    return Canvas(*size, items, title)


@dataclass(frozen=True)
class Axes:
    """A rectangle in pixels, the numbers at its sides, and its titles."""

    left: Pixels
    top: Pixels
    right: Pixels
    bottom: Pixels
    x_range: Range
    y_range: Range
    titles: tuple[str, str]

    def points(self, x: Vector, y: Vector) -> Points:
        """Where numbers fall, in pixels."""
        return np.stack([self.x(x), self.y(y)], 1)

    def x(self, value: Any) -> Any:
        """The pixel of a number, or of each in an array."""
        return _between(value, self.x_range, self.left, self.right)

    def y(self, value: Any) -> Any:
        return _between(value, self.y_range, self.bottom, self.top)

    def frame(self, x_labels: Sequence[str] = ()) -> Iterator[Item]:
        """Axes with horizontal rules. `x_labels` are names for x = 0, 1, 2, ..., as many as have room."""
        for tick, name in named(ticks(*self.y_range)):
            yield line(self.left, self.y(tick), self.right, self.y(tick))
            yield Text(self.left - 8, self.y(tick) + 4, name, SMALL, "muted", "end")
        for tick, name in self._x_ticks(x_labels):
            yield line(self.x(tick), self.bottom, self.x(tick), self.bottom + 4, "edge")
            yield Text(self.x(tick), self.bottom + 17, name, SMALL, "muted", "middle")
        yield line(self.left, self.bottom, self.right, self.bottom, "edge")
        if self.titles[0]:
            yield Text((self.left + self.right) / 2, self.bottom + 38, self.titles[0], 12, "ink", "middle")
        if self.titles[1]:
            yield Text(18, (self.top + self.bottom) / 2, self.titles[1], 12, "ink", "middle", -90)

    def _x_ticks(self, labels: Sequence[str]) -> list[tuple[float, str]]:
        low, high = self.x_range
        if not labels:
            return named(ticks(low, high, most=max(2, int((self.right - self.left) / 70))))
        needed = math.ceil((widest(labels, SMALL) + 16) / max(self.x(1) - self.x(0), 1e-9))
        step = next(step for step in (*STEPS, needed) if step >= needed)
        return [(float(k), labels[k]) for k in range(0, len(labels), step) if low <= k <= high]


def _between(value: Any, limits: Range, start: Pixels, end: Pixels) -> Any:
    low, high = limits
    return start + (value - low) / (high - low) * (end - start)


def make_axes(
    x_range: Range, y_range: Range, *, size: tuple[Pixels, Pixels], top: Pixels, titles: tuple[str, str]
) -> Axes:
    """Axes that leave room for their labels and titles."""
    names = (name for _, name in named(ticks(*y_range)))
    left = 18 + widest(names, SMALL) + (20 if titles[1] else 0)
    return Axes(left, top, size[0] - 24, size[1] - (48 if titles[0] else 28), x_range, y_range, titles)


def legend(entries: Iterable[tuple[str, Item]], *, width: Pixels) -> tuple[list[Item], float]:
    """Samples 18 pixels wide around (9, 0), each with its name, in rows from the top left; and how high that is."""
    x = 24.0
    y = 20.0
    items: list[Item] = []
    for name, sample in entries:
        if name:
            needed = 24 + text_width(name, SMALL)
            if x > 24 and x + needed > width - 24:
                x = 24.0
                y = y + 20
            items += [Group(x, y, (sample,)), Text(x + 24, y + 4, name, SMALL)]
            x += needed + 18
    return items, y + 16 if items else 16.0


def ticks(low: Pixels, high: Pixels, *, most: int = 6) -> list[float]:
    """At most so many round numbers within the range, in steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for times in (1, 2, 5, 10, 20):
        step = power * times
        places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        if len(places) <= most:
            break
    return [round(step * k, 12) for k in places]


def named(places: list[float]) -> list[tuple[float, str]]:
    """Ticks with their names, all with the decimals that their step needs."""
    if len(places) < 2 or max(map(abs, places)) >= 1e7:
        return [(place, number(place)) for place in places]
    decimals = max(0, -math.floor(math.log10(places[1] - places[0]) + 1e-9))
    return [(place, f"{place:,.{decimals}f}".replace("-", "−")) for place in places]


def spread(values: Vector) -> Range:
    """The range of the values that are there, with a little room."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = 0.05 * (high - low) or 0.5 * abs(high) or 0.5
    return low - room, high + room


def _unbroken(points: Points) -> list[np.ndarray]:
    """The parts of a line between its gaps."""
    there = np.isfinite(points).all(1)
    parts = np.split(points, np.flatnonzero(np.diff(there)) + 1) if len(points) else []
    return [part for part in parts if np.isfinite(part).all()]


def _overlap(box: Float[np.ndarray, "4"], others: Float[np.ndarray, "N 4"]) -> float:
    """The area that a box shares with others."""
    shared = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    return float(shared.clip(0).prod(1).sum())


def _braille(curve: Curve, x_range: Range, y_range: Range, wide: int, height: int) -> Int[np.ndarray, "H W"]:
    """A line in letters of 4 x 2 dots."""
    y = np.interp(np.linspace(*x_range, 2 * wide), curve.places, curve.y, left=np.nan, right=np.nan)
    rows = (y_range[1] - y) / (y_range[1] - y_range[0]) * (4 * height - 1)
    before = np.append(np.nan, rows[:-1])
    before = np.where(np.isnan(before), rows, before)
    top = np.minimum(rows, before).round()
    bottom = np.maximum(rows, before).round()
    place = np.arange(4 * height)[:, None]
    dots = ((place >= top) & (place <= bottom)).reshape(height, 4, wide, 2)
    return EMPTY + (dots * DOTS[:, None]).sum((1, 3))
