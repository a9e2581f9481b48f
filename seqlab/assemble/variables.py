"""What a forecaster knows of its table: the columns, and the scale on which it reads and writes them."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from seqlab.data.series import Series, calendar, read_series
from seqlab.errors import BundleError, DataError
from seqlab.recipe import Recipe


@dataclass(frozen=True)
class Variables:
    """What is forecast and what is known in advance; mean and deviation of each of both over the training part.

    `season` is how many rows make one, `naive` the mean error, in deviations, of saying what was a season before.
    """

    columns: tuple[str, ...]
    known: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    naive: tuple[float, ...]
    season: int
    calendar: bool

    @property
    def num_covariates(self) -> int:
        return len(self.known) + 6 * self.calendar

    def table(self, series: Series) -> Float32[np.ndarray, "T F"]:
        """A series that was read with these columns, in deviations from the mean, and the calendar beside it."""
        count = len(self.columns)
        for row, place in np.argwhere(np.isnan(series.values[:, count:]))[:1].tolist():
            raise DataError(
                f"{series.where}: column '{self.known[place]}' is to be known and is missing at {series.times[row]}",
                hint="fill it in, or forecast it: data.known names only what is known for all rows.",
            )
        scaled = (series.values - np.asarray(self.mean)) / np.asarray(self.deviation)
        parts = [scaled, calendar(series.times)] if self.calendar else [scaled]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def read(self, recipe: Recipe, path: str) -> Series:
        """Another file of the same kind."""
        return read_series(path, time=recipe.data.time, columns=[*self.columns, *self.known])

    def restored(self, values: Float[np.ndarray, "*K C"]) -> Float[np.ndarray, "*K C"]:
        """What was said in deviations, in the unit of the data."""
        count = len(self.columns)
        return values * np.asarray(self.deviation[:count]) + np.asarray(self.mean[:count])

    def to_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_json(cls, data: object) -> "Variables":
        try:
            table: dict[str, Any] = dict(data)  # type: ignore[call-overload]
            found = cls(**{name: tuple(part) if isinstance(part, list) else part for name, part in table.items()})  # type: ignore[arg-type]
            good = len(found.mean) == len(found.deviation) == len(found.columns) + len(found.known)
        except (TypeError, ValueError):
            good = False
        if not good or min(found.deviation) <= 0:
            raise BundleError("the scale of the variables is not one of Seqlab's", hint="restore the bundle.")
        return found
