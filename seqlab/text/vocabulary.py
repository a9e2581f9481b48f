"""The list of pieces that ids stand for: the special ones first, then what was counted, most frequent first."""

import unicodedata
from collections.abc import Mapping

from seqlab.errors import DataError, UsageError
from seqlab.text.special import SPECIALS
from seqlab.text.stored import odd, strings


def from_counts(counts: Mapping[str, int], *, size: int, min_count: int) -> list[str]:
    """The pieces seen at least `min_count` times, at most `size` with the special ones; ties by code point."""
    if size <= len(SPECIALS):
        raise UsageError(
            f"a vocabulary of {size} has no room beside its {len(SPECIALS)} special tokens",
            hint=f"choose a size above {len(SPECIALS)}.",
        )
    often = [piece for piece, count in counts.items() if piece and count >= min_count]
    if not often:
        raise DataError(
            f"there is nothing to make a vocabulary of: {len(counts)} different pieces, none seen {min_count} times",
            hint="look whether the file has text in it, or lower the smallest count.",
        )
    often.sort(key=lambda piece: (-counts[piece], piece))
    return [*SPECIALS, *often[: size - len(SPECIALS)]]


def from_stored(values: list[object]) -> list[str]:
    """A vocabulary read back: the special tokens in their places, then different pieces."""
    first = len(SPECIALS)
    if tuple(values[:first]) != SPECIALS:
        raise odd(f"the vocabulary does not begin with {', '.join(SPECIALS)}")
    # A file's own word may be spelled like a special token; among themselves the words differ.
    pieces = strings(values[first:], "the vocabulary after its special tokens")
    if "" in pieces:
        raise odd(f"the vocabulary has an empty piece, with id {first + pieces.index('')}")
    return [*SPECIALS, *pieces]


def ids(vocabulary: list[str]) -> dict[str, int]:
    """The way back. The special tokens are not in it: no text can spell one."""
    first = len(SPECIALS)
    return {piece: index for index, piece in enumerate(vocabulary[first:], start=first)}


def visible(piece: str) -> str:
    """A piece as a picture shows it: spaces and control characters get a face, an accent something to sit on."""
    shown = "".join(_face(character) for character in piece)
    return f"◌{shown}" if piece and unicodedata.category(piece[0]).startswith("M") else shown


_FACES = {" ": "␣", "\n": "↵", "\t": "⇥"}


def _face(character: str) -> str:
    if character in _FACES:
        return _FACES[character]
    # Not printable are all separators but the space, control and format characters, and what is unassigned.
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
