"""Exponential smoothing against the formulas written out for one series in plain Python."""

import pytest
import torch

from seqlab.equations import exponential_smoothing as smoothing

VALUES = [3.0, 5.0, 4.0, 6.0, 8.0, 6.5, 9.0, 11.0, 9.5, 12.0]
SEEN = [True, True, True, False, True, True, True, True, False, True]


def _by_hand(values, seen, rates, begin, *, ratio):
    alpha, beta, phi, gamma = rates
    level, slope, season = begin.level.item(), begin.slope.item(), begin.season[0].tolist()
    begun, found = False, []
    for t, (value, there) in enumerate(zip(values, seen, strict=True)):
        begun = begun or there
        here = season[t % len(season)]
        if begun:
            slope = phi * slope
            level = level + slope
        if there:
            error = value - (level * here if ratio else level + here)
            of_level = error / here if ratio else error
            of_season = error / level if ratio else error
            level += alpha * of_level
            slope += alpha * beta * of_level
            season[t % len(season)] = here + gamma * (1 - alpha) * of_season
        found.append((level, slope, list(season)))
    return found


@pytest.mark.parametrize("ratio", [False, True])
@pytest.mark.parametrize(
    "rates", [(0.3, 0.1, 0.9, 0.2), (0.5, 0.0, 0.0, 0.4), (1.0, 0.2, 1.0, 0.0)]
)
def test_every_state_follows_the_formulas(rates, ratio):
    values, seen = torch.tensor([VALUES]).double(), torch.tensor([SEEN])
    begin = smoothing.start(values, seen, 3, ratio=ratio)
    many = torch.tensor([rates]).double()
    states = list(smoothing.states(values, seen, many, begin, ratio=ratio))
    for state, (level, slope, season) in zip(
        states, _by_hand(VALUES, SEEN, rates, begin, ratio=ratio), strict=True
    ):
        assert state.level.item() == pytest.approx(level)
        assert state.slope.item() == pytest.approx(slope)
        assert state.season[0].tolist() == pytest.approx(season)
    last = smoothing.smooth(values, seen, many, begin, ratio=ratio)
    assert all(torch.equal(one, other) for one, other in zip(last, states[-1], strict=True))


def test_an_intermediate_state_is_that_of_the_rows_so_far():
    values, seen = torch.tensor([VALUES]).double(), torch.tensor([SEEN])
    begin = smoothing.start(values, seen, 3, ratio=False)
    rates = torch.tensor([[0.3, 0.1, 0.9, 0.2]]).double()
    states = list(smoothing.states(values, seen, rates, begin, ratio=False))
    for count in (1, 4, 7):
        short = smoothing.smooth(values[:, :count], seen[:, :count], rates, begin, ratio=False)
        assert torch.equal(short.level, states[count - 1].level)
        assert torch.equal(short.season, states[count - 1].season)


def test_no_rows_leave_the_state_unchanged():
    values, seen = torch.zeros(1, 0).double(), torch.zeros(1, 0, dtype=torch.bool)
    begin = smoothing.State(
        torch.tensor([2.0]).double(), torch.zeros(1).double(), torch.zeros(1, 3).double()
    )
    assert smoothing.smooth(values, seen, torch.zeros(1, 4).double(), begin, ratio=False) is begin


def test_a_forecast_follows_the_damped_slope():
    state = smoothing.State(torch.tensor([10.0]), torch.tensor([2.0]), torch.tensor([[1.0, -1.0]]))
    rates = torch.tensor([[0.5, 0.1, 0.5, 0.1]])
    expected = [10 + 1.0 - 1, 10 + 1.5 + 1, 10 + 1.75 - 1]
    assert smoothing.forecast(state, rates, 3, row=5, ratio=False)[0].tolist() == pytest.approx(
        expected
    )


def test_a_diverging_forecast_is_clipped_to_the_extended_observed_range():
    values, seen = torch.tensor([[1.0, 3.0, 100.0]]).double(), torch.tensor([[True, True, False]])
    means = torch.tensor([[-50.0, 2.0, 4.5, 50.0, torch.nan]]).double()
    assert smoothing.plausible(means, values, seen)[0].tolist() == [-1.0, 2.0, 4.5, 5.0, 2.0]
    assert smoothing.plausible(means, values, torch.zeros_like(seen))[0].tolist() == [0.0] * 5
