"""Forecasts with prediction bands, and the calibration of the bands."""

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

# origins of the validation part on which bands are calibrated
CALIBRATION_ORIGINS = 2000


@dataclass(frozen=True)
class Forecast:
    """The predicted values and their bands: a row for each time, a column for each variable."""

    columns: tuple[str, ...]
    times: tuple[str, ...]
    mean: Float[np.ndarray, "K C"]
    low: Float[np.ndarray, "K C"]
    high: Float[np.ndarray, "K C"]
    level: float
    history: Series

    def figures(self, variable: int) -> dict[str, Float[np.ndarray, " K"]]:
        """Return the mean and the band of one variable."""
        parts = {"mean": self.mean, "low": self.low, "high": self.high}
        return {name: values[:, variable] for name, values in parts.items()}

    def rows(self) -> Iterator[Json]:
        """Yield a row for each time of each variable."""
        for variable, column in enumerate(self.columns):
            figures = self.figures(variable)
            for step, time in enumerate(self.times):
                numbers = {name: float(values[step]) for name, values in figures.items()}
                yield {"time": time, "column": column, **numbers}

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
    """Return one variable as arrays for a chart: the `last` rows of its history with their times, and its forecast."""
    variable = forecast.columns.index(column)
    past = forecast.history
    shown = slice(None if last is None else max(0, len(past) - last), None)
    return {
        "history_times": past.times[shown],
        "history": past.values[shown, variable],
        "times": forecast.times,
        **forecast.figures(variable),
        "level": forecast.level,
    }


def forecast(bundle: Bundle, value: Any) -> Forecast:
    """Forecast the rows that follow a file, or an array with the model's columns.

    If some columns are known in advance, the file has rows after the last observation; these rows are forecast.
    """
    source = series_of(bundle.codec)
    past, future = _split_at_last_observation(bundle, source.load(value))
    windows = _last_windows(bundle, past, future)
    model: Forecasts = bundle.model
    parameters = calibrated(model, windows.batch(np.arange(len(windows))))
    parts = (model.output.mean(parameters), *model.output.band(parameters))
    mean, low, high = (source.restored(part.double().numpy(force=True).T) for part in parts)
    if not np.isfinite([mean, low, high]).all():
        raise DataError(
            f"{past.where}: the numbers are too far from those of training to forecast from",
            hint="check the last rows of the file, or train on data like these.",
        )
    level = bundle.recipe.forecast.level
    return Forecast(source.columns, future.times, mean, low, high, level, past)


def last_window(bundle: Bundle, value: Any) -> Batch:
    """Return the last window of each variable of a series, from which the next values are forecast."""
    series = series_of(bundle.codec).load(value)
    windows = _last_windows(bundle, *_split_at_last_observation(bundle, series))
    return windows.batch(np.arange(len(windows)))


def _last_windows(bundle: Bundle, past: Series, future: Series) -> Windows:
    """Return the last windows of a series; if it is shorter than the look-back, the first values are missing."""
    settings, source = bundle.recipe.forecast, series_of(bundle.codec)
    table = np.concatenate([source.table(past), source.table(future)])
    if (num_missing := settings.look_back - len(past)) > 0:
        if bundle.recipe.model.smoothing is None:
            warn(
                f"{past.where}: {len(past):,} rows, but the model reads {settings.look_back}; "
                "the others are missing"
            )
        missing = np.full((num_missing, table.shape[1]), np.nan, dtype=np.float32)
        table = np.concatenate([missing, table])
        table[:num_missing, len(source.columns) :] = 0.0
    look_back = table[-settings.look_back - settings.horizon : -settings.horizon]
    for variable, name in enumerate(source.columns):
        if np.isnan(look_back[:, variable]).all():
            warn(
                f"{past.where}: column '{name}' was not observed in the last {settings.look_back} rows"
            )
    return windows_over(
        bundle.recipe, source, table, begin=len(table) - settings.horizon, end=len(table)
    )


def _split_at_last_observation(bundle: Bundle, series: Series) -> tuple[Series, Series]:
    """Return the observed rows and the future rows, which have known columns or only the next times."""
    horizon, source = bundle.recipe.forecast.horizon, series_of(bundle.codec)
    if not source.known:
        times = tuple(future_times(series, horizon))
        values = np.full((horizon, len(series.columns)), np.nan)
        return series, Series(series.where, series.columns, times, values)
    observed = ~np.isnan(series.values[:, : len(source.columns)]).all(1)
    end = int(np.flatnonzero(observed)[-1]) + 1
    past, future = (
        Series(series.where, series.columns, series.times[part], series.values[part])
        for part in (slice(0, end), slice(end, end + horizon))
    )
    if len(future) < horizon:
        raise DataError(
            f"{series.where}: {', '.join(source.known)} must be known for {horizon} rows after the last "
            f"observation; {len(future)} follow it",
            hint="add rows in which these columns have values and the others are empty.",
        )
    return past, future


@torch.inference_mode()
def calibrated(model: Forecasts, batch: Batch) -> Float[Tensor, "B K P"]:
    """Predict the distribution of each future value, with the calibrated width."""
    return model.output.widened(model.distribution(batch), model.widths)


@torch.inference_mode()
def calibrate(bundle: Bundle, windows: Windows) -> None:
    """Set the factors on the width of the bands at each step, so that they contain the promised share of values.

    Split conformal prediction on held-out windows (Vovk et al. 2005; Romano et al. 2019): for each observed value,
    compute the factor with which the band would just contain it; the quantile of these at the level is used.
    """
    model, level = bundle.model, bundle.recipe.forecast.level
    needed, observed = [], []
    for rows in windows.in_order(budget=BUDGET, most=CALIBRATION_ORIGINS):
        batch = windows.batch(rows)
        target = batch.require("target")
        y = target.values
        parameters = model.distribution(batch)
        middle = model.output.mean(parameters)
        low, high = model.output.band(parameters)
        below = (middle - y) / (middle - low)
        above = (y - middle) / (high - middle)
        needed.append(torch.where(y < middle, below, above))
        observed.append(target.scored)
    steps = zip(torch.cat(needed).T, torch.cat(observed).T, strict=True)
    for step, (factors, is_observed) in enumerate(steps):
        scores = factors[is_observed].sort().values
        rank = min(len(scores), math.ceil(level * (len(scores) + 1)))
        model.widths[step] = scores[rank - 1].clamp(min=1e-3) if rank else 1.0
