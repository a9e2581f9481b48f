"""The result of a view: its data, its figures, and the formats in which they are shown and saved."""

import html
import json
import math
import os
import shutil
import sys
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from seqlab.errors import UsageError
from seqlab.explain.canvas import Canvas, stack
from seqlab.explain.figure_text import visible
from seqlab.explain.palette import ROLES

CSS = """body{margin:2rem auto;max-width:72rem;padding:0 1rem;font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.3rem}figure{margin:1.5rem 0;overflow-x:auto}figcaption{opacity:.75}summary{cursor:pointer}
pre{overflow:auto;max-height:30rem;white-space:pre-wrap;overflow-wrap:anywhere}
[data-tags]{cursor:default;transition:opacity .1s}.looking [data-tags]:not(.lit){opacity:.07}.looking .lit{opacity:1}
#cell{position:fixed;display:none;padding:.2rem .5rem;border-radius:4px;pointer-events:none;font-size:13px}"""
# Hovering over an item highlights the items that belong to it; hovering over a grid shows the cell's value.
SCRIPT = """
const tell = document.getElementById("cell"), tags = item => item.dataset.tags.split(" ")
const part = (few, many) => few.every(tag => many.includes(tag))
for (const svg of document.querySelectorAll("svg")) {
  const items = [...svg.querySelectorAll("[data-tags]")]
  svg.addEventListener("mouseover", event => {
    const here = event.target.closest("[data-tags]")
    svg.classList.toggle("looking", !!here)
    for (const item of here ? items : [])
      item.classList.toggle("lit", part(tags(item), tags(here)) || part(tags(here), tags(item)))
  })
  svg.addEventListener("mouseleave", () => svg.classList.remove("looking"))
}
for (const grid of document.querySelectorAll("image[data-cells]")) {
  const [rows, columns] = JSON.parse(grid.dataset.labels), [low, high] = JSON.parse(grid.dataset.limits)
  const cells = atob(grid.dataset.cells)
  grid.addEventListener("mousemove", event => {
    const box = grid.getBoundingClientRect(), at = (length, share) => Math.min(length - 1, Math.floor(length * share))
    const row = at(rows.length, (event.clientY - box.top) / box.height)
    const column = at(columns.length, (event.clientX - box.left) / box.width)
    const level = cells.charCodeAt(row * columns.length + column)
    const value = level == 255 ? "none" : (low + (high - low) * level / 254).toPrecision(2)
    tell.textContent = `${rows[row]} | ${columns[column]}: ${value}`
    tell.style.cssText = `display:block;left:${event.clientX + 14}px;top:${event.clientY + 14}px`
  })
  grid.addEventListener("mouseleave", () => { tell.style.display = "none" })
}
"""


@runtime_checkable
class Figure(Protocol):
    """A figure with its numbers, which can be drawn as SVG and written as text."""

    def draw(self) -> Canvas: ...

    def as_text(self, width: int, colour: bool) -> str: ...


TextRenderer = Callable[
    [int, bool], str
]  # from a width in columns, and whether to use colour, to a text


