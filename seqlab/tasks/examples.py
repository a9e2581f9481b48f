"""What tasks share that learn from examples: preparing, encoding inputs, losses, and what to show of them."""

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
from seqlab.distributed import ALONE, World
from seqlab.errors import DataError, UsageError, warn
from seqlab.padded import Batch, Padded, tensor_of
from seqlab.recipe import DecodeConfig, Recipe, TransformerConfig
from seqlab.subject import Question, Subject
from seqlab.tasks.conformal import check_limits
from seqlab.tasks.data_summary import summarise_examples
from seqlab.tasks.task import Answer, DataKind, Job, Prediction, Scores, Task
from seqlab.training.loss import mean_loss

BUDGET = 8192  # tokens read together
T = TypeVar("T")


@dataclass(frozen=True)
class Examples:
    """Examples with known answers."""

    all: list[Example]

    def sample(self, most: int) -> "Examples":
        """So many from end to end, for a file may be sorted; the first pictures, whose captions stand together."""
        if len(self.all) <= most or isinstance(self.all[0].source, Picture):
            return Examples(self.all[:most])
        return Examples([self.all[place * len(self.all) // most] for place in range(most)])

    def batch(self, bundle: Bundle, most: int) -> Batch:
        return next(example_batches(bundle, self.all[:most]))

    @property
    def sources(self) -> list[Any]:
        return [example.source for example in self.all]

    def example_inputs(self, bundle: Bundle, most: int) -> list[str]:
        inputs = (input_of(bundle.codec, example) for example in self.all[: 20 * most])
        texts = (bundle.codec.source.typed(each) for each in inputs)
        return list(dict.fromkeys(filter(None, texts)))[:most]

    def prediction_work(
        self, task: Task, bundle: Bundle, most: int
    ) -> tuple[int, Callable[[], object]]:
        inputs = [input_of(bundle.codec, example) for example in self.all[:most]]
        answer_inputs(task.predict, bundle, inputs[:2])
        return len(inputs), lambda: answer_inputs(task.predict, bundle, inputs)


def input_of(codec: Codec, example: Example) -> Any:
    """What a model is asked: its source, or its text where that is all there is."""
    return example.source if codec.reads else example.target


def _prepare(
    task: Task, recipe: Recipe, files: Files, valid: Files, folder: Path, old: Codec | None
) -> Codec:
    read, reads, writes = partial(task.read, recipe), task.reads(recipe), task.writes(recipe)
    return prepare_examples(recipe, read, reads, writes, files, valid, folder, old)


def _data(task: Task, bundle: Bundle, files: Files, stores: Path) -> Examples:
    return Examples(list(task.read(bundle.recipe, files) if files else held_out(stores)))


# files of examples: texts, pairs, tagged sentences, pictures with captions
EXAMPLES = DataKind(summarise_examples, _prepare, open_examples, _data)


def of_examples(recipe: Recipe) -> DataKind:
    """The kind of data of most tasks."""
    return EXAMPLES


def read_lines(recipe: Recipe, files: Files) -> Iterator[tuple[str, str]]:
    """Lines of plain text that are not blank, each after the place where it stands."""
    for path in files:
        for number, line in lines(path, recipe.data.encoding):
            if line.strip():
                yield f"{display_name(path)}:{number}", line


def read_sources(recipe: Recipe, files: Files) -> Iterator[Example]:
    """The same lines as examples of a model that reads them."""
    return (Example(line, "", where) for where, line in read_lines(recipe, files))


def vectors_or_text(recipe: Recipe, written: SourceType) -> SourceType:
    """Feature vectors if the recipe asks for them, else what is written."""
    return VectorSource if recipe.source.kind == "vectors" else written


def encode_inputs(bundle: Bundle, inputs: Sequence[Any], *, first_row: int = 0) -> list[Row]:
    """The rows that a model reads for these inputs; what is too long is cut, with a warning, or refused."""
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
    """Rows no longer than the model was trained for: cut, with a warning, or refused, as the recipe says."""
    most: int = getattr(recipe.data, limit)
    long = [place for place, row in enumerate(rows) if len(row) > most]
    if not long:
        return rows
    message = f"line {first_row + long[0] + 1}: {len(rows[long[0]])} tokens, more than the {most} of data.{limit}"
    if recipe.data.too_long == "refuse":
        raise DataError(message, hint=f"shorten the line, or train with a larger data.{limit}.")
    more = f" (and {len(long) - 1} more)" if len(long) > 1 else ""
    warn(f"{message}; the rest was not read{more}")
    return [row[:most] for row in rows]


def num_unread(bundle: Bundle, value: Any) -> dict[str, int]:
    """How many tokens at the end of a text were not read because there are too many; nothing if all were."""
    most = bundle.recipe.data.max_source
    if not isinstance(value, str) or len(value.encode("utf-8", "surrogatepass")) + 2 <= most:
        return {}  # a token is a byte at least, and two may frame a text
    more = len(bundle.codec.source.encode([value])[0]) - most
    return {"unread": more} if more > 0 else {}


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of rows of similar length together, up to a budget of tokens."""
    if lengths:
        for rows in plan_in_order(np.asarray(lengths, dtype=np.int64)[:, None], budget=BUDGET):
            yield rows.tolist()


@torch.inference_mode()
def answers_in_order(
    rows: Sequence[Row], answer: Callable[[Padded, list[int]], Iterable[T]]
) -> list[T]:
    """An answer to each row; `answer` is called with rows of similar length, padded, and with their places."""
    answers: dict[int, T] = {}
    for places in batches([len(row) for row in rows]):
        answers |= zip(
            places, answer(padded([rows[place] for place in places]), places), strict=True
        )
    return [answers[place] for place in range(len(rows))]


def example_batches(bundle: Bundle, examples: list[Example]) -> Iterator[Batch]:
    """Examples as the model reads them, those of similar length together."""
    codec, most, longest = bundle.codec, bundle.recipe.data.max_source, max_positions(bundle.recipe)
    rows = [
        (source[:most], codec.target.cut(target, source=most, target=sys.maxsize))
        for source, target in codec.encode(examples)
    ]
    for example, (_, written) in zip(examples, rows, strict=True):
        if len(written) > longest + 1:  # the last token is written, not read
            raise DataError(
                f"{example.where}: {len(written)} tokens, and this model learned {longest} positions",
                hint="shorten it, or train with a larger data.max_target.",
            )
    lengths = np.asarray([[len(source), len(target)] for source, target in rows], dtype=np.int64)
    for together in plan_in_order(lengths, budget=BUDGET):
        source = padded([rows[i][0] for i in together]) if codec.reads else None
        target = padded([rows[i][1] for i in together]) if codec.writes else None
        yield Batch(rows=tensor_of(together), source=source, target=target)


def max_positions(recipe: Recipe) -> int:
    """How many positions a decoder can read: as many as it learned, or any number where it learned none."""
    stack = recipe.model.decoder
    learned = isinstance(stack, TransformerConfig) and stack.positions == "learned"
    return recipe.data.max_target + 2 if learned else sys.maxsize


def example_loss(bundle: Bundle, examples: list[Example], world: World = ALONE) -> Scores:
    """Cross-entropy and perplexity of the known answers."""
    return mean_loss(bundle.model, example_batches(bundle, examples), carries=False, world=world)


def text_loss(bundle: Bundle, examples: list[Example], world: World) -> Scores:
    """The same for models that predict text, with the bits for each token."""
    return with_bits(example_loss(bundle, examples, world))


def with_bits(scores: Scores) -> Scores:
    return scores | {"bits_per_token": scores["loss"] / math.log(2)}


def mistakes(
    bundle: Bundle, examples: list[Example], predicted: list[str], gold: list[str], most: int = 10
) -> tuple[dict[str, str], ...]:
    """The first wrong answers, with what was expected."""
    wrong = (
        {"input": bundle.codec.source.show(e.source), "output": p, "expected": g}
        for e, p, g in zip(examples, predicted, gold, strict=True)
        if p != g
    )
    return tuple(islice(wrong, most))


def warn_of_new_labels(bundle: Bundle, examples: list[Example]) -> None:
    """Warn of labels that training never saw: no answer can be right there."""
    old = {*labels_in(bundle.codec).names, bundle.recipe.data.no_label}
    new = Counter(label for e in examples for label in labels_of(e) if label not in old)
    if new:
        first = next(e.where for e in examples if set(labels_of(e)) & set(new))
        names = ", ".join(f"'{name}' ({count})" for name, count in new.most_common(5))
        warn(f"{first}: labels never seen in training count as wrong: {names}")


def source_subject(question: Question) -> Subject:
    """A model that has read the source of a question and not yet answered."""
    bundle, source = question.bundle, question.bundle.codec.source
    value = source.load(question.input)
    [row] = encode_inputs(bundle, [value])
    if not len(row):
        raise UsageError(
            "there is nothing in the input to look at", hint="give a text that is not empty."
        )
    reads, names = padded([row]), source.names(value, row)
    if names is None:  # a frame, or a place in the grid that an encoder makes of a picture
        encoder = getattr(bundle.model, "encoder", None)  # a linear model has none
        with torch.inference_mode():
            states = reads if encoder is None else encoder(reads).states
        names = tuple(str(place + 1) for place in range(states.values.shape[1]))
    return Subject(bundle, question.input, reads, (), names, (), (), ())


def label_subject(question: Question) -> Subject:
    """The likeliest label of each position, or of the whole source."""
    subject, names = source_subject(question), labels_in(question.bundle.codec).names
    with torch.inference_mode():
        best = tuple(subject.logits().argmax(-1).tolist())
    return subject.answering(best, tuple(names[i] for i in best))


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
    world: World = ALONE,
) -> Sequence[Answer]:
    """An answer to each input, in the same order; of many processes, each answers its share of them.

    `first_row` is the number of the first input in a larger job: it keys the sampling, so that an answer does not
    depend on how the job was cut into calls. Where several jobs are answered together, `rows` says of each input which
    it is of its own. `prefix` is what every translation must begin with.
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
    shared = world.shared(
        inputs, lambda share, begin: [(a.input, a.output, a.details) for a in answer(share, begin)]
    )
    return [Prediction(*each) for each in shared]
