import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqlab.data.store import Column, TokenStore, write_stores
from seqlab.errors import DataError

ROWS = [[3, 1, 2], [], [0], [65535, 7]]


def write_store(path, rows, *, vocabulary_size=0, dtype=None, width=1):
    """One column alone."""
    return write_stores(
        [Column(Path(path), vocabulary_size, dtype, width)], ((row,) for row in rows)
    )[0]


def contents(store):
    return [store[i].tolist() for i in range(len(store))]


def header(path):
    return json.loads(path.with_name(f"{path.name}.json").read_text())


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
        assert (store.num_tokens, header(tmp_path / "tokens.bin")["vocabulary_size"]) == (6, size)


def test_what_lies_on_disk_is_mapped_not_read(tmp_path):
    store = write_store(tmp_path / "tokens.bin", ROWS, vocabulary_size=1 << 16)
    assert isinstance(store.flat, np.memmap)
    assert isinstance(store.begins, np.memmap)
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
    assert (len(store), store.num_tokens, store.flat.tolist(), store.lengths.tolist()) == (
        0,
        0,
        [],
        [],
    )


@pytest.mark.parametrize("bad", [10, -1, 70000])
def test_an_id_outside_the_vocabulary_leaves_the_old_store_alone(tmp_path, bad):
    path = tmp_path / "tokens.bin"
    write_store(path, ROWS, vocabulary_size=1 << 16)
    with pytest.raises(DataError, match=f"the id {bad} is outside a vocabulary of 10"):
        write_store(path, [[1, bad]], vocabulary_size=10)
    assert TokenStore.open(path)[0].tolist() == ROWS[0]
    assert sorted(part.name for part in tmp_path.iterdir()) == [
        "tokens.bin",
        "tokens.bin.json",
        "tokens.bin.offsets",
    ]


def test_a_source_that_breaks_off_leaves_nothing_behind(tmp_path):
    def rows():
        yield [1]
        raise DataError("pairs.tsv:2: broken", hint="mend it.")

    with pytest.raises(DataError, match="broken"):
        write_store(tmp_path / "tokens.bin", rows(), vocabulary_size=10)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_dtype(tmp_path):
    with pytest.raises(ValueError, match="not float64"):
        write_store(tmp_path / "tokens.bin", [], vocabulary_size=10, dtype="float64")


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
    with pytest.raises(
        DataError, match=r"the token store is damaged: \d+ bytes where \d+ are needed"
    ) as caught:
        TokenStore.open(tmp_path / "tokens.bin")
    assert "prepare the data again" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "its format is 99, and this version reads 1"),
        ({"dtype": "float64"}, "its values are invalid"),
        ({"num_rows": -1}, "its values are invalid"),
        ({"width": 0}, "its values are invalid"),
        ({"width": "3"}, "its values are invalid"),
        ({"width": 3}, "12 bytes where 36 are needed"),
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


IDS = st.lists(st.integers(0, 99), min_size=3, max_size=3)
FEATURES = st.lists(
    st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3
)


@pytest.fixture(scope="module")
def place():
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory) / "wide.bin"


def law_of_wide_rows(store, rows, dtype):
    """Rows come back one by one, end to end, and side by side with zeros as pads."""
    assert contents(store) == rows
    assert store.lengths.tolist() == [len(row) for row in rows]
    assert store.num_tokens == sum(map(len, rows))
    assert store.flat.shape == (store.num_tokens, 3)
    assert store.flat.tolist() == [position for row in rows for position in row]
    values, lengths = store.gather(np.arange(len(rows)))
    longest = max(map(len, rows), default=0)
    assert (values.shape, values.dtype) == ((len(rows), longest, 3), dtype)
    assert values.tolist() == [row + [[0, 0, 0]] * (longest - len(row)) for row in rows]
    assert lengths.tolist() == store.lengths.tolist()
    assert all(
        store[i].dtype == dtype and store[i].shape == (len(row), 3) for i, row in enumerate(rows)
    )


@given(rows=st.lists(st.lists(IDS, max_size=4), max_size=5), as_arrays=st.booleans())
def test_words_spelled_in_characters_come_back(place, rows, as_arrays):
    given_rows = (
        [np.array(row, dtype=np.int32).reshape(-1, 3) for row in rows] if as_arrays else rows
    )
    law_of_wide_rows(write_store(place, given_rows, vocabulary_size=100, width=3), rows, np.int64)
    law_of_wide_rows(TokenStore.open(place), rows, np.int64)


