"""Exponential smoothing as a forecaster: for each variable several forms, from the mean to Holt and Winters, averaged.

A weighted mean of what simple forms say is more often right than the one that was best so far (Makridakis et al. 2020).
"""

from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations import smoothing
from seqlab.models.interface import Reading
from seqlab.models.outputs import GaussianOutput
from seqlab.padded import Batch
from seqlab.types import State

Ahead = Float[Tensor, "B K P"]
Forecasted = Float[Tensor, "B K"]


class Form(NamedTuple):
    """The rates that are tried, and whether there is a season, which is added or which multiplies."""

    rates: tuple[tuple[float, float, float, float], ...]
    seasonal: bool = False
    ratio: bool = False
    starts: bool = True  # whether its season begins as the mean over the window; else it is only what was last seen


LEVELS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
FOLLOWED = tuple(product((0.0, 0.05, 0.2, 0.5, 0.8), (0.0, 0.1, 0.3, 0.6)))  # by the level and by the season
FLAT = tuple((alpha, 0.0, 0.0, gamma) for alpha, gamma in FOLLOWED)
SLOPED = tuple((alpha, *slope, gamma) for (alpha, gamma), slope in product(FOLLOWED, ((0.0, 1.0), (0.1, 0.9))))
FORMS = {
    "mean": Form(((0.0, 0.0, 0.0, 0.0),)),
    "last": Form(((1.0, 0.0, 0.0, 0.0),)),
    "drift": Form(((1.0, 0.0, 1.0, 0.0),)),
    "season": Form(((0.0, 0.0, 0.0, 1.0),), seasonal=True, starts=False),
    "level": Form(tuple((alpha, 0.0, 0.0, 0.0) for alpha in LEVELS)),
    "trend": Form(tuple((alpha, beta, 1.0, 0.0) for alpha, beta in product(LEVELS, (0.02, 0.1, 0.3)))),
    "damped": Form(tuple((a, b, phi, 0.0) for a, b, phi in product(LEVELS, (0.1, 0.3), (0.8, 0.95)))),
    "additive": Form(FLAT, seasonal=True),
    "additive-trend": Form(SLOPED, seasonal=True),
    "multiplicative": Form(FLAT, seasonal=True, ratio=True),
    "multiplicative-trend": Form(SLOPED, seasonal=True, ratio=True),
}


class SmoothingForecaster(nn.Module):
    """The filters read the window from its first row, and go on unseeing.

    For each variable: the weight of each form, its rates, its error in the training part, the deviation at each step
    ahead, and what is added so that values which were positive are so again.
    """

    def __init__(self, num_variables: int, *, season: int, horizon: int, level: float) -> None:
        super().__init__()
        self.output, self.horizon, self.season = GaussianOutput(level), horizon, season

        def fixed(start: Tensor) -> nn.Parameter:
            return nn.Parameter(start, requires_grad=False)

        self.weights = fixed(torch.zeros(num_variables, len(FORMS), dtype=torch.float64))
        self.rates = fixed(torch.zeros(num_variables, len(FORMS), 4, dtype=torch.float64))
        self.errors = fixed(torch.zeros(num_variables, len(FORMS), dtype=torch.float64))
        self.deviations = fixed(torch.ones(num_variables, horizon))
        self.shift = fixed(torch.zeros(num_variables, dtype=torch.float64))
        self.widths = fixed(torch.ones(horizon))

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Ahead:
        variables = batch.rows % len(self.weights)
        means = torch.zeros(len(batch), self.horizon, dtype=torch.float64)
        for number, name in enumerate(FORMS):
            weight = self.weights[variables, number]
            rows = (weight > 0).nonzero()[:, 0]
            if len(rows):
                rates = self.rates[variables[rows], number]
                means[rows] += weight[rows, None] * self.ahead(name, batch.rows_at(rows.tolist()), rates)
        return torch.stack([means.float(), self.deviations[variables].clamp(min=1e-6)], dim=-1)

    def ahead(self, name: str, batch: Batch, rates: Float[Tensor, "B 4"]) -> Forecasted:
        """What one form says of each row, with the rates of each."""
        state = self.state(name, batch, rates)
        row = batch.require("source").values.shape[1]
        means = smoothing.ahead(state, rates, self.horizon, row=row, ratio=FORMS[name].ratio)
        return means - self._shift(batch)[:, None]

    def state(self, name: str, batch: Batch, rates: Float[Tensor, "B 4"]) -> smoothing.State:
        """Level, slope and season after the last row of each window, in shifted values."""
        form, source = FORMS[name], batch.require("source")
        values, seen = source.values.double() + self._shift(batch)[:, None], source.scored
        begin = smoothing.start(values, seen, self.season if form.seasonal else 1, ratio=form.ratio)
        if not form.starts:
            begin = begin._replace(season=torch.zeros_like(begin.season))
        mean = torch.where(seen, values, 0.0).sum(1) / seen.sum(1).clamp(min=1)
        begin = begin._replace(level=torch.where(rates[:, 2] > 0, begin.level, mean))  # without a slope, the mean
        return smoothing.smooth(values, seen, rates, begin, ratio=form.ratio)

    def _shift(self, batch: Batch) -> Float[Tensor, " B"]:
        return self.shift[batch.rows % len(self.shift)]

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        return Reading(self.distribution(batch), batch.require("target"), output=self.output)

    def head(self, features: Float[Tensor, "*N P"]) -> Float[Tensor, "*N P"]:
        return features
