import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqlab.equations import kalman
from seqlab.equations.kalman import Evidence, System, kalman_filter, rts_smoother

H, D, X = 3, 2, 2


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def evidence(y, real, seen=None, x=None):
    """Rows as the equations want them; all entries were seen at the steps, or at the entries, that `seen` marks."""
    entries = real[..., None].expand(y.shape)
    return Evidence(
        y,
        real,
        entries if seen is None else entries & (seen[..., None] if seen.dim() == 2 else seen),
        x,
    )


def a_covariance(size, seed):
    root = numbers(size, size, seed=seed)
    return root @ root.mT + 0.1 * torch.eye(size, dtype=torch.float64)


def a_system(seed=0, *, inputs=False):
    W = numbers(H, H, seed=seed)
    W = W / torch.linalg.matrix_norm(W, 2)
    W_hx = numbers(H, X, seed=seed + 5) if inputs else None
    Q, R, P = a_covariance(H, seed + 1), a_covariance(D, seed + 2), a_covariance(H, seed + 3)
    return System(W, numbers(D, H, seed=seed + 4), Q, R, numbers(H, seed=seed + 6), P, W_hx)


def all_at_once(system, T, x=None):
    """The means of all states and observations of one row, and the covariance of all of them: one big Gaussian.

    h_t - E h_t = Σ_s W^(t-s) ε_s with ε_1 ~ N(0, P_1), so Cov(h_s, h_t) = Cov(h_s, h_s) (W^(t-s))ᵀ for s <= t.
    """
    means, variances = [system.m_1], [system.P_1]
    for t in range(1, T):
        means.append(system.W_hh @ means[-1] + (0 if x is None else system.W_hx @ x[t]))
        variances.append(system.W_hh @ variances[-1] @ system.W_hh.mT + system.Q)
    power = torch.linalg.matrix_power
    blocks = [[variances[s] @ power(system.W_hh.mT, t - s) for t in range(s, T)] for s in range(T)]
    cov = torch.cat([torch.cat([blocks[min(s, t)][abs(t - s)] if s <= t else blocks[t][s - t].mT for t in range(T)], 1)
                     for s in range(T)])  # fmt: skip
    Z = torch.block_diag(*[system.W_hy] * T)
    return torch.cat(means), cov, Z, Z @ cov @ Z.mT + torch.block_diag(*[system.R] * T)


def given_entries(system, y, seen, x=None):
    """Mean and covariance of all states, and the log-density of the entries of y that were seen, by linear algebra."""
    T = len(y)
    m, cov, Z, S = all_at_once(system, T, x)
    at = seen.flatten().nonzero()[:, 0]
    v, S, U = (y.flatten() - Z @ m)[at], S[at][:, at], (Z @ cov)[at]
    K = torch.linalg.solve(S, U).mT
    log_p = -0.5 * (
        v @ torch.linalg.solve(S, v) + torch.logdet(S) + len(at) * math.log(2 * math.pi)
    )
    return (m + K @ v).view(T, H), (cov - K @ U).view(T, H, T, H).transpose(1, 2), log_p


def close(one, other, atol=1e-8):
    torch.testing.assert_close(one, other, atol=atol, rtol=0)


CASES = ["everything", "steps", "entries", "start", "end", "nothing"]


def a_pattern(case, T, seed):
    seen = torch.ones(T, D, dtype=torch.bool)
    if case == "steps":
        seen = (numbers(T, 1, seed=seed) > 0).expand(T, D).clone()
    elif case == "entries":
        seen = numbers(T, D, seed=seed) > -0.3
    elif case in ("start", "end"):
        seen[:3] = False
        seen = seen if case == "start" else seen.flip(0)
    elif case == "nothing":
        seen[:] = False
    return seen


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_filter_and_smoother_equal_one_big_gaussian(case, inputs):
    T = 7
    for seed in range(3):
        system, y, x = (
            a_system(seed, inputs=inputs),
            numbers(T, D, seed=seed + 7),
            numbers(T, X, seed=seed + 8),
        )
        x = x if inputs else None
        seen = a_pattern(case, T, seed)
        hidden = torch.where(seen, y, math.nan)  # whatever lies at a missing value must not matter
        real = torch.ones(1, T, dtype=torch.bool)
        filtered = kalman_filter(
            system, evidence(hidden[None], real, seen[None], None if x is None else x[None])
        )
        smoothed = rts_smoother(system, filtered, real)

        for t in range(T):
            past = seen & (torch.arange(T) <= t)[:, None]
            mean, cov, log_p = given_entries(system, y, past, x)
            close(filtered.mean[0, t], mean[t])
            close(filtered.covariance[0, t], cov[t, t])
            past[t] = False
            mean, cov, _ = given_entries(system, y, past, x)
            close(filtered.predicted_mean[0, t], mean[t])
            close(filtered.predicted_covariance[0, t], cov[t, t])
        mean, cov, log_p = given_entries(system, y, seen, x)
        close(filtered.log_likelihood[0], log_p)
        close(smoothed.mean[0], mean)
        close(smoothed.covariance[0], torch.stack([cov[t, t] for t in range(T)]))
        close(smoothed.lagged[0, 1:], torch.stack([cov[t, t - 1] for t in range(1, T)]))
        assert smoothed.lagged[0, 0].eq(0).all()


def test_a_mask_of_steps_is_a_mask_of_all_their_entries():
    system, y, real = a_system(), numbers(2, 6, D), torch.ones(2, 6, dtype=torch.bool)
    steps = numbers(2, 6, seed=3) > 0
    one, other = (
        kalman_filter(system, evidence(y, real, m))
        for m in (steps, steps[..., None].expand(2, 6, D))
    )
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def ragged(lengths, T):
    return torch.arange(T) < torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("inputs", [False, True])
