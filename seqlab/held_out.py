"""What a run holds out: the loss of it while the run trains, and the scores at the end.

Where the time of a run is limited, both read a sample that is small enough.
"""

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import cast

from seqlab.bundle import Bundle
from seqlab.corpus.examples import Corpus
from seqlab.corpus.stream import HELD_OUT_CHARACTERS
from seqlab.models.interface import SequenceModel
from seqlab.padded import Batch
from seqlab.tasks import task_of
from seqlab.tasks.task import SCORED_AT_THE_END, Report
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
        self.data = self.kind.data(self.task, bundle, (), stores).some(SCORED_AT_THE_END)
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
        scores |= self.task.validate(self.bundle, self.data.some(self._num_decoded))
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
