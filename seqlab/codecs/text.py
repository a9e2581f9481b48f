"""Text as a source and as a target, through a tokenizer; the spelling of words can be read as well.

A word that is not in the vocabulary still has letters.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Int

from seqlab import text
from seqlab.codecs.codec import (
    Codec,
    Examples,
    Ids,
    Json,
    Places,
    Row,
    Source,
    SourceType,
    Target,
    TargetType,
    entries_of,
    entry_of,
)
from seqlab.data.example import Example
from seqlab.data.store import Column
from seqlab.padded import Tokens
from seqlab.recipe import Recipe, TextConfig
from seqlab.text import (
    EOS,
    MASK,
    PAD,
    SEP,
    SOS,
    CharacterTokenizer,
    Normaliser,
    Tokenizer,
    WordTokenizer,
)
from seqlab.text.words import split

_MARKERS = {"[SEP]": SEP, "[MASK]": MASK}
LONGEST_WORD = 24  # letters of a spelling; of a longer word only its two ends are read


@dataclass(frozen=True)
class TextSource(Source):
    """Lines of text.

    With `markers`, [SEP] and [MASK] are special tokens; with `frame`, a text is enclosed in SOS and SEP, as for BERT;
    with `letters`, each word is read with its spelling.
    """

    tokenizer: Tokenizer
    markers: bool = False
    frame: bool = False
    letters: CharacterTokenizer | None = None

    @property
    def entry(self) -> Tokens:
        return Tokens(len(self.tokenizer), len(self.letters or ()))

    def load(self, value: Any) -> str:
        return str(value)

    def encode(self, values: Sequence[Any]) -> list[Row]:
        texts = [str(value) for value in values]
        if self.letters is not None and isinstance(self.tokenizer, WordTokenizer):
            return [self._spelled(self.letters, self.tokenizer, each) for each in texts]
        if self.markers and any(marker in each for each in texts for marker in _MARKERS):
            return [framed(self._marked(each), self.frame) for each in texts]
        return [framed(ids, self.frame) for ids in self.tokenizer.encode_all(texts)]

    def _spelled(self, letters: CharacterTokenizer, tokenizer: WordTokenizer, value: str) -> Row:
        words = split(value)
        return spelled(letters, framed(tokenizer.encode_words(words), self.frame), words)

    def _marked(self, value: str) -> Ids:
        ids: Ids = []
        for part in re.split(r"\s*(\[SEP\]|\[MASK\])", value):
            ids += [_MARKERS[part]] if part in _MARKERS else self.tokenizer.encode(part)
        return ids

    def column(self, path: Path) -> Column:
        return letters_column(path, len(self.tokenizer), self.letters)

    def names(self, value: Any, row: Row) -> tuple[str, ...]:
        if self.letters is not None:
            return tuple(split(str(value))[: len(row)])
        return tuple(self.tokenizer.pieces(cast(Ids, list(row))))

    def to_json(self) -> Json:
        flags = tokens_json(self.tokenizer, self.markers, self.frame)
        return flags | letters_json(self.letters)

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "TextSource":
        return cls(*read_tokens(table), read_letters(table))

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "TextSource":
        """Learn the vocabulary of the training part; keep the tokenizer of an `old` model."""
        if old is not None:
            return cls(*old_tokens(old), getattr(old.source, "letters", None))
        tokenizer = learn_tokenizer(recipe.source, (str(e.source) for e in examples()))
        letters = None
        if recipe.model.characters is not None:
            letters = learn_letters(lambda: (w for e in examples() for w in split(str(e.source))))
        return cls(tokenizer, recipe.source.markers, recipe.source.frame, letters)


@dataclass(frozen=True)
class TextTarget(Target):
    """Text that a decoder generates, between SOS and EOS."""

    tokenizer: Tokenizer

    def encode(self, examples: Sequence[Example], places: Sequence[Places]) -> list[Row]:
        return [
            [SOS, *ids, EOS] for ids in self.tokenizer.encode_all([str(e.target) for e in examples])
        ]

    def longest(self, most: int) -> int:
        return most + 2  # SOS and EOS

    def cut(self, row: Row, *, source: int, target: int) -> Row:
        ids = cast(Ids, row)
        most = self.longest(target)
        return ids if len(ids) <= most else ids[: most - 1] + ids[-1:]

    def column(self, path: Path) -> Column:
        return Column(path, len(self.tokenizer))

    def to_json(self) -> Json:
        return {"target": self.tokenizer.to_json()}

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "TextTarget":
        """Read the tokenizer; one that is shared with the source is stored as the source's only."""
        shared = entry_of(table, "target") == "source"
        return cls(text.from_json(entry_of(table, "source" if shared else "target")))

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "TextTarget":
        """Learn the vocabulary of the training part; keep the tokenizer of an `old` model."""
        if old is not None:
            return cls(old.target_tokenizer)
        return cls(learn_tokenizer(recipe.target, (str(e.target) for e in examples())))


