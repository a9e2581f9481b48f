"""Sentences that are already split into words; the words are kept whole or split into pieces."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqlab.codecs.codec import Codec, Examples, Ids, Json, Row, Source
from seqlab.codecs.text import (
    framed,
    learn_letters,
    learn_tokenizer,
    letters_column,
    letters_json,
    normaliser,
    old_tokens,
    read_letters,
    read_tokens,
    spelled,
    tokens_json,
)
from seqlab.data.example import Example
from seqlab.data.store import Column
from seqlab.padded import Tokens
from seqlab.recipe import Recipe
from seqlab.text import (
    UNK,
    CharacterTokenizer,
    Tokenizer,
    WordTokenizer,
    learn_words,
)


@dataclass(frozen=True)
class WordSource(Source):
    """Sentences as tuples of words. With `letters`, each word is read with its spelling."""

    tokenizer: Tokenizer
    letters: CharacterTokenizer | None = None
    markers: bool = False
    frame: bool = False

    @property
    def entry(self) -> Tokens:
        return Tokens(len(self.tokenizer), len(self.letters or ()))

    def load(self, value: Any) -> tuple[str, ...]:
        return tuple(value.split()) if isinstance(value, str) else value

    def encode(self, values: Sequence[Any]) -> list[Row]:
        return [self._row(words) for words in values]

    def _row(self, words: tuple[str, ...]) -> Row:
        if not isinstance(self.tokenizer, WordTokenizer):
            return framed([i for pieces in self._pieces(words) for i in pieces], self.frame)
        ids = framed(self.tokenizer.encode_words(words), self.frame)
        return ids if self.letters is None else spelled(self.letters, ids, words)

    def _pieces(self, words: tuple[str, ...]) -> list[Ids]:
        """Return the ids of each word, at least one."""
        if self.tokenizer.kind == "bpe":  # a byte-level vocabulary has words with a space in front
            words = (*words[:1], *(f" {word}" for word in words[1:]))
        return [pieces or [UNK] for pieces in self.tokenizer.encode_all(words)]

    def column(self, path: Path) -> Column:
        return letters_column(path, len(self.tokenizer), self.letters)

    def starts(self, value: Any) -> list[int] | None:
        if isinstance(self.tokenizer, WordTokenizer):
            return [position + 1 for position in range(len(value))] if self.frame else None
        starts = []
        position = int(self.frame)
        for pieces in self._pieces(value):
            starts.append(position)
            position += len(pieces)
        return starts

    def names(self, value: Any, row: Row) -> tuple[str, ...]:
        if isinstance(row, np.ndarray):
            return tuple(value[: len(row)])
        return tuple(self.tokenizer.pieces(row))

    def show(self, value: Any) -> str:
        return value if isinstance(value, str) else " ".join(value)

    def to_json(self) -> Json:
        flags = tokens_json(self.tokenizer, self.markers, self.frame)
        return flags | letters_json(self.letters)

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "WordSource":
        tokenizer, *flags = read_tokens(table)
        return cls(tokenizer, read_letters(table), *flags)

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "WordSource":
        """Learn the vocabulary of the training part; keep the tokenizer and the letters of an `old` model."""
        letters = None
        if recipe.model.characters is not None:
            letters = getattr(old and old.source, "letters", None) or learn_letters(
                lambda: (word for e in examples() for word in _words(e))
            )
        if old is not None:
            tokenizer, *flags = old_tokens(old)
            return cls(tokenizer, letters, *flags)
        return cls(
            _learn_tokenizer(recipe, examples), letters, recipe.source.markers, recipe.source.frame
        )


def _learn_tokenizer(recipe: Recipe, examples: Examples) -> Tokenizer:
    """Learn whole words, or pieces from the words with spaces between them."""
    settings = recipe.source
    if settings.kind != "words":
        return learn_tokenizer(settings, (" ".join(_words(e)) for e in examples()))
    return learn_words(
        Counter(word for e in examples() for word in _words(e)),
        normaliser=normaliser(settings),
        size=settings.size,
        min_count=settings.min_count,
        endings=settings.endings,
    )


def _words(example: Example) -> tuple[str, ...]:
    return example.source
