"""A time series as the source of a model: its columns, and their scale."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32

from seqlab.codecs.codec import Codec, Examples, Json, Row, Source, entry_of, parse_numbers, part_of
from seqlab.data.series_files import read_series
from seqlab.data.store import Column
from seqlab.data.time_formats import parse_moment
from seqlab.data.time_series import Series
from seqlab.errors import BundleError, DataError, SeqlabError, UsageError, shorten
from seqlab.padded import Measured
from seqlab.recipe import Recipe


@dataclass(frozen=True)
class SeriesSource(Source):
    """The columns to be forecast, those known in advance, and the mean and deviation of each over the training part.

    `season` is the number of rows in one season; `naive` is the mean error, in deviations, of the forecast that repeats
    the value of one season before. `time`, `ids` and `encoding` are settings for reading a file.
    """

    columns: tuple[str, ...]
    known: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    naive: tuple[float, ...]
    season: int
    calendar: bool
    time: str | None = None
    ids: str | None = None
    encoding: str | None = None

    by_line: ClassVar[bool] = False

    @property
    def num_covariates(self) -> int:
        return len(self.known) + 6 * self.calendar

    @property
    def entry(self) -> Measured:
        width = 2 + self.num_covariates  # the value, whether it was observed, and the covariates
        return Measured((0.0,) * width, (1.0,) * width)

    def load(self, value: Any) -> Series:
        """Read a series from a file, or from an array with a row for each moment and a column for each variable."""
        if isinstance(value, Series):
            return value
        if not isinstance(value, np.ndarray):
            columns = [*self.columns, *self.known]
            return read_series(
                str(value), time=self.time, columns=columns, ids=self.ids, encoding=self.encoding
            )
        if self.num_covariates:
            raise UsageError(
                "this model needs covariates or dates, which an array does not have",
                hint="give a file.",
            )
        values = np.asarray(value, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.shape[1] != len(self.columns) or len(values) == 0 or np.isinf(values).any():
            raise DataError(
                f"an array of shape {values.shape} where the model forecasts {len(self.columns)} columns",
                hint=f"a row for each moment, a finite number or NaN for each of: {', '.join(self.columns)}.",
            )
        return Series("the array", self.columns, tuple(map(str, range(len(values)))), values)

    def parse(self, request: Any, *, most: int) -> Series:
        """Read a series from a request, whose text is the table itself, never the name of a file."""
        if not isinstance(request, str):
            return self.load(parse_numbers(request))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "series.csv")
            Path(path).write_text(request, "utf-8")
            try:
                return replace(self.load(path), where="the series")
            except SeqlabError as error:
                raise DataError(str(error).replace(path, "the series"), hint=error.hint) from None

    def encode(self, values: Sequence[Any]) -> list[Row]:
        return [self.table(value) for value in values]

    def column(self, path: Path) -> Column | None:
        return None

    def show(self, value: Any) -> str:
        return value.where if isinstance(value, Series) else str(value)

    def typed(self, value: Any) -> str:
        return ""

    def table(self, series: Series) -> Float32[np.ndarray, "T F"]:
        """Return a series in deviations from the mean, followed by the calendar features."""
        count = len(self.columns)
        missing = np.argwhere(np.isnan(series.values[:, count:]))
        if len(missing):
            row, index = missing[0]
            raise DataError(
                f"{series.where}: column '{self.known[index]}' of data.known has no value at {series.times[row]}",
                hint="fill it in, or forecast it: columns of data.known need a value in every row.",
            )
        scaled = (series.values - np.asarray(self.mean)) / np.asarray(self.deviation)
        parts = [scaled, calendar_features(series.times)] if self.calendar else [scaled]
        return np.concatenate(parts, axis=1).astype(np.float32)

    def restored(self, values: Float[np.ndarray, "*K C"]) -> Float[np.ndarray, "*K C"]:
        """Convert values in deviations from the mean to the unit of the data."""
        count = len(self.columns)
        return values * np.asarray(self.deviation[:count]) + np.asarray(self.mean[:count])

    def to_json(self) -> Json:
        return {
            "series": {
                field.name: getattr(self, field.name)
                for field in fields(self)
                if field.default is MISSING
            }
        }

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "SeriesSource":
        raise UsageError(
            "a series is learnt from its table, not from examples",
            hint="use seqlab.corpus.series.prepare_series.",
        )

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "SeriesSource":
        try:
            entries = dict(entry_of(table, "series")).items()
            parts: Json = {
                name: tuple(part) if isinstance(part, list) else part for name, part in entries
            }
            source = cls(
                **parts, time=recipe.data.time, ids=recipe.data.id, encoding=recipe.data.encoding
            )
            sizes = {
                len(source.mean),
                len(source.deviation),
                len(source.columns) + len(source.known),
            }
            valid = len(sizes) == 1 and min(source.deviation) > 0
        except (TypeError, ValueError):
            valid = False
        if not valid:
            raise BundleError("the scale of the variables is invalid", hint="restore the bundle.")
        return source


def series_of(codec: Codec) -> SeriesSource:
    """Return the source of a forecaster."""
    return part_of(codec.source, SeriesSource, "this model does not forecast")


def calendar_features(times: Sequence[str]) -> Float[np.ndarray, "T 6"]:
    """Return the hour of the day, the day of the week and the day of the year, each as sine and cosine of an angle."""
    turns = []
    for time in times:
        moment = parse_moment(time)
        if not isinstance(moment, datetime):
            raise DataError(
                f"{shorten(time)} is not a date, so it has no hour or weekday",
                hint="set data.calendar=false.",
            )
        day = (moment.hour + moment.minute / 60) / 24
        week = (moment.weekday() + day) / 7
        year = moment.timetuple().tm_yday / 365.25
        turns.append((day, week, year))
    angles = 2 * np.pi * np.asarray(turns, dtype=np.float64).reshape(len(times), 3)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