def spelled(letters: CharacterTokenizer, ids: Ids, words: Sequence[str]) -> Int[np.ndarray, "T W"]:
    """Return each position's id, followed by the letters of its word; the special tokens of a frame have none."""
    table = np.full((len(ids), 1 + LONGEST_WORD), PAD, dtype=np.int64)
    table[:, 0] = ids
    half = LONGEST_WORD // 2
    has_frame = len(ids) > len(words)
    for position, spelling in enumerate(letters.encode_all(words), start=int(has_frame)):
        if len(spelling) > LONGEST_WORD:
            spelling = spelling[:half] + spelling[-half:]
        table[position, 1 : 1 + len(spelling)] = spelling
    return table


def letters_column(path: Path, size: int, letters: CharacterTokenizer | None) -> Column:
    if letters is None:
        return Column(path, size)
    return Column(path, max(size, len(letters)), width=1 + LONGEST_WORD)


def learn_letters(words: Callable[[], Iterable[str]]) -> CharacterTokenizer:
    """Learn the letters that occur at least twice; if none does, all."""
    counts = Counter(letter for word in words() for letter in word)
    least = 2 if counts and counts.most_common(1)[0][1] > 1 else 1
    return CharacterTokenizer.learn(
        words(), normaliser=Normaliser("NFC", False, False), size=1000, min_count=least
    )


def letters_json(letters: CharacterTokenizer | None) -> Json:
    return {} if letters is None else {"letters": letters.to_json()}


def read_letters(table: Json) -> CharacterTokenizer | None:
    return CharacterTokenizer.from_json(table["letters"]) if "letters" in table else None


def framed(ids: Ids, frame: bool) -> Ids:
    return [SOS, *ids, SEP] if frame else ids


def tokens_json(tokenizer: Tokenizer, markers: bool, frame: bool) -> Json:
    flags = {"markers": markers, "frame": frame}
    return {"source": tokenizer.to_json()} | {name: True for name, value in flags.items() if value}


def read_tokens(table: Json) -> tuple[Tokenizer, bool, bool]:
    """Read the tokenizer of a source, and whether it has markers and a frame."""
    return (
        text.from_json(entry_of(table, "source")),
        table.get("markers") is True,
        table.get("frame") is True,
    )


def old_tokens(old: Codec) -> tuple[Tokenizer, bool, bool]:
    """Return the tokenizer of an old model's source, and whether it has markers and a frame."""
    source = cast(TextSource, old.source)
    return source.tokenizer, source.markers, source.frame


def learn_tokenizer(settings: TextConfig, texts: Iterable[str]) -> Tokenizer:
    texts = (re.sub(r"\[(SEP|MASK)\]", " ", each) for each in texts) if settings.markers else texts
    return text.learn(
        settings.kind,
        texts,
        normaliser=normaliser(settings),
        size=settings.size,
        min_count=settings.min_count,
    )


def normaliser(settings: TextConfig) -> Normaliser:
    return Normaliser(settings.form, settings.lower, settings.letters_only)


def learn_codec(
    recipe: Recipe, examples: Examples, old: Codec | None, reads: SourceType, writes: TargetType
) -> Codec:
    """Learn the codec from a training part; keep vocabularies and scales of an `old` model to start from."""
    if recipe.shared and old is None:
        both = (str(side) for e in examples() for side in (e.source, e.target))
        tokenizer = learn_tokenizer(recipe.source, both)
        return Codec(
            TextSource(tokenizer, recipe.source.markers, recipe.source.frame), TextTarget(tokenizer)
        )
    target = writes.learn(recipe, examples, old)
    return Codec(reads.learn(recipe, examples, old), target)


def read_codec(table: Any, recipe: Recipe, reads: SourceType, writes: TargetType) -> Codec:
    """Read the codec from a tokenizer.json."""
    entries = entries_of(table)
    source = reads.from_json(entries, recipe)
    if entries.get("target") == "source" and isinstance(source, TextSource):
        return Codec(source, TextTarget(source.tokenizer))
    return Codec(source, writes.from_json(entries, recipe))
