"""What simple rules say of a window, with gaps too, and that a network starts from a mix of them."""

import pytest
import torch

from seqlab.models.simple_forecasts import SimpleForecasts, simple_forecasts

SEASON = [1.0, 5.0, 3.0]


def _rules(
    values: list[float], seen: list[bool] | None = None, *, horizon: int = 4
) -> torch.Tensor:
    window = torch.tensor([values])
    mask = torch.ones_like(window, dtype=torch.bool) if seen is None else torch.tensor([seen])
    return simple_forecasts(torch.where(mask, window, 0.0), mask, 3, horizon)[0].T


def test_each_rule_by_hand() -> None:
    mean, last, season_ago, moments, moved, growing = _rules([*SEASON, *(2 + v for v in SEASON)])
    assert mean.tolist() == pytest.approx([4.0] * 4)
    assert last.tolist() == pytest.approx([5.0] * 4)
    assert season_ago.tolist() == pytest.approx([3.0, 7.0, 5.0, 3.0])
    assert moments.tolist() == pytest.approx([2.0, 6.0, 4.0, 2.0])
    assert moved.tolist() == pytest.approx([3.0, 7.0, 5.0, 3.0])
    assert growing.tolist() == pytest.approx([5.0, 9.0, 7.0, 7.0])


def test_missing_values_are_ignored() -> None:
    values, seen = [*SEASON, 3.0, 7.0, 5.0], [True, True, True, False, True, False]
    _, last, season_ago, moments, *_ = _rules(values, seen, horizon=3)
    assert last[0] == 7.0
    assert season_ago.tolist() == [1.0, 7.0, 3.0]
    assert moments.tolist() == [1.0, 6.0, 3.0]


def test_an_empty_or_short_window_has_forecasts() -> None:
    nothing = _rules([0.0] * 6, [False] * 6)
    assert nothing.isfinite().all()
    short = simple_forecasts(torch.tensor([[1.0, 2.0]]), torch.ones(1, 2, dtype=torch.bool), 12, 5)
    assert short.shape == (1, 5, 6)
    assert short.isfinite().all()


def test_the_weights_are_equal_at_first_and_learn_the_best_rule() -> None:
    torch.manual_seed(0)
    mix = SimpleForecasts(3, 3)
    windows = torch.randn(64, 1) + torch.tensor(SEASON).repeat(2) * torch.randn(64, 1)
    seen = torch.ones_like(windows, dtype=torch.bool)
    optimizer = torch.optim.Adam(mix.parameters(), lr=5e-3)
    first = simple_forecasts(windows, seen, 3, 3).mean(-1)
    assert torch.allclose(mix(windows, seen), first, atol=1e-6)
    for _ in range(200):
        optimizer.zero_grad()
        (mix(windows, seen) - windows[:, -3:]).abs().mean().backward()
        optimizer.step()
    assert (mix(windows, seen) - windows[:, -3:]).abs().mean() < 0.1
