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
from seqlab.errors import UsageError
from seqlab.models.interface import Model
from seqlab.padded import Batch
from seqlab.tasks import task_of
from seqlab.tasks.examples import SCORED_AT_THE_END
from seqlab.tasks.task import Report
from seqlab.training.checkpoint import Progress
from seqlab.training.objective import mean_loss

SHARE = 0.01  # of a limited time for the loss of one validation, and as much for what it decodes
FIRST, FEWEST, MOST = 8, 4, 100  # examples that a validation decodes: at first, at least, and at most
TIMED = 32  # examples that tell how long an answer takes
WORTHWHILE = 10  # examples that are scored even if there is no time for them


class HeldOut:
    """The held-out part beside a model; `seconds` limits the whole run."""

    def __init__(self, bundle: Bundle, corpus: Corpus, stores: Path, seconds: float | None) -> None:
        self.bundle, self.corpus, self.stores, self.seconds = bundle, corpus, stores, seconds
        self.task = task_of(bundle.recipe)
        self.kind = self.task.data_kind(bundle.recipe)
        self.data = self.kind.data(self.task, bundle, (), stores).some(SCORED_AT_THE_END)
        self._num_decoded = FIRST

    def validate(self, place: Progress) -> dict[str, float]:
        """The loss, and what the task scores beside it; the first validation decides how large the sample is."""
        if self.seconds is None:
            return self._loss(self.corpus.validation()) | self.task.validate(self.bundle, self.data)
        if place.sample is None:
            place.sample = self._affordable(SHARE * self.seconds)
        scores = self._loss(self._sample(place.sample))
        began = time.perf_counter()
        scores |= self.task.validate(self.bundle, self.data.some(self._num_decoded))
        share = SHARE * self.seconds / max(1e-6, time.perf_counter() - began)
        self._num_decoded = max(FEWEST, min(MOST, int(self._num_decoded * min(4.0, share))))
        return scores

    def score(self, left: float | None) -> Report:
        """The scores at the end; `left` are the seconds that are left for them."""
        most = None
        if left is not None:
            answer, loss = self._seconds_per_answer(), self._seconds_of_batch() * self._num_batches / SCORED_AT_THE_END
            # half of the time is for the baselines, and for writing the model
            most = max(WORTHWHILE, min(SCORED_AT_THE_END, int(0.5 * left / max(1e-6, answer + loss))))
        return self.kind.finish(self.task, self.bundle, self.stores, most)

    def _loss(self, batches: Iterable[Batch]) -> dict[str, float]:
        return mean_loss(cast(Model, self.bundle.model), batches, carries=self.corpus.carries)

    @property
    def _num_batches(self) -> int:
        return sum(1 for _ in self.corpus.validation())

    def _affordable(self, seconds: float) -> int:
        """How many batches can be read in that time."""
        return max(1, min(self._num_batches, int(seconds / self._seconds_of_batch())))

    def _seconds_of_batch(self) -> float:
        """How long a batch from the middle takes."""
        middle = self._num_batches // 2
        batches = list(islice(self.corpus.validation(), middle, middle + 1))
        self._loss(batches)  # the first time takes longer
        began = time.perf_counter()
        self._loss(batches)
        return max(1e-6, time.perf_counter() - began)

    def _sample(self, size: int) -> Iterator[Batch]:
        """So many batches from end to end; where each goes on with the one before, the first ones."""
        total = self._num_batches
        chosen = {place if self.corpus.carries else place * total // size for place in range(min(size, total))}
        return (batch for place, batch in enumerate(self.corpus.validation()) if place in chosen)

    def _seconds_per_answer(self) -> float:
        """How long it takes to answer an input; nothing where a model answers none."""
        try:
            count, work = self.data.timed(self.task, self.bundle, TIMED)
        except UsageError:
            return 0.0
        began = time.perf_counter()
        work()
        return (time.perf_counter() - began) / max(1, count)
