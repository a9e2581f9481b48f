"""Exponential smoothing, as Holt (1957) and Winters (1960) have it: a level, a slope and a season that follow errors.

A rate is (α, β, φ, γ): how much of an error goes into the level, how much of that into the slope, how much of the slope
is left after a step, and how much of the error goes into the season. With φ = 0 there is no slope. What is not observed
moves nothing: the level goes on along the slope.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.types import Mask, PerPosition

Rates = Float[Tensor, "B 4"]


class State(NamedTuple):
    """The level and the slope after a step, and the season by place, counted from the first row."""

    level: Float[Tensor, " B"]
    slope: Float[Tensor, " B"]
    season: Float[Tensor, "B S"]


def start(values: PerPosition, observed: Mask, season: int, *, ratio: bool) -> State:
    """A straight line through the seasons, and what each place of a season is above it (or, by `ratio`, times it)."""
    time = torch.arange(values.shape[1], dtype=values.dtype).expand_as(values)
    place = torch.arange(values.shape[1]) % season
    # Means over the first and the last season that was observed: a slope that the season itself does not bend.
    order = observed.long().cumsum(1)
    total = order[:, -1:]
    width = torch.where(total >= 2 * season, season, (total + 1) // 2).clamp(min=1)
    early, late = observed & (order <= width), observed & (order > total - width)
    slope = _mean(values, late) - _mean(values, early)
    slope = slope / (_mean(time, late) - _mean(time, early)).clamp(min=1.0)
    middle = _mean(time, observed)
    line = _mean(values, observed)[:, None] + slope[:, None] * (time - middle[:, None])
    apart = values / _away_from_zero(line) if ratio else values - line
    spread = torch.zeros(len(values), season, dtype=values.dtype)
    count = spread.index_add(1, place, observed.to(values.dtype))
    sums = spread.index_add(1, place, torch.where(observed, apart, 0.0))
    neutral = float(ratio)
    parts = torch.where(count > 0, sums / count.clamp(min=1), neutral)
    parts = (
        parts / _away_from_zero(parts.mean(1, keepdim=True))
        if ratio
        else parts - parts.mean(1, keepdim=True)
    )
    first = line.gather(1, observed.long().argmax(1, keepdim=True))[:, 0]
    return State(first - slope, slope, parts)


def smooth(
    values: PerPosition, observed: Mask, rates: Rates, begin: State, *, ratio: bool
) -> State:
    """The level, the slope and the season after the last row."""
    state = begin
    for state in states(values, observed, rates, begin, ratio=ratio):  # noqa: B007
        pass
    return state


def states(
    values: PerPosition, observed: Mask, rates: Rates, begin: State, *, ratio: bool
) -> Iterator[State]:
    """e_t = y_t - ŷ_t; l_t = l_{t-1} + φ b_{t-1} + α e_t; b_t = φ b_{t-1} + α β e_t; s_t = s_{t-m} + γ (1 - α) e_t.

    With `ratio`, ŷ_t = (l_{t-1} + φ b_{t-1}) s_{t-m}, and the error is taken in units of what multiplies it.
    """
    alpha, beta, phi, gamma = rates.unbind(1)
    level, slope = begin.level, begin.slope
    season = list(begin.season.unbind(1))
    begun = observed.long().cumsum(1) > 0  # before the first value there is nothing to follow
    for t in range(values.shape[1]):
        here = season[t % len(season)]
        slope = torch.where(begun[:, t], phi, 1.0) * slope
        level = level + torch.where(begun[:, t], slope, 0.0)
        error = values[:, t] - (level * here if ratio else level + here)
        error = torch.where(observed[:, t], error, 0.0)
        of_level = error / _away_from_zero(here) if ratio else error
        of_season = error / _away_from_zero(level) if ratio else error
        level = level + alpha * of_level
        slope = slope + alpha * beta * of_level
        season[t % len(season)] = here + gamma * (1 - alpha) * of_season
        yield State(level, slope, torch.stack(season, 1))


def ahead(
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
    """No forecast is farther outside of what was observed than that is wide: a slope or a factor may run away."""
    least = torch.where(observed, values, torch.inf).amin(1)
    most = torch.where(observed, values, -torch.inf).amax(1)
    width = (most - least)[:, None]
    clipped = torch.minimum(torch.maximum(means, least[:, None] - width), most[:, None] + width)
    return torch.where(
        width.isfinite() & means.isfinite(), clipped, _mean(values, observed)[:, None]
    )


def _mean(values: PerPosition, where: Mask) -> Float[Tensor, " B"]:
    return torch.where(where, values, 0.0).sum(1) / where.sum(1).clamp(min=1)


def _away_from_zero(values: Float[Tensor, "*N"], least: float = 1e-6) -> Float[Tensor, "*N"]:
    return torch.where(values.abs() < least, least, values)
