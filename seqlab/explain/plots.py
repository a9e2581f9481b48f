"""Plots: lines and points in a frame with round ticks, titles and a legend."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from seqlab.explain.canvas import Canvas, Circle, Group, Item, Points, Polyline, Rect, Text, Vector, line
from seqlab.explain.labels import LONGEST, SMALL, Pixels, cut, number, text_width, widest
from seqlab.explain.palette import CATEGORICAL, nth

SHADE = 0.22  # how opaque a band is
Range = tuple[Pixels, Pixels]


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of a chart; a value that is NaN is a gap. Without `x`, values stand at 0, 1, 2, ..."""

    label: str
    y: Vector
    x: Vector | None = None
    colour: str = ""
    dashed: bool = False

    @property
    def places(self) -> Vector:
        return _places(self.x, len(self.y))


@dataclass(frozen=True, eq=False)
class Band:
    """What lies between two lines."""

    label: str
    low: Vector
    high: Vector
    x: Vector | None = None
    colour: str = CATEGORICAL[0]

    @property
    def places(self) -> Vector:
        return _places(self.x, len(self.low))


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
    free = itertools.cycle(CATEGORICAL)
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
    axes, drawn = frame(spread(across), spread(up), size=size, top=top, titles=titles)
    items += drawn
    dots = axes.points(across, up)
    items += [Polyline(dots[list(joined)], "muted", dashed=True)] if len(joined) > 1 else []
    taken = np.concatenate([dots - 4, dots + 4], 1)
    for k, (x, y) in enumerate(dots.tolist()):
        items.append(Circle(x, y, 3.5, nth(kinds.index(groups[k]) if groups else 0), opacity=0.85, hint=labels[k]))
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


@dataclass(frozen=True)
class Axes:
    """A rectangle in pixels, and the numbers at its sides."""

    left: Pixels
    top: Pixels
    right: Pixels
    bottom: Pixels
    x_range: Range
    y_range: Range

    def points(self, x: Vector, y: Vector) -> Points:
        """Where numbers fall, in pixels."""
        across = self.left + (x - self.x_range[0]) / (self.x_range[1] - self.x_range[0]) * (self.right - self.left)
        up = self.bottom - (y - self.y_range[0]) / (self.y_range[1] - self.y_range[0]) * (self.bottom - self.top)
        return np.stack([across, up], 1)

    def x(self, value: Pixels) -> float:
        return float(self.points(np.array([value]), np.array([self.y_range[0]]))[0, 0])

    def y(self, value: Pixels) -> float:
        return float(self.points(np.array([self.x_range[0]]), np.array([value]))[0, 1])


def frame(
    x_range: Range,
    y_range: Range,
    *,
    size: tuple[Pixels, Pixels],
    top: Pixels,
    titles: tuple[str, str],
    x_labels: Sequence[str] = (),
) -> tuple[Axes, list[Item]]:
    """Axes with horizontal rules. `x_labels` are names for x = 0, 1, 2, ..., of which as many stand as have room."""
    width, height = size
    y_ticks = named(ticks(*y_range))
    left = 18 + widest((name for _, name in y_ticks), SMALL) + (20 if titles[1] else 0)
    axes = Axes(left, top, width - 24, height - (48 if titles[0] else 28), x_range, y_range)
    items: list[Item] = []
    for tick, name in y_ticks:
        items.append(line(axes.left, axes.y(tick), axes.right, axes.y(tick)))
        items.append(Text(axes.left - 8, axes.y(tick) + 4, name, SMALL, "muted", "end"))
    for place, name in _x_ticks(axes, x_labels):
        items.append(line(axes.x(place), axes.bottom, axes.x(place), axes.bottom + 4, "edge"))
        items.append(Text(axes.x(place), axes.bottom + 17, name, SMALL, "muted", "middle"))
    items.append(line(axes.left, axes.bottom, axes.right, axes.bottom, "edge"))
    middle = (axes.left + axes.right) / 2, (axes.top + axes.bottom) / 2
    items += [Text(middle[0], height - 10, titles[0], 12, "ink", "middle")] if titles[0] else []
    items += [Text(18, middle[1], titles[1], 12, "ink", "middle", -90)] if titles[1] else []
    return axes, items


def legend(entries: Sequence[tuple[str, Item]], *, width: Pixels) -> tuple[list[Item], float]:
    """Samples 18 pixels wide around (9, 0), each with its name, in rows from the top left; and how high that is."""
    x, y, items = 24.0, 20.0, list[Item]()
    shown = [(name, sample) for name, sample in entries if name]
    for name, sample in shown:
        needed = 24 + text_width(name, SMALL)
        if x > 24 and x + needed > width - 24:
            x, y = 24.0, y + 20
        items += [Group(x, y, (sample,)), Text(x + 24, y + 4, name, SMALL)]
        x += needed + 18
    return items, y + 16 if shown else 16.0


def ticks(low: Pixels, high: Pixels, *, most: int = 6) -> list[float]:
    """At most so many round numbers within the range, in steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(power * times for times in (1, 2, 5, 10, 20) if _inside(low, high, power * times) <= most)
    return [round(step * k, 12) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


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


def _places(x: Vector | None, count: int) -> Vector:
    return np.arange(count, dtype=float) if x is None else x


def _stroke(curve: Curve) -> tuple[str, Item]:
    return curve.label, Polyline(np.array([[0.0, 0.0], [18.0, 0.0]]), curve.colour, 1.8, dashed=curve.dashed)


def _shades(bands: Sequence[Band]) -> list[tuple[str, Item]]:
    """Samples of bands that lie upon one another, as those in the chart do."""
    sheets = [Rect(0, -6, 18, 12, band.colour, opacity=SHADE) for band in bands]
    return [(band.label, Group(0, 0, tuple(sheets[: k + 1]))) for k, band in enumerate(bands)]


def _unbroken(points: Points) -> list[np.ndarray]:
    """The parts of a line between its gaps."""
    there = np.isfinite(points).all(1)
    parts = np.split(points, np.flatnonzero(np.diff(there)) + 1) if len(points) else []
    return [part for part in parts if np.isfinite(part).all()]


def _overlap(box: Float[np.ndarray, "4"], others: Float[np.ndarray, "N 4"]) -> float:
    """The area that a box shares with others."""
    shared = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    return float(shared.clip(0).prod(1).sum())


def _x_ticks(axes: Axes, labels: Sequence[str]) -> list[tuple[float, str]]:
    low, high = axes.x_range
    if not labels:
        return named(ticks(low, high, most=max(2, int((axes.right - axes.left) / 70))))
    room = widest(labels, SMALL) + 16
    step = math.ceil(room / max(axes.x(1) - axes.x(0), 1e-9))
    step = next(nice for nice in (1, 2, 5, 7, 10, 12, 20, 24, 30, 50, 100, 200, 365, 500, step) if nice >= step)
    return [(float(k), labels[k]) for k in range(0, len(labels), step) if low <= k <= high]


def _inside(low: Pixels, high: Pixels, step: Pixels) -> int:
    return math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9) + 1
