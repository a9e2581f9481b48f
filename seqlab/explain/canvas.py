"""Drawings of a few kinds of items, as SVG and, rendered by resvg, as PNG. Lengths are pixels, y grows downwards."""

import json
import re
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from jaxtyping import Num, UInt8

from seqlab.data.png import png
from seqlab.errors import UsageError
from seqlab.explain.figure_text import Pixels, Range, visible
from seqlab.explain.palette import ROLES, colours

SANS = "system-ui,'Segoe UI','Helvetica Neue','Noto Sans','DejaVu Sans',Arial,sans-serif"
Vector = Num[np.ndarray, " N"]
Matrix = Num[np.ndarray, "R C"]
Points = Num[np.ndarray, "N 2"]
MONO = "ui-monospace,'DejaVu Sans Mono','Noto Sans Mono',Menlo,Consolas,monospace"
# Each label has the direction of its own script; blanks are kept.
STYLE = "text{unicode-bidi:plaintext;white-space:pre}"

MAX_PIXELS = 8e6
# The fonts for the generic families, on a machine without any of the families that the SVG names.
FAMILIES: dict[str, Any] = {
    "sans_serif_family": "Liberation Sans",
    "monospace_family": "Liberation Mono",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Item:
    """An item of a drawing. A colour is `#rrggbb` or a role of the palette, whose colour depends on the theme."""

    opacity: Pixels = 1.0
    hint: str = ""  # the tooltip
    # on a page, hovering highlights the items whose tags are a subset or a superset of these
    tags: tuple[str, ...] = ()
    fill = ""
    stroke = ""

    def svg(self) -> str:
        raise NotImplementedError

    def _element(self, name: str, attributes: Mapping[str, object], inner: str = "") -> str:
        """Return an XML element in the colours of the light theme; roles are also classes, for the dark theme."""
        paints = {"fill": self.fill, "stroke": self.stroke}
        roles = " ".join(f"{kind}-{role}" for kind, role in paints.items() if role in ROLES)
        paints = {kind: ROLES.get(colour, (colour,))[0] for kind, colour in paints.items()}
        style = {**attributes, **paints, "fill": paints["fill"] or "none", "class": roles}
        style |= {
            "opacity": self.opacity if self.opacity < 1 else None,
            "data-tags": " ".join(self.tags),
        }
        inner += f"<title>{escape(visible(self.hint))}</title>" if self.hint else ""
        return element(name, style, inner)


@dataclass(frozen=True)
class Rect(Item):
    x: Pixels
    y: Pixels
    width: Pixels
    height: Pixels
    fill: str = ""
    stroke: str = ""
    radius: Pixels = 0.0

    def svg(self) -> str:
        attributes = {
            "x": self.x,
            "y": self.y,
            "width": self.width,
            "height": self.height,
            "rx": self.radius or None,
        }
        return self._element("rect", attributes)


@dataclass(frozen=True)
class Polyline(Item):
    """An open line, or an area if it has a fill."""

    points: Points
    stroke: str = ""
    width: Pixels = 1.0
    fill: str = ""
    dashed: bool = False

    def svg(self) -> str:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in self.points.tolist())
        attributes = {
            "points": points,
            "stroke-linejoin": "round",
            "stroke-width": self.width,
            "stroke-dasharray": "4 4" if self.dashed else None,
        }
        return self._element("polygon" if self.fill else "polyline", attributes)


@dataclass(frozen=True)
class Circle(Item):
    x: Pixels
    y: Pixels
    radius: Pixels
    fill: str

    def svg(self) -> str:
        return self._element("circle", {"cx": self.x, "cy": self.y, "r": self.radius})


@dataclass(frozen=True)
class Text(Item):
    """One line of text whose baseline starts, ends or is centred at a point, and is rotated about it."""

    x: Pixels
    y: Pixels
    text: str
    size: Pixels = 12.0
    fill: str = "ink"
    anchor: str = "start"  # or middle, or end
    rotation: Pixels = 0.0  # degrees, clockwise
    bold: bool = False
    monospace: bool = False

    def svg(self) -> str:
        rotation = f"rotate({self.rotation:g} {self.x:.2f} {self.y:.2f})"
        attributes = {
            "x": self.x,
            "y": self.y,
            "font-size": self.size,
            "text-anchor": self.anchor,
            "transform": rotation if self.rotation else None,
            "font-weight": "600" if self.bold else None,
            "font-family": MONO if self.monospace else None,
        }
        return self._element("text", attributes, escape(visible(self.text)))


@dataclass(frozen=True)
class Grid(Item):
    """A matrix of coloured cells as one image; on a page, the pointer shows the value of a cell."""

    x: Pixels
    y: Pixels
    width: Pixels
    height: Pixels
    cells: UInt8[np.ndarray, "R C"]  # levels of the palette
    stops: tuple[str, ...]
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    limits: Range = (0.0, 1.0)

    def svg(self) -> str:
        shrinks = self.cells.shape[0] > self.height or self.cells.shape[1] > self.width
        image = b64encode(png(self.cells, colours(self.stops))).decode()
        names = [[visible(name) for name in side] for side in (self.rows, self.columns)]
        attributes = {
            "x": self.x,
            "y": self.y,
            "width": self.width,
            "height": self.height,
            "preserveAspectRatio": "none",
            "style": None if shrinks else "image-rendering:pixelated",
            "href": f"data:image/png;base64,{image}",
        }
        if self.rows:
            attributes |= {"data-labels": json.dumps(names), "data-limits": json.dumps(self.limits)}
            attributes |= {"data-cells": b64encode(self.cells.tobytes()).decode()}
        return self._element("image", attributes)


