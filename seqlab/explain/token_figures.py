"""Figures of tokens: a coloured text, bars over a text, and a search tree. Lengths are pixels or terminal columns."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from rich.cells import cell_len

from seqlab.explain.canvas import Canvas, Item, Polyline, Rect, Text, Vector, s_curve
from seqlab.explain.charts import colour_scale
from seqlab.explain.figure_text import MAX_LABEL, Pixels, cut, number, text_width, visible
from seqlab.explain.palette import CATEGORICAL, DIVERGING, ansi_coloured, colour_of, ink_on, limits

WIDTH = 720.0  # pixels of a picture of running text
BAR_HEIGHT = 64.0  # pixels of the highest bar over a token
BAR_LINES = 4  # of the highest bar as text
BEST = CATEGORICAL[0]  # the colour of the best path
EIGHTHS = " ▁▂▃▄▅▆▇█"  # of the height of a line


@dataclass(frozen=True)
class ColouredText:
    """Running text in which the background of each token is the colour of its number."""

    tokens: Sequence[str]
    values: Vector
    title: str = ""

    def draw(self) -> Canvas:
        """Draw the text; tokens with a negative number are underlined too, for print in grey."""
        reach = limits(self.values, diverging=True)
        size = 14.0
        names = [
            cut(token.strip("\n") or token, 80) if token.strip(" ") else token
            for token in self.tokens
        ]
        widths = [text_width(name, size, monospace=True) + 2 for name in names]
        items: list[Item] = []
        y = 16.0
        for row in _wrapped(widths, WIDTH - 48, self.tokens):
            x = 24.0
            for place in row:
                name = names[place]
                width = widths[place] - 1
                value = float(self.values[place])
                hint = f"{visible(self.tokens[place])}: {number(value)}"
                fill = colour_of(value, DIVERGING, *reach)
                items.append(Rect(x, y, width, 23, fill, radius=3, hint=hint))
                items.append(
                    Text(
                        x + 0.5,
                        y + 16,
                        name.strip(" ") and name,
                        size,
                        ink_on(fill),
                        monospace=True,
                    )
                )
                if value < 0:
                    items.append(Rect(x, y + 22, width, 1, ink_on(fill), opacity=0.6))
                x += widths[place]
            y += 28
        items += colour_scale(24, y + 12, DIVERGING, reach)
        return Canvas(WIDTH, y + 48, items, self.title)

    def as_text(self, width: int = 80, colour: bool = False) -> str:
        """Write the text; without colour, each token with at least a tenth of the largest number shows its number."""
        reach = limits(self.values, diverging=True)
        names = [
            cut(token if token.strip(" ") else "·" * len(token), width - 9) for token in self.tokens
        ]
        if not colour:
            for place in np.flatnonzero(np.abs(self.values) >= 0.1 * reach[1]).tolist():
                name = names[place]
                blank = " " if name.endswith(" ") else ""
                names[place] = f"{name.rstrip()}[{self.values[place]:+.2f}]{blank}"
        rows = _wrapped(list(map(cell_len, names)), width, self.tokens)
        if colour:
            fills = [colour_of(value, DIVERGING, *reach) for value in self.values.tolist()]
            names = [
                ansi_coloured(name, ink_on(fill), fill)
                for name, fill in zip(names, fills, strict=True)
            ]
        return "\n".join("".join(names[place] for place in row) for row in rows)


@dataclass(frozen=True)
class TokenBars:
    """Running text with a bar over each token; notable tokens have another colour and show their number."""

    tokens: Sequence[str]
    values: Vector
    notable: Sequence[int]
    unit: str
    title: str

    def draw(self) -> Canvas:
        """Draw the text with bars that are at least one pixel high."""
        names = [cut(token, MAX_LABEL) for token in self.tokens]
        widths = [text_width(name, 13, monospace=True) + 6 for name in names]
        heights = [max(1.0, BAR_HEIGHT * share) for share in self._shares()]
        items: list[Item] = []
        base = 0.0
        for row in _wrapped(widths, WIDTH - 48):
            x = 24.0
            base = base + 16 + max(heights[place] for place in row)
            for place in row:
                value = float(self.values[place])
                is_notable = place in self.notable
                hint = f"{visible(self.tokens[place])}: {number(value)} {self.unit}"
                middle = x + widths[place] / 2 - 1
                top = base - heights[place]
                items.append(
                    Rect(
                        x,
                        top,
                        widths[place] - 2,
                        heights[place],
                        CATEGORICAL[is_notable],
                        hint=hint,
                    )
                )
                items.append(
                    Text(
                        middle,
                        base + 17,
                        names[place],
                        13,
                        anchor="middle",
                        monospace=True,
                        hint=hint,
                    )
                )
                if is_notable:
                    items.append(
                        Text(middle, base + 30, f"{value:.2g}", 8, CATEGORICAL[1], "middle")
                    )
                x += widths[place]
            base += 36
        return Canvas(WIDTH, base + 8, items, self.title)

    def as_text(self, width: int = 80, colour: bool = False) -> str:
        """Write the text with bars in eighths of a line."""
        names = [cut(token, min(MAX_LABEL, width)) for token in self.tokens]
        gap = " " * any(len(name) > 1 for name in names)
        heights = [math.ceil(8 * BAR_LINES * share) for share in self._shares()]
        lines: list[str] = []
        for row in _wrapped([cell_len(name + gap) for name in names], width + len(gap)):
            for floor in range(8 * (BAR_LINES - 1), -1, -8):
                parts = [EIGHTHS[min(max(heights[place] - floor, 0), 8)] for place in row]
                if set(parts) == {" "}:
                    continue  # no bar is that high
                bars = [
                    part * cell_len(names[place]) for place, part in zip(row, parts, strict=True)
                ]
                if colour:
                    inks = [CATEGORICAL[place in self.notable] for place in row]
                    bars = list(map(ansi_coloured, bars, inks))
                lines.append(gap.join(bars).rstrip())
            lines.append(gap.join(names[place] for place in row))
        return "\n".join(lines)

    def _shares(self) -> list[float]:
        """Return heights from 0 to 1; an infinite value is as high as the highest finite one."""
        highest = max(1.0, float(self.values.max(initial=0.0, where=np.isfinite(self.values))))
        return np.minimum(self.values / highest, 1.0).tolist()


def _wrapped(widths: Sequence[Pixels], room: Pixels, tokens: Sequence[str] = ()) -> list[list[int]]:
    """Distribute the indices of tokens over rows of at most `room`; a token that ends in a newline ends its row."""
    rows: list[list[int]] = [[]]
    row_width: Pixels = 0
    for index, width in enumerate(widths):
        if rows[-1] and row_width + width > room:
            rows.append([])
            row_width = 0
        rows[-1].append(index)
        row_width += width
        if tokens and tokens[index].endswith("\n"):
            rows.append([])
            row_width = 0
    return rows


@dataclass(frozen=True)
class Node:
    """A token of a search; `parent` is the index of the node before it, None at the root."""

    text: str
    score: float | None = None
    parent: int | None = None
    pruned: bool = False
    best: bool = False


@dataclass(frozen=True)
class Tree:
    """A search tree: pruned hypotheses are pale, the best path is highlighted."""

    nodes: Sequence[Node]
    title: str = ""

    def draw(self) -> Canvas:
        """Draw the tree from left to right; a parent is midway between its children."""
        scores = [
            "" if node.score is None else number(round(node.score, 2) + 0.0) for node in self.nodes
        ]
        texts = [cut(node.text, MAX_LABEL) for node in self.nodes]
        widths = [
            22 + text_width(text, 12) + text_width(score, 10)
            for text, score in zip(texts, scores, strict=True)
        ]
        depth, y = self._layout()
        column_starts = [24.0]
        for level in range(max(depth, default=-1) + 1):
            room = max(width for d, width in zip(depth, widths, strict=True) if d == level)
            column_starts.append(column_starts[-1] + room + 44)
        x = [column_starts[d] for d in depth]
        edges = list[Item]()
        boxes = list[Item]()
        for k, node in enumerate(self.nodes):
            opacity = 0.55 if node.pruned else 1.0
            fill, ink, score_ink, stroke = "paper", "ink", "muted", "edge"
            if node.best:
                fill, ink, score_ink, stroke = BEST, "#ffffff", "#ffffff", BEST
            if node.pruned:
                ink = "muted"
            boxes.append(Rect(x[k], y[k] - 11, widths[k], 22, fill, stroke, 6, opacity=opacity))
            boxes.append(Text(x[k] + 8, y[k] + 4, texts[k], 12, ink, opacity=opacity))
            boxes.append(
                Text(
                    x[k] + widths[k] - 7, y[k] + 4, scores[k], 10, score_ink, "end", opacity=opacity
                )
            )
            if node.parent is not None:
                curve = s_curve(x[node.parent] + widths[node.parent], y[node.parent], x[k], y[k])
                edges.append(Polyline(curve, stroke, 2.2 if node.best else 1.2, opacity=opacity))
        return Canvas(column_starts[-1] - 20, max(y, default=0) + 30, edges + boxes, self.title)

    def _layout(self) -> tuple[list[int], list[float]]:
        """Return the depth of each node, and its y coordinate."""
        y = [0.0] * len(self.nodes)
        depth = [0] * len(self.nodes)
        steps = list(self._walk())
        heights = count(28.0 * sum(not below for *_, below in steps), -28.0)
        for k, branches, below in reversed(steps):
            depth[k] = len(branches) // 2
            y[k] = (y[below[0]] + y[below[-1]]) / 2 if below else next(heights)
        return depth, y

    def as_text(self, width: int = 80, colour: bool = False) -> str:
        """Write each token below its parent; the best path is marked *, pruned hypotheses ×."""
        lines = []
        for k, branches, _ in self._walk():
            node = self.nodes[k]
            mark = "* " if node.best else "× " if node.pruned else "  "
            score = "" if node.score is None else number(node.score)
            line = cut(f"{mark}{branches}{visible(node.text)} {score}".rstrip(), width)
            lines.append(ansi_coloured(line, BEST) if colour and node.best else line)
        return "\n".join(lines)

    def _walk(self) -> Iterator[tuple[int, str, list[int]]]:
        """Yield each node before its children: its index, the branches before its text, and its children.

        The branches have two characters for each level.
        """
        children: dict[int | None, list[int]] = {}
        for k, node in enumerate(self.nodes):
            children.setdefault(node.parent, []).append(k)
        stack = [(root, "") for root in reversed(children.get(None, []))]
        while stack:
            k, branches = stack.pop()
            below = children.get(k, [])
            yield k, branches, below
            branches = branches.replace("├─", "│ ").replace("└─", "  ")
            for child in reversed(below):
                stack.append((child, branches + ("└─" if child == below[-1] else "├─")))
