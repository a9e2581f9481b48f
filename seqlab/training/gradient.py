"""The loop: batches in, a fitted model out, checkpoints on the way.

Nothing random happens here: the order of the data is a function of (seed, epoch), dropout of (seed, step, row).
A run is therefore determined by its step, and resuming equals never having stopped.
"""

import math
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Protocol, runtime_checkable

from torch import nn

from seqlab.errors import RunError
from seqlab.layers.dropout import noise
from seqlab.padded import Batch
from seqlab.recipe import Train
from seqlab.training.average import Weights, average, load_weights, parameters_of, wearing
from seqlab.training.checkpoint import Progress, read_checkpoint, write_checkpoint
from seqlab.training.distributed import Lesson, own_rows
from seqlab.training.log import Estimate, MetricsFile, Reporter, Step
from seqlab.training.memory import tidy_memory
from seqlab.training.optimise import clip_, learning_rate, optimizer_tensors, optimizers, restore_optimizers, set_rate
from seqlab.training.sharded import gather, gathered, part, spread, whole
from seqlab.training.world import World
from seqlab.types import State

LOG_EVERY = 20  # steps
VALIDATIONS = 20  # in a run, unless the recipe says otherwise
REHEARSED = 12  # batches from end to end of the first epoch, which tell how long a step takes
MOST_IN_A_ROW = 20  # steps without a finite gradient, after which no other will have one
MOST_ROLLBACKS = 5
KEPT = "kept"  # the folder of weights along the way


@runtime_checkable
class Batches(Protocol):
    """Training data as the loop sees it: numbered batches in numbered epochs, the same each time they are asked for."""

    carries: bool  # whether a batch goes on where the previous one of its epoch ended (E35)

    def num_batches(self, epoch: int) -> int: ...

    def batch(self, epoch: int, index: int) -> Batch: ...


@dataclass(frozen=True)
class Outcome:
    """How a run ended. The model then has the best weights that validation saw."""

    progress: Progress
    stopped: bool  # asked to stop before its last step


def num_steps(batches: Batches, settings: Train) -> int:
    """How many steps a recipe asks for."""
    if settings.steps is not None:
        return settings.steps
    return max(1, math.ceil((settings.epochs or 1) * batches.num_batches(0)))


