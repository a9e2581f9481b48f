import pytest
import torch

from seqlab.equations import kalman
from seqlab.equations.kalman import Evidence, System
from seqlab.kernels.kalman import kalman_filter, num_groups, rts_smoother

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


def a_tracker(r=4.0, start=100.0):
    """Constant velocity in the plane: the 4 states of the benchmark."""
    W, Q = (
        torch.tensor([[1.0, 1.0], [0.0, 1.0]]),
        0.1 * torch.tensor([[1 / 3, 1 / 2], [1 / 2, 1.0]]),
    )
    seen = torch.tensor([[1.0, 0, 0, 0], [0, 0, 1, 0]])
    parts = (torch.block_diag(W, W), seen, torch.block_diag(Q, Q), r * torch.eye(2), torch.zeros(4))
    return System(*(part.double() for part in parts), start * torch.eye(4, dtype=torch.float64))


def ragged(lengths, T):
    return torch.arange(T) < torch.tensor(lengths)[:, None]


def assert_twins(system, y, real, seen=None, x=None):
    """Filter and smoother against their equations, entry by entry; what the filter gave."""
    fast, slow = (
        kalman_filter(system, evidence(y, real, seen, x)),
        kalman.kalman_filter(system, evidence(y, real, seen, x)),
    )
    for one, other in zip(fast, slow, strict=True):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)
    both = rts_smoother(system, fast, real), kalman.rts_smoother(system, slow, real)
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8)
    return fast


PATTERNS = {
    "everything": lambda t: t >= 0,
    "steps": lambda t: t % 7 > 1,
    "start": lambda t: t > 30,
    "end": lambda t: t < 120,
    "a gap": lambda t: (t < 60) | (t > 80),
    "nothing": lambda t: t < 0,
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("system", [a_system(), a_tracker()], ids=["random", "tracker"])
def test_rows_with_one_pattern_share_what_settles_and_equal_the_equations(pattern, system):
    y, real = numbers(4, 150, D).cumsum(1), torch.ones(4, 150, dtype=torch.bool)
    seen = PATTERNS[pattern](torch.arange(150)).expand(4, 150)
    assert (
        num_groups(
            assert_twins(system, torch.where(seen[..., None], y, torch.nan), real, seen).covariance
        )
        == 1
    )


@pytest.mark.parametrize("inputs", [False, True])
def test_rows_of_all_kinds_equal_the_equations(inputs):
    """Unequal lengths, one of them empty, single entries missing, inputs."""
    real, seen = ragged([40, 17, 0, 1, 40], 45), numbers(5, 45, D, seed=2) > -0.5
    x = numbers(5, 45, X, seed=1) if inputs else None
    y = torch.where(real[..., None], numbers(5, 45, D), torch.nan)
    assert num_groups(assert_twins(a_system(2, inputs=inputs), y, real, seen, x).covariance) == 5


@pytest.mark.parametrize("lengths", [[1], [1, 1], [2, 1]])
def test_rows_of_one_step(lengths):
    assert_twins(a_system(), numbers(len(lengths), max(lengths), D), ragged(lengths, max(lengths)))


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
    torch.testing.assert_close(
        smoothed.mean[0, 0], system.m_1, atol=1e-6 if silent != "Q R P_1" else 1e-12, rtol=0
    )


def test_two_equal_sensors_without_noise():
    """S is singular: the density is a spike, but the state is known and nothing overflows."""
    system = a_system()._replace(
        W_hy=torch.ones(2, H, dtype=torch.float64), R=torch.zeros(2, 2, dtype=torch.float64)
    )
    y, real = numbers(1, 30, 1).expand(1, 30, 2), torch.ones(1, 30, dtype=torch.bool)
    filtered = kalman_filter(system, evidence(y, real))
    torch.testing.assert_close(filtered.mean.sum(-1), y[..., 0], atol=1e-5, rtol=0)
    assert filtered.log_likelihood.isfinite().all()


def test_states_that_explode_are_refused():
    system = a_system()._replace(W_hh=1e200 * torch.eye(H, dtype=torch.float64))
    with pytest.raises(ValueError, match="not finite"):
        kalman_filter(system, evidence(numbers(1, 5, D), torch.ones(1, 5, dtype=torch.bool)))


@pytest.mark.parametrize("every", [4999, 7])
def test_covariances_stay_symmetric_and_positive_for_a_long_time(every):
    """1e5 steps with gaps, so that nothing settles for good, or at all; a wide start, precise sightings."""
    length = 100_000 if every > 1000 else 10_000
    system, seen = a_tracker(r=1e-4, start=1e6), (torch.arange(length) % every > 1)[None]
    y, real = numbers(1, length, D), torch.ones(1, length, dtype=torch.bool)
    filtered = kalman_filter(system, evidence(y, real, seen))
    smoothed = rts_smoother(system, filtered, real)
    for P in (filtered.predicted_covariance, filtered.covariance, smoothed.covariance):
        assert torch.equal(P, P.mT)
        assert torch.linalg.eigvalsh(P[0]).min() > 0
    assert filtered.mean.isfinite().all()
    assert smoothed.mean.isfinite().all()
    assert filtered.log_likelihood.isfinite().all()
