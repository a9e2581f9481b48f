"""Baselines of a forecast: the last value, the value of a season ago, and a linear map of what was."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

Table = Float[np.ndarray, "T C"]
Past = Float[np.ndarray, "B L"]
Future = Float[np.ndarray, "B K"]

RIDGE = 1e-4  # of the mean square of what is read


def seasonal_error(values: Table, season: int) -> Float[np.ndarray, " C"]:
    """The mean of |y_t - y_{t-s}|, by which MASE measures errors (Hyndman & Koehler 2006); 0 where nothing is known."""
    apart = np.abs(values[season:] - values[:-season]) if season < len(values) else values[:0]
    observed = ~np.isnan(apart)
    return np.where(observed, apart, 0.0).sum(0) / np.maximum(1, observed.sum(0))


def carried_forward(values: Table) -> Table:
    """The last value seen at or before each row; 0, which is the training mean, before the first."""
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
    """At each step ahead, the last value known at that place in its season; with a season of 1, the last value."""
    steps = np.arange(horizon)
    back = season * (steps // season + 1)
    rows = origins[:, None] + steps - back
    return filled[np.maximum(rows, 0), variables[:, None]]


Window = tuple[Past, Future, Bool[np.ndarray, "B K"]]


@dataclass(frozen=True)
class LinearForecast:
    """Each step ahead as a weighted sum of what was, both seen from the last value (as NLinear, Zeng et al. 2023).

    The weights are shared by all variables and found in closed form, with a little ridge.
    """

    weights: Float[np.ndarray, "L1 K"]

    @classmethod
    def fit(cls, windows: Iterable[Window], *, ridge: float = RIDGE) -> "LinearForecast":
        """From windows of the past, what followed, and which of it was seen; only windows seen to the end count."""
        squares: Any = 0.0
        products: Any = 0.0
        for past, future, observed in windows:
            whole = observed.all(1)
            x, last = _from_last(past[whole])
            y = future[whole] - last
            squares, products = squares + x.T @ x, products + x.T @ y
        penalty = ridge * np.trace(squares) / len(squares) + 1e-9
        return cls(np.linalg.solve(squares + penalty * np.eye(len(squares)), products))

    def __call__(self, past: Past) -> Future:
        x, last = _from_last(past)
        return last + x @ self.weights


def _from_last(past: Past) -> tuple[Float[np.ndarray, "B L1"], Float[np.ndarray, "B 1"]]:
    last = past[:, -1:].astype(np.float64)
    return np.concatenate([past - last, np.ones_like(last)], axis=1), last