@given(
    rows=st.lists(st.lists(FEATURES, max_size=4), max_size=5),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_vectors_come_back(place, rows, dtype):
    vectors = [np.array(row, dtype=dtype).reshape(-1, 3) for row in rows]
    store = write_store(place, vectors, dtype="float32", width=3)
    law_of_wide_rows(store, rows, np.float32)
    assert (store.flat.dtype, header(place)["vocabulary_size"]) == ("float32", 0)
    law_of_wide_rows(TokenStore.open(place), rows, np.float32)


def test_wide_rows_are_mapped_not_read(tmp_path):
    store = write_store(
        tmp_path / "wide.bin", [np.ones((4, 2), dtype=np.float32)], dtype="float32", width=2
    )
    assert isinstance(store.flat, np.memmap)
    assert (tmp_path / "wide.bin").stat().st_size == 4 * 2 * 4


def test_vectors_of_one_feature_keep_their_axis(tmp_path):
    """A model of vectors need not know that there is only one."""
    store = write_store(tmp_path / "one.bin", [np.array([[0.5], [1.5]])], dtype="float32")
    assert (contents(store), header(tmp_path / "one.bin")["width"]) == ([[[0.5], [1.5]]], 1)
    assert store.gather(np.array([0]))[0].shape == (1, 2, 1)


def test_integers_can_be_features_and_columns_can_come_first_on_disk(tmp_path):
    by_columns = np.asfortranarray(np.arange(6).reshape(3, 2))
    assert contents(write_store(tmp_path / "v.bin", [by_columns], dtype="float32", width=2)) == [
        by_columns.tolist()
    ]


def test_more_vectors_than_are_held_in_memory(tmp_path):
    whole = np.random.default_rng(0).normal(size=(300_000, 8)).astype(np.float32)
    rows = np.array_split(whole, 500)
    store = write_store(tmp_path / "vectors.bin", rows, dtype="float32", width=8)
    assert np.array_equal(store.flat, whole)
    assert np.array_equal(store[-1], rows[-1])


def test_a_store_from_before_there_were_widths(tmp_path):
    write_store(tmp_path / "tokens.bin", ROWS, vocabulary_size=1 << 16)
    header = tmp_path / "tokens.bin.json"
    old = json.loads(header.read_text())
    assert old.pop("width") == 1
    header.write_text(json.dumps(old))
    store = TokenStore.open(tmp_path / "tokens.bin")
    assert (contents(store), store.flat.ndim) == (ROWS, 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_feature_that_is_not_finite_leaves_nothing_behind(tmp_path, bad):
    rows = [np.zeros((2, 2)), np.array([[0, 0], [0, 0], [1, bad]])]
    with pytest.raises(
        DataError, match=r"vectors\.bin: row 1, position 2 holds (nan|-?inf)"
    ) as caught:
        write_store(tmp_path / "vectors.bin", rows, dtype="float32", width=2)
    assert "Nothing was written" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_character_outside_the_vocabulary(tmp_path):
    with pytest.raises(DataError, match="the id 10 is outside a vocabulary of 10"):
        write_store(tmp_path / "wide.bin", [[[1, 2], [3, 10]]], vocabulary_size=10, width=2)


@pytest.mark.parametrize(
    "row", [[[1, 2, 3]], [1, 2], np.ones((4, 3), dtype=int), np.ones((2, 2, 2), dtype=int)]
)
def test_a_row_of_another_width(tmp_path, row):
    with pytest.raises(ValueError, match=r"row 1 has the shape \(.*\), not \(T, 2\)"):
        write_store(tmp_path / "wide.bin", [[[1, 2]], row], vocabulary_size=10, width=2)


def test_vectors_are_never_taken_for_ids(tmp_path):
    with pytest.raises(TypeError, match="Cannot cast"):
        write_store(tmp_path / "wide.bin", [np.array([[0.5, 1.5]])], vocabulary_size=10, width=2)


def test_a_position_holds_something(tmp_path):
    with pytest.raises(ValueError, match="at least one number, not 0"):
        write_store(tmp_path / "wide.bin", [], vocabulary_size=10, width=0)
