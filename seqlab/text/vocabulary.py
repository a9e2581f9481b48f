"""The common parts of all tokenizers: special ids, the vocabulary, the normaliser, and reading them from JSON.

A vocabulary is the list of the pieces of all ids: the special tokens first, then the others by frequency.
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

# The special ids are the same in every tokenizer, so models and searches do not depend on its kind.
PAD, UNK, SOS, EOS, SEP, MASK = range(6)

SPECIALS = ("<pad>", "<unk>", "<sos>", "<eos>", "[SEP]", "[MASK]")
"""Their printed names, in the order of their ids. A text that contains such a name does not become the id."""

SILENT = frozenset({PAD, SOS, EOS})
"""The special tokens that decoding leaves out: they mark the beginning and the end of a text."""

_FACES = {" ": "␣", "\n": "↵", "\t": "⇥"}
HINT = "the bundle's file was changed or cut; restore the bundle from its source or train again."

_TYPE_NAMES = {
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "an object with named parts",
}

Form = Literal["NFC", "NFKC", "none"]

_SURROGATE = re.compile("[\ud800-\udfff]")


def from_counts(counts: Mapping[str, int], *, size: int, min_count: int) -> list[str]:
    """Return the most frequent pieces, seen at least `min_count` times; `size` includes the special tokens.

    Pieces with equal counts are sorted by code point.
    """
    if size <= len(SPECIALS):
        raise UsageError(
            f"a vocabulary of {size} has no room besides its {len(SPECIALS)} special tokens",
            hint=f"choose a size above {len(SPECIALS)}.",
        )
    often = [piece for piece, count in counts.items() if piece and count >= min_count]
    if not often:
        raise DataError(
            f"the vocabulary would be empty: {len(counts)} different pieces, none seen {min_count} times",
            hint="check that the file contains text, or lower the minimum count.",
        )
    often.sort(key=lambda piece: (-counts[piece], piece))
    return [*SPECIALS, *often[: size - len(SPECIALS)]]


def from_stored(values: list[object]) -> list[str]:
    """Check a stored vocabulary: it begins with the special tokens, and the other pieces are different."""
    first = len(SPECIALS)
    if tuple(values[:first]) != SPECIALS:
        raise malformed(f"the vocabulary does not begin with {', '.join(SPECIALS)}")
    # A word of the file may be spelled like a special token.
    pieces = strings(values[first:], "the vocabulary after its special tokens")
    if "" in pieces:
        raise malformed(f"the vocabulary has an empty piece, with id {first + pieces.index('')}")
    return [*SPECIALS, *pieces]


def ids(vocabulary: list[str]) -> dict[str, int]:
    """Return the id of each piece, without the special tokens, which no text can contain."""
    first = len(SPECIALS)
    return {piece: index for index, piece in enumerate(vocabulary[first:], start=first)}


def visible(piece: str) -> str:
    """Make a piece visible in figures: spaces and control characters get a symbol, accents a circle below."""
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
    """The attributes that the functions below need; tokenizers use these functions as methods."""

    normaliser: "Normaliser"
    vocabulary: list[str]

    @property
    def kind(self) -> str: ...

    def encode(self, text: str) -> list[int]: ...


def length(self: HasVocabulary) -> int:
    """Return the number of ids."""
    return len(self.vocabulary)


def pieces(self: HasVocabulary, ids: Sequence[int]) -> list[str]:
    """Return one readable string per id, for figures."""
    return [visible(self.vocabulary[index]) for index in ids]


def encode_all(self: HasVocabulary, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of many texts."""
    return [self.encode(text) for text in texts]


def as_json(tokenizer: HasVocabulary, **own: object) -> dict[str, Any]:
    """Return a tokenizer as JSON: the common parts, and the parts of its kind."""
    return {"kind": tokenizer.kind, "normaliser": tokenizer.normaliser.to_json(), **own}


def from_parts(data: object, kind: str, **own: type) -> tuple["Normaliser", dict[str, Any]]:
    """Read the JSON of `as_json`: the normaliser, and the parts of this kind, each of its type."""
    stored = parts(data, f"the {kind} tokenizer", {"kind": str, "normaliser": dict, **own})
    return Normaliser.from_json(stored["normaliser"]), stored


@runtime_checkable
class HasBytes(Protocol):
    _bytes: list[bytes]


