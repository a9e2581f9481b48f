import math
from dataclasses import replace
from statistics import NormalDist

import jaxtyping
import pytest
import torch
from safetensors.torch import load, save

from seqlab.errors import DataError
from seqlab.models.lds import LDS, constant_velocity, cycle, local_level, local_linear_trend
from seqlab.padded import Padded


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def a_system(size=3, width=2, num_inputs=0, seed=0):
    def covariance(side, at):
        root = numbers(side, side, seed=seed + at)
        return root @ root.mT + 0.1 * torch.eye(side, dtype=torch.float64)

    W = numbers(size, size, seed=seed)
    return LDS(
        transition=0.9 * W / torch.linalg.matrix_norm(W, 2),
        observation=numbers(width, size, seed=seed + 1),
        process_noise=covariance(size, 2),
        observation_noise=covariance(width, 3),
        initial_mean=numbers(size, seed=seed + 4),
        initial_covariance=covariance(size, 5),
        input_matrix=numbers(size, num_inputs, seed=seed + 6) if num_inputs else None,
    )


def rows_of(values, *lengths):
    return Padded(values, torch.tensor(lengths))


def expected_later(system, y, seen, horizon, x=None):
    """The Gaussian of the next observations of one row: all observations at once, conditioned by linear algebra."""
    T, (D, H) = len(y) + horizon, system.observation.shape
    means, variances = [system.initial_mean], [system.initial_covariance]
    for t in range(1, T):
        means.append(
            system.transition @ means[-1] + (0 if x is None else system.input_matrix @ x[t])
        )
        variances.append(
            system.transition @ variances[-1] @ system.transition.mT + system.process_noise
        )
    cov, Z = (
        torch.zeros(T, H, T, H, dtype=torch.float64),
        torch.block_diag(*[system.observation] * T),
    )
    for s in range(T):
        for t in range(s, T):
            cov[s, :, t] = variances[s] @ torch.linalg.matrix_power(system.transition.mT, t - s)
            cov[t, :, s] = cov[s, :, t].mT
    S = Z @ cov.view(T * H, T * H) @ Z.mT + torch.block_diag(*[system.observation_noise] * T)
    m, at = Z @ torch.cat(means), seen.flatten().nonzero()[:, 0]
    K = torch.linalg.solve(S[at][:, at], S[at]).mT
    mean, S = m + K @ (y.flatten()[at] - m[at]), S - K @ S[at]
    blocks = S.view(T, D, T, D)
    return mean.view(T, D)[len(y) :], torch.stack([blocks[t, :, t] for t in range(len(y), T)])


@pytest.mark.parametrize("num_inputs", [0, 2])
def test_a_forecast_equals_one_big_gaussian_for_each_row(num_inputs):
    """Rows of unequal length, one of them empty, with steps and entries missing, each with inputs of its own."""
    system, lengths, horizon = a_system(num_inputs=num_inputs), [6, 3, 0, 6], 4
    y, seen = numbers(4, 6, 2), numbers(4, 6, 2, seed=1) > -0.4
    x = numbers(4, 10, num_inputs, seed=2) if num_inputs else None
    if x is not None:
        x[1, 7:] = math.nan  # beyond what that row's forecast needs
    forecast = system.forecast(Padded(y, torch.tensor(lengths), seen), horizon, x)
    for row, length in enumerate(lengths):
        inputs = None if x is None else x[row]
        mean, cov = expected_later(system, y[row, :length], seen[row, :length], horizon, inputs)
        torch.testing.assert_close(forecast.mean[row], mean, atol=1e-8, rtol=0)
        torch.testing.assert_close(forecast.covariance[row], cov, atol=1e-8, rtol=0)


def test_missing_steps_are_masked():
    system, y, observed = a_system(), numbers(2, 5, 2), numbers(2, 5, seed=1) > 0
    one = system.filter(Padded(y, torch.tensor([5, 4]), observed)).log_likelihood
    other = system.filter(
        Padded(y, torch.tensor([5, 4]), observed[..., None].expand(2, 5, 2))
    ).log_likelihood
    torch.testing.assert_close(one, other)


