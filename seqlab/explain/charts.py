"""Heat maps, bar charts, tables and bipartite graphs of tokens. Lengths are pixels, or columns of a terminal."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Num

from seqlab.explain.canvas import (
    Canvas,
    Grid,
    Group,
    Item,
    Matrix,
    Polyline,
    Rect,
    Text,
    Vector,
    line,
    s_curve,
)
from seqlab.explain.figure_text import (
    LABEL_SIZE,
    MAX_LABEL,
    Pixels,
    Range,
    cell,
    cut,
    max_columns,
    max_text_width,
    number,
    pad_to_width,
    visible,
)
from seqlab.explain.palette import (
    CATEGORICAL,
    DIVERGING,
    SEQUENTIAL,
    TOP,
    ansi_coloured,
    colour_of,
    ink_on,
    levels,
    limits,
)

SHADES = " ░▒▓█"  # from 0 to the maximum
NEGATIVE_SHADES = " .:-="  # from 0 to the minimum
MAX_LINES = 60  # of a heat map as text
PANEL = 128.0  # pixels of a small picture in a row of them
Panel = tuple[str, tuple[Item, ...]]  # a name and a picture


@dataclass(frozen=True)
class HeatMap:
    """A coloured cell for each number. `titles` are those of rows and columns, `reach` is the range of the colours."""

    matrix: Matrix
    rows: Sequence[str]
    columns: Sequence[str]
    title: str = ""
    titles: tuple[str, str] = ("", "")
    diverging: bool = False
    reach: Range | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return DIVERGING if self.diverging else SEQUENTIAL

    @property
    def limits(self) -> Range:
        return self.reach or limits(self.matrix, diverging=self.diverging)

    def draw(self) -> Canvas:
        """Draw the heat map; numbers are written into cells that are large enough."""
        matrix = self.matrix
        side = min(40.0, 640 / max(*matrix.shape, 1))
        cell_height, cell_width = (max(side, min(28.0, 200 / max(n, 1))) for n in matrix.shape)
        row_labels = [cut(name, MAX_LABEL) for name in self.rows]
        column_labels = [cut(name, MAX_LABEL) for name in self.columns]
        label_width = max_text_width(column_labels, LABEL_SIZE)
        is_horizontal = label_width <= cell_width - 2
        slant = 0.0 if is_horizontal else 0.71 * label_width  # height of labels at 45 degrees
        row_title, column_title = self.titles
        left = 42 + max_text_width(row_labels, LABEL_SIZE)
        top = 48 + slant
        x = left + (np.arange(matrix.shape[1]) + 0.5) * cell_width
        y = top + (np.arange(len(matrix)) + 0.5) * cell_height
        width = cell_width * matrix.shape[1]
        height = cell_height * len(matrix)
        reach = self.limits
        items: list[Item] = [
            Grid(
                left,
                top,
                width,
                height,
                levels(matrix, *reach),
                self.stops,
                self.rows,
                self.columns,
                reach,
            ),
            Text(18, top + height / 2, row_title, 12, "muted", "middle", -90),
            Text(left, 20, column_title, 12, "muted"),
        ]
        every_row = 1 if cell_height >= 13 else math.ceil(18 / cell_height)
        for name, middle in list(zip(row_labels, y, strict=True))[::every_row]:
            items.append(Text(left - 8, middle + 4, name, LABEL_SIZE, anchor="end"))
        every_column = 1 if is_horizontal or cell_width >= 15 else math.ceil(22 / cell_width)
        for name, middle in list(zip(column_labels, x, strict=True))[::every_column]:
            if is_horizontal:
                items.append(Text(middle, top - 6, name, LABEL_SIZE, anchor="middle"))
            else:
                items.append(Text(middle + 3, top - 6, name, LABEL_SIZE, rotation=-45))
        if side >= 30:
            for r, c in np.argwhere(np.isfinite(matrix)).tolist():
                value = float(matrix[r, c])
                ink = ink_on(colour_of(value, self.stops, *reach))
                items.append(Text(x[c], y[r] + 3.5, cell(value), 10, ink, "middle"))
        items += colour_scale(left, top + height + 16, self.stops, reach)
        return Canvas(left + max(width + max(20, slant), 190), top + height + 52, items, self.title)

    def as_text(self, width: int = 80, colour: bool = False) -> str:
        """Write a shade for each number; a large matrix is reduced to the largest absolute value of each block."""
        margin = min(max_columns(self.rows), width // 3)
        down = max(1, math.ceil(len(self.matrix) / MAX_LINES))
        across = max(1, math.ceil(2 * self.matrix.shape[1] / (width - margin)))
        names = self.columns[::across]
        wide = max(1, min(max_columns(self.columns), (width - margin) // max(len(names), 1) - 1))
        lines = [" ".join([" " * margin, *(pad_to_width(name, wide) for name in names)]).rstrip()]
        for name, row in zip(
            self.rows[::down], largest_of_blocks(self.matrix, down, across), strict=True
        ):
            shades = [self._shade(value, wide, colour) for value in row.tolist()]
            lines.append(" ".join([pad_to_width(name, margin, right=True), *shades]))
        if down * across > 1:
            lines.append(f"one cell: largest of {down} × {across} numbers")
        return "\n".join(lines)

    def _shade(self, value: float, wide: int, colour: bool) -> str:
        if math.isnan(value):
            return "?" * wide
        low, high = self.limits
        if colour:
            fill = colour_of(value, self.stops, low, high)
            return ansi_coloured(" " * wide, ink_on(fill), fill)
        shades = NEGATIVE_SHADES if self.diverging and value < 0 else SHADES
        if self.diverging:
            low = 0.0
            value = abs(value)
        share = levels(np.array([value]), low, high)[0] / TOP
        return shades[min(len(shades) - 1, int(share * len(shades)))] * wide


@dataclass(frozen=True)
class Bars:
    """A horizontal bar for each number, with the number at its end; negative ones have another colour."""

    values: Vector
    labels: Sequence[str]
    title: str = ""
    x_title: str = ""
    width: Pixels = 640

    def draw(self) -> Canvas:
        """Draw positive bars to the right of zero, negative ones to its left."""
        names = [cut(name, 2 * MAX_LABEL) for name in self.labels]
        left = 28 + max_text_width(names, 12)
        low = min(0.0, float(np.nanmin(self.values, initial=0)))
        high = max(0.0, float(np.nanmax(self.values, initial=0)))
        room = 52 if low < 0 else 0
        unit = (self.width - left - 64 - room) / ((high - low) or 1.0)
        zero = left + room - low * unit
        bottom = 12.0 + 24 * len(names)
        items: list[Item] = [
            line(zero, 8, zero, bottom, "edge"),
            Text((left + self.width) / 2, bottom + 22, self.x_title, anchor="middle"),
        ]
        for k, (name, value) in enumerate(zip(names, self.values.tolist(), strict=True)):
            y = 12.0 + 24 * k
            tip = zero + np.nan_to_num(value) * unit
            words = number(value)
            offset, anchor = (6, "start") if value >= 0 else (-6, "end")
            items += [
                Rect(
                    min(zero, tip),
                    y + 3,
                    abs(tip - zero),
                    16,
                    CATEGORICAL[value < 0],
                    hint=f"{name}: {words}",
                ),
                Text(left - 10, y + 15, name, anchor="end"),
                Text(tip + offset, y + 15, words, LABEL_SIZE, "muted", anchor),
            ]
        return Canvas(self.width, bottom + (36 if self.x_title else 12), items, self.title)

    def as_text(self, width: int = 80, colour: bool = False) -> str:
        """Write a bar for the absolute value of each number, and the number with its sign."""
        margin = min(max_columns(self.labels), width // 2)
        numbers = [number(value) for value in self.values.tolist()]
        room = width - margin - 2 - max(map(len, numbers), default=0)
        most = float(np.nanmax(np.abs(self.values), initial=0)) or 1.0
        lines = []
        for name, value, words in zip(self.labels, self.values.tolist(), numbers, strict=True):
            bar = ("█" if value >= 0 else "▒") * round(room * abs(np.nan_to_num(value)) / most)
            bar = ansi_coloured(bar, CATEGORICAL[value < 0]) if colour else bar
            lines.append(f"{pad_to_width(name, margin, right=True)} {bar} {words}")
        return "\n".join(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> Canvas:
    """Draw a table whose first column is left-aligned; the others are right-aligned."""
    ends = np.cumsum(
        [max_text_width(column, 12) + 24 for column in zip(header, *rows, strict=True)]
    ).tolist()
    items: list[Item] = [line(0, 28, ends[-1] + 4, 28)]
    for k, (first, *others) in enumerate([header, *rows]):
        y = 20 + 22 * k
        ink = "ink" if k else "muted"
        items.append(Text(4, y, first, 12, ink))
        items += [
            Text(end, y, words, 12, ink, "end") for end, words in zip(ends[1:], others, strict=True)
        ]
    return Canvas(ends[-1] + 8, 22 * len(rows) + 34, items, title)


def bipartite(
    weights: Matrix, left: Sequence[str], right: Sequence[str], *, title: str = "", most: int = 300
) -> Canvas:
    """Draw two columns of tokens, joined by lines for the `most` largest weights; larger weights are darker."""
    tallest = max(len(left), len(right), 1)
    pitch = min(22.0, max(11.0, 700 / tallest))
    size = min(12.0, pitch * 0.85)
    margins = [
        28 + max_text_width([cut(name, MAX_LABEL) for name in names], size)
        for names in (left, right)
    ]
    start = margins[0]
    end = start + 260
    begins, ends = (
        16 + (np.arange(n) + 0.5 + (tallest - n) / 2) * pitch for n in (len(left), len(right))
    )
    scale = min(1.0, (80 / tallest) ** 0.5)  # of many tokens, the lines are thinner and paler
    shares = np.nan_to_num(weights) / max(float(np.nan_to_num(weights).max(initial=0)), 1e-12)
    items = list[Item]()
    for index in np.argsort(shares, axis=None, kind="stable")[-most:].tolist():
        i, j = divmod(index, len(right))
        share = float(shares[i, j])
        if share > 0.01:
            curve = s_curve(start, begins[i], end, ends[j])
            hint = f"{visible(left[i])} → {visible(right[j])}: {number(float(weights[i, j]))}"
            thickness = scale * (0.8 + 2.2 * share)
            opacity = scale * (0.06 + 0.84 * share)
            tags = (f"left{i}", f"right{j}")
            items.append(
                Polyline(curve, CATEGORICAL[0], thickness, opacity=opacity, hint=hint, tags=tags)
            )
    for side, x, tokens, y in (("left", start - 8, left, begins), ("right", end + 8, right, ends)):
        anchor = "end" if side == "left" else "start"
        for k, (token, middle) in enumerate(zip(tokens, y.tolist(), strict=True)):
            name = cut(token, MAX_LABEL)
            items.append(
                Text(x, middle + 0.35 * size, name, size, anchor=anchor, tags=(f"{side}{k}",))
            )
    return Canvas(sum(margins) + 260, 32 + tallest * pitch, items, title)


def panels(rows: Sequence[tuple[str, Sequence[Panel]]], *, title: str) -> Canvas:
    """Place small pictures in rows with headings, each picture above its name."""
    items: list[Item] = []
    y = 0.0
    for heading, row in rows:
        items.append(Text(20, y + 20, heading, LABEL_SIZE, "muted"))
        for k, (name, picture) in enumerate(row):
            x = 20 + k * (PANEL + 16)
            items += [Group(x, y + 30, picture), Text(x, y + PANEL + 46, name, LABEL_SIZE)]
        y += PANEL + 60
    most = max((len(row) for _, row in rows), default=0)
    return Canvas(40 + most * (PANEL + 16), y, items, title)


def colour_scale(x: Pixels, y: Pixels, stops: tuple[str, ...], reach: Range) -> Iterator[Item]:
    """Draw the colours of a heat map from its lowest to its highest number, 160 pixels long."""
    yield Grid(x, y, 160, 8, np.arange(TOP + 1, dtype=np.uint8)[None], stops)
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        value = reach[0] + share * (reach[1] - reach[0])
        yield Text(x + 160 * share, y + 21, number(value), 10, "muted", anchor)


def largest_of_blocks(matrix: Matrix, down: int, across: int) -> Num[np.ndarray, "r c"]:
    """Return the number with the largest absolute value of each block of `down` times `across`; NaN if all are NaN."""
    missing = ((0, -matrix.shape[0] % down), (0, -matrix.shape[1] % across))
    padded = np.pad(np.asarray(matrix, float), missing, constant_values=np.nan)
    tiles = padded.reshape(len(padded) // down, down, -1, across).swapaxes(1, 2)
    blocks = tiles.reshape(len(tiles), -1, down * across)
    size = np.where(np.isnan(blocks), -1, np.abs(blocks))
    return np.take_along_axis(blocks, size.argmax(-1)[..., None], -1)[..., 0]
