"""What the experiments are made of: texts that come with Python and Babel, and rows that are generated."""

import random
import re
import string
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from seqlab.data.synthetic import FIRST, LANGUAGES, LAST
from seqlab.errors import DataError
from seqlab_claims.settings import Settings

LATIN = ("en", "de", "nl", "sv", "da", "fr", "es", "it", "pt", "pl", "cs", "fi")
LONGEST = 24  # letters of a name
Pair = tuple[str, str]
UNTRAINED = {"train.steps": 1, "train.validate_every": 1, "train.learning_rate": 1e-9}


def manual() -> str:
    """The reference manual that comes with Python: English prose and code, wrapped, with many quotes."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics.values())


@cache
def names(seed: int) -> tuple[Pair, ...]:
    """Languages, and how they name countries, languages, scripts and currencies, in a keyed order: Unicode's CLDR.

    A name that two languages share is left out: nobody could tell whose it is.
    """
    languages_of: dict[str, set[str]] = {}
    for language in LATIN:
        locale = _locale(language)
        for part in (locale.territories, locale.languages, locale.scripts, locale.currencies):
            for name in part.values():
                languages_of.setdefault(name, set()).add(language)
    own = {
        name: min(languages)
        for name, languages in languages_of.items()
        if len(languages) == 1 and len(name) <= LONGEST
    }
    rows = sorted((language, name) for name, language in own.items())
    random.Random(seed).shuffle(rows)
    return tuple(rows)


def named(at: Settings) -> tuple[Path, Path]:
    """Names to test and to train on."""
    num, rows = at.pick(1000, 400, 40), names(1)[: at.pick(None, None, 200)]
    return at.file("held_out.tsv", rows[:num]), at.file("train.tsv", rows[num:])


def date_fields(num: int, *, seed: int) -> Iterator[list[Pair]]:
    """Dates of many languages letter by letter, each with the field that it belongs to: day, month, year, ..."""
    from babel.dates import format_date

    keyed = random.Random(seed)
    for _ in range(num):
        day = FIRST.fromordinal(keyed.randint(FIRST.toordinal(), LAST.toordinal()))
        language = keyed.choice(LANGUAGES)
        pattern = _locale(language).date_formats[keyed.choice(("medium", "long", "full"))].pattern
        letters: list[Pair] = []
        for quoted, field, other in re.findall(r"'([^']*)'|([A-Za-z]+)|([^A-Za-z'])", pattern):
            text = format_date(day, field, locale=language) if field else quoted or other
            letters += [("_" if letter.isspace() else letter, field[:1] or "-") for letter in text]
        yield letters


def words(
    num: int, lengths: range, *, seed: int, letters: str = string.ascii_lowercase
) -> Iterator[str]:
    """Random letters in rows of random lengths."""
    keyed = random.Random(seed)
    return ("".join(keyed.choices(letters, k=keyed.choice(lengths))) for _ in range(num))


def as_conll(sentences: Iterable[Iterable[Pair]]) -> str:
    """Words and their tags, one a line, with a blank line between sentences."""
    return "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences)


def _locale(language: str):  # type: ignore[no-untyped-def]  # babel is not always there
    try:
        from babel import Locale
    except ImportError as error:
        raise DataError(
            "names and dates of many languages need the package Babel, which is not installed",
            hint='pip install "seqlab[demo]"',
        ) from error
    return Locale.parse(language)
