"""The experiments on attention, at the smallest scale."""

import numpy as np
import pytest

from seqlab_claims.attention import apart, marked, repeats, sentences

pytest.importorskip("babel")


def test_bottleneck(measured):
    assert measured("C6").tables[0].header == ("", "1-10", "11-20", "21-30")


def test_a_made_up_language_is_translated_word_by_word_with_nouns_first():
    pairs = list(sentences(200, 8, seed=1))
    assert {len(source.split()) for source, _ in pairs} == set(range(2, 31, 2))
    known = {}
    for source, target in pairs:
        words = target.split()
        turned = [words[k + 1 - 2 * (k % 2)] for k in range(len(words))]
        for ours, theirs in zip(source.split(), turned, strict=True):
            assert known.setdefault(ours, theirs) == theirs


def test_both_ends(measured):
    finding = measured("C7")
    assert len(finding.values["end"]) == 2  # a tanh RNN and an LSTM
    assert finding.tables[0].rows[-1][1:] == (0.125,) * 4


def test_order(measured):
    finding = measured("C8")
    assert finding.values["shuffled"][0] < 1e-5
    assert len(finding.values["apart"]) == 2


def test_longer(measured):
    assert len(measured("C24").chart.lines) == 7


def test_rows_about_order():
    for first, row in marked(50, range(4, 9), seed=1):
        assert sorted(row.strip("vwxyz")[0] + row.strip("vwxyz")[-1]) == ["a", "b"]
        assert min("ab", key=row.index) == first
    for sentence in repeats(20, range(4, 9), seed=1).strip().split("\n\n"):
        letters, tags = zip(*(line.split() for line in sentence.splitlines()), strict=True)
        assert [tag == "again" for tag in tags] == [
            a == b for a, b in zip(("", *letters), letters, strict=False)
        ]


def test_scaling(measured):
    finding = measured("C9")
    assert finding.values["sure"][0] > 0.9
    assert finding.values["scaled"][0] > finding.values["shrinks"][0]


def test_heads(measured):
    finding = measured("C10")
    assert [row[0] for row in finding.tables[0].rows][:2] == ["heads, untrained", "heads, trained"]
    assert all(0 <= value <= 1 for value in finding.chart.bars.values())


def test_what_two_heads_do_not_share():
    one, other = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    assert apart(np.stack([one, other])) == 1
    assert apart(np.stack([one, one])) == 0
    assert apart(np.stack([one, (one + other) / 2])) == 0.5
