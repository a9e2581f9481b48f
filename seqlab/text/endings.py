"""What the spelling of a word tells when the word itself was never seen: its shape and its ending.

A class is written "<Aa…ing>": words like "Reading". The shapes are 0 (it has a digit), # (no letter), AA (capitals),
Aa (a capital first), a-a (a hyphen) and a. Within a shape, longer endings are finer classes than shorter ones, down
to the shape alone, "<Aa…>". Only words that are rare make classes: those that are not seen will be like them
(Brants 2000).
"""

from collections import Counter
from collections.abc import Iterator, Mapping

RARE = 10  # a word seen more often than this has ways of its own
LEAST = 2  # rare words that make a class


def learn_endings(counts: Mapping[str, int], *, longest: int) -> list[str]:
    """The classes of rare words, by endings of up to `longest` characters; a class stands after all coarser ones."""
    members = Counter(
        name for word, count in counts.items() if count <= RARE for name in classes(word, longest)
    )
    return sorted(
        (name for name, count in members.items() if count >= LEAST),
        key=lambda name: (len(name), name),
    )


def classes(word: str, longest: int) -> Iterator[str]:
    """All classes of a word, the finest first. The whole word is no ending; digits are alike."""
    shape, letters = _shape(word), "".join("0" if c.isdigit() else c for c in word.lower())
    for length in range(min(longest, len(letters) - 1), -1, -1):
        yield f"<{shape}…{letters[len(letters) - length :]}>"


def coarser(name: str) -> str | None:
    """The next coarser class."""
    shape, _, ending = name.partition("…")
    return f"{shape}…{ending[1:]}" if len(ending) > 1 else None


def _shape(word: str) -> str:
    if any(c.isdigit() for c in word):
        return "0"
    if not any(c.isalpha() for c in word):
        return "#"
    if len(word) > 1 and word.isupper():
        return "AA"
    if word[0].isupper():
        return "Aa"
    return "a-a" if "-" in word else "a"
