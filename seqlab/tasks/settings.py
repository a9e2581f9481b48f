"""The rule that chooses settings from a file: what a recipe leaves open is decided by what the data is.

A recipe that names a value keeps it, and so does whoever types `--set`. The constants were measured over files of 50
to 50,000 examples; `docs/choosing.md` has the table, and says why.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from seqlab.codecs.labels import labels_of
from seqlab.corpus.series import read_table
from seqlab.data.series import usual_season
from seqlab.data.sources import Example
from seqlab.recipe import NUMBERS, Recipe, is_named, override, value_of
from seqlab.scripts import separates_words
from seqlab.tasks.task import Task

SAMPLE = 20_000  # examples whose lengths and labels are looked at; all are counted
HELD_OUT = 50  # examples that a score needs at least
PADDING = 1.15  # positions of a batch for each token in it
LENGTHS = ("train.steps", "train.epochs", "train.minutes")

Choices = Mapping[str, Any]  # a value for each setting that is chosen


@dataclass(frozen=True)
class ExampleFacts:
    """What a file of examples is."""

    examples: int
    length: float  # mean number of words of a source, of characters where blanks separate none, of frames
    target_length: float
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
    words = separates_words(" ".join(texts[:200])) and (not texts or sum(map(_num_words, texts)) >= 2 * len(texts))
    measure: Callable[[Any], int] = _num_words if words else len
    length = sum(measure(example.source) for example in sample) / max(1, len(sample))
    target = sum(measure(example.target) for example in sample if example.target is not None) / max(1, len(sample))
    return ExampleFacts(total, length, target, len(labels), words)


def settle(recipe: Recipe, choices: Choices) -> Recipe:
    """The recipe with each choice for a setting that it leaves open, in a section that it has.

    A model without an encoder is no network: of it only what is held out, and how far it looks, is chosen.
    """
    if recipe.model.encoder is None:
        choices = {path: value for path, value in choices.items() if path.startswith(("data.", "forecast."))}
    taken = {path: value for path, value in choices.items() if _is_open(recipe, path)}
    return override(recipe, [f"{path}={_as_setting(value)}" for path, value in taken.items()])


def held_out_share(examples: int) -> float:
    """A twentieth, and of a small file more: enough examples for a score, but never more than a third."""
    return min(1 / 3, max(0.05, HELD_OUT / max(1, examples)))


MANY_TOKENS = 1_000_000  # of a text file from which on the settings of a large one are better


def choose_classify(task: Task, recipe: Recipe, files: Sequence[str]) -> tuple[str, Choices]:
    """A file of few texts needs small batches, a high rate and much dropout; a large one fewer epochs."""
    facts = example_facts(task.read(recipe, files), labelled=True)
    if recipe.source.kind == "vectors":
        return facts.sentence, _choose_vectors(facts)
    large = facts.examples * facts.length >= MANY_TOKENS
    batch_tokens = int(min(8192, max(256, 48 * facts.length)))
    return facts.sentence, {
        "source.kind": "words" if facts.words else "characters",
        "data.validation": held_out_share(facts.examples),
        "model.pooling": "attention" if large else "max",
        "model.dropout": 0.3 if large else 0.5,
        "train.batch_tokens": batch_tokens,
        "train.learning_rate": 2e-3 if large else 5e-3,
        "train.steps": _num_steps(facts, batch_tokens, epochs=5 if large else 15, least=300, most=4000),
        "train.warmup": 100 if large else 30,
        "train.best": "loss" if large else "accuracy",
        "train.patience": 8,
    }


def _choose_vectors(facts: ExampleFacts) -> Choices:
    """Sequences of vectors, as sensors measure them, come in small numbers: eight rows a batch, no early end."""
    batch_tokens = int(max(64, 8 * facts.length))
    return {
        "data.validation": held_out_share(facts.examples),
        "model.pooling": "max",
        "model.dropout": 0.3,
        "train.batch_tokens": batch_tokens,
        "train.learning_rate": 5e-3,
        "train.steps": _num_steps(facts, batch_tokens, epochs=15, least=400, most=4000),
        "train.warmup": 30,
        "train.best": "accuracy",
    }


MANY_WORDS = 100_000  # of a tagged file from which on the settings of a large one are better


def choose_tag(task: Task, recipe: Recipe, files: Sequence[str]) -> tuple[str, Choices]:
    """Few sentences teach one small layer in many short steps; words that occur once stay, some dropped at random."""
    facts = example_facts(task.read(recipe, files), labelled=recipe.target.kind not in NUMBERS)
    large = facts.examples * facts.length >= MANY_WORDS
    batch_tokens = 768 if large else 256
    return facts.sentence, {
        "source.min_count": 2 if large else 1,
        "data.validation": held_out_share(facts.examples),
        "model.encoder.layers": 2 if large else 1,
        "model.encoder.size": 192 if large else 128,
        "model.word_dropout": 0.0 if large else 0.2,
        "train.batch_tokens": batch_tokens,
        "train.optimizer": "muon" if large else "adamw",
        "train.learning_rate": 2e-3 if large else 5e-3,
        "train.steps": _num_steps(facts, batch_tokens, epochs=8 if large else 20, least=500, most=6000),
        "train.warmup": 100 if large else 30,
        "train.best": "loss" if large else "accuracy",
        "train.patience": 8,
    }


def choose_translate(task: Task, recipe: Recipe, files: Sequence[str]) -> tuple[str, Choices]:
    """Fewer pairs, fewer pieces and smaller batches: a run has some thousand steps whatever the size of the file."""
    facts = example_facts(task.read(recipe, files), labelled=False)
    batch_tokens = 2048 if facts.examples >= 20_000 else 1024 if facts.examples >= 5_000 else 512
    return facts.sentence, {
        "source.size": 8000 if facts.examples >= 20_000 else 4000 if facts.examples >= 5_000 else 1000,
        "data.validation": held_out_share(facts.examples),
        "train.batch_tokens": batch_tokens,
        "train.epochs": 20 if facts.examples >= 5_000 else 40,
        "train.learning_rate": 3e-3,
    }


def _num_steps(facts: ExampleFacts, batch_tokens: int, *, epochs: int, least: int, most: int) -> int:
    """So many epochs, in steps; of a small file at least some hundred steps, of a large one at least two epochs."""
    each = max(1.0, facts.examples * facts.length * PADDING / batch_tokens)
    return round(max(least, min(epochs * each, max(most, 2 * each))))


@dataclass(frozen=True)
class SeriesFacts:
    """What a table of numbers is."""

    rows: int
    season: int

    @property
    def sentence(self) -> str:
        return f"{self.rows:,} rows, a season of {self.season}"


def series_facts(recipe: Recipe, files: Sequence[str]) -> SeriesFacts:
    series = read_table(recipe, files[0])
    return SeriesFacts(len(series), recipe.forecast.season or usual_season(series.times))


HISTORY = 100  # rows that exponential smoothing reads
AHEAD = {1: 6, 4: 8, 7: 28, 12: 12, 24: 48, 52: 13}  # rows by season: years, quarters, days, months, hours, weeks


def choose_forecast(task: Task, recipe: Recipe, files: Sequence[str]) -> tuple[str, Choices]:
    """How far to look ahead and back, what to hold out, and a network that a short series can teach."""
    facts = series_facts(recipe, files)
    horizon = max(1, min(AHEAD.get(facts.season, 2 * facts.season), facts.rows // 5))
    tiny, short = facts.rows < 400, facts.rows < 1000
    look_back = max(2, min(max(2 * facts.season, 2 * horizon, 0 if short else 96), facts.rows // 3))
    if recipe.model.smoothing is not None:  # reads all there is
        look_back = min(facts.rows, max(HISTORY, 5 * facts.season))
    return facts.sentence, {
        "forecast.horizon": horizon,
        "forecast.look_back": look_back,
        "forecast.patch": min(8, facts.season) if facts.season <= 12 else 8,
        "data.test": 0.0 if short else 0.1,
        "data.validation": min(1 / 3, max(0.1, 1.5 * horizon / facts.rows)),
        "model.encoder.size": 64 if short else 128,
        "train.batch_tokens": 64 * max(look_back, horizon) if short else 12288,
        "train.steps": 100 if tiny else 600 if short else 1000,
        "train.learning_rate": 1e-4 if tiny else 5e-3 if short else 1e-3,
        "train.ema_decay": 0.97 if short else 0.99,
        "train.validate_every": 20 if short else 50,
    }


def _num_words(value: Any) -> int:
    return len(value.split()) if isinstance(value, str) else len(value)


def _is_open(recipe: Recipe, path: str) -> bool:
    paths = LENGTHS if path in LENGTHS else (path,)
    has_section = value_of(recipe, path.rpartition(".")[0]) is not None
    return has_section and not any(is_named(recipe, each) for each in paths)


def _as_setting(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
