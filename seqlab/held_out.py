"""What a run holds out: its loss while the run trains, the scores at the end, and how far these are from a baseline.

Where the time of a run is limited, loss and scores read a sample that is small enough.
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

SHARE = 0.01  # of a limited time for the loss of one validation, and as much for what it decodes
FIRST, FEWEST, MOST = (
    8,
    4,
    100,
)  # examples that a validation decodes: at first, at least, and at most
WORTHWHILE = 10  # examples that are scored even if there is no time for them


class HeldOut:
    """The held-out part beside a model; `seconds` limits the whole run."""

    def __init__(self, bundle: Bundle, corpus: Corpus, stores: Path, seconds: float | None) -> None:
        self.bundle, self.corpus, self.stores, self.seconds = bundle, corpus, stores, seconds
        self.task = task_of(bundle.recipe)
        self.kind = self.task.data_kind(bundle.recipe)
        self.data = self.kind.data(self.task, bundle, (), stores).sample(SCORED_AT_THE_END)
        self._num_decoded = FIRST
        self._seconds_of_loss, self._seconds_of_answer = 0.0, 0.0  # of a batch, and of an example

    def validate(self, place: Progress) -> dict[str, float]:
        """The loss, and what the task scores beside it; the first validation decides how large the sample is."""
        if self.seconds is None:
            return self._loss(self.corpus.validation()) | self.task.validate(self.bundle, self.data)
        if place.sample is None:
            place.sample = max(
                1, min(self._num_batches, int(SHARE * self.seconds / self._seconds_of_batch()))
            )
        began = time.perf_counter()
        scores = self._loss(self._sample(place.sample))
        read = time.perf_counter()
        scores |= self.task.validate(self.bundle, self.data.sample(self._num_decoded))
        seconds = max(1e-6, time.perf_counter() - read)
        self._seconds_of_loss, self._seconds_of_answer = (
            (read - began) / place.sample,
            seconds / self._num_decoded,
        )
        self._num_decoded = max(
            FEWEST, min(MOST, int(self._num_decoded * min(4.0, SHARE * self.seconds / seconds)))
        )
        return scores

    def score(self, left: float | None) -> Report:
        """The scores at the end; `left` are the seconds that are left for them."""
        most = SCORED_AT_THE_END
        if left is not None:
            # an example is answered, and read for its loss; the other half of the time is for baselines and for writing
            each = (
                self._seconds_of_answer
                + 2 * self._seconds_of_loss * self._num_batches / self._num_examples
            )
            most = max(WORTHWHILE, min(most, int(0.5 * left / max(1e-6, each))))
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
        """How many examples are scored if time is not limited; of one long text, so many tokens count as one."""
        sizes = {
            name: number
            for name, number in self.corpus.size.items()
            if name.startswith("validation")
        }
        counts = [
            number if name.endswith("rows") else number // HELD_OUT_CHARACTERS
            for name, number in sizes.items()
        ]
        return max(1, min(SCORED_AT_THE_END, max(counts, default=SCORED_AT_THE_END)))

    def _seconds_of_batch(self) -> float:
        """How long the loss of a batch from the middle takes."""
        middle = self._num_batches // 2
        batches = list(islice(self.corpus.validation(), middle, middle + 1))
        began = time.perf_counter()
        self._loss(batches)
        return max(1e-6, time.perf_counter() - began)

    def _sample(self, size: int) -> Iterator[Batch]:
        """So many batches from end to end; where each goes on with the one before, the first ones."""
        total = self._num_batches
        chosen = {
            place if self.corpus.carries else place * total // size
            for place in range(min(size, total))
        }
        return (batch for place, batch in enumerate(self.corpus.validation()) if place in chosen)


FEW_STEPS = 500  # of a network: TREC had 41.6 % after 40 steps of large batches, and 87.7 % after many small ones


@dataclass(frozen=True)
class Diagnosis:
    """One question, its number, and whether it gives cause for concern."""

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
    """Is the score by which a task is judged better than the best of its baselines? Nothing where there is none."""
    common = [
        name
        for name in task.judged_by
        if name in scores and any(name in each for each in baselines.values())
    ]
    if not common:
        return
    name = next(
        (name for name in common if scores[name]), common[0]
    )  # answers of less than four words have no BLEU
    sign = -1 if name in LOWER_IS_BETTER else 1
    worth = {baseline: sign * each[name] for baseline, each in baselines.items() if name in each}
    best = max(worth, key=worth.__getitem__)
    ours, theirs = math.nan if scores[name] is None else float(scores[name]), baselines[best][name]
    yield Diagnosis(
        "is it better than its baseline?",
        ours,
        sign * ours > worth[best] and math.isfinite(ours),
        f"{name.replace('_', ' ')} {figure(name, ours)}: {_beside(name, ours, theirs)} "
        f"'{best}' ({figure(name, theirs)})",
        _remedy(task, recipe, steps),
    )


def _beside(name: str, ours: float, theirs: float) -> str:
    """A score beside another one in plain words, which the other one's name follows."""
    if not math.isfinite(ours):
        return "no number, unlike that of"
    if ours == theirs:
        return "no better than"
    ratio = ours / theirs if theirs > 0 else math.inf
    if ratio <= 0.5:
        return "less than half of" if ratio < 0.5 else "half of"
    if ratio >= 2 and name in LOWER_IS_BETTER:
        return "more than twice that of"
    apart = (
        f"{100 * abs(ours - theirs):.3g} points" if name in SHARES else f"{abs(ours - theirs):.3g}"
    )
    return f"{apart} {'above' if ours > theirs else 'below'}"


def _remedy(task: Task, recipe: Recipe | None, steps: int | None) -> str:
    """What was measured to help: `docs/choosing.md` has the figures."""
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
