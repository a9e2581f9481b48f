"""Tables in Parquet files: columns by name, rows as a stream, and messages for people."""

import sys
from datetime import date, datetime

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from seqlab import lab
from seqlab.data.example import Example
from seqlab.data.parquet import parquet_rows
from seqlab.data.series_files import read_series
from seqlab.data.tagged import read_tagged
from seqlab.data.text_pairs import read_labelled, read_pairs
from seqlab.data.time_series import future_times
from seqlab.errors import DataError, SeqlabWarning


@pytest.fixture
def write(tmp_path, monkeypatch):
    """A function that writes columns to a file and returns its name, so that messages name it as a user would."""
    monkeypatch.chdir(tmp_path)

    def write(name, columns, **options):
        parquet.write_table(arrow.table(columns), name, **options)
        return name

    return write


def texts(examples):
    return [(example.source, example.target) for example in examples]


def refusal(examples):
    with pytest.raises(DataError) as caught:
        list(examples)
    return str(caught.value), caught.value.hint


class TestTexts:
    def test_pairs_by_the_usual_names_else_the_first_two(self, write):
        usual = write("a.parquet", {"id": [1, 2], "Target": ["t", "u"], "source": ["r", "s"]})
        with pytest.warns(SeqlabWarning, match="not used: id"):
            pairs = list(read_pairs([usual]))
        assert pairs == [Example("r", "t", "a.parquet:1"), Example("s", "u", "a.parquet:2")]
        other = write("b.parquet", {"en": ["a"], "fr": ["b"], "id": [1]})
        with pytest.warns(SeqlabWarning, match="not used: id"):
            assert texts(read_pairs([other])) == [("a", "b")]

    def test_columns_by_name_and_by_number(self, write):
        path = write("a.parquet", {"id": [7], "en": ["a"], "fr": ["b"]})
        assert texts(read_pairs([path], source="fr", target="en")) == [("b", "a")]
        assert texts(read_pairs([path], source="3", target="2")) == [("b", "a")]
        message, hint = refusal(read_pairs([path], source="fre"))
        assert message == "a.parquet: there is no column 'fre'"
        assert "fr" in hint

    def test_labels_may_be_numbers_or_categories(self, write):
        path = write("a.parquet", {"label": [1, 0], "text": ["good", "bad"]})
        assert texts(read_labelled([path])) == [("good", "1"), ("bad", "0")]
        categories = arrow.array(["x", "y", "x"]).dictionary_encode()
        path = write("b.parquet", {"label": categories, "text": ["a", "b", "c"]})
        assert texts(read_labelled([path])) == [("a", "x"), ("b", "y"), ("c", "x")]

    def test_tagged_sentences_are_lists_or_have_spaces(self, write):
        sentences = [(("a", "b"), ("x", "y")), (("c",), ("z",))]
        lists = write("a.parquet", {"words": [["a", "b"], ["c"]], "tags": [["x", "y"], ["z"]]})
        assert texts(read_tagged([lists])) == sentences
        assert (
            texts(read_tagged([write("b.parquet", {"words": ["a b", "c"], "tags": ["x y", "z"]})]))
            == sentences
        )

    def test_an_entry_of_a_list_is_one_word(self, write):
        for word in ("New York", "", None):
            path = write("a.parquet", {"words": [["a", word]], "tags": [["x", "y"]]})
            assert refusal(read_tagged([path]))[0] == f"a.parquet:1: {word or ''!r} is not one word"

    def test_a_missing_cell_and_a_nested_one_hold_no_text(self, write):
        path = write("a.parquet", {"source": ["a", None], "target": ["b", "c"]})
        assert refusal(read_pairs([path]))[0] == "a.parquet:2: 'source' holds no text"
        path = write("b.parquet", {"source": ["a"], "target": [{"x": 1}]})
        assert refusal(read_pairs([path]))[0] == "b.parquet:1: 'target' holds no text"

    def test_without_rows_there_is_no_example(self, write):
        path = write(
            "a.parquet", {"source": arrow.array([], "string"), "target": arrow.array([], "string")}
        )
        assert refusal(read_pairs([path]))[0] == "a.parquet: no example was found"


class TestSeries:
    def test_times_numbers_and_gaps(self, write):
        days = [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)]
        series = read_series(
            write("a.parquet", {"day": days, "x": [1.5, None, float("nan")], "n": [1, 2, 3]})
        )
        assert series.columns == ("x", "n")
        assert future_times(series, 1) == ["2024-01-04"]
        np.testing.assert_equal(series.values, [[1.5, 1], [np.nan, 2], [np.nan, 3]])

    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    def test_time_stamps_of_every_unit(self, write, unit):
        moments = arrow.array(
            [datetime(2024, 1, 1, 22), datetime(2024, 1, 1, 23)], arrow.timestamp(unit)
        )
        series = read_series(write("a.parquet", {"time": moments, "x": [1, 2]}))
        assert future_times(series, 1) == ["2024-01-02 00:00:00"]

    def test_a_wrong_cell_is_named_by_its_row(self, write):
        with pytest.raises(DataError, match=r"a.parquet:2, column 'x': 'b' is not a number"):
            read_series(write("a.parquet", {"x": ["1", "b"]}))


