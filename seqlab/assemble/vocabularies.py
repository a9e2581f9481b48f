"""The vocabularies of a model: what its source, its target and its labels are made of."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from jaxtyping import Float32, Int, UInt8

from seqlab import text
from seqlab.assemble.numbers import Numbers, learn_numbers
from seqlab.assemble.variables import Variables
from seqlab.data.sources import Example, Picture, Vectors
from seqlab.device import tensor_of
from seqlab.errors import BundleError, DataError
from seqlab.padded import Padded
from seqlab.recipe import NUMBERS, Recipe, Text
from seqlab.text import (
    EOS,
    MASK,
    PAD,
    SEP,
    SOS,
    UNSEEN,
    CharacterTokenizer,
    Labels,
    Normaliser,
    Tokenizer,
    WordTokenizer,
)

Ids = list[int]
Row = Ids | Int[np.ndarray, "_ _"] | Vectors | UInt8[np.ndarray, "_ _"]
LONGEST_WORD = 24  # characters of a word's spelling: of a longer one its ends, which say most about it
_MARKERS = {"[SEP]": SEP, "[MASK]": MASK}


@dataclass(frozen=True)
class FeatureScale:
    """Mean and deviation of each measured feature over the training part."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def to_json(self) -> dict[str, list[float]]:
        return {"mean": list(self.mean), "deviation": list(self.deviation)}

    @classmethod
    def from_json(cls, data: object) -> "FeatureScale":
        sides = [data.get(key) if isinstance(data, dict) else None for key in ("mean", "deviation")]
        good = all(isinstance(side, list) and side and all(isinstance(n, float) for n in side) for side in sides)
        if not good or len(cast(list, sides[0])) != len(cast(list, sides[1])) or min(cast(list, sides[1])) <= 0:
            raise BundleError("the scale of the features is not one of Seqlab's", hint="restore the bundle.")
        return cls(tuple(cast(list, sides[0])), tuple(cast(list, sides[1])))


