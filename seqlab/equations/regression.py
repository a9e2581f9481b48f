"""Losses of predictions of real numbers: as a Gaussian, as quantiles, as an angle (S12)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

Quantiles = Float[Tensor, "*N Q"]
Numbers = Float[Tensor, "*N"]


def gaussian_loss(y: Numbers, mean: Numbers, scale: Numbers) -> Numbers:
    """E67: -log N(y; μ, σ²) = ½ ((y - μ) / σ)² + log σ + ½ log 2π."""
    return 0.5 * ((y - mean) / scale).square() + scale.log() + 0.5 * math.log(2 * math.pi)


def pinball_loss(y: Numbers, quantiles: Quantiles, levels: Float[Tensor, " Q"]) -> Quantiles:
    """max(τ (y - q), (τ - 1)(y - q)): its mean is minimal if q is the τ-quantile of y (Koenker & Bassett 1978)."""
    over = y[..., None] - quantiles
    return torch.maximum(levels * over, (levels - 1) * over)


def gaussian_crps(y: Numbers, mean: Numbers, scale: Numbers) -> Numbers:
    """∫ (F(x) - [x ≥ y])² dx of a Gaussian (Gneiting & Raftery 2007).

    With z = (y - μ) / σ that is σ (z (2Φ(z) - 1) + 2φ(z) - 1/√π). It has the unit of y; as σ goes to 0, it becomes the
    absolute error.
    """
    z = (y - mean) / scale
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return scale * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))


def quantile_crps(y: Numbers, quantiles: Quantiles, levels: Float[Tensor, " Q"]) -> Numbers:
    """The CRPS from quantiles: 2 ∫ pinball(τ) dτ by the trapezoidal rule, with 0 at τ = 0 and τ = 1."""
    ends = torch.cat([levels.new_zeros(1), levels, levels.new_ones(1)])
    return (pinball_loss(y, quantiles, levels) * (ends[2:] - ends[:-2])).sum(-1)


def angle_loss(angle: Numbers, gold: Numbers) -> Numbers:
    """1 - cos(α - γ): 0 at the same angle, 2 at the opposite one, and periodic."""
    return 1 - torch.cos(angle - gold)
