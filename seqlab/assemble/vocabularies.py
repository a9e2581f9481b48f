"""The vocabularies of a model: what its source, its target and its labels are made of."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from seqlab import text
from seqlab.data.sources import Example
from seqlab.errors import BundleError
from seqlab.recipe import Recipe, Text
from seqlab.text import EOS, SOS, Labels, Normaliser, Tokenizer, WordTokenizer

Ids = list[int]


@dataclass(frozen=True)
class Vocabularies:
    """A language model has a target, a translator source and target, a classifier or tagger a source and labels."""

    source: Tokenizer | None = None
    target: Tokenizer | None = None
    labels: Labels | None = None

    @property
    def sources(self) -> Tokenizer:
        assert self.source is not None, "this model reads no source"
        return self.source

    @property
    def targets(self) -> Tokenizer:
        assert self.target is not None, "this model writes no text"
        return self.target

    @property
    def classes(self) -> Labels:
        assert self.labels is not None, "this model knows no labels"
        return self.labels

    def encode(self, examples: Iterable[Example]) -> Iterable[tuple[Ids, Ids]]:
        """Source and target ids of each example, as a model of this kind is given them."""
        block = list(examples)
        return zip(self.encode_sources([e.source for e in block]), self._encode_targets(block), strict=True)

    def encode_sources(self, sources: list[str | tuple[str, ...]]) -> list[Ids]:
        if self.source is None:
            return [[] for _ in sources]
        if sources and isinstance(sources[0], tuple):
            assert isinstance(self.source, WordTokenizer)
            return [self.source.encode_words(words) for words in sources]
        return self.source.encode_all([str(source) for source in sources])

    def _encode_targets(self, block: list[Example]) -> list[Ids]:
        if self.labels is not None:
            return [[self.labels.encode(label) for label in labels_of(example)] for example in block]
        return [[SOS, *ids, EOS] for ids in self.targets.encode_all([str(e.target) for e in block])]

    def to_json(self) -> dict[str, Any]:
        parts = {"source": self.source, "target": self.target, "labels": self.labels}
        shared = self.source is not None and self.source is self.target
        return {
            name: "source" if shared and name == "target" else part.to_json() for name, part in parts.items() if part
        }

    @classmethod
    def from_json(cls, data: object) -> "Vocabularies":
        if not isinstance(data, dict) or set(data) - {"source", "target", "labels"}:
            raise BundleError("the tokenizer file is not one of Seqlab's", hint="restore the bundle, or train again.")
        source = text.from_json(data["source"]) if "source" in data else None
        if data.get("target") == "source":
            target = source
        else:
            target = text.from_json(data["target"]) if "target" in data else None
        return cls(source, target, Labels.from_json(data["labels"]) if "labels" in data else None)


def labels_of(example: Example) -> tuple[str, ...]:
    """The labels of a tagged sentence, or the one label of a text."""
    return (example.target,) if isinstance(example.target, str) else example.target


def learn_vocabularies(recipe: Recipe, examples: Callable[[], Iterable[Example]]) -> Vocabularies:
    """Vocabularies from the training part; `examples` can be called for each pass that is needed."""
    if recipe.task == "lm":
        return Vocabularies(target=learn_text(recipe.target, (str(e.target) for e in examples())))
    if recipe.task == "translate":
        if recipe.shared:
            both = (str(side) for e in examples() for side in (e.source, e.target))
            tokenizer = learn_text(recipe.source, both)
            return Vocabularies(source=tokenizer, target=tokenizer)
        source = learn_text(recipe.source, (str(e.source) for e in examples()))
        return Vocabularies(source=source, target=learn_text(recipe.target, (str(e.target) for e in examples())))
    labels = Labels.from_counts(Counter(label for e in examples() for label in labels_of(e)))
    if recipe.task == "tag":
        words = Counter(word for e in examples() for word in e.source)
        settings = recipe.source
        source = text.learn_words(
            words, normaliser=normaliser(settings), size=settings.size, min_count=settings.min_count
        )
        return Vocabularies(source=source, labels=labels)
    return Vocabularies(source=learn_text(recipe.source, (str(e.source) for e in examples())), labels=labels)


def learn_text(settings: Text, texts: Iterable[str]) -> Tokenizer:
    return text.learn(
        settings.kind, texts, normaliser=normaliser(settings), size=settings.size, min_count=settings.min_count
    )


def normaliser(settings: Text) -> Normaliser:
    return Normaliser(settings.form, settings.lower, settings.letters_only)
