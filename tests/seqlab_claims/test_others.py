"""The experiments on searching, transfer and the ancestors, at the smallest scale, and what all of them are made of."""

from itertools import pairwise

import pytest
import torch

from seqlab_claims.ancestors import LETTERS, chain, paths
from seqlab_claims.material import date_fields, manual, names
from seqlab_claims.transfer import ambiguous

pytest.importorskip("babel")


def test_beams(measured):
    finding = measured("C12")
    assert finding.tables[0].rows[0] == ("baseline: greedy", 0.0, 0.0, 0.0)
    assert finding.values["gain"][0] > 0


def test_exhaustive(measured):
    finding = measured("C23")
    assert finding.tables[0].rows[-1][3:] == (0.0, 0.0)  # nothing is better than the best
    assert all(row[3] >= -1e-6 for row in finding.tables[0].rows)


def test_few_labels(measured):
    assert len(measured("C13").values["few"]) == 2


def test_contexts(measured):
    finding = measured("C19")
    assert list(finding.chart.bars) == ["no vectors", "static vectors", "contextual vectors"]


def test_bits_of_the_past(measured):
    finding = measured("C14")
    assert finding.tables[0].rows[-1] == ("log2 N", 1.0, 2.0)
    assert max(finding.values["bound"]) < 0


def test_tracking(measured):
    finding = measured("C25")
    assert (len(finding.values["smooth"]), len(finding.values["jumps"])) == (10, 5)


def test_a_chain_of_letters_follows_its_own_order():
    text = chain(100, seed=1).replace("\n", "")
    after = {}
    for one, other in pairwise(text):
        after.setdefault(one, []).append(other)
    most = [max(map(each.count, each)) / len(each) for each in after.values()]
    assert set(text) == set(LETTERS)
    assert 0.9 < sum(most) / len(most) < 1


def test_targets_move_as_they_are_said_to():
    circles, jumps = (
        paths(kind, 2, 50, torch.Generator().manual_seed(1)) for kind in ("circles", "jumps")
    )
    assert torch.allclose(circles.norm(dim=-1), torch.full((2, 50), 10.0).double())
    assert 0 < (jumps.diff(dim=1).norm(dim=-1) > 0).double().mean() < 0.3


def test_names_belong_to_one_language_each():
    rows = names(1)
    assert len({name for _, name in rows}) == len(rows) > 5000
    assert rows == names(1) != names(2)
    assert ("fr", "Allemagne") in rows


def test_dates_are_tagged_by_their_fields():
    for letters in date_fields(200, seed=1):
        year = "".join(letter for letter, tag in letters if tag == "y")
        assert any(tag in "ML" for _, tag in letters)
        assert year.isdigit()
        assert not any(letter.isspace() for letter, _ in letters)


def test_words_of_two_classes_are_frequent():
    classes = {}
    for word, kind in (pair for sentence in ambiguous(500, seed=3) for pair in sentence):
        classes.setdefault(word, set()).add(kind)
    assert 0.2 < sum(len(each) > 1 for each in classes.values()) / len(classes) < 0.6


def test_the_manual_has_quotes_and_lines():
    text = manual()
    assert len(text) > 300_000
    assert text.count('"') > 2000
    assert max(map(len, text.splitlines()[:500])) < 100
