"""Exponential smoothing as a forecaster: for each variable a weighted mean of several forms, from the mean to Winters.

A weighted mean of simple forecasts is usually better than the one that was best so far (Makridakis et al. 2020). One of
the forms is a linear map of the last values, which all variables share.
"""

import hashlib
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.equations import exponential_smoothing as smoothing
from seqlab.models.interface import Reading, frozen
from seqlab.models.outputs import GaussianOutput
from seqlab.padded import Batch
from seqlab.types import Mask, PerPosition, State

Parameters = Float[Tensor, "B K P"]
Means = Float[Tensor, "B K"]


class Form(NamedTuple):
    """A form of smoothing: the rates to choose from, how many of them are fitted, and the kind of its season."""

    rates: tuple[tuple[float, float, float, float], ...]
    chosen: int = 0  # number of fitted rates
    seasonal: bool = False
    ratio: bool = False  # whether the season multiplies the level; else it is added
    starts: bool = True  # whether the season starts as the mean over the window; else as zero


# the rates α, β, φ, γ to choose from, see `equations.exponential_smoothing`
LEVELS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
SLOPES = (0.02, 0.1, 0.3)
LEVELS_AND_SEASONS = tuple(
    product((0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95), (0.0, 0.05, 0.15, 0.3, 0.6))
)
FLAT = tuple((alpha, 0.0, 0.0, gamma) for alpha, gamma in LEVELS_AND_SEASONS)
SLOPED = tuple(
    (alpha, beta, 1.0, gamma)
    for (alpha, gamma), beta in product(LEVELS_AND_SEASONS, (0.0, 0.02, 0.1))
    if alpha
)
DAMPED = tuple(
    (alpha, *b, gamma)
    for (alpha, gamma), b in product(LEVELS_AND_SEASONS, product((0.02, 0.1), (0.9, 0.97)))
    if alpha
)
FORMS = {
    "mean": Form(((0.0, 0.0, 0.0, 0.0),)),
    "last": Form(((1.0, 0.0, 0.0, 0.0),)),
    "drift": Form(((1.0, 0.0, 1.0, 0.0),), chosen=1),
    "season": Form(((0.0, 0.0, 0.0, 1.0),), seasonal=True, starts=False),
    "level": Form(tuple((alpha, 0.0, 0.0, 0.0) for alpha in LEVELS), chosen=1),
    "trend": Form(
        tuple((alpha, beta, 1.0, 0.0) for alpha, beta in product(LEVELS, (0.0, *SLOPES))), chosen=2
    ),
    "damped": Form(
        tuple((*each, 0.0) for each in product(LEVELS, SLOPES, (0.8, 0.9, 0.97))), chosen=3
    ),
    "additive": Form(FLAT, chosen=2, seasonal=True),
    "additive-trend": Form(SLOPED, chosen=3, seasonal=True),
    "additive-damped": Form(DAMPED, chosen=4, seasonal=True),
    "multiplicative": Form(FLAT, chosen=2, seasonal=True, ratio=True),
    "multiplicative-trend": Form(SLOPED, chosen=3, seasonal=True, ratio=True),
    "multiplicative-damped": Form(DAMPED, chosen=4, seasonal=True, ratio=True),
}
NAMES = (*FORMS, "linear")
LINEAR = len(FORMS)
MAX_CACHED = 100_000  # windows


def max_history(season: int) -> int:
    """Return how many rows exponential smoothing reads; longer histories did not reduce the error."""
    return max(300, 10 * season)


def max_linear_inputs(season: int) -> int:
    """Return how many values the linear map reads at most."""
    return max(12, 2 * season)


