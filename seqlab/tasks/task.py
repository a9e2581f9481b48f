"""What a task is to the rest of the package: one record of how its models are built, used, scored and shown.

Nobody outside this room compares the name of a task: whoever needs something of it asks the task.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Files, Json, SourceType, TargetType
from seqlab.corpus.examples import Corpus
from seqlab.data.example import Example
from seqlab.data.store import TokenStore
from seqlab.decode.generate import Limits
from seqlab.distributed import ALONE, World
from seqlab.errors import UsageError
from seqlab.layers.transformer import BatchNorm
from seqlab.metrics.scores import ExampleScores, interval
from seqlab.models.interface import Memory
from seqlab.padded import Batch
from seqlab.recipe import DecodeConfig, Recipe
from seqlab.subject import Question, Subject
from seqlab.training.gradient import GradientLearner
from seqlab.training.run import Learner

Scores = dict[str, float]
Baselines = dict[str, Scores]  # by the name of the baseline
# Of answers in tokens or labels.
ANSWER_VIEWS = ("attention", "lens", "number", "surprisal", "gradients", "saliency", "what-if")
SCORED_AT_THE_END = 1000  # held-out examples, when a training ends
LOWER_IS_BETTER = ("loss", "mse", "mae", "rmse", "error")

NUMBERS_ARE_FOR_TAGGERS = (
    "numbers and angles are targets of a tagger with layers: target.kind, in a 'tag' recipe"
)


@runtime_checkable
class Answer(Protocol):
    """The answer to one input: as text, and with what else there is to know about it."""

    @property
    def input(self) -> str: ...

    @property
    def output(self) -> str: ...

    @property
    def details(self) -> Json: ...


@dataclass(frozen=True)
class Prediction:
    """An answer that is all text and numbers."""

    input: str
    output: str
    details: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Inputs to be answered, and how. `rows` number the inputs in their own requests: they key the sampling."""

    bundle: Bundle
    inputs: list[Any]
    decode: DecodeConfig
    seed: int = 0
    first_row: int = 0
    prefix: str = ""
    rows: Sequence[int] = (0,)


@dataclass(frozen=True)
class DecoderStart:
    """A decoder before its first token: what it has of the source, what it reads first, and where it must end."""

    memory: Memory
    tokens: list[int]
    limits: Limits


@dataclass(frozen=True)
class Scoring:
    """How a model is scored: with which search, whether case counts, and where the stored training part is."""

    decode: DecodeConfig | None = None
    lower: bool = False
    train: Path | None = None
    most: int | None = None
    world: World = ALONE

    def store(self, name: str) -> TokenStore | None:
        """A store of the training part, if it is beside the model."""
        path = None if self.train is None else self.train / f"train_{name}"
        return TokenStore.open(path) if path is not None and path.exists() else None


@dataclass(frozen=True)
class Report:
    """Scores of one evaluation beside those of the baselines; `baseline_note` says why a baseline is missing."""

    task: str
    num_examples: int
    scores: Json
    baselines: Baselines
    examples: tuple[dict[str, str], ...] = ()
    baseline_note: str = ""
    by_length: dict[str, dict[str, int | float]] = field(
        default_factory=dict
    )  # source tokens -> scores
    by_step: dict[str, list[float | None]] = field(
        default_factory=dict
    )  # scores of a forecast at each step ahead
    page: Callable[[str], str] | None = None  # an HTML page of the answers, given its title
    unit: str = "examples"  # what `num_examples` counts
    by_example: ExampleScores | None = (
        None  # what each example adds to the score that judges the task
    )

    def to_json(self) -> Json:
        # a score that is no number, such as the loss where no label is known, is null in JSON
        scores = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in self.scores.items()
        }
        table = {
            "task": self.task,
            "examples": self.num_examples,
            **scores,
            "baselines": self.baselines,
        }
        if self.by_example is not None and self.by_example.has_interval:
            table["interval"] = {self.by_example.score: list(interval(self.by_example))}
        some = {name: getattr(self, name) for name in ("by_length", "by_step", "baseline_note")}
        return table | {name: value for name, value in some.items() if value}


@runtime_checkable
class Data(Protocol):
    """Data with known answers, as a task scores it: examples, one long text, or the windows of a series."""

    def sample(self, most: int) -> "Data":
        """At most so many, from all of it."""

    def batch(self, bundle: Bundle, most: int) -> Batch:
        """The first few as the model reads them."""

    def example_inputs(self, bundle: Bundle, most: int) -> list[str]:
        """A few inputs as a person would type them."""

    def prediction_work(
        self, task: "Task", bundle: Bundle, most: int
    ) -> tuple[int, Callable[[], object]]:
        """A few inputs and the work of answering them, for whoever measures how fast that is; 0 if there are none."""


def score_held_out(task: "Task", bundle: Bundle, stores: Path, most: int) -> Report:
    """The scores on so many of the held-out examples, after adjusting what is adjusted then."""
    data = task.data_kind(bundle.recipe).data(task, bundle, (), stores).sample(most)
    task.calibrate(bundle, data)
    return task.evaluate(bundle, data, Scoring(train=stores))


