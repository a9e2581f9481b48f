"""A canvas in pixels, drawn with Pillow: shapes larger than life and then made smaller, so that edges are smooth."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any
from unicodedata import bidirectional, category

import numpy as np
from jaxtyping import Float

from seqlab.errors import UsageError
from seqlab.explain.canvas import Canvas, Circle, Grid, Group, Item, Polyline, Rect, Text
from seqlab.explain.palette import colours, rgb
from seqlab.explain.width import Pixels, visible

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

SMOOTH = 2  # pixels drawn for each one kept, both ways
MOST_PIXELS = 8e6
# Letters are taken from the first of these that the machine has and that has them.
SANS = ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "segoeui.ttf", "Arial.ttf", "LiberationSans-Regular.ttf")
BOLD = ("DejaVuSans-Bold.ttf", "NotoSans-Bold.ttf", "segoeuib.ttf", "Arial Bold.ttf", "LiberationSans-Bold.ttf")
MONO = ("DejaVuSansMono.ttf", "NotoSansMono-Regular.ttf", "Menlo.ttc", "consola.ttf", "LiberationMono-Regular.ttf")
REST = (
    "DejaVuSans.ttf", "Arial Unicode.ttf", "NotoSansCJK-Regular.ttc", "wqy-zenhei.ttc", "wqy-microhei.ttc",
    "DroidSansFallbackFull.ttf", "PingFang.ttc", "Hiragino Sans GB.ttc", "msyh.ttc", "YuGothM.ttc", "malgun.ttf",
    "NotoSansArabic-Regular.ttf", "NotoSansHebrew-Regular.ttf", "NotoSansDevanagari-Regular.ttf", "Nirmala.ttf",
    "NotoSansThai-Regular.ttf", "NotoColorEmoji.ttf", "Apple Color Emoji.ttc", "seguiemj.ttf", "Symbola.ttf",
)  # fmt: skip
BITMAPS = {"NotoColorEmoji.ttf": 109, "Apple Color Emoji.ttc": 160}  # fonts of pictures, and the one size they have


def rasterise(canvas: Canvas, *, scale: Pixels) -> bytes:
    """A PNG file. Text lies above all shapes; a very large canvas gets a smaller scale."""
    try:
        from PIL import Image, ImageDraw
    except ModuleNotFoundError:
        raise UsageError(
            "a PNG is drawn with Pillow, which is not installed",
            hint="pip install 'seqlab[images]', or save the picture as .svg or .html.",
        ) from None
    scale = min(scale, (MOST_PIXELS / (canvas.width * canvas.height)) ** 0.5)
    wide, high = round(canvas.width * scale), round(canvas.height * scale)
    image = Image.new("RGB", (wide * SMOOTH, high * SMOOTH), rgb("paper"))
    shapes = list(_placed(canvas.items, 0.0, 0.0))
    pen = ImageDraw.Draw(image, "RGBA")
    for item, x, y in shapes:
        _draw(item, np.array([x, y]), scale * SMOOTH, image, pen)
    image = image.reduce(SMOOTH)
    for item, x, y in shapes:
        if isinstance(item, Text):
            _write(item, (x + item.x) * scale, (y + item.y) * scale, scale, image)
    file = io.BytesIO()
    image.save(file, "png", compress_level=3)
    return file.getvalue()


def _placed(items: tuple[Item, ...], x: Pixels, y: Pixels) -> Iterator[tuple[Item, float, float]]:
    """Every item with what its groups move it by."""
    for item in items:
        if isinstance(item, Group):
            yield from _placed(item.items, x + item.x, y + item.y)
        else:
            yield item, x, y


def _draw(item: Item, offset: np.ndarray, scale: Pixels, image: Image.Image, pen: ImageDraw.ImageDraw) -> None:
    match item:
        case Grid():
            left, top, right, bottom = _box(item.x, item.y, item.width, item.height, offset, scale)
            if right > left and bottom > top:
                image.paste(_cells(item, right - left, bottom - top), (left, top))
        case Rect():
            left, top, right, bottom = _box(item.x, item.y, item.width, item.height, offset, scale)
            if right > left and bottom > top:
                fill, outline, box = _ink(item.fill, item), _ink(item.stroke, item), (left, top, right - 1, bottom - 1)
                pen.rounded_rectangle(box, item.radius * scale, fill, outline, max(1, round(scale)))
        case Circle():
            x, y, size = item.x - item.radius, item.y - item.radius, 2 * item.radius
            pen.ellipse(list(_box(x, y, size, size, offset, scale)), fill=_ink(item.fill, item))
        case Polyline():
            points = (item.points + offset) * scale
            if item.fill:
                pen.polygon(points.flatten().tolist(), fill=_ink(item.fill, item))
            if item.stroke and item.opacity < 1:  # as one area, so that it does not darken where its parts meet
                pen.polygon(_ribbon(points, item.width * scale).flatten().tolist(), fill=_ink(item.stroke, item))
            elif item.stroke:
                for part in _dashes(points, 4 * scale) if item.dashed else [points]:
                    width = max(1, round(item.width * scale))
                    pen.line(part.flatten().tolist(), fill=_ink(item.stroke, item), width=width, joint="curve")


def _cells(grid: Grid, width: int, height: int) -> Image.Image:
    from PIL import Image

    cells = Image.fromarray(colours(grid.stops)[grid.cells])
    shrinks = width < cells.width or height < cells.height
    return cells.resize((width, height), Image.Resampling.BOX if shrinks else Image.Resampling.NEAREST)


def _write(text: Text, x: Pixels, y: Pixels, scale: Pixels, image: Image.Image) -> None:
    """The text in runs of one font each, on a sheet of its own if it is turned."""
    from PIL import Image, ImageDraw

    first = BOLD if text.bold else MONO if text.monospace else SANS
    runs = [(part, *_sized(name, text.size * scale)) for part, name in _runs(visible(text.text), first)]
    lengths = [font.getlength(part) * shrunk for part, font, shrunk in runs]
    left = {"start": 0.0, "middle": -0.5, "end": -1.0}[text.anchor] * sum(lengths)
    half = int(sum(lengths) + 2 * text.size * scale)
    sheet = Image.new("RGBA", (2 * half, 2 * half), (*rgb(text.fill), 0)) if text.rotation else image
    here, base = (half + left, float(half)) if text.rotation else (x + left, y)
    for (part, font, shrunk), length in zip(runs, lengths, strict=True):
        if shrunk == 1:
            ImageDraw.Draw(sheet, "RGBA").text((here, base), part, fill=_ink(text.fill, text), font=font, anchor="ls")
        else:  # small pictures: drawn in the size they have, then made smaller
            stamp = Image.new("RGBA", (int(length / shrunk) + 1, int(1.4 * font.size)))
            ImageDraw.Draw(stamp).text((0, 1.1 * font.size), part, font=font, anchor="ls", embedded_color=True)
            stamp = stamp.resize((max(1, int(stamp.width * shrunk)), int(stamp.height * shrunk)))
            sheet.paste(stamp, (round(here), round(base - 1.1 * font.size * shrunk)), stamp)
        here += length
    if text.rotation:
        turned = sheet.rotate(-text.rotation, Image.Resampling.BICUBIC)
        image.paste(turned, (round(x) - half, round(y) - half), turned)


def _runs(text: str, first: tuple[str, ...]) -> list[tuple[str, str]]:
    """Parts of a text, each with the font that has its letters; right-to-left text begins with its last part."""
    runs: list[tuple[str, str]] = []
    for letter in text:
        before, font = runs[-1] if runs else ("", "")
        if category(letter) not in ("Mn", "Me", "Cf") or not runs:  # which belong to the letter before
            font = next((name for name in (*first, *REST) if _has(name, letter)), _first(first))
        if runs and font == runs[-1][1]:
            runs[-1] = (before + letter, font)
        else:
            runs.append((letter, font))
    strong = next((side for side in map(bidirectional, text) if side in ("L", "R", "AL")), "L")
    return runs if strong == "L" else runs[::-1]


@cache
def _first(names: tuple[str, ...]) -> str:
    """The first of these fonts that this machine has; `` is the one that Pillow brings."""
    return next((name for name in names if _font(name, 20)), "")


@cache
def _has(name: str, letter: str) -> bool:
    """Whether a font has a letter: it does not draw it as it draws what no font has."""
    font = _font(name, BITMAPS.get(name, 20))
    return font is not None and bytes(font.getmask(letter)) != bytes(font.getmask("\U0010ffff"))


def _sized(name: str, size: Pixels) -> tuple[Any, float]:
    """The font, and what its letters must be shrunk by."""
    return (_font(name, BITMAPS[name]), size / BITMAPS[name]) if name in BITMAPS else (_font(name, round(size)), 1.0)


@cache
def _font(name: str, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont | None:
    from PIL import ImageFont

    try:
        return ImageFont.truetype(name, size) if name else ImageFont.load_default(size)
    except OSError:
        return None


def _ink(colour: str, item: Item) -> tuple[int, int, int, int] | None:
    return (*rgb(colour), round(255 * item.opacity)) if colour else None


def _box(x: Pixels, y: Pixels, wide: Pixels, high: Pixels, at: np.ndarray, scale: Pixels) -> tuple[int, int, int, int]:
    x, y = x + at[0], y + at[1]
    return round(x * scale), round(y * scale), round((x + wide) * scale), round((y + high) * scale)


def _ribbon(points: Float[np.ndarray, "N 2"], width: Pixels) -> Float[np.ndarray, "M 2"]:
    """The outline of a smooth thick line: to one side along it, and back on the other."""
    along = np.gradient(points, axis=0)
    along /= np.maximum(np.hypot(*along.T), 1e-9)[:, None]
    side = np.stack([-along[:, 1], along[:, 0]], 1) * width / 2
    return np.vstack([points + side, (points - side)[::-1]])


def _dashes(points: Float[np.ndarray, "N 2"], length: Pixels) -> list[np.ndarray]:
    """Pieces of a line, as long as the gaps between them."""
    walked = np.append(0, np.hypot(*np.diff(points, axis=0).T).cumsum())
    starts = np.arange(0, walked[-1], 2 * length)
    ends = np.minimum(starts + length, walked[-1])
    at = [np.interp(np.stack([starts, ends], 1), walked, points[:, axis]) for axis in (0, 1)]
    return list(np.stack(at, 2))
