"""The selection of a network or its baseline."""

from seqlab.metrics.scores import difference, share
from seqlab.selection import network_is_kept


def gain(network, baseline, examples):
    """How much better a network is that has so many examples right, of which its baseline has the first so many."""
    right = [share("accuracy", [n < each for n in range(examples)]) for each in (network, baseline)]
    return difference(*right)


def test_a_network_that_is_clearly_better_is_kept():
    assert network_is_kept(gain(240, 200, 250), run=1)
    assert network_is_kept(gain(240, 200, 250), run=12)


def test_the_baseline_is_kept_if_the_difference_is_unclear():
    assert not network_is_kept(gain(45, 45, 50), run=1)
    assert not network_is_kept(gain(44, 46, 50), run=1)
    nearly = gain(47, 46, 50)  # one example more of fifty
    assert not network_is_kept(nearly, run=1)


def test_a_series_needs_a_clearer_difference_than_examples():
    better = gain(49, 46, 50)
    assert better.p < 0.2
    assert not better.clear
    assert network_is_kept(better, run=1)
    assert not network_is_kept(better, run=12)
