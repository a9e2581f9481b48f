"""Facts about training files from which settings are chosen: size, lengths, labels, words or characters, season."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from seqlab.codecs.labels import labels_of
from seqlab.corpus.series import read_table
from seqlab.data.example import Example
from seqlab.data.time_series import usual_season
from seqlab.metrics.text_scores import separates_words
from seqlab.recipe import Recipe

# examples whose lengths and labels are analysed; all examples are counted
SAMPLE = 20_000
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class ExampleFacts:
    """Facts about a file of examples."""

    examples: int
    # the mean length of a source: in words, in characters if spaces do not separate words, or in frames
    length: float
    labels: int
    # whether spaces separate the words of a source
    words: bool
    # whether sources are frames of numbers rather than text
    frames: bool = False

    @property
    def sentence(self) -> str:
        unit = "frames" if self.frames else "words" if self.words else "characters"
        labels = f", {self.labels} labels" if self.labels else ""
        return f"{self.examples:,} examples of {self.length:.0f} {unit}{labels}"


def example_facts(examples: Iterator[Example], *, labelled: bool) -> ExampleFacts:
    """Count all examples, and analyse the first ones."""
    sample = list(islice(examples, SAMPLE))
    total = len(sample) + sum(1 for _ in examples)
    labels = {label for example in sample for label in labels_of(example)} if labelled else set()
    texts = [example.source for example in sample if isinstance(example.source, str)]
    several_words = not texts or sum(map(_num_words, texts)) >= 2 * len(texts)
    words = separates_words(" ".join(texts[:200])) and several_words
    measure: Callable[[Any], int] = _num_words if words else len
    length = sum(measure(example.source) for example in sample) / max(1, len(sample))
    frames = any(isinstance(example.source, np.ndarray) for example in sample[:1])
    return ExampleFacts(total, length, len(labels), words, frames)


@dataclass(frozen=True)
class PairFacts:
    """Facts about the targets of a file of pairs."""

    # the share of the words of a target that also occur in its source
    repeated: float
    # the number of distinct words of all targets
    symbols: int
    # the mean number of words of a target
    target_words: float
    # the mean number of characters of a target
    target_characters: float


def pair_facts(examples: Iterator[Example]) -> PairFacts:
    """Analyse the first pairs of a file."""
    pairs = [(str(example.source), str(example.target)) for example in islice(examples, SAMPLE)]
    tokens = [token for _, target in pairs for token in target.split()]
    num_words, num_repeated = 0, 0
    for source, target in pairs:
        source_words = set(WORD.findall(source))
        target_words = WORD.findall(target)
        num_words += len(target_words)
        num_repeated += sum(word in source_words for word in target_words)
    return PairFacts(
        repeated=num_repeated / max(1, num_words),
        symbols=len(set(tokens)),
        target_words=len(tokens) / max(1, len(pairs)),
        target_characters=sum(len(target) for _, target in pairs) / max(1, len(pairs)),
    )


# up to this many distinct target words are the symbols of a notation: phonemes have 70
MAX_SYMBOLS = 1000


def has_symbols(facts: ExampleFacts, pairs: PairFacts) -> bool:
    """Whether single words become the symbols of a notation, with spaces between them."""
    return not facts.words and pairs.target_words >= 2 and pairs.symbols <= MAX_SYMBOLS


@dataclass(frozen=True)
class SeriesFacts:
    """Facts about a table of series."""

    rows: int
    series: int
    season: int

    @property
    def sentence(self) -> str:
        series = f" of {self.series} series" if self.series > 1 else ""
        return f"{self.rows:,} rows{series}, a season of {self.season}"


def series_facts(recipe: Recipe, files: Sequence[str]) -> SeriesFacts:
    """Analyse a table of series."""
    series = read_table(recipe, files[0])
    season = recipe.forecast.season or usual_season(series.times)
    return SeriesFacts(len(series), len(series.columns), season)


def _num_words(value: Any) -> int:
    return len(value.split()) if isinstance(value, str) else len(value)
