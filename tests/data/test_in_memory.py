"""Data that is in Python already, in the forms that people have it in."""

from datetime import datetime, timedelta

import numpy as np
import pytest

from seqlab import lab
from seqlab.data.in_memory import as_files, inputs_of
from seqlab.data.lines import names_of
from seqlab.data.series_files import read_series
from seqlab.data.tagged import read_tagged
from seqlab.data.text_pairs import read_labelled, read_pairs
from seqlab.data.vector_files import read_vectors
from seqlab.errors import DataError, SeqlabWarning, UsageError

TEXTS = [f"{'a fine' if n % 2 else 'a dull'} film {n}" for n in range(20)]
LABELS = ["good" if n % 2 else "bad" for n in range(20)]
PAIRS = list(zip(TEXTS, LABELS, strict=True))
DAYS = [datetime(2024, 1, 1) + timedelta(days=n) for n in range(20)]


class PandasLike:
    """The methods of a pandas frame that are used, so that these forms are tested where pandas is not installed."""

    class Column(list):
        def tolist(self):
            return list(self)

    class DatetimeIndex(list):
        pass

    class RangeIndex(list):
        pass

    def __init__(self, columns, index=None):
        self.columns, self.table = list(columns), columns
        self.index = self.RangeIndex() if index is None else self.DatetimeIndex(index)

    def __getitem__(self, name):
        return self.Column(self.table[name])

    def __len__(self):
        return len(self.table[self.columns[0]])

    def iterrows(self):
        raise NotImplementedError

    def reset_index(self):
        return PandasLike({"index": list(self.index), **self.table})


class PolarsLike:
    class Column(list):
        def to_list(self):
            return list(self)

    def __init__(self, columns):
        self.columns, self.table = list(columns), columns

    def __getitem__(self, name):
        return self.Column(self.table[name])

    def iter_rows(self):
        raise NotImplementedError


def frames(**columns):
    yield columns
    yield {name: np.asarray(column) for name, column in columns.items()}
    yield [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    yield PandasLike(columns)
    yield PolarsLike(columns)
    for name in ("pandas", "polars"):
        try:
            yield __import__(name).DataFrame(columns)
        except ImportError:
            continue


def read(reader, data):
    with as_files(data) as (paths,):
        return [(example.source, example.target) for example in reader(paths)]


@pytest.mark.parametrize(
    "data",
    [PAIRS, [list(pair) for pair in PAIRS], (TEXTS, LABELS), (np.array(TEXTS), np.array(LABELS))],
)
def test_pairs(data):
    assert read(read_labelled, data) == PAIRS
    assert read(read_pairs, data) == PAIRS


def test_tables_of_any_kind():
    for data in frames(nr=list(range(20)), review=TEXTS, verdict=LABELS):
        with pytest.warns(SeqlabWarning, match="not used: nr"):
            assert read(read_labelled, data) == PAIRS
    for data in frames(review=TEXTS, stars=[n % 3 for n in range(20)]):
        assert read(read_labelled, data)[4] == (TEXTS[4], "1")


def test_words_with_tags():
    sentences = [(("EU", "rejects"), ("B", "O")), (("it",), ("O",))]
    assert read(read_tagged, [(list(words), list(tags)) for words, tags in sentences]) == sentences
    assert (
        read(read_tagged, {"tokens": [["EU", "rejects"], ["it"]], "tags": [["B", "O"], ["O"]]})
        == sentences
    )


def test_arrays_with_labels():
    frames = [np.full((2 + n, 3), n, dtype=np.float32) for n in range(4)]
    for data in ((frames, ["a", "b", "a", "b"]), [(frames[n], "ab"[n % 2]) for n in range(4)]):
        with as_files(data) as (paths,):
            examples = list(read_vectors(paths))
        assert [example.target for example in examples] == ["a", "b", "a", "b"]
        assert examples[2].source.shape == (4, 3)
    with as_files((np.zeros((5, 7, 2)), np.arange(5) % 2)) as (paths,):
        assert [(e.source.shape, e.target) for e in read_vectors(paths)][1] == ((7, 2), "1")


def test_numbers_over_time():
    values = [float(n) for n in range(20)]
    expected = tuple(str(day) for day in DAYS)
    for data in frames(when=DAYS, y=values):
        with as_files(data) as (paths,):
            series = read_series(paths[0])
        assert series.columns == ("y",)
        assert [time[:10] for time in series.times] == [time[:10] for time in expected]
        assert series.values[:, 0].tolist() == values
    with as_files(PandasLike({"y": values}, DAYS)) as (paths,):  # the index holds the times
        assert read_series(paths[0]).times == expected
    for data in (values, np.asarray(values), np.asarray(values)[:, None]):
        with as_files(data) as (paths,):
            series = read_series(paths[0])
        assert series.columns == ("value",)
        assert len(series) == 20
    gaps = np.arange(12.0).reshape(6, 2)
    gaps[1, 1] = np.nan
    with as_files(gaps) as (paths,):
        np.testing.assert_equal(read_series(paths[0]).values, gaps)


def test_paths_stay_paths(tmp_path):
    with as_files("a.tsv", tmp_path / "b.tsv", ["a.en", "a.fr"], ()) as paths:
        assert paths == [["a.tsv"], [str(tmp_path / "b.tsv")], ["a.en", "a.fr"], []]
    assert names_of(["a.en", "a.fr"]) == ["a.en", "a.fr"]
    assert names_of(TEXTS) == ["in-memory"]
    assert names_of(()) == []


def test_what_cannot_be_read():
    with pytest.raises(UsageError, match="data of type 'set'"), as_files({1, 2}):
        pass
    with (
        pytest.raises(DataError, match="the columns differ in length: 'a' 1, 'b' 2"),
        as_files({"a": [1], "b": [1, 2]}),
    ):
        pass


def test_inputs_of_a_model():
    assert inputs_of(np.array(["a", "b"]), None) == ["a", "b"]
    for data in frames(nr=[1, 2], review=["a b", "c d"], verdict=["x", "y"]):
        assert list(inputs_of(data, None)) == ["a b", "c d"]
        assert list(inputs_of(data, "verdict")) == ["x", "y"]
    with pytest.raises(UsageError, match="which column holds the inputs"):
        inputs_of({"a": ["x"], "b": ["y"]}, None)
    assert inputs_of("a text", None) == "a text"


SMALL = ["model.embedding=8", "model.encoder.size=8", "train.steps=5", "source.min_count=1"]


def test_a_model_is_trained_scored_and_asked_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = lab.train(
        "classify", {"text": TEXTS * 3, "label": LABELS * 3}, valid=PAIRS, settings=SMALL, out="m"
    ).model
    assert model.evaluate(PAIRS).num_examples == 20
    assert model.evaluate(TEXTS, LABELS).num_examples == 20
    assert [answer.output for answer in model.predict(PandasLike({"text": TEXTS}))] == [
        answer.output for answer in model.predict(TEXTS)
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


def test_a_forecaster_is_trained_and_asked_without_a_file(tmp_path):
    frame = {
        "when": [datetime(2024, 1, 1) + timedelta(days=n) for n in range(80)],
        "y": [float(n % 7) for n in range(80)],
    }
    settings = [
        "forecast.look_back=14",
        "forecast.horizon=4",
        "model.encoder.size=8",
        "train.steps=5",
    ]
    model = lab.train("forecast", frame, settings=settings, out=tmp_path / "m").model
    answer = model.predict(PandasLike(frame))
    assert answer.times[0].startswith("2024-03-21")
    assert model.evaluate(PolarsLike(frame)).num_examples == 80 - 14 - 4 + 1