@dataclass(frozen=True)
class View:
    """One look inside a model: its numbers as plain data, and the parts of its pictures and of its text.

    A figure is part of both, a canvas only of the pictures; a string or a figure's `as_text` only of the text.
    """

    name: str
    title: str
    data: dict[str, Any]
    parts: Sequence[str | Figure | Canvas | TextRenderer]

    @property
    def canvases(self) -> list[Canvas]:
        """Return the pictures; their titles are their captions."""
        parts = [part.draw() if isinstance(part, Figure) else part for part in self.parts]
        return [part for part in parts if isinstance(part, Canvas)]

    def show(self) -> None:
        """Write the text to standard output, in colour if that is a terminal and NO_COLOR is not set."""
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        text = self.to_text(width=shutil.get_terminal_size().columns, colour=colour)
        sys.stdout.write(f"{text}\n")

    def to_text(self, *, width: int = 80, colour: bool = False) -> str:
        texts = [part.as_text if isinstance(part, Figure) else part for part in self.parts]
        lines = [
            text(width, colour) if callable(text) else text
            for text in texts
            if not isinstance(text, Canvas)
        ]
        return "\n".join([visible(self.title), *lines])

    def to_json(self) -> str:
        """Return the data as JSON, with six digits; NaN and infinity are null."""
        document = {"view": self.name, "title": self.title, **_plain(self.data)}
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    def to_svg(self) -> str:
        return stack(self.canvases, title=self.title).to_svg()

    def to_png(self, *, scale: float = 2.0) -> bytes:
        return stack(self.canvases, title=self.title).to_png(scale=scale)

    def to_html(self) -> str:
        """Return a self-contained page; its policy forbids all network requests and all scripts but its own."""
        own = b64encode(sha256(SCRIPT.encode()).digest()).decode()
        policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{own}'"
        figures = "\n".join(
            f"<figure><figcaption dir=auto>{_escaped(canvas.title)}</figcaption>{canvas.to_svg()}</figure>"
            for canvas in self.canvases
        )
        data = (
            self.to_json()
            .replace("<", "\\u003c")
            .replace("\u2028", "\\u2028")
            .replace("\u2029", "\\u2029")
        )
        return (
            "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
            '<meta name=viewport content="width=device-width">\n'
            f'<meta http-equiv=Content-Security-Policy content="{policy}">\n'
            f"<title>{_escaped(self.title)}</title><style>{CSS}\n{_themes()}</style></head>\n"
            f"<body><h1 dir=auto>{_escaped(self.title)}</h1>\n{figures}\n<div id=cell></div>\n"
            f"<script type=application/json id=data>{data}</script>\n<script>{SCRIPT}</script></body></html>\n"
        )

    def _repr_html_(self) -> str:
        """Return the page in a frame for a notebook, so that the styles of page and notebook do not mix."""
        height = 120 + sum(canvas.height + 60 for canvas in self.canvases)
        return (
            f'<iframe srcdoc="{html.escape(self.to_html())}" sandbox="allow-scripts" '
            f'style="width:100%;height:{min(height, 900):.0f}px;border:0"></iframe>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the view to a file, in the format of its suffix."""
        path = Path(path)
        writers: dict[str, Callable[[], str | bytes]] = {
            ".html": self.to_html,
            ".svg": self.to_svg,
            ".png": self.to_png,
            ".json": self.to_json,
        }
        if path.suffix.lower() not in writers:
            raise UsageError(
                f"{path}: a view cannot be saved as '{path.suffix}'",
                hint=f"use a suffix of {', '.join(writers)}.",
            )
        content = writers[path.suffix.lower()]()
        # A lone surrogate, which JSON can hold but UTF-8 cannot, is written as an escape.
        path.write_bytes(
            content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
        )
        return path


def _themes() -> str:
    """Return the roles of the palette as CSS rules, for the light and the dark theme."""
    sheets = []
    for dark in (0, 1):
        rules = [
            f".fill-{role}{{fill:{c[dark]}}}.stroke-{role}{{stroke:{c[dark]}}}"
            for role, c in ROLES.items()
        ]
        ink = ROLES["ink"][dark]
        paper = ROLES["paper"][dark]
        sheets.append(
            f"body{{background:{paper};color:{ink}}}#cell{{background:{ink};color:{paper}}}{''.join(rules)}"
        )
    return (
        f"{sheets[0]}\n@media (prefers-color-scheme:dark){{:root{{color-scheme:dark}}{sheets[1]}}}"
    )


def _plain(value: Any) -> Any:
    """Convert arrays and tuples to lists, round numbers to six digits, and replace NaN and infinity by None."""
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def _escaped(text: str) -> str:
    return html.escape(visible(text))
