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
    """The scale of each number over the training part; of angles the mean direction, and no deviation."""

    scale: Measured
    angles: bool
    no_label: str | None = None  # what stands in a file where nothing is known

    @property
    def width(self) -> int:
        return len(self.scale.mean)

    def encode(self, examples: Sequence[Example], places: Sequence[Places]) -> list[Row]:
        return [self._row(example, at) for example, at in zip(examples, places, strict=True)]

    def _row(self, example: Example, at: Places) -> Float32[np.ndarray, "T D"]:
        """The numbers of a word stand at the word's first piece; elsewhere nothing is known."""
        values = self.read(example)
        if at.starts is None:
            return values
        spread = np.full((at.length, self.width), np.nan, dtype=np.float32)
        spread[at.starts] = values
        return spread

    def read(self, example: Example) -> Float32[np.ndarray, "T D"]:
        """The numbers of each position of an example; NaN where one is not known."""
        return read_numbers(example, self.no_label, width=self.width)

    def column(self, path: Path) -> Column:
        return Column(path, 0, VECTORS, width=self.width, gaps=True)

    def difference(self, guess: np.ndarray, gold: np.ndarray) -> np.ndarray:
        """How far a guess is off; of angles, the shorter way round."""
        apart = guess - gold
        return (apart + 180) % 360 - 180 if self.angles else apart

    def to_json(self) -> Json:
        return {"numbers": asdict(self.scale) | {"angles": self.angles, "no_label": self.no_label}}

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "NumberTarget":
        scale, numbers = read_scale(table, "numbers"), table["numbers"]
        return cls(scale, numbers.get("angles") is True, numbers.get("no_label"))

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "NumberTarget":
        """The scale of the training part, always anew."""
        no_label, rows = recipe.data.no_label, list[Float32[np.ndarray, "_ _"]]()
        for (
            example
        ) in examples():  # the first number that is there says how many stand at each position
            rows.append(read_numbers(example, no_label, width=rows[0].shape[1] if rows else None))
        values = np.concatenate(rows).astype(np.float64) if rows else np.zeros((0, 1))
        if np.isnan(values).all(0).any():
            raise DataError(
                "there are no numbers to learn from",
                hint="look whether the file has a column of numbers.",
            )
        if recipe.target.kind == "angles":
            turned = np.deg2rad(values)
            mean = np.rad2deg(
                np.arctan2(np.nanmean(np.sin(turned), 0), np.nanmean(np.cos(turned), 0))
            )
            return cls(Measured(tuple(mean.tolist()), (1.0,) * len(mean)), True, no_label)
        mean, deviation = np.nanmean(values, 0), np.nanstd(values, 0)
        positive = np.where(deviation > 1e-12, deviation, 1.0)
        return cls(Measured(tuple(mean.tolist()), tuple(positive.tolist())), False, no_label)


def read_numbers(
    example: Example, no_label: str | None, *, width: int | None
) -> Float32[np.ndarray, "T D"]:
    """`1.5`, or `-57.8,-47.0` where several stand at a position; `nan` or `no_label` where it is unknown."""
    table: list[list[float]] = []
    for place, text in enumerate(example.target, start=1):
        cells = (
            [math.nan] * (width or 1)
            if text == no_label
            else [_number(c, example, place) for c in text.split(",")]
        )
        if width is not None and len(cells) != width:
            raise DataError(
                f"{example.where}: position {place} has {len(cells)} numbers where others have {width}",
                hint=f"it is {shorten(text)}; write as many everywhere, with nan for what is not known.",
            )
        table.append(cells)
        width = len(cells) if text != no_label else width
    return np.asarray(table, dtype=np.float32).reshape(len(table), width or 1)


def _number(text: str, example: Example, place: int) -> float:
    if text.strip().lower() in MISSING:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise DataError(
            f"{example.where}: position {place}: {shorten(text)} is not a number",
            hint="with target.kind = numbers or angles each label is one; for names leave target.kind as it is.",
        )
    return value
