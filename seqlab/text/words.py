"""Text as a sequence of words and punctuation marks."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, final

from seqlab.text import vocabulary as vocabularies
from seqlab.text.normalise import Normaliser
from seqlab.text.special import SILENT, UNK
from seqlab.text.stored import parts

CLOSING = frozenset(".,!?;:)]}'")
OPENING = frozenset("([{")


@final
class WordTokenizer:
    """One id per word that was seen often enough; the others are UNK."""

    kind: str = "words"

    def __init__(self, vocabulary: list[str], normaliser: Normaliser) -> None:
        self.vocabulary = vocabulary
        self.normaliser = normaliser
        self._ids = vocabularies.ids(vocabulary)

    @classmethod
    def learn(cls, texts: Iterable[str], *, normaliser: Normaliser, size: int, min_count: int) -> "WordTokenizer":
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(split(normaliser(text)))
        return cls(vocabularies.from_counts(counts, size=size, min_count=min_count), normaliser)

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(word, UNK) for word in split(self.normaliser(text))]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.encode(text) for text in texts]

    def encode_words(self, words: Sequence[str]) -> list[int]:
        """One id per given word, however it is spelled: a tagger's labels stand beside the file's own tokens."""
        return [self._ids.get(self.normaliser(word), UNK) for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        """Words with single spaces between them, as a printer would set them."""
        return join([self.vocabulary[index] for index in ids if index not in SILENT])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [vocabularies.visible(self.vocabulary[index]) for index in ids]

    def __len__(self) -> int:
        return len(self.vocabulary)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "normaliser": self.normaliser.to_json(), "vocabulary": list(self.vocabulary)}

    @classmethod
    def from_json(cls, data: object) -> "WordTokenizer":
        stored = parts(data, "the words tokenizer", {"kind": str, "normaliser": dict, "vocabulary": list})
        return cls(vocabularies.from_stored(stored["vocabulary"]), Normaliser.from_json(stored["normaliser"]))


def learn_words(counts: Mapping[str, int], *, normaliser: Normaliser, size: int, min_count: int) -> WordTokenizer:
    """A vocabulary of ready-made words, which are not split again: for tagging, where the file has cut them."""
    merged: Counter[str] = Counter()
    for word, count in counts.items():
        merged[normaliser(word)] += count
    return WordTokenizer(vocabularies.from_counts(merged, size=size, min_count=min_count), normaliser)


def split(text: str) -> list[str]:
    """The words of a text, inner apostrophes kept, and every other symbol by itself."""
    return _pattern().findall(text)


def join(words: Sequence[str]) -> str:
    """Words with a space between two, but none before a mark that closes and none after one that opens."""
    text: list[str] = []
    for position, word in enumerate(words):
        if position and word not in CLOSING and words[position - 1] not in OPENING:
            text.append(" ")
        text.append(word)
    return "".join(text)


@cache
def _pattern() -> re.Pattern[str]:
    """`\\w` knows no marks, so a Hindi or Thai word would fall apart at its vowel signs; here they stay with it.

    All marks lie below U+1F000, apart from selectors of glyph variants. The two zero-width joiners count as well.
    """
    marks = "".join(chr(c) for c in range(0x300, 0x1F000) if unicodedata.category(chr(c)).startswith("M"))
    mark = f"{marks}\u200c\u200d"
    return re.compile(rf"\w[\w{mark}]*(?:['’]\w[\w{mark}]*)*|[^\w\s][{mark}]*")
