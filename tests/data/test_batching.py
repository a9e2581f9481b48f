import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqlab.data.batching import Rows, plan, plan_in_order
from seqlab.data.store import Column, write_stores
from seqlab.data.text_pairs import read_pairs
from seqlab.errors import DataError


@pytest.fixture
def sentences():
    """Lengths as translations have them: long-tailed, the target about as long as the source, SOS and EOS included."""
    random = np.random.default_rng(0)
    source = 2 + random.gamma(4.0, 3.0, size=20_000).astype(np.int64)
    target = 2 + np.maximum(
        1, np.round(source * random.normal(1.05, 0.15, size=len(source)))
    ).astype(np.int64)
    return np.stack([source, target], axis=1)


def padded_share(lengths, batches):
    positions = sum(len(rows) * lengths[rows].max(axis=0).sum() for rows in batches)
    return 1 - lengths.sum() / positions


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60),
    st.integers(1, 100),
)
def test_every_row_once_and_within_the_budget(pairs, budget):
    """Law, for shuffled and for ordered plans."""
    lengths = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    for batches in (
        plan(lengths, budget=budget, seed=3, epoch=1),
        plan_in_order(lengths, budget=budget),
    ):
        assert sorted(row for rows in batches for row in rows.tolist()) == list(range(len(lengths)))
        for rows in batches:
            assert len(rows) == 1 or len(rows) * lengths[rows].max() <= budget


def test_a_plan_is_a_function_of_seed_and_epoch(sentences):
    def of(seed, epoch):
        return [rows.tolist() for rows in plan(sentences, budget=2000, seed=seed, epoch=epoch)]

    assert of(1, 2) == of(1, 2)
    assert of(1, 2) != of(1, 3)
    assert of(1, 2) != of(2, 2)


@pytest.mark.parametrize("budget", [500, 2000, 8000])
def test_few_positions_are_pads(sentences, budget):
    """Of all positions, source and target; 20,000 sentences are few for batches of 8,000 tokens."""
    assert padded_share(sentences, plan(sentences, budget=budget, seed=0, epoch=0)) < 0.1
    assert padded_share(sentences, plan_in_order(sentences, budget=budget)) < 0.1


def test_few_positions_of_real_translations_are_pads(shared_data):
    paths = [str(shared_data(f"multi30k/train.{language}.gz")) for language in ("en", "fr")]
    pairs = [
        (len(str(pair.source).split()), len(str(pair.target).split())) for pair in read_pairs(paths)
    ]
    lengths = np.array(pairs) + 2
    assert padded_share(lengths, plan(lengths, budget=4000, seed=0, epoch=0)) < 0.05


def test_batches_are_nearly_full(sentences):
    sizes = [
        len(rows) * sentences[rows].max() for rows in plan(sentences, budget=2000, seed=0, epoch=0)
    ]
    assert np.mean(sizes) > 0.95 * 2000


def test_batches_do_not_come_from_short_to_long(sentences):
    longest = [sentences[rows].max() for rows in plan(sentences, budget=2000, seed=0, epoch=0)]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.2


def test_evaluation_goes_from_short_to_long(sentences):
    longest = [sentences[rows].max() for rows in plan_in_order(sentences, budget=2000)]
    assert longest == sorted(longest)


def test_rows_that_are_equally_long_meet_others_in_the_next_epoch():
    lengths = np.full((100, 1), 10)
    one, other = (plan(lengths, budget=100, seed=0, epoch=epoch) for epoch in (0, 1))
    assert {frozenset(rows.tolist()) for rows in one} != {
        frozenset(rows.tolist()) for rows in other
    }


def write_store(path, rows, *, vocabulary_size=0, dtype=None, width=1):
    """One column alone."""
    return write_stores([Column(path, vocabulary_size, dtype, width)], ((row,) for row in rows))[0]


@pytest.fixture
def stores(tmp_path):
    source = write_store(tmp_path / "source", [[1, 2, 3], [4], [5, 6]], vocabulary_size=10)
    target = write_store(tmp_path / "target", [[7], [8, 9], [1, 2, 3, 4]], vocabulary_size=10)
    return source, target


def test_a_batch_holds_the_rows_that_were_asked_for(stores):
    rows = Rows(source=stores[0], target=stores[1])
    batch = rows.batch(np.array([2, 0]))
    assert batch.rows.tolist() == [2, 0]
    assert [row.tolist() for row in batch.source.rows()] == [[5, 6], [1, 2, 3]]
    assert [row.tolist() for row in batch.target.rows()] == [[1, 2, 3, 4], [7]]
    assert batch.source.values.tolist() == [[5, 6, 0], [1, 2, 3]]
    assert (len(rows), rows.lengths.tolist()) == (3, [[3, 1], [1, 2], [2, 4]])


def test_a_part_may_be_absent(stores):
    rows = Rows(target=stores[1])
    assert rows.batch([1]).source is None
    assert rows.batch([1]).target.values.tolist() == [[8, 9]]
    assert rows.lengths.shape == (3, 1)


def test_a_batch_of_feature_vectors(stores, tmp_path):
    frames = [np.arange(2 * length, dtype=np.float32).reshape(-1, 2) + 0.5 for length in (2, 1, 3)]
    rows = Rows(
        source=write_store(tmp_path / "frames", frames, dtype="float32", width=2), target=stores[1]
    )
    source = rows.batch([1, 0]).source
    assert (source.values.dtype, source.values.shape) == (torch.float32, (2, 2, 2))
    assert source.values.tolist() == [[[0.5, 1.5], [0, 0]], [[0.5, 1.5], [2.5, 3.5]]]
    assert source.lengths.tolist() == [1, 2]
    assert rows.lengths.tolist() == [[2, 1], [1, 2], [3, 4]]


def test_a_batch_of_words_spelled_in_characters(stores, tmp_path):
    words = [[[1, 2, 0]], [[3, 4, 5], [6, 0, 0]], []]
    rows = Rows(
        source=write_store(tmp_path / "words", words, vocabulary_size=10, width=3), target=stores[1]
    )
    source = rows.batch([0, 1, 2]).source
    assert source.values.dtype == torch.int64
    assert source.values.tolist() == [
        [[1, 2, 0], [0, 0, 0]],
        [[3, 4, 5], [6, 0, 0]],
        [[0, 0, 0], [0, 0, 0]],
    ]
    assert [row.tolist() for row in source.rows()] == words


def test_a_plan_goes_with_its_rows(stores):
    rows = Rows(source=stores[0], target=stores[1])
    seen = [rows.batch(indices) for indices in plan(rows.lengths, budget=6, seed=0, epoch=0)]
    assert sorted(row for batch in seen for row in batch.rows.tolist()) == [0, 1, 2]


def test_stores_of_different_size_do_not_belong_together(stores, tmp_path):
    other = write_store(tmp_path / "other", [[1]], vocabulary_size=10)
    with pytest.raises(DataError, match="the source has 3 rows and the target 1"):
        Rows(source=stores[0], target=other)
