"""Real numbers as a target: one or several at each position, plain or angles in degrees."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from seqlab.codecs.codec import Codec, Examples, Json, Places, Row, Target
from seqlab.codecs.vectors import read_scale
from seqlab.data.columns import MISSING
from seqlab.data.example import Example
from seqlab.data.store import VECTORS, Column
from seqlab.errors import DataError, shorten
from seqlab.padded import Measured
from seqlab.recipe import Recipe


@dataclass(frozen=True)
class NumberTarget(Target):
    """Numbers for each position, with their scale over the training part; for angles, the mean direction only."""

    scale: Measured
    angles: bool
    no_label: str | None = None  # marks an unknown value in a file

    @property
    def width(self) -> int:
        return len(self.scale.mean)

    def encode(self, examples: Sequence[Example], places: Sequence[Places]) -> list[Row]:
        return [self._row(example, at) for example, at in zip(examples, places, strict=True)]

    def _row(self, example: Example, at: Places) -> Float32[np.ndarray, "T D"]:
        """Put the numbers of a word at its first piece; other pieces have NaN."""
        values = self.read(example)
        if at.starts is None:
            return values
        row = np.full((at.length, self.width), np.nan, dtype=np.float32)
        row[at.starts] = values
        return row

    def read(self, example: Example) -> Float32[np.ndarray, "T D"]:
        """Read the numbers of each position of an example, NaN for unknown ones."""
        return read_numbers(example, self.no_label, width=self.width)

    def column(self, path: Path) -> Column:
        return Column(path, 0, VECTORS, width=self.width, gaps=True)

    def difference(self, guess: np.ndarray, gold: np.ndarray) -> np.ndarray:
        """Return the error of a guess; for angles, between -180 and 180 degrees."""
        error = guess - gold
        return (error + 180) % 360 - 180 if self.angles else error

    def to_json(self) -> Json:
        return {"numbers": asdict(self.scale) | {"angles": self.angles, "no_label": self.no_label}}

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "NumberTarget":
        scale, numbers = read_scale(table, "numbers"), table["numbers"]
        return cls(scale, numbers.get("angles") is True, numbers.get("no_label"))

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "NumberTarget":
        """Learn the scale of the training part, also for an `old` model."""
        no_label = recipe.data.no_label
        rows: list[Float32[np.ndarray, "_ _"]] = []
        for example in examples():  # the first shows how many numbers a position has
            rows.append(read_numbers(example, no_label, width=rows[0].shape[1] if rows else None))
        values = np.concatenate(rows).astype(np.float64) if rows else np.zeros((0, 1))
        if np.isnan(values).all(0).any():
            raise DataError(
                "there are no numbers to learn from",
                hint="check that the file has a column of numbers.",
            )
        if recipe.target.kind == "angles":
            angles = np.deg2rad(values)
            sine = np.nanmean(np.sin(angles), 0)
            cosine = np.nanmean(np.cos(angles), 0)
            mean = np.rad2deg(np.arctan2(sine, cosine))
            return cls(Measured(tuple(mean.tolist()), (1.0,) * len(mean)), True, no_label)
        mean = np.nanmean(values, 0)
        deviation = np.nanstd(values, 0)
        positive = np.where(deviation > 1e-12, deviation, 1.0)
        return cls(Measured(tuple(mean.tolist()), tuple(positive.tolist())), False, no_label)


def read_numbers(
    example: Example, no_label: str | None, *, width: int | None
) -> Float32[np.ndarray, "T D"]:
    """Parse the numbers of each position: `1.5`, or `-57.8,-47.0` for several; `nan` or `no_label` for unknown ones."""
    table: list[list[float]] = []
    for position, text in enumerate(example.target, start=1):
        if text == no_label:
            cells = [math.nan] * (width or 1)
        else:
            cells = [_number(cell, example, position) for cell in text.split(",")]
        if width is not None and len(cells) != width:
            raise DataError(
                f"{example.where}: position {position} has {len(cells)} numbers where others have {width}",
                hint=f"it is {shorten(text)}; write {width} everywhere, with nan for unknown values.",
            )
        table.append(cells)
        width = len(cells) if text != no_label else width
    return np.asarray(table, dtype=np.float32).reshape(len(table), width or 1)


def _number(text: str, example: Example, position: int) -> float:
    if text.strip().lower() in MISSING:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise DataError(
            f"{example.where}: position {position}: {shorten(text)} is not a number",
            hint="with target.kind = numbers or angles each label is a number; for names leave target.kind unset.",
        )
    return value
