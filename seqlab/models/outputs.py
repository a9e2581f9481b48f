"""Output distributions of models of real numbers: a Gaussian, quantiles, a point, or an angle (S12)."""

from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from seqlab.equations.regression import (
    Numbers,
    angle_loss,
    gaussian_crps,
    gaussian_loss,
    pinball_loss,
    quantile_crps,
)

Parameters = Float[Tensor, "*N P"]

MIN_SCALE = 1e-3  # the smallest deviation, relative to that of the window, so that the loss has a lower bound
DECILES = tuple(round(0.1 * i, 1) for i in range(1, 10))


class GaussianOutput:
    """E67: a mean and a deviation."""

    size = 2
    middle = 0  # the index of the raw number for the mean

    def __init__(self, level: float) -> None:
        self.reach = NormalDist().inv_cdf((1 + level) / 2)

    def place(self, raw: Tensor, centre: Tensor, spread: Tensor) -> Parameters:
        """Convert raw numbers, in units of `spread` around `centre`, to parameters in the unit of the data."""
        scale = spread * (softplus(raw[..., 1]) + MIN_SCALE)
        return torch.stack([centre + spread * raw[..., 0], scale], dim=-1)

    def losses(self, parameters: Parameters, gold: Numbers) -> Numbers:
        return gaussian_loss(gold, *parameters.unbind(-1))

    def mean(self, parameters: Parameters) -> Numbers:
        """Return the point prediction."""
        return parameters[..., 0]

    def band(self, parameters: Parameters) -> tuple[Numbers, Numbers]:
        """Return the limits of the prediction interval of the requested level."""
        mean, scale = parameters.unbind(-1)
        return mean - self.reach * scale, mean + self.reach * scale

    def widened(self, parameters: Parameters, factor: Tensor) -> Parameters:
        """Return the distribution with the same centre and its width multiplied by a factor."""
        mean, scale = parameters.unbind(-1)
        return torch.stack([mean, factor * scale], dim=-1)

    def crps(self, parameters: Parameters, gold: Numbers) -> Numbers:
        return gaussian_crps(gold, *parameters.unbind(-1))


class PointOutput(GaussianOutput):
    """A point prediction with squared error; its deviation is that of the window, until it is calibrated."""

    size = 1

    def place(self, raw: Tensor, centre: Tensor, spread: Tensor) -> Parameters:
        mean = centre + spread * raw[..., 0]
        return torch.stack([mean, spread.expand_as(mean)], dim=-1)

    def losses(self, parameters: Parameters, gold: Numbers) -> Numbers:
        return (gold - parameters[..., 0]).square()


class QuantileOutput:
    """Quantiles with the pinball loss. They never cross, because each is the one below plus a positive step."""

    def __init__(self, level: float) -> None:
        low = round((1 - level) / 2, 6)
        self.levels = tuple(sorted({*DECILES, low, round(1 - low, 6)}))
        self.size = len(self.levels)
        self.places = [self.levels.index(at) for at in (low, 0.5, round(1 - low, 6))]
        self.middle = self.places[1]

    def place(self, raw: Tensor, centre: Tensor, spread: Tensor) -> Parameters:
        middle = self.places[1]
        steps = softplus(raw)
        below = -steps[..., :middle].flip(-1).cumsum(-1).flip(-1)
        above = steps[..., middle + 1 :].cumsum(-1)
        around = torch.cat([below, torch.zeros_like(raw[..., :1]), above], dim=-1)
        return centre[..., None] + spread[..., None] * (raw[..., middle : middle + 1] + around)

    def losses(self, parameters: Parameters, gold: Numbers) -> Numbers:
        return pinball_loss(gold, parameters, self._levels(parameters)).mean(-1)

    def mean(self, parameters: Parameters) -> Numbers:
        """Return the median."""
        return parameters[..., self.places[1]]

    def band(self, parameters: Parameters) -> tuple[Numbers, Numbers]:
        return parameters[..., self.places[0]], parameters[..., self.places[2]]

    def widened(self, parameters: Parameters, factor: Tensor) -> Parameters:
        middle = self.mean(parameters)[..., None]
        return middle + factor[..., None] * (parameters - middle)

    def crps(self, parameters: Parameters, gold: Numbers) -> Numbers:
        return quantile_crps(gold, parameters, self._levels(parameters))

    def _levels(self, like: Tensor) -> Float[Tensor, " Q"]:
        return torch.tensor(self.levels, dtype=like.dtype)


class AngleOutput:
    """An angle in degrees, predicted as a point (x, y) of the plane; its loss is 1 - cos of the error."""

    size = 2

    def place(self, raw: Tensor, centre: Tensor, spread: Tensor) -> Parameters:
        return raw

    def losses(self, parameters: Parameters, gold: Numbers) -> Numbers:
        return angle_loss(torch.atan2(parameters[..., 1], parameters[..., 0]), torch.deg2rad(gold))

    def mean(self, parameters: Parameters) -> Numbers:
        return torch.rad2deg(torch.atan2(parameters[..., 1], parameters[..., 0]))


IntervalOutput = GaussianOutput | QuantileOutput  # has a prediction interval
Output = IntervalOutput | AngleOutput  # from `size` raw numbers to the parameters of a distribution
