"""Gradient descent as a learner: a step is a batch.

No random generator is used: the order of the data is a function of (seed, epoch), dropout of (seed, step, row).
"""

import math
import time
from collections.abc import Mapping
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from seqlab.distributed import SINGLE_PROCESS, World
from seqlab.errors import warn
from seqlab.kernels import calibration
from seqlab.kernels.products import Way, multiplying
from seqlab.machine import release_memory, state_lock
from seqlab.padded import Batch
from seqlab.randomness import noise
from seqlab.recipe import TrainConfig
from seqlab.training.checkpoint import Progress
from seqlab.training.log import Metrics, Step
from seqlab.training.loss import DistributedLoss, Loss, own_rows, spread
from seqlab.training.run import Learner, NotFiniteError
from seqlab.training.weights import (
    Weights,
    average,
    clip_,
    learning_rate,
    load_weights,
    optimizer_tensors,
    optimizers,
    parameters_of,
    restore_optimizers,
    set_rate,
)
from seqlab.types import State

LOG_EVERY = 20  # steps
TIMED_BATCHES = 6  # spread over the first epoch, to measure the time of a step
TIMING_SECONDS = 3.0  # after which fewer batches are enough


@runtime_checkable
class Batches(Protocol):
    """Training data: batches determined by their epoch and index."""

    carries: bool  # whether a batch continues the texts of the one before (E35)

    def num_batches(self, epoch: int) -> int: ...

    def batch(self, epoch: int, index: int) -> Batch: ...


def num_steps(batches: Batches, settings: TrainConfig) -> int:
    """Return the number of steps of a recipe."""
    if settings.steps is not None:
        return settings.steps
    return max(1, math.ceil((settings.epochs or 1) * batches.num_batches(0)))


