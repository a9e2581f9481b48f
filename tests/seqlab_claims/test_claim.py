"""Claims and their criteria: what would confirm each is written down, and the verdict falls by the numbers alone."""

import math

import pytest

from seqlab_claims.claim import Chart, Criterion, Finding, number, ranged, read_claims
from seqlab_claims.suite import EXPERIMENTS

CLAIMS = read_claims()


def found(values):
    return Finding(values, [], Chart("", ("", "")))


def met_and_missed(criterion):
    """A number at the bar, and one beyond it."""
    if math.isfinite(criterion.at_least):
        return criterion.at_least, criterion.at_least - 0.5
    return criterion.at_most, criterion.at_most + 0.5


def test_there_are_twenty_five_and_each_has_an_experiment():
    assert list(CLAIMS) == [f"C{n}" for n in range(1, 26)] == list(EXPERIMENTS)
    for claim in CLAIMS.values():
        assert all((claim.title, claim.words, claim.data, claim.experiment, claim.limits))
        assert len(claim.title) <= 54  # so that a row of the table fits a terminal
        assert "  " not in claim.experiment


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_verdict_falls_by_the_bars(claim):
    met, missed = (
        {n: [met_and_missed(c)[k]] * 3 for n, c in claim.criteria.items()} for k in (0, 1)
    )
    assert claim.verdict(found(met)) == "confirmed"
    assert claim.verdict(found(missed)) == "not confirmed"
    for name in claim.criteria:
        seeds = [met[name][0], met[name][0], missed[name][0]]
        assert claim.verdict(found(met | {name: seeds})) == "depends"
        assert claim.verdict(found(missed | {name: seeds})) == "depends"
        assert claim.verdict(found(met | {name: [math.nan] * 3})) != "confirmed"
    assert all(criterion.rule in claim.rule for criterion in claim.criteria.values())


@pytest.mark.parametrize(
    ("name", "confirmed", "not_confirmed"),
    [
        ("C1", {"below": [0.7], "above": [1.3]}, {"below": [1.1], "above": [0.9]}),
        (
            "C3",
            {"known": [0.6, 0.7], "gradient": [0.5, 0.4]},
            {"known": [-0.1, 0.0], "gradient": [0.0, 0.1]},
        ),
        (
            "C6",
            {"without": [0.3, 0.4], "with": [0.95, 1.0]},
            {"without": [0.9, 0.8], "with": [0.7, 0.6]},
        ),
        ("C7", {"end": [0.1, 0.2]}, {"end": [-0.1, 0.01]}),
        ("C13", {"few": [0.05, 0.1]}, {"few": [0.01, -0.02]}),
        ("C17", {"after": [0.5], "before": [0.6]}, {"after": [2.0], "before": [1.0]}),
        ("C21", {"lstm": [1.0], "gru": [2.0]}, {"lstm": [0.0], "gru": [0.0]}),
        ("C25", {"smooth": [0.6, 0.7], "jumps": [0.8]}, {"smooth": [1.0, 0.95], "jumps": [1.2]}),
    ],
)
def test_the_bars_are_on_the_right_side(name, confirmed, not_confirmed):
    assert CLAIMS[name].verdict(found(confirmed)) == "confirmed"
    assert CLAIMS[name].verdict(found(not_confirmed)) == "not confirmed"


def test_a_rule_and_a_finding_in_words():
    criterion = Criterion("gain", at_least=0.75, at_most=0.75)
    assert criterion.rule == "gain: at least 0.75 and at most 0.75"
    assert (criterion.verdict([0.75]), criterion.verdict([0.8])) == ("confirmed", "not confirmed")
    sentence = CLAIMS["C7"].sentence(found({"end": [0.01, -0.05]}))
    assert sentence.endswith("for each cell: -0.02 (-0.05 to 0.01).")
    assert (ranged([1.0, 1.0]), number(12345), number(12345.6), number(0.12345)) == (
        "1",
        "12,345",
        "12,346",
        "0.123",
    )
