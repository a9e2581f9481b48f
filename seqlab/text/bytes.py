"""Text as a sequence of bytes in UTF-8: nothing to learn, nothing unknown."""

from collections.abc import Iterable, Sequence
from typing import Any, final

from seqlab.text import vocabulary as vocabularies
from seqlab.text.normalise import Normaliser
from seqlab.text.special import SILENT, SPECIALS
from seqlab.text.stored import parts


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


def special_bytes() -> list[bytes]:
    """What each special token adds to a decoded text."""
    return [b"" if index in SILENT else name.encode("ascii") for index, name in enumerate(SPECIALS)]


def readable(piece: bytes) -> str:
    """Bytes as text; those that make no whole character, as \\xNN."""
    return piece.decode("utf-8", errors="backslashreplace")
