"""Synthetic data: dates as they are written in many languages, and toy tasks that a small model can learn."""

import datetime
import random
import string
from collections.abc import Iterator, Sequence
from itertools import islice

from seqlab.data.batching import source_key
from seqlab.data.scenes import SETS
from seqlab.errors import DataError, UsageError, nearest, package

LANGUAGES = (
    *("en", "de", "nl", "sv", "da", "nb", "is"),  # Germanic
    *("fr", "es", "it", "pt", "ro", "ca"),  # Romance
    *("ga", "cy", "eu", "el", "tr"),
    *("fi", "et", "hu", "lv", "lt"),  # Uralic and Baltic
    *("pl", "cs", "sl", "hr", "sr", "bg", "ru", "uk"),  # Slavic
    *("hy", "ka", "he", "ar", "fa", "am"),
    *("hi", "bn", "ta", "te"),
    *("th", "vi", "id", "ja", "ko", "zh"),
    "sw",
)
"""Languages whose dates are unambiguous: no text is one day in one of them and another day in another."""

STYLES = ("medium", "long", "full")
FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
_SPACES = str.maketrans({"\u202f": " ", "\u00a0": " "})

Dated = tuple[str, str, str]  # the text, the ISO date, the language


def dates(num: int, *, seed: int, languages: Sequence[str] = LANGUAGES) -> Iterator[Dated]:
    """Generate dates of two centuries as they are written in many languages, with the ISO date of each."""
    return islice(_endless_dates(seed, languages), num)


def split_dates(num_train: int, num_test: int, *, seed: int) -> tuple[list[Dated], list[Dated]]:
    """Generate training and test dates; no day of the test part occurs in the training part, in any language."""
    share = num_test / max(1, num_train + num_test)
    border = min(0.9, max(0.01, share)) * 2**64  # both parts get some of the days
    train: list[Dated] = []
    test: list[Dated] = []
    endless = _endless_dates(seed, LANGUAGES)
    while len(train) < num_train or len(test) < num_test:
        dated = next(endless)
        in_test = source_key(dated[1], seed=seed) < border
        part, size = (test, num_test) if in_test else (train, num_train)
        if len(part) < size:
            part.append(dated)
    return train, test


def make(kind: str, num: int, *, seed: int) -> Iterator[tuple[str, str]]:
    """Generate the rows of a synthetic task's file, as training reads it: source and target, or label and text."""
    if kind == "dates":
        return ((text, iso) for text, iso, _ in dates(num, seed=seed))
    if kind == "parity":
        return ((label, " ".join(bits)) for bits, label in parity(num, seed=seed))
    tasks = {"copies": copies, "reversals": reversals}
    if kind not in tasks:
        raise UsageError(
            f"there is no synthetic task '{kind}'",
            hint=nearest(kind, (*tasks, "dates", "parity", *SETS)),
        )
    return tasks[kind](num, seed=seed)


def copies(
    num: int, *, seed: int, longest: int = 10, letters: str = string.ascii_lowercase
) -> Iterator[tuple[str, str]]:
    """Generate random words with themselves as targets, the simplest task of an encoder and a decoder."""
    return ((word, word) for word in _words(num, seed, longest, letters))


def reversals(
    num: int, *, seed: int, longest: int = 10, letters: str = string.ascii_lowercase
) -> Iterator[tuple[str, str]]:
    """Generate random words with their reversal as target: attention becomes an anti-diagonal."""
    return ((word, word[::-1]) for word in _words(num, seed, longest, letters))


def parity(num: int, *, seed: int, longest: int = 10) -> Iterator[tuple[str, str]]:
    """Generate bits labelled by whether their ones are "odd" or "even": one bit of memory over the whole row."""
    return (
        (bits, "odd" if bits.count("1") % 2 else "even")
        for bits in _words(num, seed, longest, "01")
    )


def _words(num: int, seed: int, longest: int, letters: str) -> Iterator[str]:
    keyed = random.Random(seed)
    return ("".join(keyed.choices(letters, k=keyed.randint(1, longest))) for _ in range(num))


def _endless_dates(seed: int, languages: Sequence[str]) -> Iterator[Dated]:
    use = "the dates of many languages need the package Babel"
    babel = package("babel", use, hint='pip install "seqlab[demo]"')
    format_date = package("babel.dates", use, hint="").format_date
    keyed = random.Random(seed)
    num_days = (LAST - FIRST).days + 1
    while True:
        day = FIRST + datetime.timedelta(days=keyed.randrange(num_days))
        language = keyed.choice(languages)
        try:
            text = format_date(day, keyed.choice(STYLES), locale=language)
        except (babel.UnknownLocaleError, ValueError) as error:
            raise DataError(
                f"no dates in the language '{language}'", hint=nearest(language, LANGUAGES)
            ) from error
        yield text.translate(_SPACES), day.isoformat(), language
