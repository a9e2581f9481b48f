"""A forecast of the values to come, and how wide its bands must be."""

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Json
from seqlab.codecs.series import series_of
from seqlab.corpus.series import windows_over
from seqlab.data.time_series import Series, future_times
from seqlab.data.windows import Windows
from seqlab.errors import DataError, warn
from seqlab.models.forecaster import Forecasts
from seqlab.padded import Batch
from seqlab.tasks.backtest import BUDGET

CALIBRATED_ON = 2000  # moments of the validation part


@dataclass(frozen=True)
class Forecast:
    """The values to come, a row for each moment and a column for each variable, and the bands that should hold them."""

    columns: tuple[str, ...]
    times: tuple[str, ...]
    mean: Float[np.ndarray, "K C"]
    low: Float[np.ndarray, "K C"]
    high: Float[np.ndarray, "K C"]
    level: float
    history: Series

    def figures(self, place: int) -> dict[str, Float[np.ndarray, " K"]]:
        """The mean and the band of one variable."""
        return {"mean": self.mean[:, place], "low": self.low[:, place], "high": self.high[:, place]}

    def rows(self) -> Iterator[Json]:
        """One for each moment of each variable."""
        for place, column in enumerate(self.columns):
            for step, time in enumerate(self.times):
                figures = {
                    name: float(values[step]) for name, values in self.figures(place).items()
                }
                yield {"time": time, "column": column, **figures}

    def to_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["time", "column", "mean", "low", "high"])
        for row in self.rows():
            writer.writerow(
                [f"{cell:.7g}" if isinstance(cell, float) else cell for cell in row.values()]
            )
        return text.getvalue()

    def to_json(self) -> Json:
        return {"level": self.level, "forecast": list(self.rows())}

    @property
    def input(self) -> str:
        return self.history.where

    @property
    def output(self) -> str:
        return self.to_csv()

    @property
    def details(self) -> Json:
        return self.to_json()


def forecast_series(forecast: Forecast, column: str, *, last: int | None = None) -> Json:
    """One variable as plain arrays for a chart: the `last` rows of its past with their times, and what is to come."""
    place, past = forecast.columns.index(column), forecast.history
    kept = slice(None if last is None else max(0, len(past) - last), None)
    history = {"history_times": past.times[kept], "history": past.values[kept, place]}
    return {**history, "times": forecast.times, **forecast.figures(place), "level": forecast.level}


def forecast(bundle: Bundle, value: Any) -> Forecast:
    """What follows the last row of a file, or of an array with the model's columns.

    Where columns are known in advance, the rows after the last observation hold them, and are what is forecast.
    """
    settings, source = bundle.recipe.forecast, series_of(bundle.codec)
    past, ahead = _past_and_ahead(bundle, source.load(value))
    windows = _last_windows(bundle, past, ahead)
    model: Forecasts = bundle.model
    parameters = calibrated(model, windows.batch(np.arange(len(windows))))
    figures = (model.output.mean(parameters), *model.output.band(parameters))
    mean, low, high = (source.restored(part.double().numpy(force=True).T) for part in figures)
    if not np.isfinite([mean, low, high]).all():
        raise DataError(
            f"{past.where}: numbers too far from those of training to forecast from",
            hint="look at the last rows of the file, or train on data like these.",
        )
    return Forecast(source.columns, ahead.times, mean, low, high, settings.level, past)


def last_window(bundle: Bundle, value: Any) -> Batch:
    """The window before the next values of each variable of a series."""
    windows = _last_windows(bundle, *_past_and_ahead(bundle, series_of(bundle.codec).load(value)))
    return windows.batch(np.arange(len(windows)))


def _last_windows(bundle: Bundle, past: Series, ahead: Series) -> Windows:
    """The windows before the next values; what the series is too short for is missing."""
    settings, source = bundle.recipe.forecast, series_of(bundle.codec)
    table = np.concatenate([source.table(past), source.table(ahead)])
    if (missing := settings.look_back - len(past)) > 0:
        if bundle.recipe.model.smoothing is None:
            rows = f"{len(past):,} rows where the model looks back {settings.look_back}"
            warn(f"{past.where}: {rows}; the others are missing")
        table = np.concatenate(
            [np.full((missing, table.shape[1]), np.nan, dtype=np.float32), table]
        )
        table[:missing, len(source.columns) :] = 0.0
    for place, name in enumerate(source.columns):
        if np.isnan(table[-settings.look_back - settings.horizon : -settings.horizon, place]).all():
            warn(
                f"{past.where}: column '{name}' was not observed in the last {settings.look_back} rows"
            )
    return windows_over(
        bundle.recipe, source, table, begin=len(table) - settings.horizon, end=len(table)
    )


def _past_and_ahead(bundle: Bundle, series: Series) -> tuple[Series, Series]:
    """What was, and the moments to come: with known columns the rows that hold these, else the next usual ones."""
    horizon, source = bundle.recipe.forecast.horizon, series_of(bundle.codec)
    if not source.known:
        values = np.full((horizon, len(series.columns)), np.nan)
        return series, Series(
            series.where, series.columns, tuple(future_times(series, horizon)), values
        )
    end = int(np.flatnonzero(~np.isnan(series.values[:, : len(source.columns)]).all(1))[-1]) + 1
    past, ahead = (
        Series(series.where, series.columns, series.times[part], series.values[part])
        for part in (slice(0, end), slice(end, end + horizon))
    )
    if len(ahead) < horizon:
        raise DataError(
            f"{series.where}: {', '.join(source.known)} must be known for {horizon} rows after the last "
            f"observation; {len(ahead)} follow it",
            hint="add rows in which these are filled in and the others are empty.",
        )
    return past, ahead


@torch.inference_mode()
def calibrated(model: Forecasts, batch: Batch) -> Float[Tensor, "B K P"]:
    """The distribution of each value to come, as wide as calibration found it must be."""
    return model.output.widened(model.distribution(batch), model.widths)


@torch.inference_mode()
def calibrate(bundle: Bundle, windows: Windows) -> None:
    """How many times as wide the bands must be at each step ahead, so that they hold as many values as they say.

    Split conformal prediction on held-out windows (Vovk et al. 2005; Romano et al. 2019): of each value that was seen,
    how much wider its band would have had to be; the quantile of these at the level is the factor.
    """
    model, level = bundle.model, bundle.recipe.forecast.level
    needed, observed = [], []
    for rows in windows.in_order(budget=BUDGET, most=CALIBRATED_ON):
        batch = windows.batch(rows)
        target = batch.require("target")
        parameters, y = model.distribution(batch), target.values
        middle, (low, high) = model.output.mean(parameters), model.output.band(parameters)
        needed.append(
            torch.where(y < middle, (middle - y) / (middle - low), (y - middle) / (high - middle))
        )
        observed.append(target.scored)
    for step, (factors, there) in enumerate(
        zip(torch.cat(needed).T, torch.cat(observed).T, strict=True)
    ):
        scores = factors[there].sort().values
        place = min(len(scores), math.ceil(level * (len(scores) + 1)))
        model.widths[step] = scores[place - 1].clamp(min=1e-3) if place else 1.0
