"""Text as a sequence of characters, or of bytes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, final

from seqlab.errors import shorten
from seqlab.text import vocabulary as vocabularies
from seqlab.text.vocabulary import SILENT, SPECIALS, UNK, Normaliser, odd, parts, readable, special_bytes


@final
class CharacterTokenizer:
    """One id per character that was seen often enough; the others are UNK."""

    kind: str = "characters"

    def __init__(self, vocabulary: list[str], normaliser: Normaliser) -> None:
        self.vocabulary = vocabulary
        self.normaliser = normaliser
        self._ids = vocabularies.ids(vocabulary)

    @classmethod
    def learn(cls, texts: Iterable[str], *, normaliser: Normaliser, size: int, min_count: int) -> "CharacterTokenizer":
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(normaliser(text))
        return cls(vocabularies.from_counts(counts, size=size, min_count=min_count), normaliser)

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(character, UNK) for character in self.normaliser(text)]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.vocabulary[index] for index in ids if index not in SILENT)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [vocabularies.visible(self.vocabulary[index]) for index in ids]

    def __len__(self) -> int:
        return len(self.vocabulary)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "normaliser": self.normaliser.to_json(), "vocabulary": list(self.vocabulary)}

    @classmethod
    def from_json(cls, data: object) -> "CharacterTokenizer":
        stored = parts(data, "the characters tokenizer", {"kind": str, "normaliser": dict, "vocabulary": list})
        vocabulary = vocabularies.from_stored(stored["vocabulary"])
        for piece in vocabulary[len(SPECIALS) :]:
            if len(piece) != 1:
                raise odd(f"the vocabulary of characters has a piece that is not one character: {shorten(piece)}")
        return cls(vocabulary, Normaliser.from_json(stored["normaliser"]))


@final
class ByteTokenizer:
    """One id per byte, after the special ones. A sequence that is no UTF-8 decodes with U+FFFD in its place."""

    kind: str = "bytes"

    def __init__(self, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        self._bytes = [*special_bytes(), *(bytes([value]) for value in range(256))]
        self.vocabulary = [*SPECIALS, *(readable(piece) for piece in self._bytes[len(SPECIALS) :])]

    @classmethod
    def learn(cls, texts: Iterable[str], *, normaliser: Normaliser, size: int, min_count: int) -> "ByteTokenizer":
        """Reads no text: there are 256 bytes, whatever their counts."""
        return cls(normaliser)

    def encode(self, text: str) -> list[int]:
        return [value + len(SPECIALS) for value in self.normaliser(text).encode("utf-8")]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self._bytes[index] for index in ids).decode("utf-8", errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [vocabularies.visible(self.vocabulary[index]) for index in ids]

    def __len__(self) -> int:
        return len(self.vocabulary)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "normaliser": self.normaliser.to_json()}

    @classmethod
    def from_json(cls, data: object) -> "ByteTokenizer":
        stored = parts(data, "the bytes tokenizer", {"kind": str, "normaliser": dict})
        return cls(Normaliser.from_json(stored["normaliser"]))
