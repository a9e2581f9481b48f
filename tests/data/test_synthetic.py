import datetime
import sys
from itertools import pairwise

import pytest

from seqlab.data.synthetic import (
    FIRST,
    LANGUAGES,
    LAST,
    STYLES,
    copies,
    dates,
    parity,
    reversals,
    split_dates,
)
from seqlab.errors import DataError

babel_dates = pytest.importorskip("babel.dates", reason="dates need the extra 'demo'")


def test_dates_are_what_people_write():
    made = list(dates(300, seed=0, languages=["en", "de"]))
    for text, iso, language in made:
        day = datetime.date.fromisoformat(iso)
        assert FIRST <= day <= LAST
        assert text in {babel_dates.format_date(day, style, locale=language) for style in STYLES}


def test_dates_are_keyed():
    assert list(dates(50, seed=1)) == list(dates(50, seed=1))
    assert list(dates(50, seed=1)) != list(dates(50, seed=2))
    assert list(dates(50, seed=1)) == list(dates(80, seed=1))[:50]


def test_forty_languages_and_plain_spaces():
    made = list(dates(5000, seed=0))
    assert len({language for _, _, language in made}) == len(LANGUAGES) >= 40
    assert not any(space in text for text, _, _ in made for space in "\u202f\u00a0")


def test_no_text_means_two_days():
    """Every day of a leap year and of a year that begins on another weekday, in every language and style."""
    days = [
        datetime.date(year, 1, 1) + datetime.timedelta(days=i)
        for year in (1999, 2000)
        for i in range(365)
    ]
    meaning: dict[str, datetime.date] = {}
    for day in days:
        for language in LANGUAGES:
            for style in STYLES:
                text = babel_dates.format_date(day, style, locale=language)
                assert meaning.setdefault(text, day) == day, f"{text!r} ({language}, {style})"


def test_a_test_day_is_never_trained_on():
    train, test = split_dates(3000, 300, seed=0)
    assert (len(train), len(test)) == (3000, 300)
    assert not {iso for _, iso, _ in train} & {iso for _, iso, _ in test}
    assert len({language for _, _, language in test}) > 40


@pytest.mark.parametrize(("num_train", "num_test"), [(0, 5), (5, 0), (5, 500)])
def test_any_shares(num_train, num_test):
    train, test = split_dates(num_train, num_test, seed=0)
    assert (len(train), len(test)) == (num_train, num_test)


def test_a_language_that_is_not_there():
    with pytest.raises(DataError, match="no dates in the language 'xx'"):
        list(dates(1, seed=0, languages=["xx"]))


def test_without_babel_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel", None)
    monkeypatch.setitem(sys.modules, "babel.dates", None)
    with pytest.raises(DataError, match="need the package Babel") as caught:
        list(dates(1, seed=0))
    assert caught.value.hint == 'pip install "seqlab[demo]"'


def test_toy_tasks():
    words = list(copies(200, seed=0))
    assert all(source == target for source, target in words)
    assert {len(source) for source, _ in words} == set(range(1, 11))
    assert list(reversals(200, seed=0)) == [(source, source[::-1]) for source, _ in words]
    assert any(one != other for one, other in pairwise(words))


def test_parity():
    made = list(parity(500, seed=0, longest=6))
    for bits, label in made:
        assert label == ("odd" if sum(map(int, bits)) % 2 else "even")
    assert 0.4 < sum(label == "odd" for _, label in made) / len(made) < 0.6
