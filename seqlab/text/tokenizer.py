"""What every tokenizer is to the rest of the package: text in, ids out, and back."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from seqlab.errors import UsageError, nearest, shorten
from seqlab.text.bpe import BPETokenizer
from seqlab.text.characters import ByteTokenizer, CharacterTokenizer
from seqlab.text.vocabulary import Normaliser, kind_of, odd, visible
from seqlab.text.wordpiece import WordPieceTokenizer
from seqlab.text.words import WordTokenizer


@runtime_checkable
class Tokenizer(Protocol):
    """Ids are 0 to len - 1; the first are the special ones of `special`, in every kind."""

    kind: str
    normaliser: Normaliser
    vocabulary: list[str]

    @classmethod
    def learn(cls, texts: Iterable[str], *, normaliser: Normaliser, size: int, min_count: int) -> "Tokenizer":
        """A vocabulary of at most `size` ids, the special ones included, of what was seen `min_count` times."""

    @classmethod
    def from_json(cls, data: object) -> "Tokenizer":
        """What `to_json` gave, or a BundleError."""

    def encode(self, text: str) -> list[int]:
        """The ids of the normalised text; no special token is added, and none is read out of the text."""

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The same for many texts, as fast as the kind allows."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text again: PAD, SOS and EOS are left out; UNK, SEP and MASK are shown by name."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One readable string per id, for pictures."""

    def __len__(self) -> int: ...

    def to_json(self) -> dict[str, Any]:
        """All that `from_json` needs, as plain JSON."""


KINDS: dict[str, type[Tokenizer]] = {
    "characters": CharacterTokenizer,
    "words": WordTokenizer,
    "bytes": ByteTokenizer,
    "bpe": BPETokenizer,
    "wordpiece": WordPieceTokenizer,
}


def learn(
    kind: str, texts: Iterable[str], *, normaliser: Normaliser, size: int = 8000, min_count: int = 1
) -> Tokenizer:
    """A tokenizer of this kind for texts like these; `size` counts the special tokens too."""
    if kind not in KINDS:
        raise UsageError(f"there is no kind of tokenizer called {shorten(kind)}", hint=nearest(kind, KINDS))
    return KINDS[kind].learn(texts, normaliser=normaliser, size=size, min_count=min_count)


def from_json(data: object) -> Tokenizer:
    """The tokenizer that `to_json` described."""
    kind = kind_of(data)
    if kind not in KINDS:
        raise odd(f"there is no kind of tokenizer called {shorten(kind)}; {nearest(kind, KINDS)}")
    return KINDS[kind].from_json(data)


def vocabulary_text(tokenizer: Tokenizer) -> str:
    """The vocabulary for people: a line per id, with what it stands for after a tab, spaces made visible."""
    return "".join(f"{index}\t{visible(piece)}\n" for index, piece in enumerate(tokenizer.vocabulary))
