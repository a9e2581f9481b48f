"""The frame of a plot: round ticks, titles, a legend, and where numbers fall inside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Num

from seqlab.explain.canvas import Group, Item, Text, line
from seqlab.explain.width import Pixels, text_width, widest

SMALL = 11.0  # the size of labels
Range = tuple[Pixels, Pixels]


@dataclass(frozen=True)
class Axes:
    """A rectangle in pixels, and the numbers at its sides."""

    left: Pixels
    top: Pixels
    right: Pixels
    bottom: Pixels
    x_range: Range
    y_range: Range

    def points(self, x: Num[np.ndarray, " N"], y: Num[np.ndarray, " N"]) -> Float[np.ndarray, "N 2"]:
        """Where numbers fall, in pixels."""
        across = self.left + (x - self.x_range[0]) / (self.x_range[1] - self.x_range[0]) * (self.right - self.left)
        up = self.bottom - (y - self.y_range[0]) / (self.y_range[1] - self.y_range[0]) * (self.bottom - self.top)
        return np.stack([across, up], 1)

    def x(self, value: Pixels) -> float:
        return float(self.points(np.array([value]), np.array([self.y_range[0]]))[0, 0])

    def y(self, value: Pixels) -> float:
        return float(self.points(np.array([self.x_range[0]]), np.array([value]))[0, 1])


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


def number(value: Pixels) -> str:
    """A number as it stands in a picture: short, with a true minus."""
    shown = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}" if abs(value) < 1e6 else f"{value:.4g}"
    return shown.replace("-", "−")


def cell(value: Pixels) -> str:
    """A number in a cell of a small table: two decimals where they matter."""
    return number(value) if abs(value) >= 10 or value == 0 else f"{value:.2f}".replace("-", "−")


def spread(values: Num[np.ndarray, " N"]) -> Range:
    """The range of the values that are there, with a little room."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = 0.05 * (high - low) or 0.5 * abs(high) or 0.5
    return low - room, high + room


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