def test_a_batch_equals_its_rows_and_padding_changes_nothing(inputs):
    lengths, T = [9, 4, 0, 1, 9], 12
    system, y, x = (
        a_system(2, inputs=inputs),
        numbers(5, T, D),
        numbers(5, T, X, seed=1) if inputs else None,
    )
    seen, real = numbers(5, T, D, seed=2) > -0.5, ragged(lengths, T)
    y = torch.where(real[..., None], y, math.nan)
    together = kalman_filter(system, evidence(y, real, seen, x))
    smooth = rts_smoother(system, together, real)
    for row, length in enumerate(lengths):
        part = slice(row, row + 1), slice(0, max(length, 1))
        alone = kalman_filter(
            system, evidence(y[part], real[part], seen[part], None if x is None else x[part])
        )
        for a, b in zip(alone[:4], together[:4], strict=True):
            close(a, b[part], atol=1e-11)
        for a, b in zip(rts_smoother(system, alone, real[part]), smooth, strict=True):
            close(a, b[part], atol=1e-11)
        close(alone.log_likelihood, together.log_likelihood[row : row + 1], atol=1e-11)
        if length:  # a pad holds the state where it was
            close(
                together.mean[row, length:],
                together.mean[row, length - 1].expand(T - length, H),
                atol=1e-11,
            )
    assert together.log_likelihood[2] == 0
    close(together.mean[2], system.m_1.expand(T, H))
    assert smooth.lagged[1, 4:].eq(0).all()


@given(st.integers(0, 10_000))
def test_conditioning_and_smoothing_never_increase_a_variance(seed):
    system, y, real = (
        a_system(seed),
        numbers(2, 5, D, seed=seed),
        torch.ones(2, 5, dtype=torch.bool),
    )
    filtered = kalman_filter(system, evidence(y, real, numbers(2, 5, D, seed=seed + 1) > 0))
    smoothed = rts_smoother(system, filtered, real)
    for wide, narrow in (
        (filtered.predicted_covariance, filtered.covariance),
        (filtered.covariance, smoothed.covariance),
    ):
        assert torch.linalg.eigvalsh(wide - narrow).min() > -1e-10


@pytest.mark.parametrize("silent", ["Q", "R", "P_1", "Q R", "Q R P_1"])
def test_zero_noise_gives_no_nan(silent):
    system = a_system(1)
    system = system._replace(
        **{name: torch.zeros_like(getattr(system, name)) for name in silent.split()}
    )
    states = [system.m_1]
    for _ in range(19):
        states.append(system.W_hh @ states[-1])
    y, real = (torch.stack(states) @ system.W_hy.mT)[None], torch.ones(1, 20, dtype=torch.bool)
    filtered = kalman_filter(system, evidence(y, real))
    smoothed = rts_smoother(system, filtered, real)
    for part in (*filtered, *smoothed):
        assert part.isfinite().all()
    close(smoothed.mean[0, 0], system.m_1, atol=1e-6 if silent != "Q R P_1" else 1e-12)


def test_two_equal_sensors_without_noise():
    """S is singular: the density is a spike, but the state is known and nothing overflows."""
    system = a_system()._replace(
        W_hy=torch.ones(2, H, dtype=torch.float64), R=torch.zeros(2, 2, dtype=torch.float64)
    )
    y, real = numbers(1, 30, 1).expand(1, 30, 2), torch.ones(1, 30, dtype=torch.bool)
    filtered = kalman_filter(system, evidence(y, real))
    close(filtered.mean.sum(-1), y[..., 0], atol=1e-5)
    assert filtered.log_likelihood.isfinite().all()


def test_a_covariance_that_is_not_finite_is_refused():
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not finite"):
            kalman.factor(torch.full((2, 2), value, dtype=torch.float64))


def test_one_observation_of_a_level_by_hand():
    """Prior N(0, 1), noise 1, seen 2: the mean goes half way, the variance halves, and y ~ N(0, 2)."""
    one = torch.ones(1, 1, dtype=torch.float64)
    system = System(one, one, one, one, torch.zeros(1, dtype=torch.float64), one)
    filtered = kalman_filter(system, evidence(2 * one[None], torch.ones(1, 1, dtype=torch.bool)))
    assert filtered.mean.item() == pytest.approx(1)
    assert filtered.covariance.item() == pytest.approx(0.5)
    assert filtered.log_likelihood.item() == pytest.approx(
        -0.5 * (4 / 2 + math.log(2 * math.pi * 2))
    )


def test_one_step_by_hand():
    """h = 2 h + x, Q = 1, y = h, R = 2: N(1, 1) and x = 3 become N(5, 5); with K = 5/7 and y = 7, N(5 + 10/7, 10/7)."""
    one = torch.ones(1, 1, dtype=torch.float64)
    system = System(2 * one, one, one, 2 * one, one[0], one, one)
    m, P = kalman.predict(one, one[None], system, 3 * one)
    assert (float(m), float(P)) == (5.0, 5.0)
    m, P, log_p = kalman.condition(m, P, system, 7 * one, torch.ones(1, 1, dtype=torch.bool))
    assert (float(m), float(P)) == (pytest.approx(5 + 10 / 7), pytest.approx(10 / 7))
    assert float(log_p) == pytest.approx(-0.5 * (4 / 7 + math.log(7) + math.log(2 * math.pi)))
