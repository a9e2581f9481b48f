"""Exponential smoothing as a forecaster: for each variable several forms, from the mean to Holt and Winters, averaged.

A weighted mean of what simple forms say is more often right than the one that was best so far (Makridakis et al. 2020).
A linear map of the last values, shared by all variables, is one of the forms.
"""

import hashlib
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.equations import exponential_smoothing as smoothing
from seqlab.models.interface import Reading, fixed
from seqlab.models.outputs import GaussianOutput
from seqlab.padded import Batch
from seqlab.types import Mask, PerPosition, State

Ahead = Float[Tensor, "B K P"]
Forecasted = Float[Tensor, "B K"]


class Form(NamedTuple):
    """The rates that are tried, how many are chosen, and whether there is a season, which is added or multiplies."""

    rates: tuple[tuple[float, float, float, float], ...]
    chosen: int = 0
    seasonal: bool = False
    ratio: bool = False
    starts: bool = True  # whether its season begins as the mean over the window; else it is only what was last observed


LEVELS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
SLOPES = (0.02, 0.1, 0.3)
BOTH = tuple(
    product((0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95), (0.0, 0.05, 0.15, 0.3, 0.6))
)  # level and season
FLAT = tuple((alpha, 0.0, 0.0, gamma) for alpha, gamma in BOTH)
SLOPED = tuple(
    (alpha, beta, 1.0, gamma) for (alpha, gamma), beta in product(BOTH, (0.0, 0.02, 0.1)) if alpha
)
DAMPED = tuple(
    (alpha, *b, gamma)
    for (alpha, gamma), b in product(BOTH, product((0.02, 0.1), (0.9, 0.97)))
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
MOST_REMEMBERED = 100_000  # windows


def rows_read(season: int) -> int:
    """How many rows exponential smoothing reads: of longer ones the error is not smaller."""
    return max(300, 10 * season)


def longest_line(season: int) -> int:
    """How many values the linear map reads at the most."""
    return max(12, 2 * season)


class SmoothingForecaster(nn.Module):
    """The filters read the window from its first row, and go on unseeing.

    For each variable: the weight of each form, its rates, its error in the training part, the deviation at each step
    ahead, and what is added so that values which were positive are so again. `line` is the linear map.
    """

    def __init__(self, num_variables: int, *, season: int, horizon: int, level: float) -> None:
        super().__init__()
        self.output, self.horizon, self.season = GaussianOutput(level), horizon, season
        self.remembered: dict[bytes, Tensor] = {}

        self.weights = fixed(torch.zeros(num_variables, len(NAMES), dtype=torch.float64))
        self.rates = fixed(torch.zeros(num_variables, len(FORMS), 4, dtype=torch.float64))
        self.errors = fixed(torch.zeros(num_variables, len(NAMES), dtype=torch.float64))
        self.line = fixed(torch.zeros(longest_line(season) + 1, horizon, dtype=torch.float64))
        self.deviations = fixed(torch.ones(num_variables, horizon))
        self.shift = fixed(torch.zeros(num_variables, dtype=torch.float64))
        self.widths = fixed(torch.ones(horizon))

    @torch.no_grad()
    def distribution(self, batch: Batch) -> Ahead:
        deviations = self.deviations[self._variables(batch)].clamp(min=1e-6)
        return torch.stack([self.means(batch).float(), deviations], dim=-1)

    @torch.no_grad()
    def means(self, batch: Batch) -> Forecasted:
        """The weighted mean of what the forms say."""
        source, variables = batch.require("source"), self._variables(batch)
        means = torch.zeros(len(batch), self.horizon, dtype=torch.float64)
        for number, name in enumerate(NAMES):
            weight = self.weights[variables, number]
            rows = (weight > 0).nonzero()[:, 0]
            if not len(rows):
                continue
            some = batch.rows_at(rows.tolist())
            if number == LINEAR:
                ahead = self.linear(some)
            else:
                ahead = self.ahead(name, some, self.rates[variables[rows], number])
            part = source.rows_at(rows)
            means[rows] += weight[rows, None] * smoothing.plausible(
                ahead, part.values.double(), part.scored
            )
        return means

    @torch.no_grad()
    def remembered_means(self, batch: Batch) -> Forecasted:
        """The same; what was asked before is not computed again, because a training reads each window many times."""
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
        new = [row for row, key in enumerate(keys) if key not in self.remembered]
        if len(self.remembered) + len(new) > MOST_REMEMBERED:
            return self.means(batch)
        if new:
            means = self.means(batch.rows_at(new)).float()
            self.remembered.update(zip((keys[row] for row in new), means, strict=True))
        return torch.stack([self.remembered[key] for key in keys])

    def ahead(self, name: str, batch: Batch, rates: Float[Tensor, "B 4"]) -> Forecasted:
        """What one form says of each row, with the rates of each."""
        state = self.state(name, batch, rates)
        row = batch.require("source").values.shape[1]
        means = smoothing.forecast(state, rates, self.horizon, row=row, ratio=FORMS[name].ratio)
        return means - self.shifts(batch)[:, None]

    def linear(self, batch: Batch) -> Forecasted:
        """The last value, and a weighted sum of how far those before it were from it."""
        source = batch.require("source")
        past = last_seen(source.values.double(), source.scored)[:, -(len(self.line) - 1) :]
        last = past[:, -1:]
        return last + (past - last) @ self.line[-past.shape[1] - 1 : -1] + self.line[-1]

    def state(self, name: str, batch: Batch, rates: Float[Tensor, "B 4"]) -> smoothing.State:
        """Level, slope and season after the last row of each window, in shifted values."""
        source = batch.require("source")
        values = source.values.double() + self.shifts(batch)[:, None]
        begin = self.start(name, values, source.scored, rates)
        return smoothing.smooth(values, source.scored, rates, begin, ratio=FORMS[name].ratio)

    def start(
        self, name: str, values: PerPosition, observed: Mask, rates: smoothing.Rates
    ) -> smoothing.State:
        """Where a form begins."""
        form = FORMS[name]
        begin = smoothing.start(
            values, observed, self.season if form.seasonal else 1, ratio=form.ratio
        )
        if not form.starts:
            begin = begin._replace(season=torch.zeros_like(begin.season))
        mean = torch.where(observed, values, 0.0).sum(1) / observed.sum(1).clamp(min=1)
        return begin._replace(
            level=torch.where(rates[:, 2] > 0, begin.level, mean)
        )  # without a slope, the mean

    def shifts(self, batch: Batch) -> Float[Tensor, " B"]:
        return self.shift[self._variables(batch)]

    def _variables(self, batch: Batch) -> Int[Tensor, " B"]:
        return batch.rows % len(self.shift)

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        return Reading(self.distribution(batch), batch.require("target"), output=self.output)

    def head(self, features: Float[Tensor, "*N P"]) -> Float[Tensor, "*N P"]:
        return features


def last_seen(values: PerPosition, observed: Mask) -> PerPosition:
    """At each row the last value observed; before the first one, zero, which is the mean of the training part."""
    rows = torch.where(observed, torch.arange(values.shape[1]), 0).cummax(1).values
    return torch.where(observed, values, 0.0).gather(1, rows)
