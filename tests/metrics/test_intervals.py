"""Intervals cover as often as they say, and a paired comparison tells luck from skill."""

import numpy as np
import pytest

from seqlab.metrics.scores import difference, f1, interval, mean, share


def test_an_interval_holds_the_true_share_about_95_times_in_100() -> None:
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        low, high = interval(share("accuracy", (random.random(200) < 0.8).tolist()))
        hits += low <= 0.8 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_the_interval_of_twelve_right_answers_is_wilsons() -> None:
    low, high = interval(share("accuracy", [True] * 12))
    assert low == pytest.approx(0.757, abs=0.001)  # Wilson's interval
    assert high == 1.0
    assert interval(share("accuracy", [False] * 12)) == pytest.approx((0.0, 0.243), abs=0.001)
    assert interval(mean("mae", [1.0, 1.0], lower_is_better=True)) == (1.0, 1.0)


def test_the_value_of_a_share_is_that_of_all_examples() -> None:
    assert share("accuracy", [3, 1], [4, 2]).value() == pytest.approx(4 / 6)
    assert f1("entity_f1", [1, 0], [1, 1], [1, 1]).value() == pytest.approx(0.5)


def test_a_paired_comparison_finds_a_difference_although_intervals_overlap() -> None:
    random = np.random.default_rng(1)
    theirs = random.random(400) < 0.80
    ours = theirs | (random.random(400) < 0.1)  # right wherever they are, and a little more often
    one, other = share("accuracy", ours.tolist()), share("accuracy", theirs.tolist())
    found = difference(one, other)
    assert interval(one)[0] < interval(other)[1]
    assert found.low > 0
    assert found.clear
    assert found.gain == pytest.approx(ours.mean() - theirs.mean())


def test_equal_systems_do_not_differ() -> None:
    one = share("accuracy", [True, False] * 50)
    assert not difference(one, one).clear
    assert difference(one, one).p == 1.0


def test_a_lower_error_is_a_gain() -> None:
    small, large = (
        mean("mae", values, lower_is_better=True) for values in ([1.0, 1.1, 0.9], [2.0, 2.1, 1.9])
    )
    assert difference(small, large).gain == pytest.approx(1.0)


def test_systems_with_different_numbers_of_examples_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="2 and 1 examples"):
        difference(share("accuracy", [True, True]), share("accuracy", [True]))
