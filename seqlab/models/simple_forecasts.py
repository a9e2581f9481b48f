"""Simple forecasts to which a network learns to add a correction (forecast.residual = true).

A network that must first learn that January is like last January needs more data than a short series has. Here it
starts from a mean of simple rules, weighted by their errors on the training part.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.types import Mask

SHARPNESS = (
    30.0  # factor of the logits, so that they change as fast as the network at its learning rate
)
NUM_RULES = 6
POWER = 12.0  # initial weights are proportional to error ** -POWER

Window = Float[Tensor, "B T"]
Forecast = Float[Tensor, "B K"]


class SimpleForecasts(nn.Module):
    """A mean of the forecasts of simple rules with learnt weights."""

    def __init__(self, season: int, horizon: int) -> None:
        super().__init__()
        self.season, self.horizon = season, horizon
        self.preference = nn.Parameter(torch.zeros(NUM_RULES))

    @torch.no_grad()
    def start(self, errors: Float[Tensor, " rules"]) -> None:
        """Set the weights from the mean absolute error of each rule on the training part, before training.

        From equal weights, a short training would not get far on a strongly seasonal series.
        """
        errors = errors.clamp(min=1e-6)  # on a constant series, every error is zero
        self.preference.copy_(-POWER / SHARPNESS * (errors / errors.min()).log())

    def forward(self, values: Window, observed: Mask) -> Forecast:
        weights = (SHARPNESS * self.preference).softmax(0)
        return (simple_forecasts(values, observed, self.season, self.horizon) * weights).sum(-1)


def simple_forecasts(
    values: Window, observed: Mask, season: int, horizon: int
) -> Float[Tensor, "B K rules"]:
    """Return the forecasts of each rule for each step ahead.

    The rules are: the mean; the last value; the value one season ago; the mean of that phase of the season; the same
    shifted to the level of the last season; and the value one season ago plus the growth from season to season.
    """
    num_steps = values.shape[1]
    season = min(season, num_steps)
    num_seasons = num_steps // season
    first = num_steps - num_seasons * season
    grid = values[:, first:].unflatten(1, (num_seasons, season))
    present = observed[:, first:].unflatten(1, (num_seasons, season))
    phase = torch.arange(horizon) % season
    mean = _mean(values, observed, dim=1, otherwise=torch.zeros_like(values[:, :1]))
    phase_means = _mean(grid, present, dim=1, otherwise=mean[:, None])[:, 0]
    last_season = _last(grid, present, otherwise=phase_means)
    last_value = _last(values[..., None], observed[..., None], otherwise=mean)
    levels = _mean(grid, present, dim=2, otherwise=mean[:, None])[..., 0]
    shifted = phase_means - levels.mean(1, keepdim=True) + levels[:, -1:]
    growth = levels[:, -1:] - levels[:, max(num_seasons - 2, 0)][:, None]
    seasons_ahead = 1 + torch.arange(horizon) // season
    rules = [
        mean.expand(-1, horizon),
        last_value.expand(-1, horizon),
        last_season[:, phase],
        phase_means[:, phase],
        shifted[:, phase],
        last_season[:, phase] + growth * seasons_ahead,
    ]
    return torch.stack(rules, dim=-1)


def _mean(values: Tensor, observed: Tensor, *, dim: int, otherwise: Tensor) -> Tensor:
    """Return the mean of the observed values, or `otherwise` if there are none."""
    count = observed.sum(dim, keepdim=True)
    mean = torch.where(observed, values, 0.0).sum(dim, keepdim=True) / count.clamp(min=1)
    return torch.where(count > 0, mean, otherwise)


def _last(
    values: Float[Tensor, "B N P"], observed: Tensor, *, otherwise: Float[Tensor, "B #P"]
) -> Float[Tensor, "B P"]:
    """Return the last observed value of each column, or `otherwise` if there is none."""
    latest = otherwise.expand(-1, values.shape[2])
    for step in range(values.shape[1]):
        latest = torch.where(observed[:, step], values[:, step], latest)
    return latest
