"""Decode pictures into rows of pixels of one size; arrays of features are kept as they are.

Files are not trusted: the size in the header is checked before anything is decoded, and a file that is too large, cut
short or not a picture is refused.
"""

import io
import warnings
from typing import Any

import numpy as np
from jaxtyping import Shaped

from seqlab.data.arrays import SavedArray, readable
from seqlab.data.vector_files import as_vectors
from seqlab.errors import DataError, package, warn
from seqlab.recipe import ImageConfig

MAX_PIXELS = 64_000_000  # of a picture, before it is made smaller
MIN_SIDE = 2  # pixels
# Formats that Pillow decodes by itself. Others start programs: it hands EPS to Ghostscript.
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")
Values = Shaped[np.ndarray, "T F"]


def picture_values(content: bytes | np.ndarray, where: str, image: ImageConfig | None) -> Values:
    """Return a file's bytes, or an array, as rows of pixels (H, W·C); without `image`, as features (regions, F)."""
    if isinstance(content, bytes):
        if image is not None and not content.startswith(b"\x93NUMPY"):
            return _decoded(content, where, image)
        with readable(
            where,
            hint="features come as np.save writes them; for pictures, the recipe needs [image].",
        ):
            content = SavedArray(io.BytesIO(content), len(content), where, "numbers").all()
    return _features(content, where) if image is None else _pixels(content, where, image)


def _features(array: np.ndarray, where: str) -> Values:
    """Return one vector, one for each region, or a grid of them, as (regions, F)."""
    if array.ndim == 1:
        return as_vectors(array[None], where)
    return as_vectors(array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array, where)


def _pixels(array: np.ndarray, where: str, image: ImageConfig) -> Values:
    """Return an array of pixels, integers from 0 to 255 or fractions from 0 to 1, in the right size."""
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[2] not in (1, 3) or min(array.shape) < 1:
        raise DataError(
            f"{where}: an array of shape {array.shape} where pixels (height, width) or (height, width, 3) are needed",
            hint="save grey or RGB pixels, one picture an entry.",
        )
    is_float = array.dtype.kind == "f"
    if is_float and np.isfinite(array).all() and 0 <= array.min() <= array.max() <= 1:
        array = np.round(array * 255)
    elif is_float or array.min() < 0 or array.max() > 255:
        raise DataError(
            f"{where}: pixels from {array.min():g} to {array.max():g} of dtype {array.dtype}",
            hint="pixels are integers from 0 to 255, or fractions from 0 to 1.",
        )
    pixels = array.astype(np.uint8)
    if pixels.shape == (image.height, image.width, image.channels):  # needs no Pillow
        return pixels.reshape(image.height, -1)
    return _resized(_pillow().fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels), image)


def _decoded(content: bytes, where: str, image: ImageConfig) -> Values:
    pillow = _pillow()
    from PIL import ImageOps, UnidentifiedImageError

    hint = "the file is cut short, damaged or something else; set image.bad to 'skip' to go on without it."
    with readable(where, "this cannot be read as a picture", hint=hint):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", pillow.DecompressionBombWarning)
                opened = pillow.open(io.BytesIO(content), formats=FORMATS)  # the header alone
        except pillow.DecompressionBombError:
            raise _too_large(where, "the picture's header declares too many pixels") from None
        except UnidentifiedImageError:
            raise DataError(
                f"{where}: this cannot be read as a picture: it is none of {', '.join(FORMATS)}, or its header is "
                "damaged",
                hint="convert it to PNG or JPEG; set image.bad to 'skip' to go on without it.",
            ) from None
        with opened:
            width, height = opened.size
            if width * height > MAX_PIXELS:
                raise _too_large(where, f"{width:,} x {height:,} pixels")
            if min(width, height) < MIN_SIDE:
                raise DataError(
                    f"{where}: {width} x {height} pixels, where {MIN_SIDE} x {MIN_SIDE} are needed",
                    hint="drop the file, or set image.bad to 'skip'.",
                )
            if getattr(opened, "is_animated", False):
                warn(f"{where}: {opened.n_frames} pictures in one file; only the first is used")
            # A large JPEG is decoded at a smaller size.
            opened.draft(None, (2 * image.width, 2 * image.height))
            return _resized(ImageOps.exif_transpose(opened), image)


def _resized(opened: Any, image: ImageConfig) -> Values:
    """Crop the centre to the right aspect ratio, and convert it to the right size and colours."""
    from PIL import ImageOps

    if opened.mode.startswith("I"):  # 16 bits, which Pillow would cut rather than scale
        values = np.asarray(opened, dtype=np.float64).clip(0, 65535)
        opened = _pillow().fromarray((values / 257).astype(np.uint8))
    if "A" in opened.getbands() or "transparency" in opened.info:
        picture = opened.convert("RGBA")
        background = _pillow().new("RGBA", picture.size, "white")
        opened = _pillow().alpha_composite(background, picture)
    coloured = opened.convert("L" if image.channels == 1 else "RGB")
    return np.array(ImageOps.fit(coloured, (image.width, image.height))).reshape(image.height, -1)


def _too_large(where: str, size: str) -> DataError:
    return DataError(
        f"{where}: {size}, more than {MAX_PIXELS:,} in all; it was not decoded",
        hint="make the picture smaller, or set image.bad to 'skip'.",
    )


def _pillow() -> Any:
    return package(
        "PIL.Image",
        "reading pictures needs the package Pillow",
        hint='pip install "seqlab[images]"',
    )