def test_memory_does_not_grow_with_the_file(write):
    rows = 200_000
    columns = {
        "source": [f"source {n}" for n in range(rows)],
        "target": ["target " * 20] * rows,
    }
    path = write(
        "a.parquet", columns, row_group_size=5_000, use_dictionary=False, compression="none"
    )
    del columns
    before = arrow.total_allocated_bytes()
    most = 0
    for number, _ in enumerate(read_pairs([path]), start=1):
        if number % 1_000 == 0:
            most = max(most, arrow.total_allocated_bytes() - before)
    assert number == rows
    assert most < 4_000_000  # the file has 30 MB


def test_rows_are_numbered_across_row_groups(write):
    path = write("a.parquet", {"x": list(range(2_500))}, row_group_size=700)
    assert list(parquet_rows(path, ["x"])) == [(n + 1, [n]) for n in range(2_500)]


class TestRefusals:
    def test_a_file_that_is_not_there(self, write):
        write("pairs.parquet", {"a": [1]})
        assert refusal(read_pairs(["pears.parquet"])) == (
            "pears.parquet: there is no such file",
            "did you mean 'pairs.parquet'?",
        )

    def test_a_file_cut_short(self, write, tmp_path):
        path = write("a.parquet", {"source": ["a"] * 100, "target": ["b"] * 100})
        content = (tmp_path / path).read_bytes()
        for end in (0, 3, 50, len(content) - 1):
            (tmp_path / path).write_bytes(content[:end])
            message, hint = refusal(read_pairs([path]))
            assert message.startswith("a.parquet: this cannot be read as Parquet: ")
            assert "cut short" in hint

    def test_a_damaged_page_is_named_by_the_last_good_row(self, write, tmp_path):
        columns = {
            "source": [f"{n}" for n in range(4_000)],
            "target": [f"{n}" for n in range(4_000)],
        }
        path = write(
            "a.parquet", columns, row_group_size=2_000, compression="gzip", use_dictionary=False
        )
        content = bytearray((tmp_path / path).read_bytes())
        half = parquet.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
        content[half + 30 : half + 200] = bytes(170)
        (tmp_path / path).write_bytes(content)
        message, _ = refusal(read_pairs([path]))
        assert message.startswith("a.parquet: this cannot be read as Parquet past row 1024: ")

    def test_text_that_is_not_utf8(self, write):
        data = arrow.StringArray.from_buffers(
            1, arrow.py_buffer(np.array([0, 2], np.int32)), arrow.py_buffer(b"\xff\xfe")
        )
        path = write("a.parquet", {"source": data, "target": ["b"]})
        assert refusal(read_pairs([path]))[0].startswith(
            "a.parquet: this cannot be read as Parquet past row 0: "
        )

    def test_compressed_from_outside(self, write):
        assert "gunzip" in refusal(read_pairs(["a.parquet.gz"]))[1]

    def test_two_columns_of_one_name(self, tmp_path):
        table = arrow.Table.from_arrays([arrow.array(["a"]), arrow.array(["b"])], names=["x", "x"])
        parquet.write_table(table, tmp_path / "a.parquet")
        assert "two columns are named 'x'" in refusal(read_pairs([str(tmp_path / "a.parquet")]))[0]

    def test_without_pyarrow_the_command_to_install_it(self, write, monkeypatch):
        path = write("a.parquet", {"source": ["a"], "target": ["b"]})
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        assert refusal(read_pairs([path])) == (
            "reading Parquet needs the package pyarrow, which is not installed",
            'pip install "seqlab[parquet]"',
        )


def test_a_model_learns_from_parquet_what_it_learns_from_tsv(write, tmp_path):
    pairs = [(f"{n} cats", f"{n} chats") for n in range(40)]
    sources, targets = zip(*pairs, strict=True)
    write("pairs.parquet", {"source": sources, "target": targets})
    (tmp_path / "pairs.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
    settings = ["train.steps=2", "source.size=300"]
    for ending in ("parquet", "tsv"):
        lab.train(
            "translate",
            f"pairs.{ending}",
            recipe="transformer-tiny",
            settings=settings,
            out=f"{ending}-model",
        )
    weights = [
        (tmp_path / f"{ending}-model" / "model.safetensors").read_bytes()
        for ending in ("parquet", "tsv")
    ]
    assert weights[0] == weights[1]
