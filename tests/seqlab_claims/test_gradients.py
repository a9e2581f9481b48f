"""The experiments on gradients, at the smallest scale."""

import pytest

pytest.importorskip("babel")


def test_singular_values(measured):
    table = measured("C1").tables[0]
    assert table.rows[0][1:] == pytest.approx(
        [0.7, 0.9, 1.1, 1.3]
    )  # orthogonal and at rest: exactly the claim
    assert max(table.rows[1][1:]) < 1  # random: the largest singular value is not what counts


def test_clipping(measured):
    finding = measured("C2")
    assert len(finding.tables[0].rows) == 3
    assert finding.chart.lines[-1].beside


def test_deep_stacks(measured):
    finding = measured("C16")
    assert [line.label for line in finding.chart.lines][1:] == [
        f"{k}, 2 layers" for k in ("plain", "residual", "highway")
    ]
    assert any(str(row[0]).startswith("baseline") for row in finding.tables[0].rows)


def test_layer_norm(measured):
    assert all(0 < value <= 2 for values in measured("C17").values.values() for value in values)


def test_over_depth(measured):
    finding = measured("C22")
    assert finding.values["open"] == [0.0]
    assert len(finding.values["residual"]) == 3  # one for each cell