class SmoothingForecaster(nn.Module):
    """Smooth each window from its first row, then forecast with the last state.

    Parameters of each variable: the weight of each form, its rates, its error on the training part, the deviation at
    each step ahead, and a shift that makes values positive which were so before scaling. `line` is the linear map.
    """

    def __init__(self, num_variables: int, *, season: int, horizon: int, level: float) -> None:
        super().__init__()
        self.output, self.horizon, self.season = GaussianOutput(level), horizon, season
        self.cache: dict[bytes, Tensor] = {}

        self.weights = frozen(torch.zeros(num_variables, len(NAMES), dtype=torch.float64))
        self.rates = frozen(torch.zeros(num_variables, len(FORMS), 4, dtype=torch.float64))
        self.errors = frozen(torch.zeros(num_variables, len(NAMES), dtype=torch.float64))
        self.line = frozen(torch.zeros(max_linear_inputs(season) + 1, horizon, dtype=torch.float64))
        self.deviations = frozen(torch.ones(num_variables, horizon))
        self.shift = frozen(torch.zeros(num_variables, dtype=torch.float64))
        self.widths = frozen(torch.ones(horizon))

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Parameters:
        deviations = self.deviations[self._variables(batch)].clamp(min=1e-6)
        return torch.stack([self.means(batch).float(), deviations], dim=-1)

    @torch.no_grad()
    def means(self, batch: Batch) -> Means:
        """Return the weighted mean of the forecasts of all forms."""
        source = batch.require("source")
        variables = self._variables(batch)
        means = torch.zeros(len(batch), self.horizon, dtype=torch.float64)
        for number, name in enumerate(NAMES):
            weight = self.weights[variables, number]
            rows = (weight > 0).nonzero()[:, 0]
            if not len(rows):
                continue
            part = batch.rows_at(rows.tolist())
            if number == LINEAR:
                forecast = self.linear(part)
            else:
                forecast = self.forecast(name, part, self.rates[variables[rows], number])
            window = source.rows_at(rows)
            clipped = smoothing.plausible(forecast, window.values.double(), window.scored)
            means[rows] += weight[rows, None] * clipped
        return means

    @torch.no_grad()
    def cached_means(self, batch: Batch) -> Means:
        """Return the same means from a cache, because training reads each window many times."""
        source = batch.require("source")
        parts = (
            source.values.numpy(force=True),
            source.scored.numpy(force=True),
            self._variables(batch).tolist(),
        )
        keys = [
            hashlib.blake2b(
                values.tobytes() + observed.tobytes() + str(variable).encode(), digest_size=16
            ).digest()
            for values, observed, variable in zip(*parts, strict=True)
        ]
        new = [row for row, key in enumerate(keys) if key not in self.cache]
        if len(self.cache) + len(new) > MAX_CACHED:
            return self.means(batch)
        if new:
            means = self.means(batch.rows_at(new)).float()
            self.cache.update(zip((keys[row] for row in new), means, strict=True))
        return torch.stack([self.cache[key] for key in keys])

    def forecast(self, name: str, batch: Batch, rates: Float[Tensor, "B 4"]) -> Means:
        """Return the forecast of one form for each row, with the rates of each."""
        state = self.state(name, batch, rates)
        row = batch.require("source").values.shape[1]
        means = smoothing.forecast(state, rates, self.horizon, row=row, ratio=FORMS[name].ratio)
        return means - self.shifts(batch)[:, None]

    def linear(self, batch: Batch) -> Means:
        """Return the last value plus a weighted sum of the differences of earlier values from it."""
        source = batch.require("source")
        past = forward_filled(source.values.double(), source.scored)[:, -(len(self.line) - 1) :]
        last = past[:, -1:]
        return last + (past - last) @ self.line[-past.shape[1] - 1 : -1] + self.line[-1]

    def state(self, name: str, batch: Batch, rates: Float[Tensor, "B 4"]) -> smoothing.State:
        """Return level, slope and season after the last row of each window, of shifted values."""
        source = batch.require("source")
        values = source.values.double() + self.shifts(batch)[:, None]
        initial = self.start(name, values, source.scored, rates)
        return smoothing.smooth(values, source.scored, rates, initial, ratio=FORMS[name].ratio)

    def start(
        self, name: str, values: PerPosition, observed: Mask, rates: smoothing.Rates
    ) -> smoothing.State:
        """Return the initial state of a form; the level of a form without a slope is the mean."""
        form = FORMS[name]
        season = self.season if form.seasonal else 1
        initial = smoothing.start(values, observed, season, ratio=form.ratio)
        if not form.starts:
            initial = initial._replace(season=torch.zeros_like(initial.season))
        mean = torch.where(observed, values, 0.0).sum(1) / observed.sum(1).clamp(min=1)
        return initial._replace(level=torch.where(rates[:, 2] > 0, initial.level, mean))

    def shifts(self, batch: Batch) -> Float[Tensor, " B"]:
        return self.shift[self._variables(batch)]

    def _variables(self, batch: Batch) -> Int[Tensor, " B"]:
        return batch.rows % len(self.shift)

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        return Reading(self.distribution(batch), batch.require("target"), output=self.output)

    def head(self, features: Float[Tensor, "*N P"]) -> Float[Tensor, "*N P"]:
        return features


def forward_filled(values: PerPosition, observed: Mask) -> PerPosition:
    """Return the last observed value at each row; before the first one zero, the mean of the training part."""
    rows = torch.where(observed, torch.arange(values.shape[1]), 0).cummax(1).values
    return torch.where(observed, values, 0.0).gather(1, rows)
