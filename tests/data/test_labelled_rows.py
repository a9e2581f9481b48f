"""Tables with a label and numbers in each row: series as archives keep them, and measurements."""

import math
import random

import numpy as np
import pytest

from seqlab.codecs.vectors import VectorSource
from seqlab.data.labelled_rows import find_labelled_rows
from seqlab.data.proposal import holds_vectors, propose
from seqlab.data.vector_files import read_vectors
from seqlab.errors import DataError
from seqlab.padded import Measured

draw = random.Random(1)


def _wave(label, length=24):
    shift = draw.random()
    return [math.sin((1 + label) * (t / 6 + shift)) + draw.gauss(0, 0.1) for t in range(length)]


WAVES = [(1 + n % 3, _wave(n % 3)) for n in range(30)]
ARCHIVES = {
    "waves.tsv": ["\t".join(map(str, (label, *row))) for label, row in WAVES],
    "waves.csv": [",".join(map(str, (label, *row))) for label, row in WAVES],
    "waves.txt": [f"  {label:.7e}  " + "  ".join(f"{v:.7e}" for v in row) for label, row in WAVES],
    "last.csv": [
        ",".join([*(f"t{t}" for t in range(24)), "class"]),
        *(",".join(map(str, (*row, "abc"[label - 1]))) for label, row in WAVES),
    ],
}
MEASURED = ["length,width,height,weight,species"] + [
    ",".join([*(f"{draw.gauss(n % 2, 1):.3f}" for _ in range(4)), ("oak", "ash")[n % 2]])
    for n in range(40)
]


def _write(folder, name, lines):
    (folder / name).write_text("\n".join(lines) + "\n")
    return str(folder / name)


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_series_a_row_is_classified(tmp_path, name):
    path = _write(tmp_path, name, ARCHIVES[name])
    proposal = propose([path])
    assert proposal.task == "classify"
    assert "30 rows, each a series of 24 numbers and a label" in proposal.reason
    assert holds_vectors([path])
    examples = list(read_vectors([path], few_labels=True))
    assert [each.source.shape for each in examples] == [(24, 1)] * 30
    np.testing.assert_allclose(examples[4].source[:, 0], WAVES[4][1], rtol=1e-5)
    labels = {"last.csv": "abc"}.get(name, "123")
    assert [each.target for each in examples[:4]] == [labels[n % 3] for n in range(4)]


def test_measurements_of_each_row_are_one_frame(tmp_path):
    path = _write(tmp_path, "trees.csv", MEASURED)
    assert propose([path]).task == "classify"
    assert not find_labelled_rows(path).is_series
    first, *_ = read_vectors([path], few_labels=True)
    assert (first.source.shape, first.target) == ((1, 4), "oak")


def test_missing_numbers_end_a_series_or_are_bridged(tmp_path):
    rows = [f"{1 + n % 2}," + ",".join(map(str, range(n % 5, n % 5 + 24))) for n in range(30)]
    rows[0] = "1,0,1,,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,,,"
    first, second, *_ = read_vectors([_write(tmp_path, "gaps.csv", rows)], few_labels=True)
    assert first.source[:, 0].tolist() == list(range(21))
    assert len(second.source) == 24


def test_a_cell_that_is_no_number_is_named(tmp_path):
    rows = [*ARCHIVES["waves.csv"][:20], "1,0.5,broken" + ",1" * 22]
    path = _write(tmp_path, "odd.csv", rows)
    with pytest.raises(DataError, match=r"odd.csv:21: 'broken' is no number"):
        list(read_vectors([path], few_labels=True))


@pytest.mark.parametrize(
    "lines",
    [
        # numbers over time, one of them a day of the week
        [
            f"{n % 7},{math.sin(n):.3f},{math.cos(n):.3f},{n * 1.1},{n * n},{n % 5}"
            for n in range(60)
        ],
        ["year,a,b,c,d,country"]
        + [f"{1990 + n % 20},{n},{n * 2},{n / 3},{n * n},{'xy'[n // 20]}" for n in range(40)],
        ["date,a,b,c,d"] + [f"2020-01-{1 + n:02d},{n},{n % 3},{n / 3},{n * n}" for n in range(30)],
    ],
)
def test_numbers_over_time_are_forecast(tmp_path, lines):
    assert propose([_write(tmp_path, "series.csv", lines)]).task == "forecast"


def test_a_line_of_numbers_is_asked_without_a_file():
    series, frame = (
        VectorSource(Measured((0.0,), (1.0,))),
        VectorSource(Measured((0.0,) * 3, (1.0,) * 3)),
    )
    assert series.encode([series.load("1, 2.5 3")])[0].shape == (3, 1)
    assert frame.encode([frame.load("1\t2.5;3")])[0].shape == (1, 3)
