"""Pictures as a source: rows of pixels of one size, or features computed by another network."""

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Shaped

from seqlab.codecs.codec import Codec, Examples, Files, Json, Row, parse_numbers
from seqlab.codecs.vectors import NO_FILES, VectorSource, check_width, learn_scale, read_scale
from seqlab.data.example import Example, Picture
from seqlab.data.picture_files import load_picture
from seqlab.data.pixels import picture_values
from seqlab.data.png import png
from seqlab.data.store import PIXELS, VECTORS, Column, TokenStore, write_stores
from seqlab.errors import UsageError
from seqlab.recipe import ImageConfig, Recipe

STORE = "pictures"
PREFIX = "data:image/"  # of a picture that is sent as text; its format and base64 follow


@dataclass(frozen=True)
class PictureSource(VectorSource):
    """Pictures by name. Each is stored once, however many captions it has, and examples hold its row in the store."""

    image: ImageConfig | None

    def load(self, value: Any) -> Picture:
        """Load a picture from a file or an array of pixels, in the size that the model reads."""
        if isinstance(value, Picture):
            return value
        if isinstance(value, str):
            return Picture(value, load_picture(value, self.image))
        return Picture("", picture_values(np.asarray(value), "the picture", self.image))

    def parse(self, request: Any, *, most: int) -> Any:
        if not isinstance(request, str):
            return self._array(request)
        if self.image is None or not request.startswith(PREFIX):
            raise UsageError(
                NO_FILES,
                hint="give rows of numbers: the pixels of a picture, or its file as data:image/png;base64,...",
            )
        try:
            content = base64.b64decode(request.partition(",")[2], validate=True)
        except ValueError:
            raise UsageError(
                "the picture is not valid base64",
                hint="send data:image/png;base64, followed by the encoded file.",
            ) from None
        return Picture("", picture_values(content, "the picture", self.image))

    def _array(self, request: Any) -> np.ndarray:
        """Convert numbers of a JSON request; pixels above 1 are integers, which JSON does not distinguish."""
        array = parse_numbers(request)
        if self.image is None or array.size == 0 or array.max() <= 1:
            return array
        return array.astype(np.int64) if (array == array.round()).all() else array

    def encode(self, values: Sequence[Any]) -> list[Row]:
        return [check_width(self.scale, _values(value)) for value in values]

    def column(self, path: Path) -> Column:
        return Column(path, len(TokenStore.open(path.parent / STORE)))

    def show(self, value: Any) -> str:
        if isinstance(value, np.ndarray):
            return f"a picture of {value.shape[0]} x {value.shape[1]}"
        return value.name if isinstance(value, Picture) else str(value)

    def typed(self, value: Any) -> str:
        if self.image is None:
            return ""
        pixels = value.values.reshape(self.image.height, self.image.width, self.image.channels)
        return f"{PREFIX}png;base64,{base64.b64encode(png(pixels)).decode()}"

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "PictureSource":
        return cls(read_scale(table, "features"), recipe.image)

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "PictureSource":
        """Learn the scale of the training part; keep that of an `old` model."""
        image = recipe.image
        if old is not None:
            return cls(cast(PictureSource, old.source).scale, image)
        values = (_values(e.source) for e in examples())
        if image is None:
            return cls(learn_scale(values), None)
        colours = (array.reshape(-1, image.channels) for array in values)
        return cls(learn_scale(colours, columns=image.width), image)


def _values(value: Any) -> np.ndarray:
    return value.values if isinstance(value, Picture) else value


def store_pictures(
    image: ImageConfig | None,
    read: Callable[[Files], Iterator[Example]],
    parts: Sequence[Sequence[str]],
    folder: Path,
) -> list[list[Example]]:
    """Read the examples of each part, and write all their pictures into one store in `folder`."""
    examples: list[list[Example]] = [[] for _ in parts]
    pictures: list[Picture] = []

    def decoded() -> Iterator[tuple[Shaped[np.ndarray, "T F"]]]:
        for part, paths in zip(examples, parts, strict=True):
            last: Picture | None = None
            for example in read(paths):
                if example.source is not last:  # the captions of a picture follow each other
                    last = example.source
                    pictures.append(Picture(last.name, np.empty((0, 0)), len(pictures)))
                    yield (last.values,)
                part.append(replace(example, source=pictures[-1]))

    rows = decoded()
    first = next(rows)
    dtype = VECTORS if image is None else PIXELS
    [store] = write_stores(
        [Column(folder / STORE, 0, dtype, first[0].shape[1])], chain([first], rows)
    )
    spans = zip(pictures, store.begins.tolist(), store.ends.tolist(), strict=True)
    named = [replace(picture, values=store.flat[begin:end]) for picture, begin, end in spans]
    return [[replace(e, source=named[e.source.place]) for e in part] for part in examples]


def shared_pictures(stores: dict[str, TokenStore], part: str) -> TokenStore:
    """Return the store of the pictures of one part's examples."""
    return stores[STORE].rows_at(stores[f"{part}_source"].flat.astype(np.int64))