class GradientTraining:
    """A run in a folder: `fit` begins it, or goes on where `last.safetensors` says it stood."""

    def __init__(
        self,
        model: nn.Module,
        batches: Batches,
        settings: Train,
        *,
        validate: Callable[[], dict[str, float]],
        folder: Path,
        report: Reporter,
        world: World | None = None,
    ) -> None:
        self.model, self.batches, self.settings, self.world = model, batches, settings, world or World()
        self.validate, self.folder, self.report = validate, folder, report
        self.lesson = Lesson(model, self.world, settings)
        self.num_steps = num_steps(batches, settings)
        self.validate_every = settings.validate_every or max(1, self.num_steps // VALIDATIONS)
        self.optimizers = optimizers(model, settings)
        self.average = average(settings)
        self.metrics = MetricsFile(folder / "metrics.jsonl", writes=self.world.leads, tensorboard=settings.tensorboard)
        self.progress = Progress()
        self.carried: State = ()  # of this process's rows
        self._num_rows = 0  # that are carried, of all processes

    def resume(self) -> None:
        """Go back to where the last checkpoint stood."""
        self.progress, parts = read_checkpoint(self.folder / "last.safetensors")
        load_weights(self.model, parts["model"])
        restore_optimizers(self.optimizers, parts.get("optimizer", {}))
        own = parameters_of(self.model)
        names = {key: key if key in own else key.split(".", 1)[1] for key in parts.get("average", {})}
        self.average.restore({key: spread(parts["average"][key], own[name]) for key, name in names.items()})
        carried = parts.get("carried", {})
        self.carried = own_rows(tuple(carried[str(i)] for i in range(len(carried))), self.world)
        self._num_rows = len(carried["0"]) if carried else 0
        self.metrics.cut_back(self.progress.step)

    def fit(self, *, stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train to the last step, until validation stops improving, or until `stop` says so."""
        self.report.begin(self.estimate(), self.progress.step)
        began, before = time.perf_counter(), self.progress.seconds
        stopped = False
        try:
            for batch in self._remaining():
                self._step(batch)
                self.progress.seconds = before + time.perf_counter() - began
                if self.progress.step % self.validate_every == 0 or self.progress.step == self.num_steps:
                    self._validate()
                (asked,) = self.world.total(float(stop()))
                stopped = asked > 0 and not self._at_the_end()
                if stopped or self._at_the_end():
                    break
        finally:
            self.report.end()
        self.progress.finished = not stopped
        self._save()
        self.world.wait()
        load_weights(self.model, self._best())
        gather(self.lesson.own)
        return Outcome(self.progress, stopped)

    def _at_the_end(self) -> bool:
        """No step is left, or validation has stopped improving."""
        return self.progress.finished or self.progress.step >= self.num_steps

    def estimate(self) -> Estimate:
        """Time and memory of the run, from a few batches whose gradients are thrown away."""
        first = range(min(3, self.batches.num_batches(0)))
        batches = [self.lesson.share(self.batches.batch(0, i)) for i in first]
        times = []
        kept = {name: p.detach().clone() for name, p in self.model.named_parameters() if not p.requires_grad}
        for batch in (*batches[:1], *batches):  # the first one warms up
            began = time.perf_counter()
            with noise(self.settings.seed, 0, batch.rows):
                self.lesson.own(batch, ()).to_minimise.backward()
            times.append(time.perf_counter() - began)
        self.model.zero_grad()
        load_weights(self.model, parameters_of(self.model) | kept)  # a batch norm has counted what it saw
        num_parameters = sum(p.numel() for p in self.model.parameters())
        extra = 4 * sum(part(p).nbytes for p in self.model.parameters())  # Adam's two, average, snapshot
        left = self.num_steps - self.progress.step
        per_step = sum(times[1:]) / max(1, len(times) - 1)
        return Estimate(per_step * left * 1.1, peak_memory() + extra, self.num_steps, num_parameters)

    def steps_in(self, seconds: float) -> int:
        """As many steps as this machine takes in that time, with their validations: by a rehearsal without a trace."""
        before = {name: weight.detach().clone() for name, weight in parameters_of(self.model).items()}
        every, times = max(1, self.batches.num_batches(0) // REHEARSED), list[float]()
        trained = optimizers(self.model, self.settings)
        for place in range(-1, min(REHEARSED, self.batches.num_batches(0))):  # the first one warms up
            batch = self.batches.batch(0, max(0, place) * every)
            began = time.perf_counter()
            with noise(self.settings.seed, 0, self.lesson.share(batch).rows):
                self.lesson(batch, ())
            clip_(self.model.parameters(), self.settings.clip)
            for optimizer in trained:
                optimizer.step()
            self.model.zero_grad()
            times.append(time.perf_counter() - began)
        load_weights(self.model, before)
        began = time.perf_counter()
        if self.world.leads:
            self.validate()
        validations = VALIDATIONS * (time.perf_counter() - began) if self.settings.validate_every is None else 0.0
        return max(1, int(max(seconds - validations, seconds / 2) / fmean(times[1:])))

    def _remaining(self) -> Iterator[Batch]:
        """The batches from here to the last step, wherever "here" is by then; the place is counted before each."""
        while (place := self.progress).step < self.num_steps and not place.finished:
            if place.index >= self.batches.num_batches(place.epoch):
                place.epoch, place.index, self.carried = place.epoch + 1, 0, ()
            place.index += 1
            yield self.batches.batch(place.epoch, place.index - 1)

    def _step(self, batch: Batch) -> None:
        began, place, settings = time.perf_counter(), self.progress, self.settings
        rate = place.rate * learning_rate(place.step, self.num_steps, settings)
        set_rate(self.optimizers, rate, place.step, settings)
        carried: State = self.carried if self.batches.carries else ()
        with noise(settings.seed, place.step, self.lesson.share(batch).rows):
            loss, total, num_scored = self.lesson(batch, carried)
        norm = clip_(self.model.parameters(), settings.clip)
        if not (math.isfinite(norm) and math.isfinite(total)):
            self._diverged(batch)
            return
        for optimizer in self.optimizers:
            optimizer.step()
        self.model.zero_grad()
        self.carried, self._num_rows = loss.carried, len(batch)
        place.step += 1
        self.average.after_step(self.model, place.step)
        self._log(total, num_scored, norm, rate, time.perf_counter() - began)

    def _diverged(self, batch: Batch) -> None:
        """This step's gradient is not finite: leave the step out or undo the last ones, as the recipe says."""
        place, what, rows = self.progress, self.settings.divergence, self._culprits(batch)
        place.diverged.append(place.step + 1)
        told = f"step {place.step + 1}: the gradient is not finite (rows {rows} of the training part)"
        back = what == "rollback" and place.rate > 0.5**MOST_ROLLBACKS and (self.folder / "last.safetensors").exists()
        recent = place.diverged[-MOST_IN_A_ROW:]
        lost = len(recent) == MOST_IN_A_ROW and recent[-1] - recent[0] == MOST_IN_A_ROW - 1
        if what == "stop" or lost or not (back or self._finite()):
            raise RunError(told, hint="lower train.learning_rate or train.clip; the last checkpoint is untouched.")
        if back:
            self.resume()
            self.progress.rate, self.progress.diverged = place.rate / 2, place.diverged
            self._save()
        else:
            place.step += 1
        self.metrics.append(self.progress.step, diverged=place.diverged[-1], rows=rows, rate=self.progress.rate)
        self.report.diverged(told, "rollback" if back else "skip")

    def _culprits(self, batch: Batch) -> list[int]:
        """The rows that have no finite gradient even alone; if there are none, all rows."""
        found = []
        self.model.zero_grad()
        for row in range(len(batch)):
            alone = batch.rows_at([row])
            with noise(self.settings.seed, self.progress.step, alone.rows):
                loss = self.lesson.own(alone, ())
                loss.to_minimise.backward()
            finite = math.isfinite(loss.total.item()) and math.isfinite(clip_(self.model.parameters(), math.inf))
            found += [] if finite else alone.rows.tolist()
            self.model.zero_grad()
        return found or batch.rows.tolist()

    def _finite(self) -> bool:
        """Whether the weights are still numbers."""
        lost = [weight for weight in parameters_of(self.model).values() if not part(weight).isfinite().all()]
        return self.world.total(float(len(lost))) == [0.0]

    def _log(self, total: float, num_scored: float, norm: float, rate: float, seconds: float) -> None:
        place = self.progress
        place.recent = [*place.recent[-LOG_EVERY + 1 :], [total, num_scored, norm, seconds]]
        totals, scored, norms, times = zip(*place.recent, strict=True)
        seen = Step(
            step=place.step,
            num_steps=self.num_steps,
            loss=sum(totals) / max(1, sum(scored)),
            tokens_per_second=sum(scored) / sum(times),
            gradient_norm=sum(norms) / len(norms),
            learning_rate=rate,
            seconds_left=(self.num_steps - place.step) * sum(times) / len(times),
        )
        self.report.step(seen)
        if place.step % LOG_EVERY == 0 or place.step == self.num_steps:
            tidy_memory()
            self.metrics.append(
                place.step,
                loss=seen.loss,
                gradient_norm=seen.gradient_norm,
                learning_rate=rate,
                tokens_per_second=round(seen.tokens_per_second),
                seconds=round(place.seconds, 2),
            )

    def _validate(self) -> None:
        """Validate the weights that would be kept, remember them if they are the best, and save where we stand."""
        place, weights = self.progress, self.average.weights(self.model)
        metrics: dict[str, float] = {}
        with wearing(self.model, weights), gathered(self.lesson.own):
            if self.world.leads:
                metrics = self.validate()
        metrics = self.world.heard(metrics)
        self.average.after_validation(self.model)
        best = self._better(metrics)
        place.worse = 0 if best else place.worse + 1
        if best:
            place.best_loss, place.best_step = metrics["loss"], place.step
            place.best_accuracy = metrics.get("token_accuracy", 0.0)
            self._write(self.folder / "best.safetensors", {"model": weights})
        if self.settings.keep:
            self._keep(weights)
        self.metrics.append(place.step, validation=metrics, best=best, seconds=round(place.seconds, 2))
        self.report.validated(place.step, metrics, best=best)
        place.finished = self.settings.patience is not None and place.worse >= self.settings.patience
        self._save()

    def _better(self, metrics: dict[str, float]) -> bool:
        """Whether no validation was as good. With few examples a loss may grow while more answers are right."""
        place, loss, right = self.progress, metrics["loss"], metrics.get("token_accuracy", 0.0)
        if not math.isfinite(loss) or place.best_loss is None:
            return math.isfinite(loss)
        if self.settings.best == "accuracy" and right != place.best_accuracy:
            return right > place.best_accuracy
        return loss < place.best_loss

    def _keep(self, weights: Weights) -> None:
        folder = self.folder / KEPT
        folder.mkdir(exist_ok=True)
        self._write(folder / f"{self.progress.step:08}.safetensors", {"model": weights})
        for old in sorted(folder.glob("*.safetensors"))[: -self.settings.keep] if self.world.leads else ():
            old.unlink()

    def _best(self) -> Weights:
        """The best weights that were seen; a run stopped before its first validation has only those of the moment."""
        if self.progress.best_loss is None:
            return self.average.weights(self.model)
        return read_checkpoint(self.folder / "best.safetensors")[1]["model"]

    def _save(self) -> None:
        carried = self.world.gathered(self.carried, self._num_rows)
        parts = {
            "model": parameters_of(self.model),
            "optimizer": optimizer_tensors(self.optimizers),
            "average": self.average.tensors(),
            "carried": {str(i): part for i, part in enumerate(carried)},
        }
        self._write(self.folder / "last.safetensors", parts)

    def _write(self, path: Path, parts: dict[str, Weights]) -> None:
        parts = {name: {key: whole(tensor) for key, tensor in group.items()} for name, group in parts.items()}
        if self.world.leads:
            write_checkpoint(path, self.progress, parts)


def peak_memory() -> int:
    """The most memory that this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
