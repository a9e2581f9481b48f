import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqlab.equations.pooling import attention_pool, final_pool, max_pool, mean_pool
from seqlab.padded import Padded


def attended(states, real, lengths):
    """One learned query, scored by the dot product."""
    query = torch.linspace(-1, 1, states.shape[-1], dtype=states.dtype)
    return attention_pool(states, states @ query, real)[0]


POOLS = {
    "mean": lambda states, real, lengths: mean_pool(states, real),
    "final": lambda states, real, lengths: final_pool(states, lengths),
    "max": lambda states, real, lengths: max_pool(states, real),
    "attention": attended,
}
every_pool = pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS.keys())


def padded(lengths, *, pad=0.0, width=None, seed=0):
    width = max(lengths) if width is None else width
    states = torch.randn(len(lengths), width, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rows = Padded(states, torch.tensor(lengths))
    return rows.with_values(states.masked_fill(~rows.real[..., None], pad))


def test_by_hand():
    states = torch.tensor([[[1.0, 4.0], [3.0, -2.0], [9.0, 9.0]]])
    real = torch.tensor([[True, True, False]])
    assert mean_pool(states, real).tolist() == [[2.0, 1.0]]
    assert final_pool(states, torch.tensor([2])).tolist() == [[3.0, -2.0]]
    assert max_pool(states, real).tolist() == [[3.0, 4.0]]

    pooled, weights = attention_pool(states, torch.tensor([[0.0, math.log(3), 7.0]]), real)
    torch.testing.assert_close(weights, torch.tensor([[0.25, 0.75, 0.0]]))
    torch.testing.assert_close(pooled, torch.tensor([[2.5, -0.5]]))


def test_the_maximum_may_be_negative():
    rows = padded([2, 4])
    assert max_pool(rows.values - 100, rows.real).max() < 0


def test_indifferent_attention_is_the_mean():
    rows = padded([2, 4, 0, 1])
    pooled, _ = attention_pool(rows.values, torch.full((4, 4), 7.0, dtype=torch.float64), rows.real)
    torch.testing.assert_close(pooled, mean_pool(rows.values, rows.real))


@every_pool
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4), pad=st.sampled_from([7.0, math.inf, math.nan]))
def test_pads_change_nothing(pool, lengths, pad):
    """Law: a batch equals its rows one by one, whatever lies at the pads."""
    rows = padded(lengths, pad=pad, width=7)
    alone = [
        pool(row[None], torch.ones(1, len(row), dtype=torch.bool), torch.tensor([len(row)])) for row in rows.rows()
    ]
    torch.testing.assert_close(pool(rows.values, rows.real, rows.lengths), torch.cat(alone))


@every_pool
def test_no_gradient_reaches_a_pad(pool):
    rows = padded([2, 4, 0])
    states = rows.values.requires_grad_()
    pool(states, rows.real, rows.lengths).sum().backward()
    assert states.grad[~rows.real].eq(0).all()
    assert states.grad[1].ne(0).any()


@every_pool
@pytest.mark.parametrize("width", [0, 3])
def test_an_empty_row_pools_to_zeros(pool, width):
    rows = padded([0, 0], pad=math.nan, width=width)
    assert pool(rows.values, rows.real, rows.lengths).equal(torch.zeros(2, 3, dtype=torch.float64))
