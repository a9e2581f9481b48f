"""One training example: a source, its target, and the file and line it came from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32, Shaped

from seqlab.data.lines import display_name
from seqlab.errors import DataError

Text = str | tuple[str, ...]
Vectors = Float32[np.ndarray, "_ _"]
Box = tuple[str, float, float, float, float]
"""A noun of a caption and where it is in the picture: left, top, right, bottom, as fractions of its sides."""


@dataclass(frozen=True)
class Picture:
    """A picture: rows of pixel values, or feature vectors that another network made from it.

    `place` is its row in the store of all pictures, once it is stored: several captions share a picture.
    """

    name: str
    values: Shaped[np.ndarray, "_ _"]
    place: int | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Example:
    """A source with its target, and the "file:line" it came from; `boxes` locate things in a picture, if known."""

    source: Any  # Text, Vectors or a Picture
    target: Any  # Text, or Vectors
    where: str
    boxes: tuple[Box, ...] = ()


def at_least_one(examples: Iterator[Example], paths: Sequence[str]) -> Iterator[Example]:
    """Yield the examples; raise an error if there are none."""
    empty = True
    for example in examples:
        empty = False
        yield example
    if empty:
        names = " and ".join(display_name(path) for path in paths)
        raise DataError(
            f"{names}: no example was found",
            hint="there is no line after the header, or only comments.",
        )
