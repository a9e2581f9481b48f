"""The same pictures in letters, for a terminal; `colour` says whether ANSI colours may be used."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Num

from seqlab.explain.canvas import Matrix, Vector
from seqlab.explain.charts import Node
from seqlab.explain.labels import cut, display_width, fitted, number, visible
from seqlab.explain.palette import CATEGORICAL, DIVERGING, SEQUENTIAL, TOP, colour_of, ink_on, levels, limits, nth, rgb
from seqlab.explain.plots import Curve, spread

SHADES, BELOW = " ░▒▓█", " .:-="  # from nothing to all, above and below zero
MARKS = "•x+o*#"
TALLEST = 60  # lines of a heat map
DOTS = np.array([[1, 8], [2, 16], [4, 32], [64, 128]])  # the bits of a braille letter, where its dots stand


def heat_map(
    matrix: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    width: int = 80,
    colour: bool = False,
    diverging: bool = False,
    reach: tuple[float, float] | None = None,
) -> str:
    """A shade for each number; where there is no room for all, for the number farthest from zero of each block."""
    low, high = reach or limits(matrix, diverging=diverging)
    margin = min(_longest(rows), width // 3)
    down = max(1, math.ceil(matrix.shape[0] / TALLEST))
    across = max(1, math.ceil(2 * matrix.shape[1] / (width - margin)))
    heads = columns[::across]
    wide = max(1, min(_longest(columns), (width - margin) // max(len(heads), 1) - 1))
    lines = [" ".join([" " * margin, *(fitted(head, wide) for head in heads)]).rstrip()]
    for name, row in zip(rows[::down], farthest(matrix, down, across), strict=True):
        shades = [_shade(value, wide, (low, high), diverging=diverging, colour=colour) for value in row.tolist()]
        lines.append(" ".join([fitted(name, margin, right=True), *shades]))
    if down * across > 1:
        lines.append(f"each of {down} × {across}: the farthest from zero")
    return "\n".join(lines)


def line_chart(
    lines: Sequence[Curve], *, width: int = 80, height: int = 15, x_labels: Sequence[str] = (), colour: bool = False
) -> str:
    """Lines in braille dots; several without colour in letters of their own."""
    x, y = (np.concatenate(parts) for parts in ([c.places for c in lines], [c.y for c in lines]))
    low, high = spread(y)
    names = [number(value) for value in (high, (low + high) / 2, low)]
    margin = max(map(display_width, names))
    wide = max(8, width - margin - 2)
    plot = [[" "] * wide for _ in range(height)]
    for k, curve in enumerate(lines):
        dots = _dots(curve, (float(x.min()), float(x.max())), (low, high), wide, height)
        for row, column in np.argwhere(dots.any((1, 3))).tolist():
            braille = chr(0x2800 + int((dots[row, :, column] * DOTS).sum()))
            sign = braille if colour or len(lines) == 1 else MARKS[k % len(MARKS)]
            plot[row][column] = _painted(sign, nth(k)) if colour else sign
    sides = {0: names[0], height // 2: names[1], height - 1: names[2]}
    drawn = [f"{sides.get(r, ''):>{margin}} ┤{''.join(row)}".rstrip() for r, row in enumerate(plot)]
    ends = [cut(x_labels[int(at)], wide // 2 - 1) if x_labels else number(float(at)) for at in (x.min(), x.max())]
    drawn.append(" " * (margin + 2) + ends[0] + fitted(ends[1], wide - display_width(ends[0]), right=True))
    for k, curve in enumerate(lines if len(lines) > 1 else []):
        sign = _painted("━", nth(k)) if colour else MARKS[k % len(MARKS)]
        drawn.append(" " * (margin + 2) + f"{sign} {cut(curve.label, wide - 2)}")
    return "\n".join(drawn)


def bars(values: Vector, labels: Sequence[str], *, width: int = 80, colour: bool = False) -> str:
    """A bar for the size of each number, with its sign in the number beside it."""
    margin = min(_longest(labels), width // 2)
    numbers = [number(value) for value in values.tolist()]
    room = width - margin - 2 - max(map(len, numbers), default=0)
    most, lines = float(np.nanmax(np.abs(values), initial=0)) or 1.0, []
    for name, value, shown in zip(labels, values.tolist(), numbers, strict=True):
        bar = ("█" if value >= 0 else "▒") * round(room * abs(np.nan_to_num(value)) / most)
        bar = _painted(bar, CATEGORICAL[value < 0]) if colour else bar
        lines.append(f"{fitted(name, margin, right=True)} {bar} {shown}")
    return "\n".join(lines)


def coloured_text(tokens: Sequence[str], values: Vector, *, width: int = 80, colour: bool = False) -> str:
    """Running text on colours; without them, each token whose number matters is followed by it."""
    reach = limits(values, diverging=True)
    lines, used = [""], 0
    for token, value in zip(tokens, values.tolist(), strict=True):
        shown = cut(token if token.strip(" ") else "·" * len(token), width - 9)
        if not colour and abs(value) >= 0.1 * reach[1]:
            shown = f"{shown.rstrip()}[{value:+.2f}]{' ' if shown.endswith(' ') else ''}"
        long = display_width(shown)
        if used and used + long > width:
            lines.append("")
            used = 0
        fill = colour_of(value, DIVERGING, *reach)
        lines[-1] += _painted(shown, ink_on(fill), fill) if colour else shown
        used += long
        if token.endswith("\n"):
            lines.append("")
            used = 0
    return "\n".join(lines)


def tree(nodes: Sequence[Node], *, width: int = 80, colour: bool = False) -> str:
    """A search, each token below the one it followed; the best path is marked *, what was given up ×."""
    children: dict[int | None, list[int]] = {None: []}
    for k, node in enumerate(nodes):
        children.setdefault(node.parent, []).append(k)
    lines: list[str] = []
    waiting = [(k, "") for k in reversed(children[None])]
    while waiting:
        k, lead = waiting.pop()
        node, below = nodes[k], children.get(k, [])
        sign = "* " if node.best else "× " if node.pruned else "  "
        score = "" if node.score is None else number(node.score)
        line = cut(f"{sign}{lead}{visible(node.text)} {score}".rstrip(), width)
        lines.append(_painted(line, CATEGORICAL[0]) if colour and node.best else line)
        lead = lead.replace("├─", "│ ").replace("└─", "  ")
        waiting += [(child, lead + ("└─" if child == below[-1] else "├─")) for child in reversed(below)]
    return "\n".join(lines)


def farthest(matrix: Matrix, down: int, across: int) -> Num[np.ndarray, "r c"]:
    """Of each block of `down` times `across` numbers the one farthest from zero; NaN where there is none."""
    short = (-matrix.shape[0] % down, -matrix.shape[1] % across)
    padded = np.pad(np.asarray(matrix, float), ((0, short[0]), (0, short[1])), constant_values=np.nan)
    tiles = padded.reshape(len(padded) // down, down, -1, across).swapaxes(1, 2)
    blocks = tiles.reshape(len(tiles), -1, down * across)
    size = np.where(np.isnan(blocks), -1, np.abs(blocks))
    return np.take_along_axis(blocks, size.argmax(-1)[..., None], -1)[..., 0]


def _longest(names: Sequence[str]) -> int:
    return max((display_width(visible(name)) for name in names), default=0)


def _shade(value: float, wide: int, reach: tuple[float, float], *, diverging: bool, colour: bool) -> str:
    if math.isnan(value):
        return "?" * wide
    if colour:
        fill = colour_of(value, DIVERGING if diverging else SEQUENTIAL, *reach)
        return _painted(" " * wide, ink_on(fill), fill)
    share = levels(np.array([abs(value) if diverging else value]), 0.0 if diverging else reach[0], reach[1])[0] / TOP
    shades = BELOW if diverging and value < 0 else SHADES
    return shades[min(len(shades) - 1, int(share * len(shades)))] * wide


def _dots(
    curve: Curve, x_range: tuple[float, float], y_range: tuple[float, float], wide: int, height: int
) -> Bool[np.ndarray, "H 4 W 2"]:
    """Which dots of height x width letters of 4 x 2 dots a line covers."""
    y = np.interp(np.linspace(*x_range, 2 * wide), curve.places, curve.y, left=np.nan, right=np.nan)
    rows = (y_range[1] - y) / (y_range[1] - y_range[0]) * (4 * height - 1)
    before = np.append(np.nan, rows[:-1])
    before = np.where(np.isnan(before), rows, before)
    top, bottom = np.minimum(rows, before).round(), np.maximum(rows, before).round()
    place = np.arange(4 * height)[:, None]
    return ((place >= top) & (place <= bottom)).reshape(height, 4, wide, 2)


def _painted(text: str, ink: str, paper: str = "") -> str:
    codes = "38;2;{};{};{}".format(*rgb(ink)) + (";48;2;{};{};{}".format(*rgb(paper)) if paper else "")
    return f"\x1b[{codes}m{text}\x1b[0m"
