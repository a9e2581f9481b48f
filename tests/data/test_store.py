import json

import numpy as np
import pytest

from seqlab.data.store import Column, TokenStore, write_store, write_stores
from seqlab.errors import DataError

ROWS = [[3, 1, 2], [], [0], [65535, 7]]


@pytest.mark.parametrize(
    ("size", "dtype", "expected"),
    [(1 << 16, None, "uint16"), ((1 << 16) + 1, None, "uint32"), (1 << 16, "int32", "int32")],
)
def test_rows_come_back_as_they_were(tmp_path, size, dtype, expected):
    written = write_store(tmp_path / "tokens.bin", iter(ROWS), vocabulary_size=size, dtype=dtype)
    for store in (written, TokenStore.open(tmp_path / "tokens.bin")):
        assert [store[i].tolist() for i in range(len(store))] == ROWS
        assert store[-1].dtype == np.int64
        assert store.flat.dtype == expected
        assert store.flat.tolist() == [3, 1, 2, 0, 65535, 7]
        assert store.lengths.tolist() == [3, 0, 1, 2]
        assert (store.num_tokens, store.vocabulary_size) == (6, size)


def test_what_lies_on_disk_is_mapped_not_read(tmp_path):
    store = write_store(tmp_path / "tokens.bin", ROWS, vocabulary_size=1 << 16)
    assert isinstance(store.flat, np.memmap)
    assert isinstance(store.offsets, np.memmap)
    assert (tmp_path / "tokens.bin").stat().st_size == 2 * 6


def test_a_row_is_a_copy(tmp_path):
    store = write_store(tmp_path / "tokens.bin", ROWS, vocabulary_size=1 << 16)
    store[0][:] = 9
    assert store[0].tolist() == [3, 1, 2]


def test_many_rows_at_once_are_padded_with_zeros(tmp_path):
    store = write_store(tmp_path / "tokens.bin", ROWS, vocabulary_size=1 << 16)
    values, lengths = store.gather(np.array([3, 1, 0]))
    assert values.tolist() == [[65535, 7, 0], [0, 0, 0], [3, 1, 2]]
    assert lengths.tolist() == [2, 0, 3]
    assert store.gather(np.array([1]))[0].shape == (1, 0)


def test_minus_one_is_a_label_where_signs_are_kept(tmp_path):
    store = write_store(tmp_path / "labels.bin", [[-1, 2], [0]], vocabulary_size=3, dtype="int32")
    assert store[0].tolist() == [-1, 2]


def test_more_rows_than_are_held_in_memory(tmp_path):
    """Larger than the buffer, so it is flushed several times; arrays and lists alike."""
    whole = np.random.default_rng(0).integers(0, 1000, size=3_000_000)
    rows = [row if i % 2 else row.tolist() for i, row in enumerate(np.array_split(whole, 10_000))]
    store = write_store(tmp_path / "tokens.bin", rows, vocabulary_size=1000)
    assert np.array_equal(store.flat, whole)
    assert np.array_equal(store.lengths, [len(row) for row in rows])


def test_no_rows_at_all(tmp_path):
    store = write_store(tmp_path / "tokens.bin", [], vocabulary_size=10)
    assert (len(store), store.num_tokens, store.flat.tolist(), store.lengths.tolist()) == (0, 0, [], [])


@pytest.mark.parametrize("bad", [10, -1, 70000])
def test_an_id_outside_the_vocabulary_leaves_the_old_store_alone(tmp_path, bad):
    path = tmp_path / "tokens.bin"
    write_store(path, ROWS, vocabulary_size=1 << 16)
    with pytest.raises(DataError, match=f"the id {bad} is outside a vocabulary of 10"):
        write_store(path, [[1, bad]], vocabulary_size=10)
    assert TokenStore.open(path)[0].tolist() == ROWS[0]
    assert sorted(part.name for part in tmp_path.iterdir()) == ["tokens.bin", "tokens.bin.json", "tokens.bin.offsets"]


def test_a_source_that_breaks_off_leaves_nothing_behind(tmp_path):
    def rows():
        yield [1]
        raise DataError("pairs.tsv:2: broken", hint="mend it.")

    with pytest.raises(DataError, match="broken"):
        write_store(tmp_path / "tokens.bin", rows(), vocabulary_size=10)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_dtype(tmp_path):
    with pytest.raises(ValueError, match="not float32"):
        write_store(tmp_path / "tokens.bin", [], vocabulary_size=10, dtype="float32")


def test_a_row_that_is_not_there(tmp_path):
    store = write_store(tmp_path / "tokens.bin", ROWS, vocabulary_size=1 << 16)
    with pytest.raises(IndexError, match="row 4 of a store with 4 rows"):
        store[4]


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("part", ["tokens.bin", "tokens.bin.offsets"])
@pytest.mark.parametrize("damage", [cut, lambda path: path.unlink()])
def test_a_store_that_was_cut(tmp_path, part, damage):
    write_store(tmp_path / "tokens.bin", ROWS, vocabulary_size=1 << 16)
    damage(tmp_path / part)
    with pytest.raises(DataError, match=r"the token store is damaged: \d+ bytes where \d+ are needed") as caught:
        TokenStore.open(tmp_path / "tokens.bin")
    assert "prepare the data again" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "its format is 99, and this version reads 1"),
        ({"dtype": "float64"}, "it says"),
        ({"num_rows": -1}, "it says"),
    ],
)
def test_a_header_that_was_changed(tmp_path, change, message):
    write_store(tmp_path / "tokens.bin", ROWS, vocabulary_size=1 << 16)
    header = tmp_path / "tokens.bin.json"
    header.write_text(json.dumps(json.loads(header.read_text()) | change))
    with pytest.raises(DataError, match=message):
        TokenStore.open(tmp_path / "tokens.bin")


def test_a_header_that_is_no_header(tmp_path):
    write_store(tmp_path / "tokens.bin", ROWS, vocabulary_size=1 << 16)
    (tmp_path / "tokens.bin.json").write_text("[]")
    with pytest.raises(DataError, match="it cannot be read"):
        TokenStore.open(tmp_path / "tokens.bin")


def test_offsets_of_another_store(tmp_path):
    write_store(tmp_path / "tokens.bin", ROWS, vocabulary_size=1 << 16)
    np.arange(5, dtype="<u8").tofile(tmp_path / "tokens.bin.offsets")
    with pytest.raises(DataError, match="its rows end at 4, not at 6"):
        TokenStore.open(tmp_path / "tokens.bin")


def test_no_store_at_all(tmp_path):
    with pytest.raises(DataError, match="there is no token store here"):
        TokenStore.open(tmp_path / "tokens.bin")


def test_several_columns_are_written_side_by_side(tmp_path):
    columns = [Column(tmp_path / "source", 10), Column(tmp_path / "target", 100_000)]
    source, target = write_stores(columns, iter([([1, 2], [99_999]), ([], [0, 5])]))
    assert [source[i].tolist() for i in range(2)] == [[1, 2], []]
    assert [target[i].tolist() for i in range(2)] == [[99_999], [0, 5]]
    assert (source.flat.dtype, target.flat.dtype) == ("uint16", "uint32")


def test_a_bad_id_in_one_column_leaves_neither(tmp_path):
    columns = [Column(tmp_path / "source", 10), Column(tmp_path / "target", 10)]
    with pytest.raises(DataError, match="the id 10 is outside a vocabulary of 10"):
        write_stores(columns, [([1], [10])])
    assert list(tmp_path.iterdir()) == []
