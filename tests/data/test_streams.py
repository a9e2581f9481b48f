import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.data.store import Column, write_stores
from seqlab.data.streams import Streams, in_chunks
from seqlab.errors import DataError


def test_each_chunk_goes_on_where_the_last_one_ended():
    streams = Streams(np.arange(25), rows=2, steps=3, seed=0)
    first, second = streams.batch(0, 0), streams.batch(0, 1)
    assert first.target.values.tolist() == [[0, 1, 2, 3], [12, 13, 14, 15]]
    assert second.target.values.tolist() == [[3, 4, 5, 6], [15, 16, 17, 18]]
    assert first.rows.tolist() == [0, 1]
    assert first.target.lengths.tolist() == [4, 4]
    assert streams.num_batches(0) == 4


@given(
    length=st.integers(2, 300),
    rows=st.integers(1, 20),
    steps=st.integers(1, 40),
    epoch=st.integers(0, 5),
)
def test_no_token_is_predicted_twice_and_few_are_left_out(length, rows, steps, epoch):
    streams = Streams(np.arange(length), rows=rows, steps=steps, seed=1)
    batches = [
        streams.batch(epoch, index).target.values for index in range(streams.num_batches(epoch))
    ]
    predicted = [token for batch in batches for token in batch[:, 1:].flatten().tolist()]

    assert batches
    assert all(batch.shape == (streams.rows, streams.steps + 1) for batch in batches)
    assert len(set(predicted)) == len(predicted)
    left_out = length - 1 - len(predicted)
    assert left_out < streams.rows * streams.steps + streams.rows + streams.steps


def test_whole_rows_predict_everything():
    streams = Streams(np.arange(1 + 4 * 5 * 7), rows=4, steps=5, seed=0)
    predicted = [streams.batch(0, index).target.values[:, 1:] for index in range(7)]
    assert sorted(token for batch in predicted for token in batch.flatten().tolist()) == list(
        range(1, 141)
    )
    assert streams.num_batches(0) == 7


def test_borders_move_from_epoch_to_epoch_and_are_keyed():
    def first_token(seed, epoch):
        return (
            Streams(np.arange(10_000), rows=4, steps=50, seed=seed)
            .batch(epoch, 0)
            .target.values[0, 0]
            .item()
        )

    assert first_token(0, 0) == 0
    assert len({first_token(0, epoch) for epoch in range(10)}) > 5
    assert [first_token(3, epoch) for epoch in range(10)] == [
        first_token(3, epoch) for epoch in range(10)
    ]
    assert [first_token(3, epoch) for epoch in range(10)] != [
        first_token(4, epoch) for epoch in range(10)
    ]


@pytest.mark.parametrize(
    ("length", "shape"), [(2, (1, 2)), (11, (1, 11)), (31, (1, 31)), (61, (2, 31)), (121, (4, 31))]
)
def test_a_short_text_gets_fewer_rows_then_fewer_steps(length, shape):
    streams = Streams(np.arange(length), rows=4, steps=30, seed=0)
    for epoch in range(3):
        assert streams.num_batches(epoch) == 1
        assert streams.batch(epoch, 0).target.values.shape == shape


def test_a_store_on_disk_is_streamed(tmp_path):
    [store] = write_stores(
        [Column(tmp_path / "text", 100)], [(list(range(50)),), (list(range(50, 100)),)]
    )
    batch = Streams(store.flat, rows=3, steps=8, seed=0).batch(0, 1)
    assert batch.target.values[0].tolist() == list(range(8, 17))
    assert [part.target.values.tolist() for part in in_chunks(store.flat, steps=60, rows=1)] == [
        [list(range(61))],
        [list(range(60, 100))],
    ]


@given(length=st.integers(2, 100), steps=st.integers(1, 120))
def test_in_order_predicts_every_token_once(length, steps):
    chunks = [
        batch.target.values[0].tolist()
        for batch in in_chunks(np.arange(length), steps=steps, rows=1)
    ]
    assert [token for chunk in chunks for token in chunk[1:]] == list(range(1, length))
    assert [chunk[0] for chunk in chunks[1:]] == [chunk[-1] for chunk in chunks[:-1]]


@pytest.mark.parametrize("tokens", [[], [7]])
def test_a_text_without_anything_to_predict(tokens):
    flat = np.array(tokens, dtype=np.int64)
    with pytest.raises(DataError, match=f"a text of {len(tokens)} token"):
        Streams(flat, rows=2, steps=2, seed=0)
    with pytest.raises(DataError, match="has nothing to predict"):
        list(in_chunks(flat, steps=2, rows=1))


def test_a_batch_that_is_not_there():
    streams = Streams(np.arange(25), rows=2, steps=3, seed=0)
    with pytest.raises(IndexError, match="batch 4 of an epoch with 4"):
        streams.batch(0, 4)
