"""Validation during a run, evaluation at its end, and the comparison with a baseline.

If the time of a run is limited, both use samples that are small enough.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Json
from seqlab.corpus.examples import Corpus
from seqlab.corpus.stream import HELD_OUT_CHARACTERS
from seqlab.metrics.scores import SHARES, figure
from seqlab.models.interface import SequenceModel
from seqlab.padded import Batch
from seqlab.recipe import Recipe
from seqlab.tasks import task_of
from seqlab.tasks.task import LOWER_IS_BETTER, SCORED_AT_THE_END, Baselines, Report, Task
from seqlab.training.checkpoint import Progress
from seqlab.training.loss import mean_loss

# the share of a limited time for the loss of one validation, and for the decoding in it
TIME_SHARE = 0.01
# the number of examples that a validation decodes
INITIAL_DECODED = 8
MIN_DECODED = 4
MAX_DECODED = 100
# the minimum number of examples of the final evaluation, whatever time is left
MIN_SCORED = 10


class HeldOut:
    """The held-out part of a run, and its model; `seconds` limits the time of the whole run."""

    def __init__(self, bundle: Bundle, corpus: Corpus, stores: Path, seconds: float | None) -> None:
        self.bundle = bundle
        self.corpus = corpus
        self.stores = stores
        self.seconds = seconds
        self.task = task_of(bundle.recipe)
        self.kind = self.task.data_kind(bundle.recipe)
        self.data = self.kind.data(self.task, bundle, (), stores).sample(SCORED_AT_THE_END)
        self._num_decoded = INITIAL_DECODED
        self._seconds_per_batch = 0.0  # of the loss
        self._seconds_per_answer = 0.0

    def validate(self, progress: Progress) -> dict[str, float]:
        """Return the loss and the task's scores; the first validation of a limited run sets the size of the sample."""
        if self.seconds is None:
            return self._loss(self.corpus.validation()) | self.task.validate(self.bundle, self.data)
        seconds_allowed = TIME_SHARE * self.seconds
        if progress.sample is None:
            most = int(seconds_allowed / self._measure_batch())
            progress.sample = max(1, min(self._num_batches, most))
        start = time.perf_counter()
        scores = self._loss(self._sample(progress.sample))
        middle = time.perf_counter()
        scores |= self.task.validate(self.bundle, self.data.sample(self._num_decoded))
        decoding_seconds = max(1e-6, time.perf_counter() - middle)
        self._seconds_per_batch = (middle - start) / progress.sample
        self._seconds_per_answer = decoding_seconds / self._num_decoded
        factor = min(4.0, seconds_allowed / decoding_seconds)
        self._num_decoded = max(MIN_DECODED, min(MAX_DECODED, int(self._num_decoded * factor)))
        return scores

    def score(self, seconds_left: float | None) -> Report:
        """Evaluate the model at the end of a run, on as many examples as half of the time left allows."""
        most = SCORED_AT_THE_END
        if seconds_left is not None:
            # an example is answered, and its loss is computed; the other half of the time is for baselines and saving
            seconds_per_example = (
                self._seconds_per_answer
                + 2 * self._seconds_per_batch * self._num_batches / self._num_examples
            )
            affordable = int(0.5 * seconds_left / max(1e-6, seconds_per_example))
            most = max(MIN_SCORED, min(most, affordable))
        return self.kind.finish(self.task, self.bundle, self.stores, most)

    def _loss(self, batches: Iterable[Batch]) -> dict[str, float]:
        return mean_loss(
            cast(SequenceModel, self.bundle.model), batches, carries=self.corpus.carries
        )

    @property
    def _num_batches(self) -> int:
        return sum(1 for _ in self.corpus.validation())

    @property
    def _num_examples(self) -> int:
        """How many examples are scored without a time limit; a fixed number of tokens of a long text count as one."""
        counts = []
        for name, number in self.corpus.size.items():
            if name.startswith("validation"):
                is_rows = name.endswith("rows")
                counts.append(number if is_rows else number // HELD_OUT_CHARACTERS)
        return max(1, min(SCORED_AT_THE_END, max(counts, default=SCORED_AT_THE_END)))

    def _measure_batch(self) -> float:
        """Return how many seconds the loss of a batch takes, measured on the middle one."""
        middle = self._num_batches // 2
        batches = list(islice(self.corpus.validation(), middle, middle + 1))
        start = time.perf_counter()
        self._loss(batches)
        return max(1e-6, time.perf_counter() - start)

    def _sample(self, size: int) -> Iterator[Batch]:
        """Return this many evenly spread batches, or the first ones if the state is carried from batch to batch."""
        total = self._num_batches
        indices = range(min(size, total))
        chosen = {index if self.corpus.carries else index * total // size for index in indices}
        return (batch for index, batch in enumerate(self.corpus.validation()) if index in chosen)


# networks with fewer steps are undertrained: TREC had 41.6 % after 40 large batches, and 87.7 % after many small ones
FEW_STEPS = 500


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check of a model: a question, a number, and whether it is as it should be."""

    question: str
    number: float
    well: bool
    answer: str
    remedy: str = ""


def compare_with_baseline(
    task: Task,
    scores: Json,
    baselines: Baselines,
    *,
    recipe: Recipe | None = None,
    steps: int | None = None,
) -> Iterator[Diagnosis]:
    """Compare the main score of a model with that of the best baseline; yields nothing without a baseline."""
    common = [
        name
        for name in task.judged_by
        if name in scores and any(name in table for table in baselines.values())
    ]
    if not common:
        return
    # BLEU is 0 for answers of less than four words: then the next score is compared
    name = next((name for name in common if scores[name]), common[0])
    sign = -1 if name in LOWER_IS_BETTER else 1
    values = {baseline: table[name] for baseline, table in baselines.items() if name in table}
    best = max(values, key=lambda baseline: sign * values[baseline])
    ours = math.nan if scores[name] is None else float(scores[name])
    theirs = values[best]
    yield Diagnosis(
        "is it better than its baseline?",
        ours,
        sign * ours > sign * theirs and math.isfinite(ours),
        f"{name.replace('_', ' ')} {figure(name, ours)}: {_comparison(name, ours, theirs)} "
        f"'{best}' ({figure(name, theirs)})",
        _remedy(task, recipe, steps),
    )


def _comparison(name: str, ours: float, theirs: float) -> str:
    """Compare two values of a score in words that are followed by the name of the other one."""
    if not math.isfinite(ours):
        return "no number, unlike that of"
    if ours == theirs:
        return "no better than"
    ratio = ours / theirs if theirs > 0 else math.inf
    if ratio <= 0.5:
        return "less than half of" if ratio < 0.5 else "half of"
    if ratio >= 2 and name in LOWER_IS_BETTER:
        return "more than twice that of"
    difference = abs(ours - theirs)
    amount = f"{100 * difference:.3g} points" if name in SHARES else f"{difference:.3g}"
    return f"{amount} {'above' if ours > theirs else 'below'}"


def _remedy(task: Task, recipe: Recipe | None, steps: int | None) -> str:
    """Say what was measured to help: `docs/choosing.md` has the numbers."""
    baseline = "" if recipe is None else task.baseline(recipe)
    network = recipe is not None and not recipe.model.classical
    remedies = [f"use the baseline (--recipe {baseline})"] if baseline and network else []
    if network and steps is not None and steps < FEW_STEPS:
        how = "without --recipe both are chosen" if baseline else "--steps, --batch"
        remedies.insert(0, f"make more than {steps} steps, of smaller batches ({how})")
    elif not remedies:
        remedies.append(
            "train longer (--minutes 10)"
            if network or recipe is None
            else "use a network (--recipe)"
        )
    remedies.append("train on more data")
    if task.fine_tuning_recipe:
        remedies.append("begin with a pretrained encoder (--from)")
    return f"{', '.join(remedies[:-1])}, or {remedies[-1]}."
