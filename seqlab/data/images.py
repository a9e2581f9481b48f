"""Pictures with captions or labels: what is in a file becomes rows of pixels of one size, or features as they are.

A picture comes from elsewhere and is only data: its header says how large it is before anything is decoded, what is
too large, cut short or no picture at all is named, and no table leads out of its own directory.
"""

import io
import warnings
from typing import Any

import numpy as np
from jaxtyping import Shaped

from seqlab.data.arrays import SavedArray, readable
from seqlab.data.vectors import as_vectors
from seqlab.errors import DataError, package, warn
from seqlab.recipe import ImageConfig

MOST_PIXELS = 64_000_000  # of a picture, before it is made smaller
LEAST_SIDE = 2  # pixels
# Formats that Pillow decodes by itself. Others start programs: it hands EPS to Ghostscript.
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")
Values = Shaped[np.ndarray, "T F"]


def picture_values(content: bytes | np.ndarray, where: str, image: ImageConfig | None) -> Values:
    """A file's bytes, or an array, as rows of pixels (H, W·C); without `image`, as features (places, features)."""
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
    """One vector, one for each place, or a grid of them, places first; never one number for each place."""
    if array.ndim == 1:
        return as_vectors(array[None], where)
    return as_vectors(array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array, where)


def _pixels(array: np.ndarray, where: str, image: ImageConfig) -> Values:
    """Pixels that are there already: bytes, or numbers from 0 to 1."""
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[2] not in (1, 3) or min(array.shape) < 1:
        raise DataError(
            f"{where}: an array of shape {array.shape} where pixels (height, width) or (height, width, 3) are needed",
            hint="save grey or RGB pixels, one picture an entry.",
        )
    if (
        array.dtype.kind == "f"
        and np.isfinite(array).all()
        and 0 <= array.min() <= array.max() <= 1
    ):
        array = np.round(array * 255)
    elif array.dtype.kind == "f" or array.min() < 0 or array.max() > 255:
        raise DataError(
            f"{where}: pixels from {array.min():g} to {array.max():g} of dtype {array.dtype}",
            hint="pixels are integers from 0 to 255, or fractions from 0 to 1.",
        )
    pixels = array.astype(np.uint8)
    if pixels.shape == (
        image.height,
        image.width,
        image.channels,
    ):  # as it should be, and Pillow is not missed
        return pixels.reshape(image.height, -1)
    return _fitted(_pillow().fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels), image)


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
            raise _too_large(where, "the picture's header promises too much") from None
        except UnidentifiedImageError:
            raise DataError(
                f"{where}: this cannot be read as a picture: it is none of {', '.join(FORMATS)}, or its header is "
                "damaged",
                hint="convert it to PNG or JPEG; set image.bad to 'skip' to go on without it.",
            ) from None
        with opened:
            width, height = opened.size
            if width * height > MOST_PIXELS:
                raise _too_large(where, f"{width:,} x {height:,} pixels")
            if min(width, height) < LEAST_SIDE:
                raise DataError(
                    f"{where}: {width} x {height} pixels, in which there is nothing to see",
                    hint="drop the file, or set image.bad to 'skip'.",
                )
            if getattr(opened, "is_animated", False):
                message = f"{where}: {opened.n_frames} pictures in one file; only the first is used"
                warn(message)
            opened.draft(
                None, (2 * image.width, 2 * image.height)
            )  # a large JPEG is decoded at a smaller size
            return _fitted(ImageOps.exif_transpose(opened), image)


def _fitted(opened: Any, image: ImageConfig) -> Values:
    """The largest part at the centre that has the right form, in the right size and colours."""
    from PIL import ImageOps

    if opened.mode.startswith("I"):  # 16 bits, which Pillow would cut rather than scale
        opened = _pillow().fromarray(
            (np.asarray(opened, dtype=np.float64).clip(0, 65535) / 257).astype(np.uint8)
        )
    if "A" in opened.getbands() or "transparency" in opened.info:
        above = opened.convert("RGBA")
        opened = _pillow().alpha_composite(_pillow().new("RGBA", above.size, "white"), above)
    coloured = opened.convert("L" if image.channels == 1 else "RGB")
    return np.array(ImageOps.fit(coloured, (image.width, image.height))).reshape(image.height, -1)


def _too_large(where: str, size: str) -> DataError:
    return DataError(
        f"{where}: {size}, more than {MOST_PIXELS:,} in all; it was not decoded",
        hint="make the picture smaller, or set image.bad to 'skip'.",
    )


def _pillow() -> Any:
    return package(
        "PIL.Image",
        "reading pictures needs the package Pillow",
        hint='pip install "seqlab[images]"',
    )
