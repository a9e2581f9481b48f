"""Charts of tokens: a text on colours, bars over a text, and the tree of a search. Lengths are pixels or letters."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
from rich.cells import cell_len

from seqlab.explain.canvas import Canvas, Item, Polyline, Rect, Text, Vector, swing
from seqlab.explain.charts import colour_scale
from seqlab.explain.figure_text import LONGEST, Pixels, cut, number, text_width, visible
from seqlab.explain.palette import CATEGORICAL, DIVERGING, colour_of, ink_on, limits, painted

WIDTH = 720.0  # pixels of a picture of running text
TALLEST = 64.0  # pixels of the highest bar over a token
LINES = 4  # of the highest bar in letters
BEST = CATEGORICAL[0]  # the colour of the best path
EIGHTHS = " ▁▂▃▄▅▆▇█"  # parts of a line


@dataclass(frozen=True)
class ColouredText:
    """Running text, each token on the colour of its number."""

    tokens: Sequence[str]
    values: Vector
    title: str = ""

    def draw(self) -> Canvas:
        """A token below zero is underlined too, for print in grey."""
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
                long = widths[place] - 1
                value = float(self.values[place])
                hint = f"{visible(self.tokens[place])}: {number(value)}"
                fill = colour_of(value, DIVERGING, *reach)
                items.append(Rect(x, y, long, 23, fill, radius=3, hint=hint))
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
                    items.append(Rect(x, y + 22, long, 1, ink_on(fill), opacity=0.6))
                x += widths[place]
            y += 28
        items += colour_scale(24, y + 12, DIVERGING, reach)
        return Canvas(WIDTH, y + 48, items, self.title)

    def letters(self, width: int = 80, colour: bool = False) -> str:
        """Without colours, each token whose number matters is followed by it."""
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
                painted(name, ink_on(fill), fill) for name, fill in zip(names, fills, strict=True)
            ]
        return "\n".join("".join(names[place] for place in row) for row in rows)


@dataclass(frozen=True)
class TokenBars:
    """Running text with a bar over each token; the notable ones have another colour and their number."""

    tokens: Sequence[str]
    values: Vector
    notable: Sequence[int]
    unit: str
    title: str

    def draw(self) -> Canvas:
        """Bars of at least a pixel."""
        names = [cut(token, LONGEST) for token in self.tokens]
        widths = [text_width(name, 13, monospace=True) + 6 for name in names]
        heights = [max(1.0, TALLEST * share) for share in self._shares()]
        items: list[Item] = []
        base = 0.0
        for row in _wrapped(widths, WIDTH - 48):
            x = 24.0
            base = base + 16 + max(heights[place] for place in row)
            for place in row:
                value = float(self.values[place])
                strong = place in self.notable
                hint = f"{visible(self.tokens[place])}: {number(value)} {self.unit}"
                middle = x + widths[place] / 2 - 1
                top = base - heights[place]
                items.append(
                    Rect(x, top, widths[place] - 2, heights[place], CATEGORICAL[strong], hint=hint)
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
                if strong:
                    items.append(
                        Text(middle, base + 30, f"{value:.2g}", 8, CATEGORICAL[1], "middle")
                    )
                x += widths[place]
            base += 36
        return Canvas(WIDTH, base + 8, items, self.title)

    def letters(self, width: int = 80, colour: bool = False) -> str:
        """Each bar in eighths of a line."""
        names = [cut(token, min(LONGEST, width)) for token in self.tokens]
        gap = " " * any(len(name) > 1 for name in names)
        heights = [math.ceil(8 * LINES * share) for share in self._shares()]
        lines: list[str] = []
        for row in _wrapped([cell_len(name + gap) for name in names], width + len(gap)):
            for floor in range(8 * (LINES - 1), -1, -8):
                parts = [EIGHTHS[min(max(heights[place] - floor, 0), 8)] for place in row]
                if set(parts) == {" "}:
                    continue  # no bar is that high
                bars = [
                    part * cell_len(names[place]) for place, part in zip(row, parts, strict=True)
                ]
                if colour:
                    inks = [CATEGORICAL[place in self.notable] for place in row]
                    bars = list(map(painted, bars, inks))
                lines.append(gap.join(bars).rstrip())
            lines.append(gap.join(names[place] for place in row))
        return "\n".join(lines)

    def _shares(self) -> list[float]:
        """Heights from 0 to 1; what is infinite is as high as the highest."""
        highest = max(1.0, float(self.values.max(initial=0.0, where=np.isfinite(self.values))))
        return np.minimum(self.values / highest, 1.0).tolist()


def _wrapped(widths: Sequence[Pixels], room: Pixels, tokens: Sequence[str] = ()) -> list[list[int]]:
    """The places of the tokens, in as many rows as it takes; a token that ends a line ends its row."""
    rows: list[list[int]] = [[]]
    used: Pixels = 0
    for place, width in enumerate(widths):
        if rows[-1] and used + width > room:
            rows.append([])
            used = 0
        rows[-1].append(place)
        used += width
        if tokens and tokens[place].endswith("\n"):
            rows.append([])
            used = 0
    return rows


@dataclass(frozen=True)
class Node:
    """A token of a search, and what it was reached from: an earlier place in the list, or None at the root."""

    text: str
    score: float | None = None
    parent: int | None = None
    pruned: bool = False
    best: bool = False


@dataclass(frozen=True)
class Tree:
    """A search: hypotheses that were pruned are pale, the best path is strong."""

    nodes: Sequence[Node]
    title: str = ""

    def draw(self) -> Canvas:
        """From left to right: leaves one below another, a parent midway between its children."""
        scores = [
            "" if node.score is None else number(round(node.score, 2) + 0.0) for node in self.nodes
        ]
        texts = [cut(node.text, LONGEST) for node in self.nodes]
        widths = [
            22 + text_width(text, 12) + text_width(score, 10)
            for text, score in zip(texts, scores, strict=True)
        ]
        depth, y = self._places()
        begins = [24.0]  # of each depth
        for level in range(max(depth, default=-1) + 1):
            room = max(width for d, width in zip(depth, widths, strict=True) if d == level)
            begins.append(begins[-1] + room + 44)
        x = [begins[d] for d in depth]
        edges = list[Item]()
        boxes = list[Item]()
        for k, node in enumerate(self.nodes):
            opacity = 0.55 if node.pruned else 1.0
            fill, ink, faint = (
                (BEST, "#ffffff", "#ffffff") if node.best else ("paper", "ink", "muted")
            )
            ink = "muted" if node.pruned else ink
            stroke = BEST if node.best else "edge"
            boxes.append(Rect(x[k], y[k] - 11, widths[k], 22, fill, stroke, 6, opacity=opacity))
            boxes.append(Text(x[k] + 8, y[k] + 4, texts[k], 12, ink, opacity=opacity))
            boxes.append(
                Text(x[k] + widths[k] - 7, y[k] + 4, scores[k], 10, faint, "end", opacity=opacity)
            )
            if node.parent is not None:
                curve = swing(x[node.parent] + widths[node.parent], y[node.parent], x[k], y[k])
                edges.append(Polyline(curve, stroke, 2.2 if node.best else 1.2, opacity=opacity))
        return Canvas(begins[-1] - 20, max(y, default=0) + 30, edges + boxes, self.title)

    def _places(self) -> tuple[list[int], list[float]]:
        """The depth of each node, and its height in the picture."""
        y = [0.0] * len(self.nodes)
        depth = [0] * len(self.nodes)
        steps = list(self._walk())
        heights = count(28.0 * sum(not below for *_, below in steps), -28.0)
        for k, lead, below in reversed(steps):
            depth[k] = len(lead) // 2
            y[k] = (y[below[0]] + y[below[-1]]) / 2 if below else next(heights)
        return depth, y

    def letters(self, width: int = 80, colour: bool = False) -> str:
        """Each token below the one it followed; the best path is marked *, what was pruned ×."""
        lines = []
        for k, lead, _ in self._walk():
            node = self.nodes[k]
            sign = "* " if node.best else "× " if node.pruned else "  "
            score = "" if node.score is None else number(node.score)
            line = cut(f"{sign}{lead}{visible(node.text)} {score}".rstrip(), width)
            lines.append(painted(line, BEST) if colour and node.best else line)
        return "\n".join(lines)

    def _walk(self) -> Iterator[tuple[int, str, list[int]]]:
        """Each node before its children: its place, the branches before its text (two letters a level), and them."""
        children: dict[int | None, list[int]] = {}
        for k, node in enumerate(self.nodes):
            children.setdefault(node.parent, []).append(k)
        waiting = [(root, "") for root in reversed(children.get(None, []))]
        while waiting:
            k, lead = waiting.pop()
            below = children.get(k, [])
            yield k, lead, below
            lead = lead.replace("├─", "│ ").replace("└─", "  ")
            waiting += [
                (child, lead + ("└─" if child == below[-1] else "├─")) for child in reversed(below)
            ]