def with_specials(texts: Iterable[bytes]) -> tuple[list[bytes], list[str]]:
    """Return the bytes of each id, the special ones first, and the readable vocabulary."""
    own = list(texts)
    specials = [
        b"" if index in SILENT else name.encode("ascii") for index, name in enumerate(SPECIALS)
    ]
    return [*specials, *own], [*SPECIALS, *map(readable, own)]


def decode_bytes(self: HasBytes, ids: Sequence[int]) -> str:
    """Return the text of ids; bytes that are not UTF-8 become U+FFFD."""
    return b"".join(self._bytes[index] for index in ids).decode("utf-8", errors="replace")


def readable(piece: bytes) -> str:
    """Return bytes as text; those that are not a whole character as \\xNN."""
    return piece.decode("utf-8", errors="backslashreplace")


@dataclass(frozen=True)
class Normaliser:
    """Normalises texts: a Unicode form, optionally lower case, optionally letters only.

    NFC makes one character of a letter and its accent; NFKC also folds ligatures, full-width forms and the like.
    `letters_only` is the lectures' cleaning of The Time Machine: other characters than letters become spaces, and runs
    of spaces become one.
    """

    form: Form = "NFC"
    lower: bool = False
    letters_only: bool = False

    def __call__(self, text: str) -> str:
        # Half of a surrogate pair, which JSON can contain, is not a character and cannot be encoded.
        text = self._composed(_SURROGATE.sub("\ufffd", text))
        if self.lower:
            text = self._composed(text.lower())  # lower() may decompose a letter
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
            raise malformed(f"the normaliser has no form {shorten(stored['form'])}; {hint}")
        return cls(**stored)


def _letters(text: str) -> str:
    """Return letters and single spaces. Combining marks belong to their letter: an accent, a vowel sign of Hindi."""
    kept, on_letter = [], False
    for character in text:
        on_letter = character.isalpha() or (
            on_letter and unicodedata.category(character).startswith("M")
        )
        kept.append(character if on_letter else " ")
    return re.sub(" +", " ", "".join(kept))


def malformed(message: str) -> BundleError:
    """Return the error for a stored value that this package would not have written."""
    return BundleError(message, hint=HINT)


def parts(data: object, what: str, types: Mapping[str, type]) -> dict[str, Any]:
    """Check that a JSON object has exactly the parts of `types`; `what` is its name in messages."""
    if not isinstance(data, dict):
        raise malformed(f"{what} must be {_TYPE_NAMES[dict]}, not {shorten(str(data))}")
    for key, kind in types.items():
        if key not in data:
            raise malformed(f"{what} lacks its part '{key}'")
        if type(data[key]) is not kind:  # with isinstance, True would be an integer
            raise malformed(
                f"{what}: '{key}' must be {_TYPE_NAMES[kind]}, not {shorten(str(data[key]))}"
            )
    for key in data:
        if key not in types:
            raise malformed(f"{what} has a part that does not belong to it: {shorten(str(key))}")
    return data


def strings(values: list[object], what: str) -> list[str]:
    """Check that values are texts, all different."""
    texts: dict[str, None] = {}
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise malformed(f"{what}: entry {position} is not text: {shorten(str(value))}")
        if value in texts:
            raise malformed(f"{what}: entry {position} is repeated: {shorten(value)}")
        texts[value] = None
    return list(texts)


@runtime_checkable
class HasLibrary(Protocol):
    normaliser: Normaliser
    _library: Library


def library_encode(self: HasLibrary, text: str) -> list[int]:
    """Return the ids of the normalised text."""
    return self._library.encode(self.normaliser(text), add_special_tokens=False).ids


def library_encode_all(self: HasLibrary, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of many texts, computed in the library's threads."""
    rows = self._library.encode_batch_fast(
        [self.normaliser(text) for text in texts], add_special_tokens=False
    )
    return [row.ids for row in rows]


@contextmanager
def library_reads(what: str) -> Iterator[None]:
    """Turn any error of the library while it reads stored values into a BundleError."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic inside the library is not an Exception
        raise malformed(f"the tokenizers library refuses the stored {what}: {error}") from error


@cache
def survive_forks() -> None:
    """Disable the library's threads after a fork: in the child they do not exist, and it would wait for them forever.

    Some versions of the library do so themselves, but print a warning each time unless this variable is set.
    """
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(before=lambda: os.environ.setdefault("TOKENIZERS_PARALLELISM", "false"))
