"""Plots: lines and points in a frame with round ticks, titles and a legend; lines also in letters."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int
from rich.cells import cell_len

from seqlab.explain.canvas import Canvas, Circle, Item, Points, Polyline, Text, Vector, line
from seqlab.explain.figure_text import (
    LONGEST,
    SMALL,
    Pixels,
    Range,
    cut,
    fitted,
    number,
    text_width,
    widest,
)
from seqlab.explain.palette import CATEGORICAL, nth, painted

SHADE = 0.22  # how opaque a band is
MARKS = "•x+o*#"
EMPTY = 0x2800  # the braille letter without dots
DOTS = np.array(
    [[1, 8], [2, 16], [4, 32], [64, 128]]
)  # the bits of a braille letter, where its dots stand
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
        samples = [("--" if curve.dashed else "—", curve.label, curve.colour) for curve in pens]
        samples += [("■", band.label, band.colour) for band in self.bands]
        x_range = spread(np.concatenate([curve.places for curve in everything]), room=0)
        y_range = spread(np.concatenate([curve.y for curve in everything]))
        at, items = axes(
            x_range, y_range, self.titles, samples, size=self.size, x_labels=self.x_labels
        )
        for band in self.bands:
            low, high = (at(edge.places, edge.y) for edge in band.edges)
            around = np.vstack([low, high[::-1]])
            items.append(
                Polyline(
                    around[np.isfinite(around).all(1)],
                    fill=band.colour,
                    opacity=SHADE,
                    hint=band.label,
                )
            )
        if self.mark:
            (x, bottom), (_, top) = at(np.array([self.mark[0]] * 2), np.array(y_range)).tolist()
            aside, anchor = (-6, "end") if x > self.size[0] / 2 else (6, "start")
            items.append(line(x, top, x, bottom, "muted", dashed=True))
            items.append(Text(x + aside, top + 9, self.mark[1], SMALL, "muted", anchor))
        for curve in pens:
            for part in _unbroken(at(curve.places, curve.y)):
                items.append(
                    Polyline(part, curve.colour, 1.8, dashed=curve.dashed, hint=curve.label)
                )
                if len(part) == 1:
                    items.append(
                        Circle(part[0, 0], part[0, 1], 2.5, curve.colour, hint=curve.label)
                    )
        return Canvas(*self.size, items, self.title)

    def letters(self, width: int = 80, colour: bool = False, *, height: int = 15) -> str:
        """Lines in braille dots, without bands; several without colour in letters of their own."""
        x, y = (
            np.concatenate(parts)
            for parts in ([c.places for c in self.curves], [c.y for c in self.curves])
        )
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
        lines = [
            f"{sides.get(r, ''):>{margin}} ┤{''.join(row)}".rstrip() for r, row in enumerate(plot)
        ]
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
    samples = [("●", kind, nth(k)) for k, kind in enumerate(kinds)]
    across, up = np.asarray(points, float).T
    at, items = axes(spread(across), spread(up), titles, samples, size=size)
    dots = at(across, up)
    if len(joined) > 1:
        items.append(Polyline(dots[list(joined)], "muted", dashed=True))
    taken = np.concatenate([dots - 4, dots + 4], 1)
    for k, (x, y) in enumerate(dots.tolist()):
        fill = nth(kinds.index(groups[k]) if groups else 0)
        items.append(Circle(x, y, 3.5, fill, opacity=0.85, hint=labels[k]))
        name = cut(labels[k], LONGEST + 6)
        long = text_width(name, SMALL)
        corners = [
            (x + 6, y - 6),
            (x - 6 - long, y - 6),
            (x - long / 2, y - 18),
            (x - long / 2, y + 6),
        ]
        boxes = np.hstack([corners, np.add(corners, [long, 12])])
        shared = np.minimum(boxes[:, None, 2:], taken[:, 2:]) - np.maximum(
            boxes[:, None, :2], taken[:, :2]
        )
        outside = (boxes[:, 0] < 4) | (boxes[:, 2] > size[0] - 4)
        overlaps = shared.clip(0).prod(-1).sum(-1) + 1e3 * outside
        best = boxes[overlaps.argmin()]
        if overlaps.min() < 0.15 * 12 * long:
            items.append(Text(best[0], best[1] + 10, name, SMALL))
            taken = np.vstack([taken, best])
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
    """Where numbers fall, in pixels; and a legend above axes with horizontal rules, labels and titles.

    `samples` are signs, each with its name and colour. `x_labels` are names for x = 0, 1, 2, ..., as many as have room.
    """
    items, top = _legend(samples, size[0])
    rules = named(ticks(*y_range))
    left = 38 + widest((name for _, name in rules), SMALL)
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
        items += [line(left, y, right, y), Text(left - 8, y + 4, name, SMALL, "muted", "end")]
    places = named(ticks(*x_range, most=max(2, int((right - left) / 70))))
    if x_labels:
        needed = math.ceil(
            (widest(x_labels, SMALL) + 16) * (x_range[1] - x_range[0]) / (right - left)
        )
        step = next(step for step in (*STEPS, needed) if step >= needed)
        places = [
            (k, x_labels[k]) for k in range(0, len(x_labels), step) if x_range[0] <= k <= x_range[1]
        ]
    for tick, name in places:
        x = np.interp(tick, x_range, (left, right))
        items += [
            line(x, bottom, x, bottom + 4, "edge"),
            Text(x, bottom + 17, name, SMALL, "muted", "middle"),
        ]
    return at, items


def _legend(samples: Iterable[tuple[str, str, str]], width: Pixels) -> tuple[list[Item], float]:
    """Signs, each with its name and in its colour, in rows from the top left; and how high that is."""
    x = 24.0
    y = 24.0
    items: list[Item] = []
    for sign, name, colour in samples:
        if name:
            needed = 18 + text_width(name, SMALL)
            if x > 24 and x + needed > width - 24:
                x = 24.0
                y = y + 20
            items += [Text(x, y, sign, 14, colour, bold=True), Text(x + 18, y, name, SMALL)]
            x += needed + 18
    return items, y + 12 if items else 16.0


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


def spread(values: Vector, *, room: Pixels = 0.05) -> Range:
    """The range of the values that are there, with a little room."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = room * (high - low) if high > low else 0.5 * abs(high) or 0.5
    return low - room, high + room


def _unbroken(points: Points) -> list[np.ndarray]:
    """The parts of a line between its gaps."""
    there = np.isfinite(points).all(1)
    parts = np.split(points, np.flatnonzero(np.diff(there)) + 1) if len(points) else []
    return [part for part in parts if np.isfinite(part).all()]


def _braille(
    curve: Curve, x_range: Range, y_range: Range, wide: int, height: int
) -> Int[np.ndarray, "H W"]:
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