@dataclass(frozen=True)
class DataKind:
    """How the user's files become batches to train on and data to score: examples, one long text, or a series."""

    # what is in the files, read as training would read them
    look: Callable[["Task", Recipe, Files], Json]
    # learn the codec from files and held-out files and store their rows in a folder; what an old model knows is kept
    prepare: Callable[["Task", Recipe, Files, Files, Path, Codec | None], Codec]
    # what `prepare` has stored, as batches
    open: Callable[[Recipe, Codec, Path], Corpus]
    # the data in files with known answers; without files, what training held out in the folder
    data: Callable[["Task", Bundle, Files, Path], Data]
    # the scores of a model whose training has ended, on so many examples, after adjusting what is adjusted then
    finish: Callable[["Task", Bundle, Path, int], Report] = score_held_out


def gradient_learner(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
    """Gradient descent on the batches of the training part."""
    if world.size > 1 and any(isinstance(module, BatchNorm) for module in network.modules()):
        raise UsageError(
            "a batch norm looks at the whole batch",
            hint="train with normalise=layer and without model.pooling_norm, or without torchrun.",
        )
    return GradientLearner(network, corpus.train, recipe.train, world)


def refuse_many_processes(recipe: Recipe, world: World) -> None:
    """EM and counting read the whole training part in one process."""
    if world.size > 1:
        raise UsageError(
            f"recipe '{recipe.name}' is fitted by one process", hint="train it without torchrun."
        )


@dataclass(frozen=True)
class Classical:
    """A model in place of encoder and decoder, such as [model.hmm]; `Any` are the settings of that section."""

    build: Callable[[Recipe, Any, Codec], nn.Module]
    learner: Callable[[Recipe, Any, nn.Module, Corpus], Learner]  # in one process
    views: tuple[str, ...] = ()  # where they are not those of a network


def refuse_decoding(bundle: Bundle, value: Any, decode: DecodeConfig) -> DecoderStart:
    """The refusal of a task whose models have no decoder."""
    raise UsageError(
        f"a '{bundle.recipe.task}' model writes no text", hint="ask it with `predict`."
    )


def no_subject(hint: str) -> Callable[[Question], Subject]:
    """The refusal of a task whose answers are neither tokens nor labels; `hint` says what shows them instead."""

    def refuse(question: Question) -> Subject:
        task = question.bundle.recipe.task
        raise UsageError(
            f"a '{task}' model gives no answer in tokens or labels to look into", hint=hint
        )

    return refuse


@dataclass(frozen=True)
class Task:
    """One task: a record of what it reads, builds, answers, scores and shows. Each is written in a file of its own.

    What a function of another task does as well is a default here, or a plain function that several tasks name.
    """

    name: str
    ladder: tuple[str, ...]  # recipes from simple to strong
    judged_by: tuple[str, ...]  # the names of its scores, the most telling first
    data_kind: Callable[[Recipe], DataKind]
    reads: Callable[[Recipe], SourceType]
    writes: Callable[[Recipe], TargetType]
    read: Callable[[Recipe, Files], Iterator[Example]]  # the examples in the user's files
    build: Callable[
        [Recipe, Codec], nn.Module
    ]  # the network, its first weights from torch's own generator
    predict: Callable[[Job], Sequence[Answer]]  # an answer to each input
    evaluate: Callable[[Bundle, Any, Scoring], Report]  # scores beside baselines
    subject: Callable[[Question], Subject]  # the model at work on one input, for the views
    # what kind of file it is, in words, and the settings that suit it where a recipe leaves them open
    choose: Callable[["Task", Recipe, Files], tuple[str, Mapping[str, Any]]] = (
        lambda task, recipe, files: ("", {})
    )
    # the recipe that trains in seconds and is trained beside a network; empty where there is none
    baseline: Callable[[Recipe], str] = lambda recipe: ""
    special_settings: tuple[
        str, ...
    ] = ()  # the settings of `tasks._special_settings` that its recipes may have
    parts: tuple[str, ...] = ("encoder",)  # the parts that its networks have
    check: Callable[[Recipe], None] = lambda recipe: (
        None
    )  # raises a ValueError where its own rules are broken
    learner: Callable[[Recipe, nn.Module, Corpus, World], Learner] = gradient_learner
    # the models that may stand in place of its layers, by their sections of the recipe
    classical: Mapping[str, Classical] = field(default_factory=dict)
    validate: Callable[[Bundle, Any], Scores] = (
        lambda bundle, data: {}
    )  # while training, beside the loss
    calibrate: Callable[[Bundle, Any], None] = lambda bundle, data: (
        None
    )  # how sure it may be, from held-out data
    decoder_start: Callable[[Bundle, Any, DecodeConfig], DecoderStart] = (
        refuse_decoding  # a decoder that is about to write its answer
    )
    views: Callable[[Bundle], tuple[str, ...]] = (
        lambda bundle: ()
    )  # those that fit it, the most telling first
    fine_tuning_recipe: str = ""  # the recipe that starts from another model
    recurrent_recipe: str = ""  # the recipe whose cells can be exchanged
    predict_arguments: str = ""  # what follows `seqlab predict MODEL` on the command line

    def of(self, recipe: Recipe) -> "Task":
        """The task as it is for a recipe that has another model in place of layers."""
        section = recipe.model.classical
        if section not in self.classical:
            return self
        model, settings = self.classical[section], getattr(recipe.model, section)

        def learner(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
            refuse_many_processes(recipe, world)
            return model.learner(recipe, settings, network, corpus)

        return replace(
            self,
            build=lambda recipe, codec: model.build(recipe, settings, codec),
            learner=learner,
            views=lambda bundle: model.views or self.views(bundle),
        )
