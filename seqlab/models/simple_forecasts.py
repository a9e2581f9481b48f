"""Simple forecasts as the starting point of a network: it learns what to add to a mix of them.

A network that must first learn that January is like last January needs more data than a short series has. Here it
begins with what simple rules say, weighted by what has served best (forecast.residual = true).
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.types import Mask

SHARPNESS = 30.0  # so that the weights move as fast as the network does, at its learning rate
NUM_RULES = 6
POWER = 12.0  # of a rule's error, by which it weighs less at first

Window = Float[Tensor, "B T"]
Ahead = Float[Tensor, "B K"]


class SimpleForecasts(nn.Module):
    """A weighted mean of what simple rules say of the steps to come; the weights are learnt."""

    def __init__(self, season: int, horizon: int) -> None:
        super().__init__()
        self.season, self.horizon = season, horizon
        self.preference = nn.Parameter(torch.zeros(NUM_RULES))

    @torch.no_grad()
    def start(self, errors: Float[Tensor, " rules"]) -> None:
        """Weigh each rule by its mean absolute error in the training part, before the network learns anything.

        From equal weights a short training would not get far, and a mean is no forecast where the season is all.
        """
        errors = errors.clamp(min=1e-6)  # of a series that never changes, every rule is right
        self.preference.copy_(-POWER / SHARPNESS * (errors / errors.min()).log())

    def forward(self, values: Window, observed: Mask) -> Ahead:
        weights = (SHARPNESS * self.preference).softmax(0)
        return (simple_forecasts(values, observed, self.season, self.horizon) * weights).sum(-1)


def simple_forecasts(
    values: Window, observed: Mask, season: int, horizon: int
) -> Float[Tensor, "B K rules"]:
    """For each step ahead: the mean, the last value, last season's value, the mean of that moment of the season, the
    same moved to the level of the last season, and last season's value with the growth of the season before."""
    num_steps = values.shape[1]
    season = min(season, num_steps)
    num_seasons = num_steps // season
    recent, there = (part[:, num_steps - num_seasons * season :] for part in (values, observed))
    grid, present = (
        recent.unflatten(1, (num_seasons, season)),
        there.unflatten(1, (num_seasons, season)),
    )
    phase = torch.arange(horizon) % season
    mean = _mean(values, observed, dim=1, otherwise=torch.zeros_like(values[:, :1]))
    moments = _mean(grid, present, dim=1, otherwise=mean[:, None])[:, 0]
    last_season = _last(grid, present, otherwise=moments)
    last_value = _last(values[..., None], observed[..., None], otherwise=mean)
    levels = _mean(grid, present, dim=2, otherwise=mean[:, None])[..., 0]
    moved = moments - levels.mean(1, keepdim=True) + levels[:, -1:]
    growth = levels[:, -1:] - levels[:, max(num_seasons - 2, 0)][:, None]
    seasons_ahead = 1 + torch.arange(horizon) // season
    rules = [
        mean.expand(-1, horizon),
        last_value.expand(-1, horizon),
        last_season[:, phase],
        moments[:, phase],
        moved[:, phase],
        last_season[:, phase] + growth * seasons_ahead,
    ]
    return torch.stack(rules, dim=-1)


def _mean(values: Tensor, observed: Tensor, *, dim: int, otherwise: Tensor) -> Tensor:
    """The mean of what was observed; where nothing was, another number."""
    count = observed.sum(dim, keepdim=True)
    mean = torch.where(observed, values, 0.0).sum(dim, keepdim=True) / count.clamp(min=1)
    return torch.where(count > 0, mean, otherwise)


def _last(
    values: Float[Tensor, "B N P"], observed: Tensor, *, otherwise: Float[Tensor, "B #P"]
) -> Float[Tensor, "B P"]:
    """In each column the last value that was observed; where none was, another number."""
    latest = otherwise.expand(-1, values.shape[2])
    for step in range(values.shape[1]):
        latest = torch.where(observed[:, step], values[:, step], latest)
    return latest
