"""Sentences as features of their words, the source of conditional random fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from seqlab.codecs.codec import Codec, Examples, Json, Row, Source, entry_of
from seqlab.codecs.text import normaliser
from seqlab.data.store import Column
from seqlab.padded import Tokens
from seqlab.recipe import Recipe
from seqlab.text.spellings import SpellingVocabulary


@dataclass(frozen=True)
class SpellingSource(Source):
    """Sentences as tuples of words; a position is a row of ids, one for each column of the vocabulary."""

    vocabulary: SpellingVocabulary

    @property
    def entry(self) -> Tokens:
        return Tokens(len(self.vocabulary))

    def load(self, value: Any) -> tuple[str, ...]:
        return tuple(value.split()) if isinstance(value, str) else value

    def encode(self, values: Sequence[Any]) -> list[Row]:
        return list(self.vocabulary.encode_all(values))

    def column(self, path: Path) -> Column:
        return Column(path, len(self.vocabulary), width=self.vocabulary.width)

    def names(self, value: Any, row: Row) -> tuple[str, ...]:
        return tuple(value[: len(row)])

    def show(self, value: Any) -> str:
        return value if isinstance(value, str) else " ".join(value)

    def to_json(self) -> Json:
        return {"spellings": self.vocabulary.to_json()}

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "SpellingSource":
        return cls(SpellingVocabulary.from_json(entry_of(table, "spellings")))

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "SpellingSource":
        """Collect the features of the training part; keep those of an `old` model."""
        if old is not None and isinstance(old.source, SpellingSource):
            return old.source
        settings = recipe.source
        vocabulary = SpellingVocabulary.learn(
            lambda: (cast(tuple[str, ...], example.source) for example in examples()),
            normaliser=normaliser(settings),
            size=settings.size,
        )
        return cls(vocabulary)
