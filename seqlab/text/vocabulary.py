"""What all tokenizers share: special ids, the list of pieces, the normaliser, and how they are read back from JSON.

A vocabulary is the list of pieces that ids stand for: the special ones first, then the counted ones by frequency.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from tokenizers import Tokenizer as Library

from seqlab.errors import BundleError, DataError, UsageError, nearest, shorten

# The special ids mean the same in every tokenizer, so models and searches need not ask which one it is.
PAD, UNK, SOS, EOS, SEP, MASK = range(6)

SPECIALS = ("<pad>", "<unk>", "<sos>", "<eos>", "[SEP]", "[MASK]")
"""Their printed names, in the order of their ids. A text that contains such a name does not become the id."""

SILENT = frozenset({PAD, SOS, EOS})
"""What decoding leaves out: these say where a text begins and ends, and are no part of it."""

_FACES = {" ": "␣", "\n": "↵", "\t": "⇥"}
HINT = "the bundle's file was changed or cut; restore the bundle from its source or train again."

_CALLED = {str: "text", bool: "true or false", list: "a list", dict: "an object with named parts"}

Form = Literal["NFC", "NFKC", "none"]

_SURROGATE = re.compile("[\ud800-\udfff]")


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
    text = "".join(map(_face, piece))
    return f"◌{text}" if piece and unicodedata.category(piece[0]).startswith("M") else text


def _face(character: str) -> str:
    if character in _FACES:
        return _FACES[character]
    # Not printable are all separators but the space, control and format characters, and what is unassigned.
    return (
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
    )


@runtime_checkable
class HasVocabulary(Protocol):
    """What the functions below need of a tokenizer; a class names those that are its methods."""

    normaliser: "Normaliser"
    vocabulary: list[str]

    @property
    def kind(self) -> str: ...

    def encode(self, text: str) -> list[int]: ...


def length(self: HasVocabulary) -> int:
    """How many ids there are."""
    return len(self.vocabulary)


def pieces(self: HasVocabulary, ids: Sequence[int]) -> list[str]:
    """One readable string per id, for pictures."""
    return [visible(self.vocabulary[index]) for index in ids]


def encode_all(self: HasVocabulary, texts: Sequence[str]) -> list[list[int]]:
    """The ids of many texts, one after the other."""
    return [self.encode(text) for text in texts]


def as_json(tokenizer: HasVocabulary, **own: object) -> dict[str, Any]:
    """A tokenizer as JSON: what all have, and what this kind has."""
    return {"kind": tokenizer.kind, "normaliser": tokenizer.normaliser.to_json(), **own}


def from_parts(data: object, kind: str, **own: type) -> tuple["Normaliser", dict[str, Any]]:
    """What `as_json` gave: the normaliser, and the parts of this kind, each of its type."""
    stored = parts(data, f"the {kind} tokenizer", {"kind": str, "normaliser": dict, **own})
    return Normaliser.from_json(stored["normaliser"]), stored


@runtime_checkable
class HasBytes(Protocol):
    _bytes: list[bytes]


def with_specials(texts: Iterable[bytes]) -> tuple[list[bytes], list[str]]:
    """What each id adds to a decoded text, the special ones first; and the vocabulary for people."""
    own = list(texts)
    specials = [
        b"" if index in SILENT else name.encode("ascii") for index, name in enumerate(SPECIALS)
    ]
    return [*specials, *own], [*SPECIALS, *map(readable, own)]


def decode_bytes(self: HasBytes, ids: Sequence[int]) -> str:
    """The text again; bytes that are no UTF-8 become U+FFFD."""
    return b"".join(self._bytes[index] for index in ids).decode("utf-8", errors="replace")


def readable(piece: bytes) -> str:
    """Bytes as text; those that make no whole character, as \\xNN."""
    return piece.decode("utf-8", errors="backslashreplace")


@dataclass(frozen=True)
class Normaliser:
    """One spelling for texts that read the same: a Unicode form, perhaps lower case, perhaps letters only.

    NFC makes one character of a letter and its accent; NFKC also folds ligatures, full-width forms and the like.
    `letters_only` is the lectures' cleaning of The Time Machine: whatever is no letter becomes a space, and runs of
    spaces shrink to one.
    """

    form: Form = "NFC"
    lower: bool = False
    letters_only: bool = False

    def __call__(self, text: str) -> str:
        # Half of a surrogate pair is no character: no encoding can hold it, yet JSON can spell it.
        text = self._composed(_SURROGATE.sub("\ufffd", text))
        if self.lower:
            text = self._composed(text.lower())  # lower case can take a letter apart again
        return _letters(text) if self.letters_only else text

    def _composed(self, text: str) -> str:
        return text if self.form == "none" else unicodedata.normalize(self.form, text)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> "Normaliser":
        stored = parts(data, "the normaliser", {"form": str, "lower": bool, "letters_only": bool})
        if stored["form"] not in get_args(Form):
            hint = nearest(stored["form"], get_args(Form))
            raise odd(f"the normaliser has no form {shorten(stored['form'])}; {hint}")
        return cls(**stored)


def _letters(text: str) -> str:
    """Letters and single spaces. A mark that sits on a letter is part of it: an accent, a vowel sign of Hindi."""
    kept, on_letter = [], False
    for character in text:
        on_letter = character.isalpha() or (
            on_letter and unicodedata.category(character).startswith("M")
        )
        kept.append(character if on_letter else " ")
    return re.sub(" +", " ", "".join(kept))


def odd(message: str) -> BundleError:
    """The error for a stored thing that this package would not have written."""
    return BundleError(message, hint=HINT)


def parts(data: object, what: str, types: Mapping[str, type]) -> dict[str, Any]:
    """The parts of a JSON object called `what`, exactly those of `types`, each of exactly its type."""
    if not isinstance(data, dict):
        raise odd(f"{what} must be {_CALLED[dict]}, not {shorten(str(data))}")
    for key, kind in types.items():
        if key not in data:
            raise odd(f"{what} lacks its part '{key}'")
        # Not isinstance: True is an int to Python, and never to the person who wrote the file.
        if type(data[key]) is not kind:
            raise odd(f"{what}: '{key}' must be {_CALLED[kind]}, not {shorten(str(data[key]))}")
    for key in data:
        if key not in types:
            raise odd(f"{what} has a part that does not belong to it: {shorten(str(key))}")
    return data


def strings(values: list[object], what: str) -> list[str]:
    """A list of texts, no two the same."""
    texts: dict[str, None] = {}
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise odd(f"{what}: entry {position} is not text: {shorten(str(value))}")
        if value in texts:
            raise odd(f"{what}: entry {position} is there twice: {shorten(value)}")
        texts[value] = None
    return list(texts)


@runtime_checkable
class HasLibrary(Protocol):
    normaliser: Normaliser
    _library: Library


def library_encode(self: HasLibrary, text: str) -> list[int]:
    """The ids of the normalised text."""
    return self._library.encode(self.normaliser(text), add_special_tokens=False).ids


def library_encode_all(self: HasLibrary, texts: Sequence[str]) -> list[list[int]]:
    """The same for many texts, in the library's threads."""
    rows = self._library.encode_batch_fast(
        [self.normaliser(text) for text in texts], add_special_tokens=False
    )
    return [row.ids for row in rows]


@contextmanager
def library_reads(what: str) -> Iterator[None]:
    """While the library reads something stored, what it refuses is an odd file."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic inside the library is no Exception
        raise odd(f"the tokenizers library refuses the stored {what}: {error}") from error


@cache
def survive_forks() -> None:
    """No threads after a fork: the library's pool is dead in the child, and would be waited for.

    Some versions of the library see to that themselves, but print a warning each time unless this variable is set.
    """
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(before=lambda: os.environ.setdefault("TOKENIZERS_PARALLELISM", "false"))