def test_a_series_of_plain_numbers_is_a_series_of_vectors_of_one():
    system, y = local_level(level=1.0, noise=1.0), numbers(2, 9)
    torch.testing.assert_close(
        system.smooth(rows_of(y, 9, 5)).mean,
        system.smooth(rows_of(y[..., None], 9, 5)).mean,
        atol=0,
        rtol=0,
    )


def test_an_interval_covers_its_level():
    system, horizon = a_system(2, 2), 5
    _, seen = system.sample(2000, 25, seed=4)
    ahead = system.forecast(rows_of(seen.values[:, :20], *[20] * 2000), horizon)
    reach = NormalDist().inv_cdf(0.9) * ahead.covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    low, high = ahead.mean - reach, ahead.mean + reach
    later = seen.values[:, 20:]
    inside = ((low < later) & (later < high)).double().mean((0, 2))
    assert ((inside - 0.8).abs() < 0.03).all(), inside


def test_samples_have_the_moments_of_the_system():
    system = a_system(2, 2)
    states, seen = system.sample(20_000, 3, seed=1)
    torch.testing.assert_close(states[:, 0].mean(0), system.initial_mean, atol=0.06, rtol=0)
    torch.testing.assert_close(
        states[:, 0].mT.cov(), system.initial_covariance, atol=0.1, rtol=0.05
    )
    rest = seen.values[:, 1] - states[:, 1] @ system.observation.mT
    torch.testing.assert_close(rest.mT.cov(), system.observation_noise, atol=0.1, rtol=0.05)
    moved = states[:, 2] - states[:, 1] @ system.transition.mT
    torch.testing.assert_close(moved.mT.cov(), system.process_noise, atol=0.1, rtol=0.05)


def test_a_sampled_row_depends_neither_on_their_number_nor_on_the_length():
    system, x = a_system(num_inputs=1), numbers(5, 9, 1)
    states, seen = system.sample(5, 9, seed=3, inputs=x)
    fewer, seen_fewer = system.sample(2, 4, seed=3, inputs=x[:2, :4])
    torch.testing.assert_close(fewer, states[:2, :4])
    torch.testing.assert_close(seen_fewer.values, seen.values[:2, :4])
    assert not torch.equal(system.sample(5, 9, seed=4, inputs=x)[0], states)


@pytest.mark.parametrize("gaps", [False, True])
def test_the_filter_beats_the_last_observation_and_the_smoother_beats_the_filter(gaps):
    """C25: a target in the plane that keeps its velocity, seen through noise, now and then not at all."""
    target = constant_velocity(dimensions=2, acceleration=0.05, noise=4.0, initial_variance=10.0)
    states, seen = target.sample(50, 80, seed=7)
    observed = numbers(50, 80, seed=3) > -0.5 if gaps else torch.ones(50, 80, dtype=torch.bool)
    observed[:, 0] = True
    seen, place = replace(seen, observed=observed), states[..., [0, 2]]

    def error(found):
        return (found - place)[:, 20:].square().sum(-1).mean().sqrt().item()

    last = torch.where(observed, torch.arange(80), 0).cummax(1).values
    sighting = seen.values[torch.arange(50)[:, None], last]
    filtered, smoothed = (
        target.filter(seen).mean[..., [0, 2]],
        target.smooth(seen).mean[..., [0, 2]],
    )
    assert error(smoothed) < 0.8 * error(filtered)
    assert error(filtered) < 0.8 * error(sighting)


def test_structures_can_be_added():
    """A trend and two waves together: after four periods the next is forecast to the digit when there is no noise."""
    waves = cycle(4.0, wander=0.0) + cycle(2.0, wander=0.0)
    system = local_linear_trend(level=0.0, slope=0.0, noise=1e-6) + waves
    assert system.transition.shape == (6, 6)
    t = torch.arange(24, dtype=torch.float64)
    y = 3 + 0.5 * t + torch.tensor([2.0, -1.0, -3.0, 2.0], dtype=torch.float64).repeat(6)
    forecast = system.forecast(rows_of(y[None, :16, None], 16), 8)
    torch.testing.assert_close(forecast.mean[0, :, 0], y[16:], atol=1e-3, rtol=0)


