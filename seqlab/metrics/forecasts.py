"""Baselines of a forecast: the last value, the value one season ago, and a linear map of the past."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

Table = Float[np.ndarray, "T C"]
Past = Float[np.ndarray, "B L"]
Future = Float[np.ndarray, "B K"]

RIDGE = 1e-4  # relative to the mean square of the inputs


def seasonal_error(values: Table, season: int) -> Float[np.ndarray, " C"]:
    """Return the mean of |y_t - y_{t-s}|, the unit of MASE (Hyndman & Koehler 2006); 0 if there are no such pairs."""
    differences = np.abs(values[season:] - values[:-season]) if season < len(values) else values[:0]
    observed = ~np.isnan(differences)
    return np.where(observed, differences, 0.0).sum(0) / np.maximum(1, observed.sum(0))


def carried_forward(values: Table) -> Table:
    """Return the last value observed at or before each row; before the first one 0, the training mean."""
    rows = np.where(np.isnan(values), 0, np.arange(len(values))[:, None])
    filled = np.take_along_axis(values, np.maximum.accumulate(rows, axis=0), axis=0)
    return np.where(np.isnan(filled), 0.0, filled)


def season_ago(
    filled: Table,
    origins: Int[np.ndarray, " B"],
    variables: Int[np.ndarray, " B"],
    *,
    horizon: int,
    season: int,
) -> Future:
    """Return the last known value at the same phase of the season for each step; with a season of 1, the last value."""
    steps = np.arange(horizon)
    back = season * (steps // season + 1)
    rows = origins[:, None] + steps - back
    return filled[np.maximum(rows, 0), variables[:, None]]


Window = tuple[Past, Future, Bool[np.ndarray, "B K"]]


@dataclass(frozen=True)
class LinearForecast:
    """Each future value as a weighted sum of past ones, both relative to the last value (NLinear, Zeng et al. 2023).

    The weights are shared by all variables and computed in closed form, by ridge regression.
    """

    weights: Float[np.ndarray, "L1 K"]

    @classmethod
    def fit(cls, windows: Iterable[Window], *, ridge: float = RIDGE) -> "LinearForecast":
        """Fit the weights to windows of past, future and mask of the future; those with missing values are left out."""
        squares: Any = 0.0
        products: Any = 0.0
        for past, future, observed in windows:
            complete = observed.all(1)
            x, last = _from_last(past[complete])
            y = future[complete] - last
            squares = squares + x.T @ x
            products = products + x.T @ y
        penalty = ridge * np.trace(squares) / len(squares) + 1e-9
        return cls(np.linalg.solve(squares + penalty * np.eye(len(squares)), products))

    def __call__(self, past: Past) -> Future:
        x, last = _from_last(past)
        return last + x @ self.weights


def _from_last(past: Past) -> tuple[Float[np.ndarray, "B L1"], Float[np.ndarray, "B 1"]]:
    last = past[:, -1:].astype(np.float64)
    return np.concatenate([past - last, np.ones_like(last)], axis=1), last
