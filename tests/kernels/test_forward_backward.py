import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqlab.equations import hmm
from seqlab.kernels.forward_backward import posterior

FLOAT64 = {"dtype": torch.float64}


def chain(num_states, *shape, seed=0, spread=1.0):
    """A random π and A, and `log_b` of the given shape."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *size: torch.randn(*size, generator=generator, **FLOAT64)  # noqa: E731
    return (
        draw(num_states).softmax(-1),
        draw(num_states, num_states).softmax(-1),
        spread * draw(*shape, num_states),
    )


def circle(num_states):
    """A chain that stays or goes on to the next state."""
    return torch.eye(num_states, **FLOAT64).roll(1, 1).lerp(torch.eye(num_states, **FLOAT64), 0.5)


def assert_twins(pi, A, log_b, lengths, weights=None, **tolerance):
    fast, slow = (f(pi, A, log_b, lengths, weights) for f in (posterior, hmm.posterior))
    for name in slow._fields:
        torch.testing.assert_close(getattr(fast, name), getattr(slow, name), **tolerance)
    filtered, log_p = hmm.forward(pi, A, log_b, lengths)
    torch.testing.assert_close(fast.log_likelihood, log_p, **tolerance)
    rows, last = (
        torch.arange(len(lengths)),
        lengths.clamp(min=1) - 1,
    )  # where nothing follows, filtering is smoothing
    torch.testing.assert_close(fast.gamma[rows, last], filtered[rows, last], **tolerance)


@settings(max_examples=60)
@given(
    num_states=st.integers(1, 5),
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=5),
    seed=st.integers(0, 99),
    spread=st.sampled_from([0.0, 1.0, 30.0, 100.0, 2000.0]),
    zeros=st.booleans(),
)
def test_the_fast_twins_equal_the_equations(num_states, lengths, seed, spread, zeros):
    """Ragged rows with junk behind them, a missing observation, impossible transitions, numbers below the smallest."""
    pi, A, log_b = chain(num_states, len(lengths), max(1, *lengths), seed=seed, spread=spread)
    log_b[:, 1:2] = 0.0
    for row, length in enumerate(lengths):
        log_b[row, length:] = math.nan
    weights = torch.rand(len(lengths), generator=torch.Generator().manual_seed(seed), **FLOAT64)
    A = circle(num_states) if zeros else A
    assert_twins(pi, A, log_b, torch.tensor(lengths), weights, atol=1e-8, rtol=1e-10)


def test_rows_without_a_position_have_a_likelihood_of_one():
    pi, A, log_b = chain(3, 2, 0)
    gamma, xi, log_p = posterior(pi, A, log_b, torch.tensor([0, 0]))
    assert gamma.shape == (2, 0, 3)
    assert xi.eq(0).all()
    assert log_p.tolist() == [0.0, 0.0]


def test_an_impossible_row_is_minus_infinity_and_leaves_the_others_alone():
    """Row 0 is impossible in the middle, row 1 because its state cannot be reached; row 2 is fine."""
    pi, A = torch.tensor([1.0, 0.0], **FLOAT64), torch.eye(2, **FLOAT64)
    log_b = torch.zeros(3, 4, 2, **FLOAT64)
    log_b[0, 2] = -math.inf
    log_b[1, 2, 0] = -math.inf
    lengths = torch.tensor([4, 4, 4])
    assert_twins(pi, A, log_b, lengths)
    gamma, xi, log_p = posterior(pi, A, log_b, lengths)
    assert log_p.tolist() == [-math.inf, -math.inf, 0.0]
    assert not gamma[:2].any()
    assert xi.tolist() == [[3.0, 0.0], [0.0, 0.0]]


def test_what_is_merely_unlikely_is_not_called_impossible():
    """The one state that can be reached explains the observation 5000 nats worse than one that cannot."""
    pi, A = torch.tensor([1.0, 0.0], **FLOAT64), torch.eye(2, **FLOAT64)
    log_b = torch.tensor([[[-5000.0, 0.0], [-1.0, -2.0]]], **FLOAT64)
    gamma, xi, log_p = posterior(pi, A, log_b, torch.tensor([2]))
    assert log_p.tolist() == [-5001.0]
    assert gamma.tolist() == [[[1.0, 0.0], [1.0, 0.0]]]
    assert xi.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_a_state_that_was_given_up_may_come_back():
    """Two chains that never meet: 1000 nats speak for the one, then 1800 for the other, in steps that are all fine."""
    pi, A = torch.tensor([0.5, 0.5], **FLOAT64), torch.eye(2, **FLOAT64)
    first = torch.tensor([0.0, 0.0, -600.0, -600.0, -600.0], **FLOAT64)
    log_b = torch.stack([first, torch.tensor([-500.0, -500.0, 0.0, 0.0, 0.0], **FLOAT64)], dim=-1)[
        None
    ]
    expected = torch.tensor([-1000 + math.log(0.5)], **FLOAT64)
    gamma, xi, log_p = posterior(pi, A, log_b, torch.tensor([5]))
    torch.testing.assert_close(log_p, expected)
    assert gamma[..., 1].eq(1).all()
    torch.testing.assert_close(xi, torch.tensor([[0.0, 0.0], [0.0, 4.0]], **FLOAT64))


@pytest.mark.parametrize("lengths", [[1500], [1500, 1037, 0, 1]])
@pytest.mark.parametrize("round_and_round", [False, True])
def test_long_rows_equal_the_equations(lengths, round_and_round):
    pi, A, log_b = chain(3, len(lengths), 1500, spread=5.0)
    A = circle(3) if round_and_round else A
    assert_twins(pi, A, log_b, torch.tensor(lengths), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("num_states", [2, 40])
def test_a_hundred_thousand_steps_keep_their_digits(num_states):
    length = torch.tensor([100_000])
    pi, A, log_b = chain(num_states, 1, 100_000, spread=20.0)
    gamma, xi, log_p = posterior(pi, A, log_b, length)
    torch.testing.assert_close(gamma.sum(-1), torch.ones(1, 100_000, **FLOAT64), atol=1e-12, rtol=0)
    torch.testing.assert_close(xi.sum(), torch.tensor(99_999.0, **FLOAT64))
    if num_states == 2:
        torch.testing.assert_close(
            log_p, hmm.log_forward(pi, A, log_b, length)[1], rtol=1e-12, atol=0
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_type_of_the_numbers_is_kept(dtype):
    pi, A, log_b = (x.to(dtype) for x in chain(3, 2, 50, spread=40.0))
    result = posterior(pi, A, log_b, torch.tensor([50, 20]))
    assert {x.dtype for x in result} == {dtype}
    assert all(x.isfinite().all() for x in result)


@pytest.mark.parametrize("length", [9, 1200])
def test_symbols_that_are_looked_up_are_the_same_as_written_out(length):
    """Ragged rows with a gap, one of them impossible, and one so unlikely that it is done in logs."""
    pi, A, table = chain(3, 6, spread=2.0)
    table[3, 1:], table[4], table[5] = -2000.0, -math.inf, 0.0  # the last row stands for nothing
    A[1:, 0], A[0, 1:] = 0.0, 0.0
    A = A / A.sum(-1, keepdim=True)
    which = torch.randint(3, (4, length), generator=torch.Generator().manual_seed(0))
    which[0, 3], which[1, 4], which[2, 5] = 5, 4, 3
    lengths = torch.tensor([length, length, length, 5])
    which[3, 5:] = 5
    weights = torch.tensor([1.0, 2.0, 0.5, 3.0], **FLOAT64)
    looked_up, slow = (
        posterior(pi, A, table, lengths, weights, which=which),
        hmm.posterior(pi, A, table[which], lengths, weights),
    )
    assert slow.log_likelihood.isfinite().tolist() == [True, False, True, True]
    for name in slow._fields:
        torch.testing.assert_close(
            getattr(looked_up, name), getattr(slow, name), atol=1e-9, rtol=1e-9
        )