def test_the_sum_of_two_systems_has_the_noise_of_both():
    one, other = a_system(2, 1, seed=1), replace(a_system(3, 1, 2, seed=2))
    both = one + other
    assert both.input_matrix[:2].eq(0).all()
    assert torch.equal(both.input_matrix[2:], other.input_matrix)
    assert torch.equal(both.observation_noise, one.observation_noise + other.observation_noise)
    assert torch.equal(both.observation, torch.cat([one.observation, other.observation], 1))
    assert (one + one).input_matrix is None


def test_a_short_step_is_half_of_a_long_one():
    """Two steps of dt give the process noise of one step of 2 dt."""
    short, long = (
        constant_velocity(dimensions=3, dt=dt, acceleration=0.7, noise=1.0) for dt in (0.5, 1.0)
    )
    twice = short.transition @ short.process_noise @ short.transition.mT + short.process_noise
    torch.testing.assert_close(twice, long.process_noise)
    torch.testing.assert_close(short.transition @ short.transition, long.transition)
    assert short.observation.shape == (3, 6)


@pytest.mark.parametrize("num_inputs", [0, 2])
def test_saving_and_loading_is_identity(num_inputs):
    system = a_system(num_inputs=num_inputs)
    again = LDS(**load(save(system.tensors())))
    assert again.tensors().keys() == system.tensors().keys()
    assert all(
        torch.equal(tensor, getattr(again, name)) for name, tensor in system.tensors().items()
    )


def test_rows_may_be_constant_all_missing_or_empty():
    system = local_level(level=0.0, noise=0.0) + cycle(3.0, wander=0.0)
    values = torch.full((3, 6, 1), 5.0, dtype=torch.float64)
    observed = torch.ones(3, 6, dtype=torch.bool)
    observed[1] = False
    series = Padded(values, torch.tensor([6, 6, 0]), observed)
    for part in (*system.filter(series), *system.smooth(series), *system.forecast(series, 3)):
        assert part.isfinite().all()
    assert system.filter(series).log_likelihood[1:].tolist() == [0, 0]
    torch.testing.assert_close(system.forecast(series, 3).mean[0], values[0, :3], atol=1e-4, rtol=0)


def test_only_empty_rows_can_be_forecast_but_not_filtered():
    system, nothing = a_system(), rows_of(numbers(2, 0, 2), 0, 0)
    mean = system.forecast(nothing, 2).mean
    torch.testing.assert_close(mean[:, 0], (system.observation @ system.initial_mean).expand(2, 2))
    with pytest.raises(DataError, match="all rows are empty"):
        system.filter(nothing)


def test_wrong_parts_are_errors():
    system, y = a_system(), numbers(1, 4, 2)
    with pytest.raises(DataError, match="observation_noise is not a covariance"):
        replace(system, observation_noise=-system.observation_noise)
    with pytest.raises(DataError, match="process_noise is not a covariance"):
        replace(system, process_noise=numbers(3, 3))
    with pytest.raises(DataError, match="the rows have 3 values a step, the system has 2"):
        system.filter(rows_of(numbers(1, 4, 3), 4))
    with pytest.raises(DataError, match="row 0, step 2: not a number"):
        system.filter(rows_of(y.index_fill(1, torch.tensor([2]), math.nan), 4))
    with pytest.raises(DataError, match="without an input matrix"):
        system.filter(rows_of(y, 4), numbers(1, 4, 1))
    with pytest.raises(
        DataError, match="the inputs must be known for 1x6 rows and steps, and are for 1x4"
    ):
        a_system(num_inputs=1).forecast(rows_of(y, 4), 2, numbers(1, 4, 1))


def test_a_wrong_shape_is_an_error(monkeypatch):
    """By the model itself: outside the tests nobody checks annotations."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(
        DataError, match=r"initial_mean has the shape \(2,\); with 3 states and 2 values a step it"
    ):
        replace(a_system(), initial_mean=numbers(2))
    with pytest.raises(DataError, match=r"input_matrix has the shape \(2, 1\)"):
        replace(a_system(), input_matrix=numbers(2, 1))


def test_a_cycle_repeats_after_its_period():
    system = cycle(6.0, wander=0.0, noise=1e-6)
    wave = torch.sin(2 * math.pi * torch.arange(12, dtype=torch.float64) / 6 + 0.3)
    ahead = system.forecast(Padded(wave[None], torch.tensor([12])), 6)
    torch.testing.assert_close(ahead.mean[0, :, 0], wave[:6], atol=1e-4, rtol=0)
