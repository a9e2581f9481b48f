"""What a task is to the rest of the package: one object that knows how its models are built, used, scored and shown.

Nobody outside this room compares the name of a task: whoever needs something of it asks the task.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, SourceType, TargetType
from seqlab.corpus.examples import Corpus
from seqlab.data.sources import Example
from seqlab.decode.generate import Limits
from seqlab.models.interface import Memory
from seqlab.padded import Batch
from seqlab.recipe import Decode, Recipe
from seqlab.subject import Question, Subject
from seqlab.training.run import Learner
from seqlab.world import ALONE, World

# Of answers in tokens or labels.
ANSWER_VIEWS = ("attention", "lens", "number", "surprisal", "gradients", "saliency", "what-if")
LOWER_IS_BETTER = ("loss", "mse", "mae", "rmse", "error")


@runtime_checkable
class Answer(Protocol):
    """The answer to one input: as text, and with what else there is to know about it."""

    @property
    def input(self) -> str: ...

    @property
    def output(self) -> str: ...

    @property
    def details(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Prediction:
    """An answer that is all text and numbers."""

    input: str
    output: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Inputs to be answered, and how. `rows` number the inputs in their own requests: they key the sampling."""

    bundle: Bundle
    inputs: list[Any]
    decode: Decode
    seed: int = 0
    first_row: int = 0
    prefix: str = ""
    rows: Sequence[int] = (0,)


@dataclass(frozen=True)
class Opening:
    """A decoder before its first token: what it has of the source, what it reads first, and where it must end."""

    memory: Memory
    tokens: list[int]
    limits: Limits


@dataclass(frozen=True)
class Scoring:
    """How a model is scored: with which search, whether case counts, and where the stored training part is."""

    decode: Decode | None = None
    lower: bool = False
    train: Path | None = None
    most: int | None = None
    world: World = ALONE


@dataclass(frozen=True)
class Report:
    """Scores of one evaluation beside those of the baselines; `floor_note` says why a baseline is missing."""

    task: str
    num_examples: int
    scores: dict[str, Any]
    floors: dict[str, dict[str, float]]
    examples: tuple[dict[str, str], ...] = ()
    floor_note: str = ""
    by_length: dict[str, dict[str, int | float]] = field(default_factory=dict)  # source tokens -> scores
    by_step: dict[str, list[float | None]] = field(default_factory=dict)  # scores of a forecast at each step ahead
    page: Callable[[str], str] | None = None  # an HTML page of the answers, given its title
    unit: str = "examples"  # what `num_examples` counts

    def to_json(self) -> dict[str, Any]:
        # a score that is no number, such as the loss where no label is known, is null in JSON
        scores = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in self.scores.items()
        }
        table = {"examples": self.num_examples, **scores, "floors": self.floors}
        table |= {"by_length": self.by_length} if self.by_length else {}
        table |= {"by_step": self.by_step} if self.by_step else {}
        return {"task": self.task, **table, **({"floor_note": self.floor_note} if self.floor_note else {})}


@runtime_checkable
class Data(Protocol):
    """Data with known answers, as a task scores it: examples, one long text, or the windows of a series."""

    def some(self, most: int) -> "Data":
        """At most so many, from all of it."""

    def batch(self, bundle: Bundle, most: int) -> Batch:
        """The first few as the model reads them."""

    def examples(self) -> list[Example]:
        """Its examples; a UsageError where it has none."""

    def typed(self, bundle: Bundle, most: int) -> list[str]:
        """A few inputs as a person would type them."""

    def timed(self, task: "Task", bundle: Bundle, most: int) -> tuple[int, Callable[[], object]]:
        """A few inputs and the work of answering them, for whoever measures how fast that is; 0 if there are none."""


