"""Data of the experiments: texts that come with Python and Babel, and generated rows."""

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
    """Return the reference manual that comes with Python: English prose and code with many quotes."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics.values())


@cache
def names(seed: int) -> tuple[Pair, ...]:
    """Return (language, name) for countries, languages, scripts and currencies from Unicode's CLDR, shuffled by `seed`.

    Names that occur in several languages are left out.
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
    """Write names to test and to train on into two files."""
    num = at.pick(1000, 400, 40)
    rows = names(1)[: at.pick(None, None, 200)]
    return at.file("held_out.tsv", rows[:num]), at.file("train.tsv", rows[num:])


def date_fields(num: int, *, seed: int) -> Iterator[list[Pair]]:
    """Yield dates in many languages as (letter, field) pairs; a field is day, month, year, ..."""
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
    """Yield random letters in rows of random lengths."""
    keyed = random.Random(seed)
    return ("".join(keyed.choices(letters, k=keyed.choice(lengths))) for _ in range(num))


def as_conll(sentences: Iterable[Iterable[Pair]]) -> str:
    """Return sentences of (word, tag) pairs in CoNLL format."""
    return "\n".join("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in sentences)


def _locale(language: str):  # type: ignore[no-untyped-def]  # Babel is optional
    try:
        from babel import Locale
    except ImportError as error:
        raise DataError(
            "names and dates of many languages need the package Babel, which is not installed",
            hint='pip install "seqlab[demo]"',
        ) from error
    return Locale.parse(language)
