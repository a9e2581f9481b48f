"""Exponential smoothing (Holt 1957, Winters 1960): a level, a slope and a season, each corrected by forecast errors.

The rates are (α, β, φ, γ): the share of an error that goes into the level, the share of that which goes into the slope,
the factor by which the slope is damped at each step, and the share of the error that goes into the season. With φ = 0
there is no slope. A missing value corrects nothing: the level continues along the slope.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.types import Mask, PerPosition

Rates = Float[Tensor, "B 4"]


class State(NamedTuple):
    """The level and the slope after a step, and the season by phase, counted from the first row."""

    level: Float[Tensor, " B"]
    slope: Float[Tensor, " B"]
    season: Float[Tensor, "B S"]


def start(values: PerPosition, observed: Mask, season: int, *, ratio: bool) -> State:
    """Return the initial state: a straight line through the values, and the mean deviation from it at each phase.

    With `ratio`, the season multiplies the line; else it is added.
    """
    time = torch.arange(values.shape[1], dtype=values.dtype).expand_as(values)
    phase = torch.arange(values.shape[1]) % season
    # The slope between the means of the first and the last observed season, which the season itself does not bias.
    order = observed.long().cumsum(1)
    total = order[:, -1:]
    width = torch.where(total >= 2 * season, season, (total + 1) // 2).clamp(min=1)
    early, late = observed & (order <= width), observed & (order > total - width)
    slope = _mean(values, late) - _mean(values, early)
    slope = slope / (_mean(time, late) - _mean(time, early)).clamp(min=1.0)
    middle = _mean(time, observed)
    line = _mean(values, observed)[:, None] + slope[:, None] * (time - middle[:, None])
    deviation = values / _away_from_zero(line) if ratio else values - line
    zeros = torch.zeros(len(values), season, dtype=values.dtype)
    count = zeros.index_add(1, phase, observed.to(values.dtype))
    sums = zeros.index_add(1, phase, torch.where(observed, deviation, 0.0))
    neutral = float(ratio)
    seasonal = torch.where(count > 0, sums / count.clamp(min=1), neutral)
    mean = seasonal.mean(1, keepdim=True)
    seasonal = seasonal / _away_from_zero(mean) if ratio else seasonal - mean
    first = line.gather(1, observed.long().argmax(1, keepdim=True))[:, 0]
    return State(first - slope, slope, seasonal)


def smooth(
    values: PerPosition, observed: Mask, rates: Rates, begin: State, *, ratio: bool
) -> State:
    """Return the level, the slope and the season after the last row."""
    state = begin
    for state in states(values, observed, rates, begin, ratio=ratio):  # noqa: B007
        pass
    return state


def states(
    values: PerPosition, observed: Mask, rates: Rates, begin: State, *, ratio: bool
) -> Iterator[State]:
    """e_t = y_t - ŷ_t; l_t = l_{t-1} + φ b_{t-1} + α e_t; b_t = φ b_{t-1} + α β e_t; s_t = s_{t-m} + γ (1 - α) e_t.

    With `ratio`, ŷ_t = (l_{t-1} + φ b_{t-1}) s_{t-m}; the error is divided by the season for the level and the slope,
    and by the level for the season.
    """
    alpha, beta, phi, gamma = rates.unbind(1)
    level, slope = begin.level, begin.slope
    season = list(begin.season.unbind(1))
    has_begun = (
        observed.long().cumsum(1) > 0
    )  # the state does not move before the first observed value
    for t in range(values.shape[1]):
        here = season[t % len(season)]
        slope = torch.where(has_begun[:, t], phi, 1.0) * slope
        level = level + torch.where(has_begun[:, t], slope, 0.0)
        error = values[:, t] - (level * here if ratio else level + here)
        error = torch.where(observed[:, t], error, 0.0)
        of_level = error / _away_from_zero(here) if ratio else error
        of_season = error / _away_from_zero(level) if ratio else error
        level = level + alpha * of_level
        slope = slope + alpha * beta * of_level
        season[t % len(season)] = here + gamma * (1 - alpha) * of_season
        yield State(level, slope, torch.stack(season, 1))


def forecast(
    state: State, rates: Rates, horizon: int, *, row: int, ratio: bool
) -> Float[Tensor, "B K"]:
    """ŷ_{t+h} = l_t + (φ + … + φ^h) b_t + s, or times s; `row` is the number of rows that were read."""
    powers = torch.cumprod(rates[:, 2:3].expand(-1, horizon), dim=1).cumsum(1)
    line = state.level[:, None] + powers * state.slope[:, None]
    here = state.season[:, (row + torch.arange(horizon)) % state.season.shape[1]]
    return line * here if ratio else line + here


def plausible(
    means: Float[Tensor, "B K"], values: PerPosition, observed: Mask
) -> Float[Tensor, "B K"]:
    """Clip forecasts to the observed range, extended by its own width on both sides: slopes and factors may explode."""
    low = torch.where(observed, values, torch.inf).amin(1)
    high = torch.where(observed, values, -torch.inf).amax(1)
    width = (high - low)[:, None]
    clipped = torch.minimum(torch.maximum(means, low[:, None] - width), high[:, None] + width)
    return torch.where(
        width.isfinite() & means.isfinite(), clipped, _mean(values, observed)[:, None]
    )


def _mean(values: PerPosition, where: Mask) -> Float[Tensor, " B"]:
    return torch.where(where, values, 0.0).sum(1) / where.sum(1).clamp(min=1)


def _away_from_zero(values: Float[Tensor, "*N"], least: float = 1e-6) -> Float[Tensor, "*N"]:
    return torch.where(values.abs() < least, least, values)
