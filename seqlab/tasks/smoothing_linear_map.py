"""Fitting the linear map among the forms of exponential smoothing, and its errors in a backtest."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqlab.data.windows import Windows
from seqlab.metrics.forecasts import LinearForecast, Window
from seqlab.models.exponential_smoothing import (
    SmoothingForecaster,
    forward_filled,
    max_linear_inputs,
)

RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
# windows from which the linear map learns
LINEAR_WINDOWS = 5_000


def fit_linear_map(
    model: SmoothingForecaster, windows: Windows, scale: Float[Tensor, " C"]
) -> Float[Tensor, " C"]:
    """Fit the linear map and return its errors; `scale` converts errors from late origins to those from all."""
    season, horizon, end = model.season, windows.horizon, windows.end
    first_late = late_start(windows)
    no_errors = torch.full_like(scale, torch.inf)
    smallest, errors = torch.inf, no_errors
    for length in (max(6, season), max_linear_inputs(season)):
        length = min(length, (end - horizon) // 3)
        early = _windows(windows, length, length, first_late)
        if length < 1 or early.num_origins < 5:
            continue
        test = list(_pairs(_windows(windows, length, first_late, end, open_end=True)))
        for ridge in RIDGES:
            linear = LinearForecast.fit(_complete(early), ridge=ridge)
            test_errors = _linear_errors(linear, test, windows.num_variables)
            finite = test_errors[test_errors.isfinite()]
            mean = float(finite.mean()) if len(finite) else torch.inf
            if mean < smallest:
                smallest, errors, best = mean, test_errors, (length, ridge)
    if smallest == torch.inf:
        return no_errors
    length, ridge = best
    all_windows = _windows(windows, length, length, end)
    weights = LinearForecast.fit(_complete(all_windows), ridge=ridge).weights
    model.line.zero_()
    model.line[-length - 1 :] = torch.from_numpy(weights)
    scaled = errors * scale
    return torch.where(scaled.isfinite(), scaled, torch.inf)


def _windows(
    windows: Windows, length: int, begin: int, end: int, *, open_end: bool = False
) -> Windows:
    """Return windows of another length and range; with `open_end`, also those whose last values are unknown."""
    count = windows.num_variables
    table = windows.table[:end, :count]
    if open_end:
        table = np.concatenate(
            [table, np.full((windows.horizon - 1, count), np.nan, dtype=np.float32)]
        )
        end += windows.horizon - 1
    return Windows(table, count, look_back=length, horizon=windows.horizon, begin=begin, end=end)


def _pairs(windows: Windows) -> Iterator[tuple[Int[np.ndarray, " B"], Window]]:
    """Yield windows with the numbers of their variables: past, future, and which future values were observed."""
    num_origins = max(1, LINEAR_WINDOWS // windows.num_variables)
    for rows in windows.in_order(budget=10**6, most=num_origins):
        batch = windows.batch(rows)
        past, target = batch.require("source"), batch.require("target")
        filled = forward_filled(past.values.double(), past.scored).numpy()
        yield (
            rows % windows.num_variables,
            (filled, target.values.double().numpy(), target.scored.numpy()),
        )


def _complete(windows: Windows) -> Iterator[Window]:
    return (pair for _, pair in _pairs(windows))


def _linear_errors(
    linear: LinearForecast, test: list[tuple[Int[np.ndarray, " B"], Window]], count: int
) -> Float[Tensor, " C"]:
    """Return the mean absolute error of each variable."""
    sums, counts = np.zeros(count), np.zeros(count)
    for variables, (past, future, observed) in test:
        errors = np.where(observed, np.abs(linear(past) - future), 0.0)
        np.add.at(sums, variables, errors.sum(1))
        np.add.at(counts, variables, observed.sum(1))
    return torch.from_numpy(np.where(counts > 0, sums / np.maximum(counts, 1), np.inf))


def late_start(windows: Windows) -> int:
    """Return the first row that the linear map is tested on; it learns from the rows before it."""
    return windows.end - max(2 * windows.horizon, windows.end // 3)
