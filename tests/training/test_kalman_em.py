import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.equations.kalman import Pairs, reestimate
from seqlab.errors import RunError, UsageError
from seqlab.models import lds as structures
from seqlab.models.lds import LDS
from seqlab.padded import Padded
from seqlab.training.kalman_em import (
    NOISES,
    PARAMETERS,
    LDSSettings,
    _check_ascent,
    fit_lds,
    start_lds,
)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def a_system(size=2, width=2, num_inputs=0, seed=0):
    def covariance(side, at):
        root = numbers(side, side, seed=seed + at)
        return root @ root.mT / side + 0.1 * torch.eye(side, dtype=torch.float64)

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


def rises(fit):
    gains = torch.tensor(fit.log_likelihoods).diff()
    assert (gains >= -1e-8 * (1 + abs(fit.log_likelihoods[-1]))).all(), gains.min()


@settings(max_examples=25)
@given(
    st.integers(0, 10_000),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sets(st.sampled_from(PARAMETERS), min_size=1),
    st.booleans(),
)
def test_the_likelihood_never_falls(seed, size, width, num_inputs, learn, diagonal):
    """Ragged rows, missing steps and entries, inputs, any choice of parameters: each iteration gains or stands."""
    truth, lengths = a_system(size, width, num_inputs, seed), torch.tensor([12, 7, 1, 0])
    x = numbers(4, 12, num_inputs, seed=seed + 9) if num_inputs else None
    observed = numbers(4, 12, width, seed=seed + 7) > -0.6
    observations = replace(
        truth.sample(4, 12, seed=seed, inputs=x)[1], lengths=lengths, observed=observed
    )
    search = LDSSettings(learn=tuple(sorted(learn)), diagonal=diagonal, iterations=8, tolerance=0.0)
    fit = fit_lds(a_system(size, width, num_inputs, seed + 20), observations, x, settings=search)
    rises(fit)  # and `fit_lds` itself raises where it falls
    kept = set(PARAMETERS) - learn - ({"input_matrix"} if not num_inputs else set())
    for name in kept:
        assert torch.equal(
            getattr(fit.model, name), getattr(a_system(size, width, num_inputs, seed + 20), name)
        )


def test_a_fit_is_at_least_as_likely_as_the_true_system():
    truth = a_system(2, 3, seed=3)
    _, train = truth.sample(40, 60, seed=1)
    _, test = truth.sample(40, 60, seed=2)
    fit = fit_lds(
        start_lds(train, num_states=2, seed=0), train, settings=LDSSettings(iterations=300)
    )
    rises(fit)
    assert fit.converged
    floor = start_lds(train, num_states=2, seed=0).filter(test).log_likelihood.sum()
    best, estimate = (
        truth.filter(test).log_likelihood.sum(),
        fit.model.filter(test).log_likelihood.sum(),
    )
    assert (
        fit.log_likelihoods[-1] > truth.filter(train).log_likelihood.sum()
    )  # it may fit the noise a little
    assert best - estimate < 0.01 * (best - floor)


def test_the_gradient_of_the_likelihood_vanishes_at_convergence():
    """With full noise and single entries missing, which a wrong E step would not survive."""
    noise = torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    truth, present = (
        replace(a_system(2, 2, seed=7), observation_noise=noise),
        numbers(80, 4, 2, seed=2) > -0.3,
    )
    observations = replace(truth.sample(80, 4, seed=1)[1], observed=present)
    search = LDSSettings(
        learn=("observation", "observation_noise"), iterations=500, tolerance=1e-11
    )
    fit = fit_lds(truth, observations, settings=search)

    def slope(name, way):
        there, back = (
            replace(fit.model, **{name: getattr(fit.model, name) + h * way}) for h in (1e-4, -1e-4)
        )
        apart = there.filter(observations).log_likelihood - back.filter(observations).log_likelihood
        return apart.sum().item() / 2e-4

    for way in torch.eye(4, dtype=torch.float64).view(4, 2, 2):
        assert abs(slope("observation", way)) < 0.01
        assert abs(slope("observation_noise", way + way.mT)) < 0.01


def test_fitting_with_inputs_and_missing_values():
    truth, x = a_system(2, 2, 1, seed=5), numbers(30, 50, 1)
    observed = numbers(30, 50, 2, seed=1) > -0.8
    observations = replace(truth.sample(30, 50, seed=1, inputs=x)[1], observed=observed)
    blind = replace(
        truth,
        input_matrix=torch.zeros(2, 1, dtype=torch.float64),
        process_noise=2 * truth.process_noise,
    )
    fit = fit_lds(
        blind,
        observations,
        x,
        settings=LDSSettings(learn=("input_matrix", "process_noise"), iterations=100),
    )
    torch.testing.assert_close(fit.model.input_matrix, truth.input_matrix, atol=0.1, rtol=0)
    torch.testing.assert_close(fit.model.process_noise, truth.process_noise, atol=0.15, rtol=0)
    assert torch.equal(fit.model.transition, truth.transition)


