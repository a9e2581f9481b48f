"""Text as a sequence of characters, or of bytes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, final

from seqlab.errors import shorten
from seqlab.text import vocabulary as vocabularies
from seqlab.text.vocabulary import SILENT, SPECIALS, UNK, Normaliser, malformed


@final
class CharacterTokenizer:
    """One id per character that was seen often enough; the others are UNK."""

    kind = "characters"
    encode_all = vocabularies.encode_all
    pieces = vocabularies.pieces
    __len__ = vocabularies.length

    def __init__(self, vocabulary: list[str], normaliser: Normaliser) -> None:
        self.vocabulary = vocabulary
        self.normaliser = normaliser
        self._ids = vocabularies.ids(vocabulary)

    @classmethod
    def learn(
        cls, texts: Iterable[str], *, normaliser: Normaliser, size: int, min_count: int
    ) -> "CharacterTokenizer":
        counts = Counter(chain.from_iterable(map(normaliser, texts)))
        return cls(vocabularies.from_counts(counts, size=size, min_count=min_count), normaliser)

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(character, UNK) for character in self.normaliser(text)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.vocabulary[index] for index in ids if index not in SILENT)

    def to_json(self) -> dict[str, Any]:
        return vocabularies.as_json(self, vocabulary=list(self.vocabulary))

    @classmethod
    def from_json(cls, data: object) -> "CharacterTokenizer":
        normaliser, stored = vocabularies.from_parts(data, "characters", vocabulary=list)
        vocabulary = vocabularies.from_stored(stored["vocabulary"])
        for piece in vocabulary[len(SPECIALS) :]:
            if len(piece) != 1:
                raise malformed(
                    f"the vocabulary of characters has a piece that is not one character: {shorten(piece)}"
                )
        return cls(vocabulary, normaliser)


@final
class ByteTokenizer:
    """One id per byte, after the special ones. Bytes that are not UTF-8 decode as U+FFFD."""

    kind = "bytes"
    encode_all = vocabularies.encode_all
    decode = vocabularies.decode_bytes
    pieces = vocabularies.pieces
    __len__ = vocabularies.length

    def __init__(self, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        self._bytes, self.vocabulary = vocabularies.with_specials(
            bytes([value]) for value in range(256)
        )

    @classmethod
    def learn(
        cls, texts: Iterable[str], *, normaliser: Normaliser, size: int, min_count: int
    ) -> "ByteTokenizer":
        """Return the tokenizer without reading the texts: its vocabulary is the 256 bytes."""
        return cls(normaliser)

    def encode(self, text: str) -> list[int]:
        return [value + len(SPECIALS) for value in self.normaliser(text).encode("utf-8")]

    def to_json(self) -> dict[str, Any]:
        return vocabularies.as_json(self)

    @classmethod
    def from_json(cls, data: object) -> "ByteTokenizer":
        return cls(vocabularies.from_parts(data, "bytes")[0])
