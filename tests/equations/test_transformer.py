import math

import pytest
import torch
from torch import nn

from seqlab.equations.attention import learned_positions, rotary, sinusoidal_positions
from seqlab.equations.transformer import (
    add_and_norm,
    batch_norm,
    feed_forward,
    halting_step,
    layer_norm,
    norm_and_add,
    ponder_cost,
    start_halting,
)


def test_layer_norm_equals_torch():
    theirs = nn.LayerNorm(6)
    nn.init.normal_(theirs.weight)
    nn.init.normal_(theirs.bias)
    x = torch.randn(2, 5, 6) * 3 + 1
    torch.testing.assert_close(layer_norm(x, theirs.weight, theirs.bias), theirs(x))


def test_batch_norm_equals_torch():
    theirs = nn.BatchNorm1d(6)
    nn.init.normal_(theirs.weight)
    x = torch.randn(20, 6) * 3 + 1
    torch.testing.assert_close(batch_norm(x, theirs.weight, theirs.bias), theirs(x))


def test_the_norm_comes_after_the_sum_or_before_the_sublayer():
    x = torch.randn(2, 3, 4)

    def double(y):
        return 2 * y

    def centre(y):
        return y - y.mean(-1, keepdim=True)

    torch.testing.assert_close(add_and_norm(x, double, centre), centre(3 * x))
    torch.testing.assert_close(norm_and_add(x, double, centre), x + 2 * centre(x))


def test_feed_forward_equals_two_linear_layers():
    widen, narrow, x = nn.Linear(4, 16), nn.Linear(16, 4), torch.randn(2, 3, 4)
    ours = feed_forward(x, widen.weight, widen.bias, narrow.weight, narrow.bias)
    torch.testing.assert_close(ours, narrow(widen(x).relu()))


def test_positions_are_sines_and_cosines():
    positions = sinusoidal_positions(60, 32)
    for pos, i in ((0, 0), (7, 3), (59, 15)):
        angle = pos / 10000 ** (2 * i / 32)
        assert positions[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert positions[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_low_columns_have_the_highest_frequencies():
    """W7: n = 60, d = 32: how often a column changes its sign falls from left to right."""
    waves = sinusoidal_positions(60, 32)[:, 0::2]
    changes = (waves[1:] * waves[:-1] < 0).sum(0)
    assert changes[0] == 18  # sin crosses zero every π positions
    assert (changes[1:] <= changes[:-1]).all()
    assert changes[-1] == 0


def test_positions_can_start_anywhere():
    torch.testing.assert_close(sinusoidal_positions(5, 8, first=7), sinusoidal_positions(12, 8)[7:])
    table, x = torch.randn(9, 4), torch.zeros(2, 3, 4)
    torch.testing.assert_close(learned_positions(x, table, first=2)[1], table[2:5])


def test_rotary_products_depend_on_the_distance_alone():
    q, k = torch.randn(1, 8, dtype=torch.float64), torch.randn(1, 8, dtype=torch.float64)
    here = rotary(q, first=3) @ rotary(k, first=1).T
    there = rotary(q, first=13) @ rotary(k, first=11).T
    other = rotary(q, first=13) @ rotary(k, first=10).T
    torch.testing.assert_close(here, there, atol=1e-6, rtol=0)
    assert (here - other).abs() > 1e-3
    torch.testing.assert_close(rotary(q).norm(), q.norm())


def test_halting_by_hand():
    """p = 0.6, 0.6: the second would pass 0.99, so the token moves with the remainder 0.4 and stays."""
    start = start_halting(torch.zeros(1, 1, 1))
    p = torch.full((1, 1), 0.6)
    once = halting_step(start, torch.full((1, 1, 1), 10.0), p)
    assert once.state.item() == pytest.approx(6.0)
    assert once.running.item()
    twice = halting_step(once, torch.full((1, 1, 1), 20.0), p)
    assert twice.state.item() == pytest.approx(0.4 * 20 + 0.6 * 6)
    assert not twice.running.item()
    again = halting_step(twice, torch.full((1, 1, 1), 99.0), p)
    assert again.state.item() == twice.state.item()
    assert again.steps.item() == 2
    assert ponder_cost(again, torch.ones(1, 1, dtype=torch.bool)).item() == pytest.approx(2.4)


def test_the_last_step_halts_all_tokens():
    start = start_halting(torch.zeros(1, 2, 3))
    end = halting_step(start, torch.ones(1, 2, 3), torch.full((1, 2), 0.1), last=True)
    assert not end.running.any()
    torch.testing.assert_close(end.state, torch.ones(1, 2, 3))
    assert ponder_cost(end, torch.tensor([[True, False]])).item() == pytest.approx(2.0)
