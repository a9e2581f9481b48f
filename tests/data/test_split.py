import subprocess
import sys

import numpy as np
import pytest

from seqlab.data.batching import held_out_keys, source_key


def held_out(sources, *, labels=None, fraction, most=10**9, seed=0, fold=1):
    keys = [source_key(source, seed=seed) for source in sources]
    strata = np.array(labels or [0] * len(keys), dtype=np.int64)
    chosen = held_out_keys(
        np.array(keys, dtype=np.uint64), strata, fraction=fraction, most=most, fold=fold
    )
    return {source for source, key in zip(sources, keys, strict=True) if key in chosen}


SOURCES = [f"sentence {i}" for i in range(1000)]


def test_the_fraction_is_held_out():
    assert len(held_out(SOURCES, fraction=0.1)) == 100
    assert len(held_out(SOURCES, fraction=0.1, most=30)) == 30


def test_the_order_does_not_matter_and_the_seed_does():
    assert held_out(SOURCES, fraction=0.1) == held_out(SOURCES[::-1], fraction=0.1)
    assert held_out(SOURCES, fraction=0.1) != held_out(SOURCES, fraction=0.1, seed=1)


def test_a_larger_fraction_holds_out_the_same_and_more():
    assert held_out(SOURCES, fraction=0.1) < held_out(SOURCES, fraction=0.3)


def test_keys_are_spread_evenly():
    keys = np.array([source_key(source, seed=3) for source in SOURCES]) / 2**64
    assert np.histogram(keys, bins=4, range=(0, 1))[0] == pytest.approx(
        [250] * 4, abs=60
    )  # over four deviations


def test_a_key_does_not_depend_on_the_process():
    """Python's own hash of a string changes from run to run; this one must not."""
    command = "from seqlab.data.batching import source_key; print(source_key('a', seed=7))"
    other = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    assert int(other.stdout) == source_key("a", seed=7)


def test_words_are_a_source_too():
    assert source_key(("a", "b"), seed=0) != source_key(("ab",), seed=0)
    assert source_key(("a", "b"), seed=0) != source_key("a b", seed=0)


def test_at_least_one_is_held_out_and_one_is_left():
    assert len(held_out(["a", "b"], fraction=0.01)) == 1
    assert len(held_out(["a", "b", "c"], fraction=1.0)) == 2
    assert len(held_out(["a", "b", "b", "b"], fraction=0.9)) == 1


@pytest.mark.parametrize("sources", [[], ["a"], ["a", "a", "a"]])
def test_where_all_sources_are_the_same_nothing_can_be_held_out(sources):
    assert held_out(sources, fraction=0.5) == set()


LABELS = [0] * 895 + [1] * 90 + [2] * 10 + [3] * 4 + [4]


def test_each_label_has_its_share_held_out():
    held = held_out(SOURCES, labels=LABELS, fraction=0.1)
    assert len(held) == 100
    counts = np.bincount(
        [label for source, label in zip(SOURCES, LABELS, strict=True) if source in held],
        minlength=5,
    )
    assert counts.tolist() == [
        89,
        9,
        1,
        1,
        0,
    ]  # none is left out but the one that must be learned from
    assert len(held_out(SOURCES, labels=LABELS, fraction=0.1, most=3)) == 3


def test_labels_are_shared_out_whatever_the_order_of_the_file():
    pairs = list(zip(SOURCES, LABELS, strict=True))[::-1]
    backwards = held_out(
        [source for source, _ in pairs], labels=[label for _, label in pairs], fraction=0.1
    )
    assert backwards == held_out(SOURCES, labels=LABELS, fraction=0.1)


def test_a_source_with_two_labels_is_on_one_side():
    twice, labels = SOURCES[:40] * 2, [0] * 40 + [1] * 40
    held = held_out(twice, labels=labels, fraction=0.25)
    assert 8 <= len(held) <= 12
    assert held == held_out(twice[::-1], labels=labels[::-1], fraction=0.25)


def test_folds_hold_out_each_source_at_most_once():
    folds = [
        held_out(SOURCES[:99], labels=LABELS[-99:], fraction=1 / 3, fold=fold) for fold in (1, 2, 3)
    ]
    assert len(folds[0]) == 33
    assert len(folds[0] | folds[1] | folds[2]) == sum(map(len, folds)) == 84 + 10 + 3
    assert len(held_out(["a", "b", "b"], fraction=0.5)) == 1


def test_where_no_label_occurs_twice_something_is_held_out_all_the_same():
    assert len(held_out(SOURCES[:10], labels=list(range(10)), fraction=0.2)) == 2
