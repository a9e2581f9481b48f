"""Sequences of feature vectors as a source: speech frames, pen strokes, protein profiles."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard, cast

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
from seqlab.data.labelled_rows import numbers_of
from seqlab.data.store import VECTORS, Column
from seqlab.data.vector_files import load_vectors
from seqlab.errors import BundleError, DataError, UsageError
from seqlab.padded import Measured
from seqlab.recipe import Recipe

NO_FILES = "this model reads numbers, and the server opens no files"


def check_width(scale: Measured, vectors: np.ndarray) -> np.ndarray:
    """Return vectors of shape (T, features); refuse another number of features than in training."""
    vectors = vectors if vectors.dtype == np.uint8 else np.asarray(vectors, dtype=np.float32)
    vectors = vectors[:, None] if vectors.ndim == 1 else vectors
    if vectors.shape[1] != len(scale.mean):
        raise DataError(
            f"vectors of {vectors.shape[1]} features where the model was trained on {len(scale.mean)}",
            hint="compute the features as for training.",
        )
    return vectors


def read_scale(table: Json, name: str) -> Measured:
    """Read mean and deviation of each feature from JSON; the deviations must be positive."""
    entry = entry_of(table, name)
    mean = entry.get("mean") if isinstance(entry, dict) else None
    deviation = entry.get("deviation") if isinstance(entry, dict) else None
    if not _are_numbers(mean) or not _are_numbers(deviation):
        raise _invalid_scale(name)
    if not len(mean) == len(deviation) > 0 or min(deviation) <= 0:
        raise _invalid_scale(name)
    return Measured(tuple(mean), tuple(deviation))


def _are_numbers(values: Any) -> TypeGuard[list[float]]:
    return isinstance(values, list) and all(isinstance(value, float) for value in values)


def _invalid_scale(name: str) -> BundleError:
    return BundleError(f"the scale of the {name} is invalid", hint="restore the bundle.")


@dataclass(frozen=True)
class VectorSource(Source):
    """Arrays of frames by features, or the paths of files that hold them."""

    scale: Measured

    @property
    def entry(self) -> Measured:
        return self.scale

    def load(self, value: Any) -> Any:
        """The frames in a file, or on a line of numbers: as many as a frame has are one frame, else one is a frame."""
        if not isinstance(value, str):
            return value
        numbers = numbers_of(value)
        if numbers is None or not len(numbers):
            return load_vectors(value)
        return numbers[None] if len(numbers) == len(self.scale.mean) > 1 else numbers

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
        """Learn the scale of the training part; keep that of an `old` model."""
        if old is not None:
            return cls(cast(VectorSource, old.source).scale)
        return cls(learn_scale(e.source for e in examples()))


@dataclass(frozen=True)
class VectorTarget(Target):
    """Frames that a model generates: arrays of frames by features."""

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
        """Learn the scale of the training part, also for an `old` model."""
        return cls(learn_scale(example.target for example in examples()))


def learn_scale(arrays: Iterable[np.ndarray], *, columns: int = 1) -> Measured:
    """Learn mean and deviation of each feature in one pass; the deviation of a constant feature is set to 1.

    The scale of pixels is learnt for each colour and repeated for each of the `columns`.
    """
    count = 0
    total = np.zeros(1)
    squares = np.zeros(1)
    for array in arrays:
        vectors = array.astype(np.float64)
        count += len(vectors)
        total = total + vectors.sum(0)
        squares = squares + np.square(vectors).sum(0)
    mean = total / max(1, count)
    deviation = np.sqrt(np.maximum(squares / max(1, count) - mean**2, 0))
    positive = np.where(deviation > 1e-8, deviation, 1.0)
    return Measured(tuple(mean.tolist()) * columns, tuple(positive.tolist()) * columns)
