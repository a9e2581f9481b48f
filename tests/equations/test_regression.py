"""The costs of real predictions, against their definitions."""

import math

import pytest
import torch
from scipy import integrate, stats

from seqlab.equations.regression import (
    angle_loss,
    gaussian_crps,
    gaussian_loss,
    pinball_loss,
    quantile_crps,
)

CASES = [(0.3, 0.0, 1.0), (-4.0, 1.0, 0.2), (2.0, 2.0, 5.0)]


def tensors(*numbers):
    return [torch.tensor([number], dtype=torch.float64) for number in numbers]


@pytest.mark.parametrize(("y", "mean", "scale"), CASES)
def test_the_gaussian_loss_is_minus_its_log_density(y, mean, scale):
    assert gaussian_loss(*tensors(y, mean, scale)).item() == pytest.approx(
        -stats.norm.logpdf(y, mean, scale)
    )


@pytest.mark.parametrize(("y", "mean", "scale"), CASES)
def test_the_crps_is_the_squared_distance_between_two_distribution_functions(y, mean, scale):
    below, _ = integrate.quad(lambda x: stats.norm.cdf(x, mean, scale) ** 2, -60, y, limit=200)
    above, _ = integrate.quad(lambda x: stats.norm.sf(x, mean, scale) ** 2, y, 60, limit=200)
    assert gaussian_crps(*tensors(y, mean, scale)).item() == pytest.approx(below + above, rel=1e-5)


@pytest.mark.parametrize(("y", "mean", "scale"), CASES)
def test_the_crps_of_many_quantiles_approaches_that_of_the_distribution(y, mean, scale):
    levels = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    quantiles = torch.tensor(stats.norm.ppf(levels.numpy(), mean, scale))[None]
    said = quantile_crps(*tensors(y), quantiles, levels).item()
    assert said == pytest.approx(gaussian_crps(*tensors(y, mean, scale)).item(), rel=0.01)


def test_with_zero_scale_the_crps_is_the_absolute_error():
    assert gaussian_crps(*tensors(3.0, 1.0, 1e-9)).item() == pytest.approx(2.0)
    nine = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)
    assert quantile_crps(
        *tensors(3.0), torch.ones(1, 9, dtype=torch.float64), nine
    ).item() == pytest.approx(1.8)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_the_pinball_loss_is_minimal_at_the_quantile(level):
    """Of 0, 1, .. 100 the quantile at level τ is 100 τ."""
    y, guesses = torch.arange(101.0), torch.arange(0.0, 101.0, 5.0)
    losses = [
        pinball_loss(y, torch.full((101, 1), float(q)), torch.tensor([level])).mean()
        for q in guesses
    ]
    assert float(guesses[int(torch.stack(losses).argmin())]) == 100 * level


def test_the_angle_loss_is_zero_at_the_angle_and_two_at_the_opposite():
    angle = torch.tensor([0.5, 0.5 + 2 * math.pi, 0.5 + math.pi, 0.5 + math.pi / 2])
    torch.testing.assert_close(
        angle_loss(angle, torch.full((4,), 0.5)), torch.tensor([0.0, 0.0, 2.0, 1.0])
    )
