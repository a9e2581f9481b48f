"""Real numbers as the labels of a tagger: one or several at each position, plain or angles in degrees."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from seqlab.data.series import MISSING
from seqlab.data.sources import Example
from seqlab.errors import BundleError, DataError, shorten


@dataclass(frozen=True)
class Numbers:
    """Mean and deviation of each number over the training part; of angles the mean direction, and no scale."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    angles: bool
    no_label: str | None = None  # what stands in a file where nothing is known

    @property
    def width(self) -> int:
        return len(self.mean)

    def encode(self, example: Example) -> Float32[np.ndarray, "T D"]:
        """The numbers of each position; NaN where one is not known."""
        return read_numbers(example, self.no_label, width=self.width)

    def to_json(self) -> dict[str, Any]:
        return {
            "mean": list(self.mean),
            "deviation": list(self.deviation),
            "angles": self.angles,
            "no_label": self.no_label,
        }

    @classmethod
    def from_json(cls, data: object) -> "Numbers":
        table = data if isinstance(data, dict) else {}
        mean, deviation = (table.get(key) for key in ("mean", "deviation"))
        lists = isinstance(mean, list) and isinstance(deviation, list) and len(mean) == len(deviation) > 0
        if not lists or not all(isinstance(n, float) for n in [*mean, *deviation]) or min(deviation) <= 0:  # type: ignore
            raise BundleError("the scale of the numbers is not one of Seqlab's", hint="restore the bundle.")
        return cls(tuple(mean), tuple(deviation), table.get("angles") is True, table.get("no_label"))  # type: ignore[arg-type]


def learn_numbers(examples: Iterable[Example], no_label: str | None, *, angles: bool) -> Numbers:
    """The scale of the training part; the first number that is there says how many stand at each position."""
    rows: list[Float32[np.ndarray, "_ _"]] = []
    for example in examples:
        rows.append(read_numbers(example, no_label, width=rows[0].shape[1] if rows else None))
    values = np.concatenate(rows).astype(np.float64) if rows else np.zeros((0, 1))
    if np.isnan(values).all(0).any():
        raise DataError("there are no numbers to learn from", hint="look whether the file has a column of numbers.")
    if angles:
        turned = np.deg2rad(values)
        mean = np.rad2deg(np.arctan2(np.nanmean(np.sin(turned), 0), np.nanmean(np.cos(turned), 0)))
        return Numbers(tuple(mean.tolist()), (1.0,) * len(mean), True, no_label)
    mean, deviation = np.nanmean(values, 0), np.nanstd(values, 0)
    return Numbers(tuple(mean.tolist()), tuple(np.where(deviation > 1e-12, deviation, 1.0).tolist()), False, no_label)


def read_numbers(example: Example, no_label: str | None, *, width: int | None) -> Float32[np.ndarray, "T D"]:
    """`1.5`, or `-57.8,-47.0` where several stand at a position; `nan` or `no_label` where it is unknown."""
    table: list[list[float]] = []
    for place, text in enumerate(example.target, start=1):
        cells = [math.nan] * (width or 1) if text == no_label else [_number(c, example, place) for c in text.split(",")]
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