@runtime_checkable
class DataKind(Protocol):
    """How the user's files become batches to train on and data to score: examples, one long text, or a series."""

    def look(self, task: "Task", recipe: Recipe, files: Sequence[str]) -> dict[str, Any]:
        """What is in the files, read as training would read them."""

    def prepare(
        self,
        task: "Task",
        recipe: Recipe,
        files: Sequence[str],
        valid: Sequence[str],
        folder: Path,
        old: Codec | None,
    ) -> Codec:
        """Learn the codec from the files and store their rows in `folder`; what an `old` model knows is kept."""

    def open(self, recipe: Recipe, codec: Codec, folder: Path) -> Corpus:
        """What `prepare` has stored, as batches."""

    def data(self, task: "Task", bundle: Bundle, files: Sequence[str], stores: Path) -> Data:
        """The data in files with known answers; without files, what training held out in `stores`."""

    def finish(self, task: "Task", bundle: Bundle, stores: Path, most: int | None = None) -> Report:
        """The scores of a model whose training has ended, after adjusting what is adjusted then.

        `most` bounds the examples that are scored, where time is limited.
        """


@runtime_checkable
class Task(Protocol):
    """One task. Each is a class of its own in a file of its own; what several share are plain functions."""

    name: str
    tuned: str  # the recipe that starts from another model; empty where there is none
    recurrent: str  # the recipe whose cells can be exchanged; empty where there is none
    ask: str  # what follows `seqlab predict MODEL` on the command line

    @property
    def ladder(self) -> tuple[str, ...]:
        """Recipes from simple to strong."""

    @property
    def judged_by(self) -> tuple[str, ...]:
        """The names of its scores, the most telling first."""

    def check(self, recipe: Recipe) -> None:
        """Raise a ValueError that says which part of a recipe does not fit the task."""

    def data_kind(self, recipe: Recipe) -> DataKind: ...

    def reads(self, recipe: Recipe) -> SourceType: ...

    def writes(self, recipe: Recipe) -> TargetType: ...

    def read(self, recipe: Recipe, files: Sequence[str]) -> Iterator[Example]:
        """The examples in the user's files."""

    def build(self, recipe: Recipe, codec: Codec) -> nn.Module:
        """The network with its first weights, drawn from torch's own generator."""

    def learner(self, recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
        """How it learns: gradient descent, EM or counting."""

    def validate(self, bundle: Bundle, data: Any) -> dict[str, float]:
        """What is scored on held-out data while training, beside the loss."""

    def predict(self, job: Job) -> Sequence[Answer]:
        """An answer to each input."""

    def evaluate(self, bundle: Bundle, data: Any, scoring: Scoring) -> Report:
        """Scores beside baselines."""

    def opening(self, bundle: Bundle, value: Any, decode: Decode) -> Opening:
        """A decoder that is about to write its answer; a UsageError for models that write no text."""

    def subject(self, question: Question) -> Subject:
        """The model at work on one input, for the views; a UsageError where there is nothing to look into."""

    def views(self, bundle: Bundle) -> tuple[str, ...]:
        """The views that fit what this task does, the most telling first."""


@dataclass(frozen=True)
class Finding:
    """One question, its number, and whether it gives cause for concern."""

    question: str
    number: float
    well: bool
    said: str
    remedy: str = ""


def beside_floor(task: Task, scores: Mapping[str, Any], floors: Mapping[str, Mapping[str, float]]) -> Iterator[Finding]:
    """Is the score by which a task is judged better than the best of its baselines? Nothing where there is none."""
    there = [name for name in task.judged_by if name in scores and any(name in floor for floor in floors.values())]
    if not there:
        return
    name = next((name for name in there if scores[name]), there[0])  # answers of less than four words have no BLEU
    others = {floor: found[name] for floor, found in floors.items() if name in found}
    ours, less = float(scores[name]), name in LOWER_IS_BETTER
    floor = min(others, key=lambda f: others[f]) if less else max(others, key=lambda f: others[f])
    well = (ours < others[floor] if less else ours > others[floor]) and math.isfinite(ours)
    yield Finding(
        "is it better than its floor?",
        ours,
        well,
        f"its {name} is {ours:.4g}, that of '{floor}' {others[floor]:.4g}",
        "the simple thing is as good: train longer (--set train.minutes=10), on more data, or use it.",
    )
