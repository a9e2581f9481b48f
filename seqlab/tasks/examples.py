"""Functions for tasks that learn from examples: preparing data, encoding inputs, losses, and answering in batches."""

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Files, Row, SourceType, padded
from seqlab.codecs.labels import labels_in, labels_of
from seqlab.codecs.vectors import VectorSource
from seqlab.corpus.examples import held_out, open_examples, prepare_examples
from seqlab.data.batching import plan_in_order
from seqlab.data.example import Example, Picture
from seqlab.data.lines import display_name, lines
from seqlab.distributed import SINGLE_PROCESS, World
from seqlab.errors import DataError, warn
from seqlab.padded import Batch, Padded, tensor_of
from seqlab.recipe import DecodeConfig, Recipe, TransformerConfig
from seqlab.tasks.conformal import check_limits
from seqlab.tasks.data_summary import summarise_examples
from seqlab.tasks.task import Answer, DataKind, Job, Prediction, Scores, Task
from seqlab.training.loss import mean_loss

# tokens of a batch in prediction and evaluation
BUDGET = 8192
T = TypeVar("T")


@dataclass(frozen=True)
class Examples:
    """Examples with known answers."""

    all: list[Example]

    def sample(self, most: int) -> "Examples":
        """Take evenly spread examples, as a file may be sorted; but the first pictures, whose captions are adjacent."""
        total = len(self.all)
        if total <= most or isinstance(self.all[0].source, Picture):
            return Examples(self.all[:most])
        return Examples([self.all[number * total // most] for number in range(most)])

    def batch(self, bundle: Bundle, most: int) -> Batch:
        return next(example_batches(bundle, self.all[:most]))

    @property
    def sources(self) -> list[Any]:
        """The source of each example."""
        return [example.source for example in self.all]

    def example_inputs(self, bundle: Bundle, most: int) -> list[str]:
        inputs = (input_of(bundle.codec, example) for example in self.all[: 20 * most])
        texts = (bundle.codec.source.typed(value) for value in inputs)
        distinct = dict.fromkeys(text for text in texts if text)
        return list(distinct)[:most]

    def prediction_work(
        self, task: Task, bundle: Bundle, most: int
    ) -> tuple[int, Callable[[], object]]:
        inputs = [input_of(bundle.codec, example) for example in self.all[:most]]
        answer_inputs(task.predict, bundle, inputs[:2])
        return len(inputs), lambda: answer_inputs(task.predict, bundle, inputs)


def input_of(codec: Codec, example: Example) -> Any:
    """Return the input of an example: its source, or its text for a model without a source."""
    return example.source if codec.reads else example.target


def _prepare(
    task: Task, recipe: Recipe, files: Files, valid: Files, folder: Path, old: Codec | None
) -> Codec:
    read, reads, writes = partial(task.read, recipe), task.reads(recipe), task.writes(recipe)
    return prepare_examples(recipe, read, reads, writes, files, valid, folder, old)


def _data(task: Task, bundle: Bundle, files: Files, stores: Path) -> Examples:
    return Examples(list(task.read(bundle.recipe, files) if files else held_out(stores)))


# the data kind of texts, pairs, tagged sentences, and pictures with captions
EXAMPLES = DataKind(summarise_examples, _prepare, open_examples, _data)


def of_examples(recipe: Recipe) -> DataKind:
    """Return the data kind of most tasks."""
    return EXAMPLES


def read_lines(recipe: Recipe, files: Files) -> Iterator[tuple[str, str]]:
    """Yield the lines of text files that are not blank, each after its file and line number."""
    for path in files:
        for number, line in lines(path, recipe.data.encoding):
            if line.strip():
                yield f"{display_name(path)}:{number}", line


def read_sources(recipe: Recipe, files: Files) -> Iterator[Example]:
    """Yield the lines of text files as examples with a source and no target."""
    return (Example(line, "", where) for where, line in read_lines(recipe, files))


def vectors_or_text(recipe: Recipe, text: SourceType) -> SourceType:
    """Return the source of feature vectors if the recipe has source.kind = "vectors", else the given one."""
    return VectorSource if recipe.source.kind == "vectors" else text


def encode_inputs(bundle: Bundle, inputs: Sequence[Any], *, first_row: int = 0) -> list[Row]:
    """Encode inputs as rows for the model; rows that are too long are cut, with a warning, or refused."""
    source = bundle.codec.source
    rows = source.encode([source.load(value) for value in inputs])
    return limit_rows(bundle.recipe, rows, first_row=first_row)


def limit_rows(
    recipe: Recipe,
    rows: list[Row],
    *,
    first_row: int,
    limit: Literal["max_source", "max_target"] = "max_source",
) -> list[Row]:
    """Cut rows to the maximum length of the recipe, with a warning, or refuse them, as data.too_long says."""
    most: int = getattr(recipe.data, limit)
    too_long = [index for index, row in enumerate(rows) if len(row) > most]
    if not too_long:
        return rows
    first = too_long[0]
    message = f"line {first_row + first + 1}: {len(rows[first])} tokens, more than the {most} of data.{limit}"
    if recipe.data.too_long == "refuse":
        raise DataError(message, hint=f"shorten the line, or train with a larger data.{limit}.")
    more = f" (and {len(too_long) - 1} more)" if len(too_long) > 1 else ""
    warn(f"{message}; the rest was not read{more}")
    return [row[:most] for row in rows]


def num_unread(bundle: Bundle, value: Any) -> dict[str, int]:
    """Return how many tokens of a text exceed data.max_source and were not read, as a detail of the answer."""
    most = bundle.recipe.data.max_source
    # a token has at least one byte, and a start and an end token may be added
    if not isinstance(value, str) or len(value.encode("utf-8", "surrogatepass")) + 2 <= most:
        return {}
    excess = len(bundle.codec.source.encode([value])[0]) - most
    return {"unread": excess} if excess > 0 else {}


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Group row numbers into batches of similar length, each within the budget of tokens."""
    if lengths:
        for rows in plan_in_order(np.asarray(lengths, dtype=np.int64)[:, None], budget=BUDGET):
            yield rows.tolist()


@torch.inference_mode()
def answers_in_order(
    rows: Sequence[Row], answer: Callable[[Padded, list[int]], Iterable[T]]
) -> list[T]:
    """Answer rows in batches and return the answers in the order of the rows.

    `answer` is called with a padded batch of rows of similar length, and with the numbers of these rows.
    """
    answers: dict[int, T] = {}
    for numbers in batches([len(row) for row in rows]):
        batch = padded([rows[number] for number in numbers])
        answers |= zip(numbers, answer(batch, numbers), strict=True)
    return [answers[number] for number in range(len(rows))]


def example_batches(bundle: Bundle, examples: list[Example]) -> Iterator[Batch]:
    """Encode examples as batches of similar length."""
    codec = bundle.codec
    most = bundle.recipe.data.max_source
    positions = max_positions(bundle.recipe)
    rows = [
        (source[:most], codec.target.cut(target, source=most, target=sys.maxsize))
        for source, target in codec.encode(examples)
    ]
    for example, (_, target_row) in zip(examples, rows, strict=True):
        # the decoder does not read the last token
        if len(target_row) > positions + 1:
            raise DataError(
                f"{example.where}: {len(target_row)} tokens, and this model learned {positions} positions",
                hint="shorten it, or train with a larger data.max_target.",
            )
    lengths = np.asarray([[len(source), len(target)] for source, target in rows], dtype=np.int64)
    for numbers in plan_in_order(lengths, budget=BUDGET):
        source = padded([rows[number][0] for number in numbers]) if codec.reads else None
        target = padded([rows[number][1] for number in numbers]) if codec.writes else None
        yield Batch(rows=tensor_of(numbers), source=source, target=target)


def max_positions(recipe: Recipe) -> int:
    """Return how many positions a decoder can read; only learned position embeddings limit them."""
    stack = recipe.model.decoder
    learned = isinstance(stack, TransformerConfig) and stack.positions == "learned"
    return recipe.data.max_target + 2 if learned else sys.maxsize


def example_loss(bundle: Bundle, examples: list[Example], world: World = SINGLE_PROCESS) -> Scores:
    """Return cross-entropy and perplexity of the known answers."""
    return mean_loss(bundle.model, example_batches(bundle, examples), carries=False, world=world)


def text_loss(bundle: Bundle, examples: list[Example], world: World) -> Scores:
    """Return cross-entropy, perplexity and bits per token of a model that predicts text."""
    return with_bits(example_loss(bundle, examples, world))


def with_bits(scores: Scores) -> Scores:
    """Add the bits per token to a loss in nats."""
    return scores | {"bits_per_token": scores["loss"] / math.log(2)}


def mistakes(
    bundle: Bundle, examples: list[Example], predicted: list[str], gold: list[str], most: int = 10
) -> tuple[dict[str, str], ...]:
    """Return the first wrong answers, with the expected ones."""
    wrong = (
        {"input": bundle.codec.source.show(example.source), "output": output, "expected": expected}
        for example, output, expected in zip(examples, predicted, gold, strict=True)
        if output != expected
    )
    return tuple(islice(wrong, most))


def warn_of_new_labels(bundle: Bundle, examples: list[Example]) -> None:
    """Warn of labels that were not in the training data: no answer can be right there."""
    known = {*labels_in(bundle.codec).names, bundle.recipe.data.no_label}
    new = Counter(label for e in examples for label in labels_of(e) if label not in known)
    if new:
        first = next(e.where for e in examples if set(labels_of(e)) & set(new))
        names = ", ".join(f"'{name}' ({count})" for name, count in new.most_common(5))
        warn(f"{first}: labels never seen in training count as wrong: {names}")


def answer_inputs(
    predict: Callable[[Job], Sequence[Answer]],
    bundle: Bundle,
    inputs: Sequence[Any],
    *,
    decode: DecodeConfig | None = None,
    seed: int = 0,
    first_row: int = 0,
    prefix: str = "",
    rows: Sequence[int] | None = None,
    world: World = SINGLE_PROCESS,
) -> Sequence[Answer]:
    """Answer each input and return the answers in the same order; with several processes, each answers a share.

    `first_row` is the number of the first input in a larger job. It keys the sampling, so that answers do not
    depend on how a job is divided into calls. If inputs of several requests are answered together, `rows` are
    their numbers within the requests. Every translation begins with `prefix`.
    """
    numbers = range(first_row, first_row + len(inputs)) if rows is None else rows
    settings = decode or bundle.recipe.decode
    if settings.conformal is not None:
        check_limits(bundle)

    def answer(share: Sequence[Any], begin: int) -> Sequence[Answer]:
        own = numbers[begin : begin + len(share)]
        return predict(Job(bundle, list(share), settings, seed, first_row + begin, prefix, own))

    if world.size == 1:
        return answer(inputs, 0)
    shared = world.map_shares(
        inputs, lambda share, begin: [(a.input, a.output, a.details) for a in answer(share, begin)]
    )
    return [Prediction(*each) for each in shared]
