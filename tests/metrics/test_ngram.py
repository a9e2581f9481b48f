import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from seqlab.metrics.ngram import WittenBell


def oracle(training, tokens, *, order, size):
    """The formula of the module, word for word, with dictionaries."""
    counts, followers = Counter(), defaultdict(set)
    for length in range(order):
        for i in range(length, len(training)):
            history = tuple(training[i - length : i])
            counts[history] += 1
            counts[(*history, "then", training[i])] += 1
            followers[history].add(training[i])

    def probability(token, history):
        shorter = probability(token, history[1:]) if history else 1 / size
        if not followers[history]:
            return shorter
        n = len(followers[history])
        return (counts[(*history, "then", token)] + n * shorter) / (counts[history] + n)

    return [
        math.log(probability(token, tuple(tokens[max(0, i - order + 1) : i])))
        for i, token in enumerate(tokens)
    ]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize(("size", "length"), [(2, 50), (5, 200), (30, 200), (3, 1)])
def test_it_equals_the_formula(order, size, length):
    random = np.random.default_rng(0)
    training, tokens = random.integers(0, size, size=length), random.integers(0, size, size=100)
    seen = WittenBell(order, size).fit(training).log_probabilities(tokens)
    np.testing.assert_allclose(
        seen, oracle(training.tolist(), tokens.tolist(), order=order, size=size), rtol=1e-12
    )


def test_a_worked_example():
    """abab, order 2: p(b|a) = (2 + 1 p(b)) / (2 + 1) with p(b) = (2 + 2/3) / (4 + 2) over the vocabulary abc."""
    log_probabilities = (
        WittenBell(2, 3).fit(np.array([0, 1, 0, 1])).log_probabilities(np.array([0, 1]))
    )
    p = (2 + 2 / 3) / 6
    np.testing.assert_allclose(np.exp(log_probabilities), [p, (2 + p) / 3])


@pytest.mark.parametrize("history", [[], [3], [1, 2], [2, 2, 2], [0, 4, 1, 0]])
def test_probabilities_sum_to_one(history):
    model = WittenBell(4, 6).fit(np.random.default_rng(1).integers(0, 5, size=300))
    last = [model.log_probabilities(np.array([*history, token]))[-1] for token in range(6)]
    assert np.exp(last).sum() == pytest.approx(1.0)


def test_large_vocabularies_do_not_overflow():
    """Five tokens out of 10^6 would not fit into 64 bits side by side."""
    random = np.random.default_rng(0)
    training = 999_990 + random.integers(0, 10, size=500)
    seen = WittenBell(5, 1_000_000).fit(training).log_probabilities(training[:50])
    np.testing.assert_allclose(
        seen, oracle(training.tolist(), training[:50].tolist(), order=5, size=1_000_000)
    )


def test_before_fitting_it_is_uniform():
    np.testing.assert_allclose(WittenBell(3, 4).log_probabilities(np.array([0, 3])), -math.log(4))
    np.testing.assert_allclose(
        WittenBell(3, 4).fit(np.array([], dtype=np.int64)).log_probabilities(np.array([0, 3])),
        -math.log(4),
    )


def test_an_empty_sequence_has_no_probabilities():
    assert WittenBell(3, 4).fit(np.array([1, 2])).log_probabilities(
        np.array([], dtype=np.int64)
    ).shape == (0,)


@pytest.mark.parametrize("bad", [-1, 4])
def test_an_id_outside_the_vocabulary(bad):
    with pytest.raises(ValueError, match="must be below 4"):
        WittenBell(2, 4).fit(np.array([0, bad]))


def test_an_order_below_one():
    with pytest.raises(ValueError, match="both must be at least 1"):
        WittenBell(0, 4)


@pytest.mark.parametrize(("order", "loss"), [(4, 1.774), (5, 1.669)])
def test_the_baseline_of_tiny_shakespeare(shared_data, order, loss):
    """Nats per character on the last tenth, counted on the rest."""
    text = np.frombuffer(shared_data("tinyshakespeare/input.txt").read_bytes(), dtype=np.uint8)
    characters, tokens = np.unique(text, return_inverse=True)
    border = int(0.9 * len(tokens))
    model = WittenBell(order, len(characters)).fit(tokens[:border])
    assert len(characters) == 65
    assert -model.log_probabilities(tokens[border:]).mean() == pytest.approx(loss, abs=0.001)
