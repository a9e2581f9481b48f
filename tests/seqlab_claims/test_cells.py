"""The experiments on recurrent layers and graphs, at the smallest scale."""

import pytest
import torch

from seqlab_claims.cells import kept_bytes, keys
from seqlab_claims.graphs import longest, shortest

pytest.importorskip("babel")


def test_lags(measured):
    finding = measured("C3")
    assert len(finding.values["known"]) == len(finding.values["gradient"]) == 2
    assert all(
        row[0] == key and set(row[1:]) <= set("wxyz") for key, row in keys(20, range(3, 6), seed=1)
    )


def test_cost(measured):
    assert measured("C4").values["weights"] == [0.75, 0.75]


def test_directions(measured):
    assert len(measured("C5").tables) == 2


def test_truncation(measured):
    assert measured("C15").values["memory"][0] < 1
    assert 3 < kept_bytes(256) / kept_bytes(64) < 4  # what is kept grows with the steps


def test_readable(measured):
    assert set(measured("C18").chart.bars) == {
        f"{what}, {model}"
        for what in ("quotes", "place in line")
        for model in ("trained", "baseline: untrained")
    }


def test_lstm_or_gru(measured):
    finding = measured("C21")
    assert len(finding.chart.bars) == 4
    assert sum(finding.values["lstm"] + finding.values["gru"]) <= 4


def test_chains_and_paths(measured):
    assert measured("C11").values["attention"] == [1.0]
    assert measured("C20").values == {"recurrent": [4.0], "attention": [0.0]}


def test_a_graph_of_operations():
    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    out = (x.exp().sin() + y).cos()
    assert (shortest(out, y), shortest(out, x)) == (2, 4)
    assert longest(out) == 5
