"""The interface of a task: one record of how its models are built, trained, used, scored and explained.

Code outside `seqlab/tasks` uses this record and never compares the name of a task.
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
from seqlab.distributed import SINGLE_PROCESS, World
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
# the views of models whose outputs are tokens or labels
ANSWER_VIEWS = ("attention", "lens", "number", "surprisal", "gradients", "saliency", "what-if")
# the maximum number of held-out examples that a new model is evaluated on
SCORED_AT_THE_END = 1000
LOWER_IS_BETTER = ("loss", "mse", "mae", "rmse", "error")

NUMBERS_ARE_FOR_TAGGERS = (
    "numbers and angles are targets of a tagger with layers: target.kind, in a 'tag' recipe"
)


@runtime_checkable
class Answer(Protocol):
    """The model's answer to one input, as text and with details."""

    @property
    def input(self) -> str: ...

    @property
    def output(self) -> str: ...

    @property
    def details(self) -> Json: ...


@dataclass(frozen=True)
class Prediction:
    """An answer made of text and numbers."""

    input: str
    output: str
    details: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A batch of inputs and the options for answering them.

    `rows` are the numbers of the inputs within their requests; they key the sampling.
    """

    bundle: Bundle
    inputs: list[Any]
    decode: DecodeConfig
    seed: int = 0
    first_row: int = 0
    prefix: str = ""
    rows: Sequence[int] = (0,)


@dataclass(frozen=True)
class DecoderStart:
    """The inputs of a decoder before its first step: encoder memory, initial tokens, and length limits."""

    memory: Memory
    tokens: list[int]
    limits: Limits


@dataclass(frozen=True)
class Scoring:
    """The options of an evaluation: decoding, case, and the folder of the stored training part for baselines."""

    decode: DecodeConfig | None = None
    lower: bool = False
    train: Path | None = None
    most: int | None = None
    world: World = SINGLE_PROCESS

    def store(self, name: str) -> TokenStore | None:
        """Open a store of the training part, if it was kept with the model."""
        path = None if self.train is None else self.train / f"train_{name}"
        return TokenStore.open(path) if path is not None and path.exists() else None


@dataclass(frozen=True)
class Report:
    """The scores of one evaluation and of the baselines; `baseline_note` says why a baseline is missing."""

    task: str
    num_examples: int
    scores: Json
    baselines: Baselines
    examples: tuple[dict[str, str], ...] = ()
    baseline_note: str = ""
    # scores by the number of source tokens
    by_length: dict[str, dict[str, int | float]] = field(default_factory=dict)
    # scores of a forecast at each step of the horizon
    by_step: dict[str, list[float | None]] = field(default_factory=dict)
    # makes an HTML page of the answers from its title
    page: Callable[[str], str] | None = None
    unit: str = "examples"  # what `num_examples` counts
    # the contribution of each example to the main score of the task
    by_example: ExampleScores | None = None

    def to_json(self) -> Json:
        table = {
            "task": self.task,
            "examples": self.num_examples,
            **{name: _finite_or_none(value) for name, value in self.scores.items()},
            "baselines": self.baselines,
        }
        if self.by_example is not None and self.by_example.has_interval:
            table["interval"] = {self.by_example.score: list(interval(self.by_example))}
        for name in ("by_length", "by_step", "baseline_note"):
            if value := getattr(self, name):
                table[name] = value
        return table


def _finite_or_none(score: Any) -> Any:
    """JSON has no NaN, which is the loss if no label is known."""
    return None if isinstance(score, float) and not math.isfinite(score) else score


@runtime_checkable
class Data(Protocol):
    """Data with known answers to evaluate a model on: examples, one long text, or the windows of a series."""

    def sample(self, most: int) -> "Data":
        """Return a part of the data, at most this many examples, spread over all of it."""

    def batch(self, bundle: Bundle, most: int) -> Batch:
        """Return the first examples as a batch for the model."""

    def example_inputs(self, bundle: Bundle, most: int) -> list[str]:
        """Return a few inputs as a user would type them."""

    def prediction_work(
        self, task: "Task", bundle: Bundle, most: int
    ) -> tuple[int, Callable[[], object]]:
        """Return a function that answers some inputs, and how many, to measure the speed; 0 if there are none."""


def calibrate_and_evaluate(task: "Task", bundle: Bundle, stores: Path, most: int) -> Report:
    """Calibrate a trained model on held-out examples and evaluate it on them."""
    data = task.data_kind(bundle.recipe).data(task, bundle, (), stores).sample(most)
    task.calibrate(bundle, data)
    return task.evaluate(bundle, data, Scoring(train=stores))


@dataclass(frozen=True)
class DataKind:
    """A way of reading files, for training and for evaluation: as examples, as one long text, or as a series."""

    # summarise the contents of files, read as in training
    summarise: Callable[["Task", Recipe, Files], Json]
    # learn the codec from training and validation files, starting from the codec of an old model if there is one,
    # and store the encoded rows in a folder
    prepare: Callable[["Task", Recipe, Files, Files, Path, Codec | None], Codec]
    # open the stored rows as batches
    open: Callable[[Recipe, Codec, Path], Corpus]
    # read files with known answers; without files, the held-out part in the folder
    data: Callable[["Task", Bundle, Files, Path], Data]
    # calibrate a trained model and evaluate it on this many held-out examples
    finish: Callable[["Task", Bundle, Path, int], Report] = calibrate_and_evaluate


def gradient_learner(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
    """Train a network by gradient descent on the batches of the training part."""
    if world.size > 1 and any(isinstance(module, BatchNorm) for module in network.modules()):
        raise UsageError(
            "a batch norm needs the whole batch in one process",
            hint="train with normalise=layer and without model.pooling_norm, or without torchrun.",
        )
    return GradientLearner(network, corpus.train, recipe.train, world)


def refuse_many_processes(recipe: Recipe, world: World) -> None:
    """Raise an error for distributed training of a model whose fitting reads the whole training part at once."""
    if world.size > 1:
        raise UsageError(
            f"recipe '{recipe.name}' is fitted by one process", hint="train it without torchrun."
        )


@dataclass(frozen=True)
class Classical:
    """A model that replaces encoder and decoder, such as [model.hmm]; `Any` is the type of that section."""

    build: Callable[[Recipe, Any, Codec], nn.Module]
    # trains in one process only
    learner: Callable[[Recipe, Any, nn.Module, Corpus], Learner]
    views: tuple[str, ...] = ()  # if they differ from those of a network


def refuse_decoding(bundle: Bundle, value: Any, decode: DecodeConfig) -> DecoderStart:
    """Raise the error of tasks whose models have no decoder."""
    raise UsageError(f"a '{bundle.recipe.task}' model writes no text", hint="use `predict`.")


def no_subject(hint: str) -> Callable[[Question], Subject]:
    """Return the `subject` of tasks whose answers are neither tokens nor labels: it raises an error with this hint."""

    def refuse(question: Question) -> Subject:
        task = question.bundle.recipe.task
        raise UsageError(f"a '{task}' model has no tokens or labels to explain", hint=hint)

    return refuse


@dataclass(frozen=True)
class Task:
    """A task as a record of functions; each task is defined in a file of its own.

    Functions that most tasks share are the defaults; others are imported by the tasks that need them.
    """

    name: str
    ladder: tuple[str, ...]  # recipes from simple to strong
    # the names of its scores, the most important one first
    judged_by: tuple[str, ...]
    data_kind: Callable[[Recipe], DataKind]
    reads: Callable[[Recipe], SourceType]
    writes: Callable[[Recipe], TargetType]
    read: Callable[[Recipe, Files], Iterator[Example]]  # read the examples in the user's files
    # build the network, with initial weights from torch's generator
    build: Callable[[Recipe, Codec], nn.Module]
    predict: Callable[[Job], Sequence[Answer]]  # answer each input
    evaluate: Callable[[Bundle, Any, Scoring], Report]  # score the model and its baselines
    subject: Callable[[Question], Subject]  # run the model on one input, for the views
    # describe the files in words, and choose the settings that a recipe leaves open
    choose: Callable[["Task", Recipe, Files], tuple[str, Mapping[str, Any]]] = (
        lambda task, recipe, files: ("", {})
    )
    # the name of the recipe for the files where the user names none, given the task's default recipe
    recipe_for: Callable[["Task", Recipe, Files], str] = lambda task, recipe, files: recipe.name
    # the recipe of the baseline that is trained with a network, or an empty string
    baseline: Callable[[Recipe], str] = lambda recipe: ""
    # the settings of `tasks._special_settings` that its recipes may use
    special_settings: tuple[str, ...] = ()
    parts: tuple[str, ...] = ("encoder",)  # the parts that its networks need
    # raise a ValueError for a recipe that breaks the rules of the task
    check: Callable[[Recipe], None] = lambda recipe: None
    learner: Callable[[Recipe, nn.Module, Corpus, World], Learner] = gradient_learner
    # the models that may replace its network, by their sections of the recipe
    classical: Mapping[str, Classical] = field(default_factory=dict)
    # scores of each validation during training, in addition to the loss
    validate: Callable[[Bundle, Any], Scores] = lambda bundle, data: {}
    # calibrate the model's probabilities on held-out data
    calibrate: Callable[[Bundle, Any], None] = lambda bundle, data: None
    # prepare the decoder for an input
    decoder_start: Callable[[Bundle, Any, DecodeConfig], DecoderStart] = refuse_decoding
    # the views that suit a model, the most important first
    views: Callable[[Bundle], tuple[str, ...]] = lambda bundle: ()
    fine_tuning_recipe: str = ""  # the recipe that starts from a pretrained model
    # the recipe whose recurrent cell `compare` can replace
    recurrent_recipe: str = ""
    predict_arguments: str = ""  # what follows `seqlab predict MODEL` on the command line

    def of(self, recipe: Recipe) -> "Task":
        """Return the task for a recipe; a classical model replaces how it builds, learns and is viewed."""
        section = recipe.model.classical
        if section not in self.classical:
            return self
        model = self.classical[section]
        settings = getattr(recipe.model, section)

        def learner(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
            refuse_many_processes(recipe, world)
            return model.learner(recipe, settings, network, corpus)

        return replace(
            self,
            build=lambda recipe, codec: model.build(recipe, settings, codec),
            learner=learner,
            views=lambda bundle: model.views or self.views(bundle),
        )
