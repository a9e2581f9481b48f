import subprocess
import sys

import numpy as np
import pytest

from seqlab.data.sources import border, source_key


def held_out(sources, *, fraction, most=10**9, seed=0):
    keys = [source_key(source, seed=seed) for source in sources]
    limit = border(keys, fraction=fraction, most=most)
    return {source for source, key in zip(sources, keys, strict=True) if limit is not None and key <= limit}


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
    assert np.histogram(keys, bins=4, range=(0, 1))[0] == pytest.approx([250] * 4, abs=60)  # over four deviations


def test_a_key_does_not_depend_on_the_process():
    """Python's own hash of a string changes from run to run; this one must not."""
    command = "from seqlab.data.sources import source_key; print(source_key('a', seed=7))"
    other = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
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