@dataclass(frozen=True)
class Vocabularies:
    """A language model has a target, a translator source and target, a classifier or tagger a source and labels.

    `letters` spell the words of a tagger; `features` stand in place of a source where that is measured, not written.
    With `markers`, [SEP] and [MASK] in a text are special tokens; with `frame`, a source stands between SOS and SEP.
    """

    source: Tokenizer | None = None
    target: Tokenizer | None = None
    labels: Labels | None = None
    letters: CharacterTokenizer | None = None
    features: FeatureScale | None = None
    markers: bool = False
    frame: bool = False
    series: Variables | None = None  # what a forecaster has instead of all these
    numbers: Numbers | None = None  # what a tagger has in place of labels where these are measured

    @property
    def variables(self) -> Variables:
        assert self.series is not None, "this model forecasts nothing"
        return self.series

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

    def encode(self, examples: Iterable[Example]) -> Iterable[tuple[Row, Row]]:
        """Source and target ids of each example, as a model of this kind is given them."""
        block = list(examples)
        sources = self.encode_sources([e.source for e in block])
        return zip(sources, self._encode_targets(block), strict=True)

    def encode_places(self, examples: Iterable[Example]) -> Iterable[tuple[Row, Row]]:
        """The same with pictures by their places in the store: each is stored once, however much is said of it."""
        block = list(examples)
        places: list[Row] = [[cast(int, cast(Picture, e.source).place)] for e in block]
        return zip(places, self._encode_targets(block), strict=True)

    def encode_sources(self, sources: Sequence[str | tuple[str, ...] | Vectors | Picture]) -> list[Row]:
        """Ids of texts or of given words, ids beside spellings, or the vectors themselves."""
        if self.features is not None:
            return [self._checked(s.values if isinstance(s, Picture) else cast(np.ndarray, s)) for s in sources]
        if self.source is None:
            return [[] for _ in sources]
        if sources and isinstance(sources[0], tuple):
            return [self._words(cast(tuple[str, ...], words)) for words in sources]
        return cast(list[Row], [self._framed(ids) for ids in self._texts([str(source) for source in sources])])

    def word_starts(self, words: tuple[str, ...]) -> Ids:
        """Where each of the given words begins among the ids that `encode_sources` gives them."""
        if isinstance(self.source, WordTokenizer):
            return list(range(int(self.frame), int(self.frame) + len(words)))
        starts, place = [], int(self.frame)
        for pieces in self._pieces(words):
            starts.append(place)
            place += len(pieces)
        return starts

    def _texts(self, texts: list[str]) -> list[Ids]:
        if not self.markers or not any(marker in t for t in texts for marker in _MARKERS):
            return self.sources.encode_all(texts)
        return [self._marked(t) for t in texts]

    def _marked(self, text: str) -> Ids:
        ids: Ids = []
        for part in re.split(r"\s*(\[SEP\]|\[MASK\])", text):
            ids += [_MARKERS[part]] if part in _MARKERS else self.sources.encode(part)
        return ids

    def _words(self, words: tuple[str, ...]) -> Row:
        if isinstance(self.source, WordTokenizer):
            ids = self._framed(self.source.encode_words(words))
            return ids if self.letters is None else self._spelled(ids, words)
        return self._framed([i for pieces in self._pieces(words) for i in pieces])

    def _pieces(self, words: tuple[str, ...]) -> list[Ids]:
        """The ids of each word, at least one: a byte-level vocabulary knows a word by the space before it."""
        spaced = [word if place == 0 or self.sources.kind != "bpe" else f" {word}" for place, word in enumerate(words)]
        return [pieces or [text.UNK] for pieces in self.sources.encode_all(spaced)]

    def _framed(self, ids: Ids) -> Ids:
        return [SOS, *ids, SEP] if self.frame else ids

    def _spelled(self, ids: Ids, words: tuple[str, ...]) -> Int[np.ndarray, "T W"]:
        assert self.letters is not None
        table = np.full((len(ids), 1 + LONGEST_WORD), PAD, dtype=np.int64)
        table[:, 0] = ids
        half = LONGEST_WORD // 2
        for place, letters in enumerate(self.letters.encode_all(words), start=int(self.frame)):
            kept = letters if len(letters) <= LONGEST_WORD else letters[:half] + letters[-half:]
            table[place, 1 : 1 + len(kept)] = kept
        return table

    def _checked(self, vectors: np.ndarray) -> Row:
        assert self.features is not None
        vectors = vectors if vectors.dtype == np.uint8 else np.asarray(vectors, dtype=np.float32)
        vectors = vectors[:, None] if vectors.ndim == 1 else vectors
        if vectors.shape[1] != len(self.features.mean):
            raise DataError(
                f"vectors of {vectors.shape[1]} features where the model was trained on {len(self.features.mean)}",
                hint="compute the features as for training.",
            )
        return vectors

    def _encode_targets(self, block: list[Example]) -> Sequence[Row]:
        if self.labels is not None:
            return [self._labels(example) for example in block]
        if self.numbers is not None:
            return [self._numbers(self.numbers, example) for example in block]
        if self.target is None:
            return [[] for _ in block]
        return [[SOS, *ids, EOS] for ids in self.targets.encode_all([str(e.target) for e in block])]

    def _numbers(self, numbers: Numbers, example: Example) -> Float32[np.ndarray, "T D"]:
        """The same for numbers: where there is none, nothing is known."""
        values = numbers.encode(example)
        if not isinstance(example.source, tuple) or (isinstance(self.source, WordTokenizer) and not self.frame):
            return values
        spread = np.full((len(self.encode_sources([example.source])[0]), numbers.width), np.nan, dtype=np.float32)
        spread[self.word_starts(example.source)] = values
        return spread

    def _labels(self, example: Example) -> Ids:
        """A label each; of words that are cut into pieces, the first piece has it, and the others count for nothing."""
        ids = [self.classes.encode(label) for label in labels_of(example)]
        if not isinstance(example.source, tuple) or (isinstance(self.source, WordTokenizer) and not self.frame):
            return ids
        length = len(self.encode_sources([example.source])[0])
        spread = [UNSEEN] * length
        for place, label in zip(self.word_starts(example.source), ids, strict=True):
            spread[place] = label
        return spread

    def to_json(self) -> dict[str, Any]:
        names = ("source", "target", "labels", "letters", "features", "series", "numbers")
        parts = [(name, getattr(self, name)) for name in names]
        shared = self.source is not None and self.source is self.target
        table = {name: "source" if shared and name == "target" else part.to_json() for name, part in parts if part}
        return table | {name: True for name in ("markers", "frame") if getattr(self, name)}

    @classmethod
    def from_json(cls, data: object) -> "Vocabularies":
        if not isinstance(data, dict) or set(data) - set(cls.__dataclass_fields__):
            raise BundleError("the tokenizer file is not one of Seqlab's", hint="restore the bundle, or train again.")
        source = text.from_json(data["source"]) if "source" in data else None
        if data.get("target") == "source":
            target = source
        else:
            target = text.from_json(data["target"]) if "target" in data else None
        return cls(
            source,
            target,
            Labels.from_json(data["labels"]) if "labels" in data else None,
            CharacterTokenizer.from_json(data["letters"]) if "letters" in data else None,
            FeatureScale.from_json(data["features"]) if "features" in data else None,
            data.get("markers") is True,
            data.get("frame") is True,
            Variables.from_json(data["series"]) if "series" in data else None,
            Numbers.from_json(data["numbers"]) if "numbers" in data else None,
        )