def test_the_noises_of_a_structure_are_learnt_and_its_form_is_kept():
    truth = structures.local_level(level=0.5, noise=2.0) + structures.cycle(4.0, wander=0.0)
    _, observations = truth.sample(20, 60, seed=3)
    start = structures.local_level(level=1.0, noise=1.0) + structures.cycle(4.0, wander=0.0)
    fit = fit_lds(start, observations, settings=LDSSettings(learn=NOISES, diagonal=True))
    assert fit.converged
    assert fit.model.process_noise[0, 0].item() == pytest.approx(0.5, rel=0.2)
    assert fit.model.observation_noise.item() == pytest.approx(2.0, rel=0.1)
    assert fit.model.process_noise[1:].eq(0).all()
    assert torch.equal(fit.model.transition, start.transition)


def test_with_observed_states_the_m_step_is_least_squares():
    z, W = numbers(50, 3), numbers(2, 3, seed=1)
    y = z @ W.mT + 0.1 * numbers(50, 2, seed=2)
    zero = torch.zeros
    pairs = Pairs(y, z, *(zero(shape, dtype=torch.float64) for shape in ((2, 2), (2, 3), (3, 3))))
    estimate, noise = reestimate(pairs, torch.zeros_like(W), torch.ones(3, dtype=torch.bool))
    exact = torch.linalg.lstsq(z, y).solution.mT
    torch.testing.assert_close(estimate, exact, atol=1e-8, rtol=0)
    torch.testing.assert_close(
        noise, (y - z @ exact.mT).mT @ (y - z @ exact.mT) / 50, atol=1e-8, rtol=0
    )

    fixed = torch.tensor([True, False, True])
    estimate, _ = reestimate(pairs, W, fixed)
    assert torch.equal(estimate[:, 1], W[:, 1])
    rest = torch.linalg.lstsq(z[:, fixed], y - z[:, 1:2] @ W[:, 1:2].mT).solution.mT
    torch.testing.assert_close(estimate[:, fixed], rest, atol=1e-8, rtol=0)


@pytest.mark.parametrize("value", [0.0, 5.0])
def test_a_constant_series_gives_no_nan(value):
    constant = Padded(torch.full((1, 40, 1), value, dtype=torch.float64), torch.tensor([40]))
    fit = fit_lds(
        start_lds(constant, num_states=2, seed=0), constant, settings=LDSSettings(iterations=60)
    )
    assert all(math.isfinite(x) for x in fit.log_likelihoods)
    forecast = fit.model.forecast(constant, 3)
    assert forecast.covariance.isfinite().all()
    torch.testing.assert_close(
        forecast.mean, torch.full_like(forecast.mean, value), atol=0.05, rtol=0
    )


def test_a_series_without_values_changes_nothing():
    nothing = Padded(
        torch.full((2, 10, 2), math.nan),
        torch.tensor([10, 4]),
        torch.zeros(2, 10, dtype=torch.bool),
    )
    start = a_system()
    fit = fit_lds(start, nothing, settings=LDSSettings(iterations=5))
    assert fit.log_likelihoods[-1] == 0
    assert fit.converged
    for name, tensor in fit.model.tensors().items():
        torch.testing.assert_close(tensor, getattr(start, name), atol=1e-6, rtol=0)


def test_a_start_depends_only_on_its_seed_and_progress_is_reported():
    _, observations = a_system().sample(2, 20, seed=0)
    one, same, other = (
        start_lds(observations, num_states=3, num_inputs=1, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(one.observation, same.observation)
    assert not torch.equal(one.observation, other.observation)
    assert one.input_matrix.shape == (3, 1)
    progress = []
    start, search = (
        start_lds(observations, num_states=2, seed=1),
        LDSSettings(iterations=3, tolerance=0.0),
    )
    fit = fit_lds(
        start, observations, settings=search, progress=lambda *step: progress.append(step)
    )
    assert not fit.converged
    assert [iteration for iteration, _ in progress] == [0, 1, 2, 3]
    assert [value for _, value in progress] == fit.log_likelihoods
    assert len(fit.log_likelihoods) == 4


def test_noise_does_not_fall_below_its_floor():
    """Numbers that can be predicted exactly would have the likelihood grow without end."""
    still = Padded(torch.tensor([[[1.0], [2.0]] * 10], dtype=torch.float64), torch.tensor([20]))
    fit = fit_lds(
        start_lds(still, num_states=2, seed=0),
        still,
        settings=LDSSettings(iterations=100, floor=1e-3),
    )
    rises(fit)
    assert fit.model.observation_noise.item() >= 1e-3 * 0.25 * (1 - 1e-9)


def test_a_decreasing_likelihood_is_an_error():
    with pytest.raises(RunError, match="fell from"):
        _check_ascent(1.0, 0.5)
    _check_ascent(1.0, 1.0 - 1e-12)


def test_an_unknown_parameter_is_named():
    with pytest.raises(UsageError, match="no 'transitions'") as error:
        LDSSettings(learn=("transitions",))
    assert "transition" in error.value.hint
