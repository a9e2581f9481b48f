"""Sequences of feature vectors as a source: speech frames, pen strokes, protein profiles."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from seqlab.codecs.codec import (
    Codec,
    Examples,
    Json,
    Places,
    Row,
    Source,
    Target,
    entry_of,
    parse_numbers,
)
from seqlab.data.example import Example
from seqlab.data.store import VECTORS, Column
from seqlab.data.vector_files import load_vectors
from seqlab.errors import BundleError, DataError, UsageError
from seqlab.padded import Measured
from seqlab.recipe import Recipe

NO_FILES = "this model reads numbers, and the server opens no files"


def check_width(scale: Measured, vectors: np.ndarray) -> np.ndarray:
    """Vectors with as many features as those of training; a single number a position is one feature."""
    vectors = vectors if vectors.dtype == np.uint8 else np.asarray(vectors, dtype=np.float32)
    vectors = vectors[:, None] if vectors.ndim == 1 else vectors
    if vectors.shape[1] != len(scale.mean):
        raise DataError(
            f"vectors of {vectors.shape[1]} features where the model was trained on {len(scale.mean)}",
            hint="compute the features as for training.",
        )
    return vectors


def read_scale(table: Json, name: str) -> Measured:
    """Mean and deviation from JSON: as many of one as of the other, all finite numbers, no deviation below 0."""
    entry = entry_of(table, name)
    sides: list[Any] = [
        entry.get(side) if isinstance(entry, dict) else None for side in ("mean", "deviation")
    ]
    lists = all(isinstance(side, list) for side in sides) and len(sides[0]) == len(sides[1]) > 0
    if (
        not lists
        or not all(isinstance(n, float) for side in sides for n in side)
        or min(sides[1]) <= 0
    ):
        raise BundleError(
            f"the scale of the {name} is not one of Seqlab's", hint="restore the bundle."
        )
    return Measured(*map(tuple, sides))


@dataclass(frozen=True)
class VectorSource(Source):
    """Arrays of frames by features, or the paths of files that hold them."""

    scale: Measured

    @property
    def entry(self) -> Measured:
        return self.scale

    def load(self, value: Any) -> Any:
        return load_vectors(value) if isinstance(value, str) else value

    def parse(self, request: Any, *, most: int) -> np.ndarray:
        if isinstance(request, str):
            raise UsageError(NO_FILES, hint="give a list of rows of numbers.")
        return parse_numbers(request)

    def encode(self, values: Sequence[Any]) -> list[Row]:
        return [check_width(self.scale, value) for value in values]

    def column(self, path: Path) -> Column:
        return Column(path, 0, VECTORS, width=len(self.scale.mean))

    def show(self, value: Any) -> str:
        return (
            value if isinstance(value, str) else f"{len(value)} frames of {value.shape[1]} features"
        )

    def typed(self, value: Any) -> str:
        return ""

    def to_json(self) -> Json:
        return {"features": asdict(self.scale)}

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "VectorSource":
        return cls(read_scale(table, "features"))

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "VectorSource":
        """The source of the training part; the scale of an `old` model stays as it is."""
        if old is not None:
            return cls(cast(VectorSource, old.source).scale)
        return cls(learn_scale(e.source for e in examples()))


@dataclass(frozen=True)
class VectorTarget(Target):
    """Frames that a model writes: arrays of frames by features."""

    scale: Measured

    def encode(self, examples: Sequence[Example], places: Sequence[Places]) -> list[Row]:
        return [check_width(self.scale, example.target) for example in examples]

    def cut(self, row: Row, *, source: int, target: int) -> Row:
        return row[:target]

    def column(self, path: Path) -> Column:
        return Column(path, 0, VECTORS, width=len(self.scale.mean))

    def to_json(self) -> Json:
        return {"frames": asdict(self.scale)}

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "VectorTarget":
        return cls(read_scale(table, "frames"))

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "VectorTarget":
        """The scale of the training part, always anew."""
        return cls(learn_scale(example.target for example in examples()))


def learn_scale(arrays: Iterable[np.ndarray], *, columns: int = 1) -> Measured:
    """Mean and deviation of each feature in one pass; the deviation of a constant feature counts as 1.

    The scale of pixels is learnt for each colour and repeated for each of the `columns`.
    """
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    for array in arrays:
        vectors = array.astype(np.float64)
        count, total, squares = (
            count + len(vectors),
            total + vectors.sum(0),
            squares + np.square(vectors).sum(0),
        )
    mean = total / max(1, count)
    deviation = np.sqrt(np.maximum(squares / max(1, count) - mean**2, 0))
    positive = np.where(deviation > 1e-8, deviation, 1.0)
    return Measured(tuple(mean.tolist()) * columns, tuple(positive.tolist()) * columns)