class GradientLearner(Learner):
    """Minimises the loss of a network by its gradient; several processes each compute a share of every batch."""

    log_every = LOG_EVERY

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        settings: TrainConfig,
        world: World = SINGLE_PROCESS,
    ) -> None:
        self.model = model
        self.batches = batches
        self.settings = settings
        self.world = world
        self.loss_of = DistributedLoss(model, world, settings)
        self._num_steps = num_steps(batches, settings)
        self.optimizers = optimizers(model, settings)
        self.average = average(settings)
        self.progress = Progress()
        self.carried: State = ()  # state at the end of the last batch, for the rows of this process
        self._num_rows = 0  # of that state in all processes
        self._way: Way | None = None  # in which matrices are multiplied, once that is chosen

    @property
    def num_steps(self) -> int:
        return self.progress.length or self._num_steps

    @property
    def save_every(self) -> int:
        return self.num_steps

    def step(self) -> Step:
        """Compute the gradient, then change the whole state at once."""
        place = self.progress
        epoch, index = place.epoch, place.index
        if index >= self.batches.num_batches(epoch):
            epoch, index = epoch + 1, 0
        batch = self.batches.batch(epoch, index)
        began = time.perf_counter()
        rate = place.rate * learning_rate(place.step, self.num_steps, self.settings)
        carried = self.carried if self.batches.carries and index else ()
        loss, total, num_scored, norm = self._gradient(batch, place.step, carried)
        if not (math.isfinite(norm) and math.isfinite(total)):
            rows = self._diverging_rows(batch)
            place.epoch, place.index = epoch, index + 1
            raise NotFiniteError(rows)
        with state_lock:
            set_rate(self.optimizers, rate, place.step, self.settings)
            with multiplying(self._products()):
                for optimizer in self.optimizers:
                    optimizer.step()
            self.model.zero_grad()
            self.carried, self._num_rows = loss.carried, len(batch)
            place.step, place.epoch, place.index = place.step + 1, epoch, index + 1
            self.average.after_step(self.model, place.step)
            place.recent = [
                *place.recent[-LOG_EVERY + 1 :],
                [total, num_scored, norm, time.perf_counter() - began],
            ]
        if place.step % LOG_EVERY == 0:
            release_memory()
        return self._mean_of_recent(rate)

    def state(self) -> dict[str, Weights]:
        carried = self.world.gather_rows(self.carried, self._num_rows)
        return {
            "model": parameters_of(self.model),
            "optimizer": optimizer_tensors(self.optimizers),
            "average": self.average.tensors(),
            "carried": {str(i): part for i, part in enumerate(carried)},
        }

    def restore(self, parts: Mapping[str, Weights], progress: Progress) -> None:
        super().restore(parts, progress)
        self._way = None
        restore_optimizers(self.optimizers, parts.get("optimizer", {}))
        own = parameters_of(self.model)
        names = {
            key: key if key in own else key.split(".", 1)[1] for key in parts.get("average", {})
        }
        self.average.restore(
            {key: spread(parts["average"][key], own[name]) for key, name in names.items()}
        )
        carried = parts.get("carried", {})
        self.carried = own_rows(tuple(carried[str(i)] for i in range(len(carried))), self.world)
        self._num_rows = len(carried["0"]) if carried else 0

    def validation_due(self, every: int) -> bool:
        return self.progress.step % every == 0 or self.finished

    def weights(self) -> Weights:
        return self.average.weights(self.model)

    def is_best(self, metrics: Metrics) -> bool:
        """Compare by loss or by accuracy: with few examples, the loss can grow while more answers are correct."""
        self.average.after_validation(self.model)
        place, loss, accuracy = self.progress, metrics["loss"], metrics.get("token_accuracy", 0.0)
        if not math.isfinite(loss) or place.best_loss is None:
            return math.isfinite(loss)
        if self.settings.best == "accuracy" and accuracy != place.best_accuracy:
            return accuracy > place.best_accuracy
        return loss < place.best_loss

    def seconds_per_step(self) -> float:
        """Measure a few steps with separate optimisers, then restore the weights."""
        before = {name: weight.clone() for name, weight in parameters_of(self.model).items()}
        num_batches = self.batches.num_batches(0)
        times: list[float] = []
        trial = optimizers(self.model, self.settings)
        ends = time.perf_counter() + TIMING_SECONDS
        for place in range(-1, min(TIMED_BATCHES, num_batches)):  # -1 is a warm-up
            batch = self.batches.batch(0, max(0, place) * max(1, num_batches // TIMED_BATCHES))
            began = time.perf_counter()
            self._gradient(batch, 0, ())
            with multiplying(self._products()):
                for optimizer in trial:
                    optimizer.step()
            self.model.zero_grad()
            times.append(time.perf_counter() - began)
            if len(times) > 1 and time.perf_counter() > ends:
                break
        load_weights(self.model, before)
        return fmean(times[1:])

    def _gradient(
        self, batch: Batch, step: int, carried: State
    ) -> tuple[Loss, float, float, float]:
        """Compute the clipped gradient; return the loss as an object and as a sum, the tokens, and the norm before."""
        rows = self.loss_of.share(batch).rows
        with multiplying(self._products()), noise(self.settings.seed, step, rows):
            loss, total, num_scored = self.loss_of(batch, carried)
        return loss, total, num_scored, clip_(self.model.parameters(), self.settings.clip)

    def _products(self) -> Way:
        """Return how matrices are multiplied: as recorded, else the fastest way for this precision and machine.

        It is recorded so that a resumed run rounds as before; runs of earlier versions have no record.
        """
        if self._way is not None:
            return self._way
        place, precision = self.progress, self.settings.precision
        before: list[Any] = [0, "", ""]
        if place.step:
            before = (place.products or [[0, "float32", "torch"]])[-1]
        way: Way = "torch"
        if torch.get_default_device().type != "cpu":
            pass  # the device multiplies in a way of its own
        elif before[1] == precision and calibration.can(before[2], precision):
            way = before[2]
        else:
            way = self.world.broadcast(calibration.choose(precision))
            if before[1] == precision:
                warn(
                    f"until step {place.step} matrices were multiplied in the way '{before[2]}', which this machine "
                    f"lacks or which is slow here: the run goes on with '{way}', and rounds differently"
                )
        self._way = way
        if [precision, way] != before[1:] or not place.products:
            place.products.append([place.step, precision, way])
        return way

    def _diverging_rows(self, batch: Batch) -> list[int]:
        """Return the rows whose own gradient is not finite; all rows if there are none."""
        rows = []
        self.model.zero_grad()
        for row in range(len(batch)):
            alone = batch.rows_at([row])
            with noise(self.settings.seed, self.progress.step, alone.rows):
                loss = self.loss_of.own(alone, ())
                loss.to_minimise.backward()
            finite = math.isfinite(loss.total.item()) and math.isfinite(
                clip_(self.model.parameters(), math.inf)
            )
            rows += [] if finite else alone.rows.tolist()
            self.model.zero_grad()
        return rows or batch.rows.tolist()

    def _mean_of_recent(self, rate: float) -> Step:
        """Return the averages over the last steps."""
        place = self.progress
        totals, scored, norms, times = zip(*place.recent, strict=True)
        return Step(
            step=place.step,
            num_steps=self.num_steps,
            loss=sum(totals) / max(1, sum(scored)),
            tokens_per_second=sum(scored) / sum(times),
            gradient_norm=sum(norms) / len(norms),
            learning_rate=rate,
            num_tokens=scored[-1],
            seconds_left=(self.num_steps - place.step) * fmean(times),
        )
