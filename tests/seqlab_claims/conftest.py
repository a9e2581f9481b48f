"""Experiments at a scale that says nothing about the claims, but that everything in them works."""

import math

import pytest

from seqlab_claims.claim import read_claims
from seqlab_claims.report import Result, section
from seqlab_claims.settings import Settings
from seqlab_claims.suite import EXPERIMENTS


@pytest.fixture
def measured(tmp_path):
    """A function from a claim's id to its finding, whose shape is as every report needs it."""

    def measure(name):
        claim, finding = read_claims()[name], EXPERIMENTS[name](Settings(tmp_path / name, "tiny"))
        assert finding.values.keys() == claim.criteria.keys()
        assert all(values and all(map(math.isfinite, values)) for values in finding.values.values())
        assert finding.tables
        for table in finding.tables:
            assert table.rows
            assert all(len(row) == len(table.header) for row in table.rows)
        chart = finding.chart
        assert bool(chart.lines) != bool(chart.bars)
        for line in chart.lines:
            assert len(line.x) == len(line.y) >= 2
            assert all(map(math.isfinite, (value for row in line.y for value in row)))
            assert not chart.places or len(chart.places) == len(line.x)
        assert "Verdict" in section(claim, Result("", "tiny", 1, 0.0, finding))[-1]
        return finding

    return measure