def padded(rows: Sequence[Row]) -> Padded:
    """Encoded rows side by side."""
    return Padded.from_rows([tensor_of(row) if isinstance(row, np.ndarray) else row for row in rows])


def labels_of(example: Example) -> tuple[str, ...]:
    """The labels of a tagged sentence, or the one label of a text."""
    return (example.target,) if isinstance(example.target, str) else example.target


def learn_vocabularies(
    recipe: Recipe, examples: Callable[[], Iterable[Example]], given: Vocabularies | None = None
) -> Vocabularies:
    """Vocabularies from the training part; `examples` can be called for each pass that is needed.

    What is `given` by a model to start from stays as it is: only labels are learnt anew.
    """
    labels = letters = numbers = None
    if recipe.target.kind in NUMBERS:
        numbers = learn_numbers(examples(), recipe.data.no_label, angles=recipe.target.kind == "angles")
    elif recipe.task in ("classify", "tag"):
        counts = Counter(label for e in examples() for label in labels_of(e))
        counts.pop(str(recipe.data.no_label), None)  # which is no label, and so never learnt
        labels = Labels.from_counts(counts)
    if recipe.model.characters is not None:
        letters = (given and given.letters) or _learn_letters(examples())
    blanks = recipe.task == "mask"  # a model that fills [MASK] must be able to read it
    if given is not None:
        return replace(given, labels=labels, numbers=numbers, letters=letters, markers=given.markers or blanks)
    source, target, features = _sides(recipe, examples)
    markers = recipe.source.markers or blanks
    return Vocabularies(source, target, labels, letters, features, markers, recipe.source.frame, None, numbers)


def _sides(
    recipe: Recipe, examples: Callable[[], Iterable[Example]]
) -> tuple[Tokenizer | None, Tokenizer | None, FeatureScale | None]:
    if recipe.source.kind == "vectors":
        writes = recipe.task in ("translate", "caption")
        target = learn_text(recipe.target, (str(e.target) for e in examples())) if writes else None
        return None, target, _scale(recipe, examples())
    if recipe.task == "lm":
        return None, learn_text(recipe.target, (str(e.target) for e in examples())), None
    if recipe.task == "translate" and recipe.shared:
        tokenizer = learn_text(recipe.source, (str(side) for e in examples() for side in (e.source, e.target)))
        return tokenizer, tokenizer, None
    if recipe.task == "tag":
        return _learn_from_words(recipe.source, examples), None, None
    source = learn_text(recipe.source, (str(e.source) for e in examples()))
    if recipe.task == "translate":
        return source, learn_text(recipe.target, (str(e.target) for e in examples())), None
    return source, None, None


def _learn_from_words(settings: Text, examples: Callable[[], Iterable[Example]]) -> Tokenizer:
    """From words that the file has cut: kept whole, or read as a text with spaces between."""
    if settings.kind != "words":
        return learn_text(settings, (" ".join(_words(e)) for e in examples()))
    words = Counter(word for e in examples() for word in _words(e))
    return text.learn_words(
        words,
        normaliser=normaliser(settings),
        size=settings.size,
        min_count=settings.min_count,
        endings=settings.endings,
    )


def _words(example: Example) -> tuple[str, ...]:
    return cast(tuple[str, ...], example.source)


def _learn_letters(examples: Iterable[Example]) -> CharacterTokenizer:
    words = (word for e in examples for word in _words(e))
    return CharacterTokenizer.learn(words, normaliser=Normaliser("NFC", False, False), size=1000, min_count=2)


def _scale(recipe: Recipe, examples: Iterable[Example]) -> FeatureScale:
    """Mean and deviation in one pass; a feature that never changes is left at its size.

    Of pixels there is one of each for a colour, the same in every column.
    """
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    for example in examples:
        source = example.source
        vectors = cast(np.ndarray, source.values if isinstance(source, Picture) else source).astype(np.float64)
        vectors = vectors if recipe.image is None else vectors.reshape(-1, recipe.image.channels)
        count, total, squares = count + len(vectors), total + vectors.sum(0), squares + np.square(vectors).sum(0)
    mean = total / max(1, count)
    deviation = np.sqrt(np.maximum(squares / max(1, count) - mean**2, 0))
    columns = 1 if recipe.image is None else recipe.image.width
    return FeatureScale(
        tuple(mean.tolist()) * columns, tuple(np.where(deviation > 1e-8, deviation, 1.0).tolist()) * columns
    )


def learn_text(settings: Text, texts: Iterable[str]) -> Tokenizer:
    texts = (re.sub(r"\[(SEP|MASK)\]", " ", t) for t in texts) if settings.markers else texts
    return text.learn(
        settings.kind, texts, normaliser=normaliser(settings), size=settings.size, min_count=settings.min_count
    )


def normaliser(settings: Text) -> Normaliser:
    return Normaliser(settings.form, settings.lower, settings.letters_only)
