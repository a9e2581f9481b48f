"""What the rule that chooses settings looks at in a file: its size, lengths, labels, script and season."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from seqlab.codecs.labels import labels_of
from seqlab.corpus.series import read_table
from seqlab.data.example import Example
from seqlab.data.time_series import usual_season
from seqlab.metrics.text_scores import separates_words
from seqlab.recipe import Recipe

SAMPLE = 20_000  # examples whose lengths and labels are looked at; all are counted
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class ExampleFacts:
    """What a file of examples is."""

    examples: int
    length: float  # mean number of words of a source, of characters where blanks separate none, of frames
    labels: int
    words: bool  # whether blanks separate the words of a source

    @property
    def sentence(self) -> str:
        unit = "words" if self.words else "characters"
        labels = f", {self.labels} labels" if self.labels else ""
        return f"{self.examples:,} examples of {self.length:.0f} {unit}{labels}"


def example_facts(examples: Iterator[Example], *, labelled: bool) -> ExampleFacts:
    """Count all examples, and look at the first of them more closely."""
    sample = list(islice(examples, SAMPLE))
    total = len(sample) + sum(1 for _ in examples)
    labels = {label for example in sample for label in labels_of(example)} if labelled else set()
    texts = [example.source for example in sample if isinstance(example.source, str)]
    words = separates_words(" ".join(texts[:200])) and (
        not texts or sum(map(_num_words, texts)) >= 2 * len(texts)
    )
    measure: Callable[[Any], int] = _num_words if words else len
    length = sum(measure(example.source) for example in sample) / max(1, len(sample))
    return ExampleFacts(total, length, len(labels), words)


@dataclass(frozen=True)
class PairFacts:
    """What the targets of a file of pairs are to their sources."""

    repeated: float  # share of the targets' words that stand in their source
    symbols: int  # distinct words of the targets, between blanks
    target_words: float  # mean number of words of a target


def pair_facts(examples: Iterator[Example]) -> PairFacts:
    """Look at the first pairs of a file."""
    pairs = [(str(example.source), str(example.target)) for example in islice(examples, SAMPLE)]
    words = [word for _, target in pairs for word in target.split()]
    runs, repeated = 0, 0
    for source, target in pairs:
        there = set(WORD.findall(source))
        runs += len(WORD.findall(target))
        repeated += sum(word in there for word in WORD.findall(target))
    return PairFacts(repeated / max(1, runs), len(set(words)), len(words) / max(1, len(pairs)))


@dataclass(frozen=True)
class SeriesFacts:
    """What a table of numbers is."""

    rows: int
    series: int
    season: int

    @property
    def sentence(self) -> str:
        series = f" of {self.series} series" if self.series > 1 else ""
        return f"{self.rows:,} rows{series}, a season of {self.season}"


def series_facts(recipe: Recipe, files: Sequence[str]) -> SeriesFacts:
    series = read_table(recipe, files[0])
    return SeriesFacts(
        len(series), len(series.columns), recipe.forecast.season or usual_season(series.times)
    )


def _num_words(value: Any) -> int:
    return len(value.split()) if isinstance(value, str) else len(value)
