"""A canvas in pixels: its SVG document, rendered by resvg."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from seqlab.errors import UsageError
from seqlab.explain.canvas import SANS, Canvas
from seqlab.explain.palette import ROLES
from seqlab.explain.width import Pixels

MOST_PIXELS = 8e6
# What the generic families mean on a machine that has none of the families that the SVG names.
FAMILIES: dict[str, Any] = {"sans_serif_family": "Liberation Sans", "monospace_family": "Liberation Mono"}


def rasterise(canvas: Canvas, *, scale: Pixels) -> bytes:
    """A PNG file. A very large canvas gets a smaller scale."""
    try:
        from resvg_py import svg_to_bytes
    except ModuleNotFoundError:
        raise UsageError(
            "a PNG is rendered by the package resvg-py, which is not installed",
            hint="pip install 'seqlab[images]', or save the picture as .svg or .html.",
        ) from None
    scale = min(scale, (MOST_PIXELS / (canvas.width * canvas.height)) ** 0.5)
    with _fonts() as fonts:
        return svg_to_bytes(svg_string=_for_resvg(canvas.to_svg()), zoom=scale, background=ROLES["paper"][0], **fonts)


def _for_resvg(svg: str) -> str:
    """The same picture in terms that resvg knows, or draws faster.

    It ignores `white-space`. It composes whatever has an opacity on a sheet of its own, which takes a second for a
    dozen long lines; a line has one colour, so that it can be drawn pale at once.
    """
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    return re.sub(r'(<poly[^>]*) opacity="([^"]*)"', r'\1 fill-opacity="\2" stroke-opacity="\2"', svg)


@contextmanager
def _fonts() -> Iterator[dict[str, Any]]:
    """The fonts of this machine; where it has none, the one that Pillow brings, which has Latin letters."""
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
    """Whether a letter leaves ink: resvg leaves out a text for which there is no font."""
    from resvg_py import svg_to_bytes

    page = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20" font-family="{}"><text y="15">{}</text></svg>'
    )
    letter, nothing = (svg_to_bytes(svg_string=page.format(SANS, text), **FAMILIES) for text in ("x", ""))
    return letter != nothing
