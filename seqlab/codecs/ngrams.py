"""Text as a bag of n-grams, the source of linear models and nearest neighbours."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqlab.codecs.codec import Codec, Examples, Json, Row, Source, entry_of
from seqlab.codecs.text import normaliser
from seqlab.data.store import Column
from seqlab.padded import Tokens
from seqlab.recipe import Recipe
from seqlab.text.ngrams import NgramVocabulary

# Weights of a linear model: with many labels, only the most frequent n-grams are features.
NUM_WEIGHTS = 1 << 23


@dataclass(frozen=True)
class NgramSource(Source):
    """Texts as rows of pairs: the ids of their n-grams in order, each with its count."""

    vocabulary: NgramVocabulary

    @property
    def entry(self) -> Tokens:
        return Tokens(len(self.vocabulary))

    def load(self, value: Any) -> str:
        return str(value)

    def encode(self, values: Sequence[Any]) -> list[Row]:
        return list(self.vocabulary.encode_all([str(value) for value in values]))

    def column(self, path: Path) -> Column:
        return Column(path, len(self.vocabulary), width=2)

    def names(self, value: Any, row: Row) -> tuple[str, ...]:
        return tuple(self.vocabulary.name(int(feature)) for feature, _ in np.asarray(row))

    def to_json(self) -> Json:
        return {"ngrams": self.vocabulary.to_json()}

    @classmethod
    def from_json(cls, table: Json, recipe: Recipe) -> "NgramSource":
        return cls(NgramVocabulary.from_json(entry_of(table, "ngrams")))

    @classmethod
    def learn(cls, recipe: Recipe, examples: Examples, old: Codec | None) -> "NgramSource":
        """Collect the n-grams of the training part; keep those of an `old` model."""
        if old is not None and isinstance(old.source, NgramSource):
            return old.source
        settings = recipe.source
        size = settings.size
        if recipe.model.linear is not None:
            num_labels = len({str(example.target) for example in examples()})
            size = min(size, NUM_WEIGHTS // max(1, num_labels))
        vocabulary = NgramVocabulary.learn(
            lambda: (str(example.source) for example in examples()),
            normaliser=normaliser(settings),
            size=size,
            min_count=settings.min_count,
        )
        return cls(vocabulary)