@dataclass(frozen=True)
class Group(Item):
    """Items that are moved together by (x, y)."""

    x: Pixels
    y: Pixels
    items: Sequence[Item]

    def svg(self) -> str:
        inner = "".join(item.svg() for item in self.items)
        return self._element("g", {"transform": f"translate({self.x:g} {self.y:g})"}, inner)


@dataclass(frozen=True)
class Canvas:
    width: Pixels
    height: Pixels
    items: Sequence[Item]
    title: str = ""

    def to_svg(self) -> str:
        """Return an SVG document, which can also be put into an HTML page."""
        paper = Rect(0, 0, self.width, self.height, "paper").svg()
        inner = f"<title>{escape(visible(self.title))}</title>" if self.title else ""
        inner += f"<style>{STYLE}</style>{paper}" + "\n".join(item.svg() for item in self.items)
        frame = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-family": SANS}
        size = {
            "width": self.width,
            "height": self.height,
            "viewBox": f"0 0 {self.width:g} {self.height:g}",
        }
        return element("svg", {**frame, **size}, inner)

    def to_png(self, *, scale: Pixels = 2.0) -> bytes:
        """Render a PNG with `scale` pixels for each unit, fewer for a very large picture; needs resvg-py."""
        try:
            from resvg_py import svg_to_bytes
        except ModuleNotFoundError:
            raise UsageError(
                "saving a PNG needs the package resvg-py, which is not installed",
                hint="pip install 'seqlab[images]', or save the picture as .svg or .html.",
            ) from None
        scale = min(scale, (MAX_PIXELS / (self.width * self.height)) ** 0.5)
        with _fonts() as fonts:
            return svg_to_bytes(
                svg_string=_for_resvg(self.to_svg()),
                zoom=scale,
                background=ROLES["paper"][0],
                **fonts,
            )


def stack(canvases: Sequence[Canvas], *, title: str) -> Canvas:
    """Place pictures below one another, each under its own title."""
    items: list[Item] = [Text(20, 30, title, 16, bold=True)] if title else []
    y = 44.0 if title else 0.0
    for canvas in canvases:
        if canvas.title and canvas.title != title:
            items.append(Text(20, y + 18, canvas.title, 13, "muted"))
            y += 26
        items.append(Group(0, y, canvas.items))
        y += canvas.height
    return Canvas(max((canvas.width for canvas in canvases), default=0), y, items, title)


def line(
    x1: Pixels, y1: Pixels, x2: Pixels, y2: Pixels, stroke: str = "rule", *, dashed: bool = False
) -> Polyline:
    return Polyline(np.array([[x1, y1], [x2, y2]], float), stroke, dashed=dashed)


def s_curve(x1: Pixels, y1: Pixels, x2: Pixels, y2: Pixels) -> Points:
    """Return a curve that is horizontal at both ends, with more points where it bends."""
    share = (1 - np.cos(np.linspace(0, np.pi, 25))) / 2
    return np.stack([x1 + (x2 - x1) * share, y1 + (y2 - y1) * share**2 * (3 - 2 * share)], 1)


def element(name: str, attributes: Mapping[str, object], inner: str = "") -> str:
    """Return an XML element; attributes that are None or empty are left out."""
    present = {key: value for key, value in attributes.items() if value not in (None, "")}
    texts = {
        key: f"{value:.6g}" if isinstance(value, float) else str(value)
        for key, value in present.items()
    }
    return f"<{name} {' '.join(f'{key}={quoteattr(text)}' for key, text in texts.items())}>{inner}</{name}>"


def _for_resvg(svg: str) -> str:
    """Rewrite an SVG in attributes that resvg supports or renders faster.

    resvg ignores `white-space`. It renders every item with `opacity` into a layer of its own, which takes a second for
    a dozen long lines; for a line of one colour, `stroke-opacity` gives the same picture without a layer.
    """
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    return re.sub(
        r'(<poly[^>]*) opacity="([^"]*)"', r'\1 fill-opacity="\2" stroke-opacity="\2"', svg
    )


@contextmanager
def _fonts() -> Iterator[dict[str, Any]]:
    """Give resvg the fonts of this machine; if there are none, the font of Pillow, which has Latin letters."""
    if _machine_has_fonts():
        yield FAMILIES
        return
    from PIL import ImageFont

    font: Any = ImageFont.load_default(20)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "font.ttf"
        path.write_bytes(font.font_bytes)
        family = font.getname()[0]
        yield {"font_files": [str(path)], "sans_serif_family": family, "monospace_family": family}


@cache
def _machine_has_fonts() -> bool:
    """Return whether resvg draws a letter: it leaves out a text if there is no font."""
    from resvg_py import svg_to_bytes

    template = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20" font-family="{}">'
    template += '<text y="15">{}</text></svg>'
    letter = svg_to_bytes(svg_string=template.format(SANS, "x"), **FAMILIES)
    blank = svg_to_bytes(svg_string=template.format(SANS, ""), **FAMILIES)
    return letter != blank
