"""A training run: the loop that all learners share, and the folder from which it can be resumed.

The run decides when to log, validate, save and stop; the learner defines a step. The state of a learner is its progress
and its tensors, so a resumed run equals one that never stopped.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from seqlab.distributed import SINGLE_PROCESS, World
from seqlab.errors import RunError, warn
from seqlab.kernels import native
from seqlab.machine import StopNowError, ThreadChoice, abandonable, peak_memory, saving, state_lock
from seqlab.recipe import TrainConfig
from seqlab.training.budget import CHANGE, Budget
from seqlab.training.checkpoint import (
    MetricsFile,
    Progress,
    read_checkpoint,
    write_checkpoint,
    write_whole,
)
from seqlab.training.log import Estimate, Metrics, Reporter, Step
from seqlab.training.loss import gather, gathered, part, whole
from seqlab.training.weights import Weights, load_weights, parameters_of, temporary_weights

VALIDATIONS = 20  # in a run, unless the recipe sets the interval
MAX_DIVERGED = 20  # consecutive steps without a finite gradient, after which the run fails
MAX_ROLLBACKS = 5
SAVE_EVERY = 10.0  # seconds; less often if a checkpoint takes long
LAST, BEST = "last.safetensors", "best.safetensors"
KEPT = "kept"  # folder of the weights at earlier validations


class NotFiniteError(Exception):
    """A step was not made because its gradient is not finite; `rows` are the training rows that cause it."""

    def __init__(self, rows: list[int]) -> None:
        super().__init__(rows)
        self.rows = rows


@runtime_checkable
class Learner(Protocol):
    """A way to fit a model, one step at a time: gradient descent, EM or counting.

    The defaults fit the simplest learner: its tensors are the weights of the model, only the last step is validated,
    and its weights are kept.
    """

    model: nn.Module
    progress: Progress  # the learner counts its steps in it, the run adds the best validation and the time
    log_every: int = 1  # steps
    extended_by: str = "steps"  # setting of [train] that makes the run longer

    @property
    def save_every(self) -> int:
        """Steps between checkpoints; there are also some before each validation and every few seconds."""
        return 1

    @property
    def num_steps(self) -> int:
        """The largest number of steps; a learner that converges makes fewer."""

    @property
    def finished(self) -> bool:
        """Whether all steps are made."""
        return self.progress.step >= self.num_steps

    def length_of(self, num_steps: int) -> int:
        """Return the `progress.length` with which the run has about so many steps in all."""
        return num_steps

    def step(self) -> Step | None:
        """Make one step; return its measurements, or None if there are none.

        The state may only change while `machine.state_lock` is held, so that it can be saved at any other moment.
        """

    def state(self) -> dict[str, Weights]:
        """Return the tensors of a checkpoint in groups; `model` are the weights."""
        return {"model": self.weights()}

    def restore(self, parts: Mapping[str, Weights], progress: Progress) -> None:
        """Set the state to that of a checkpoint."""
        self.progress = progress
        load_weights(self.model, parts["model"])

    def validation_due(self, every: int) -> bool:
        """Return whether a validation follows the last step; `every` is the interval of the recipe."""
        return self.finished

    def weights(self) -> Weights:
        """Return the weights to validate and keep."""
        return parameters_of(self.model)

    def is_best(self, metrics: Metrics) -> bool | None:
        """Return whether this validation is the best so far; None if these weights are never kept."""
        return True

    def seconds_per_step(self) -> float:
        """Measure the seconds of a step without changing the state; 0 if it takes no time."""
        return 0.0

    def fit_facts(self) -> dict[str, Any]:
        """Return the entry `fit` of metrics.json."""
        return {}


@dataclass(frozen=True)
class Outcome:
    """How a run ended; its model then has the weights of the best validation."""

    progress: Progress
    stopped: bool  # by request, before its last step


class Run:
    """A run in a folder. `fit` starts it; after `resume`, it continues from the last checkpoint."""

    def __init__(
        self,
        learner: Learner,
        settings: TrainConfig,
        *,
        validate: Callable[[], dict[str, float]],
        folder: Path,
        report: Reporter,
        world: World = SINGLE_PROCESS,
        threads: Sequence[int] = (),
    ) -> None:
        """`threads` are the numbers of threads to choose from; if empty, the recorded number is used."""
        self.learner = learner
        self.settings = settings
        self.world = world
        self.validate = validate
        self.folder = folder
        self.report = report
        self.metrics = MetricsFile(
            folder / "metrics.jsonl", writes=world.leads, tensorboard=settings.tensorboard
        )
        self.validate_every = settings.validate_every or max(1, learner.num_steps // VALIDATIONS)
        self.budget = None if settings.minutes is None else Budget(60 * settings.minutes)
        self.threads = threads
        self._choice = ThreadChoice(threads or (torch.get_num_threads(),))
        self._clock = 0.0  # when the run would have begun if it had never stopped
        self._is_saved = False  # whether the last checkpoint has the current state
        self._next_save = 0.0

    @property
    def progress(self) -> Progress:
        return self.learner.progress

    @property
    def over(self) -> bool:
        """Whether all steps are made or validation has stopped improving."""
        return self.progress.finished or self.learner.finished

    def resume(self, recipe: str, written: int | None) -> None:
        """Restore the last checkpoint and store the recipe (TOML), whose section [train] may have changed.

        `written` is the step of the model that was saved with the run. A run that was killed before its first
        checkpoint starts again. One that was killed after its last step stays finished; only its model is missing.
        """
        if not (self.folder / LAST).exists():
            self.metrics.truncate(0)
            return
        self.restore()
        complete = self.world.broadcast(written) == self.progress.step
        num_steps = self.learner.num_steps
        path = self.folder / "recipe.toml"
        unchanged = self.world.broadcast(path.read_text("utf-8") == recipe)
        used_up = self.progress.step >= num_steps if self.budget is None else unchanged
        if complete and self.progress.finished and used_up:
            more = self.learner.extended_by if self.budget is None else "minutes"
            raise RunError(
                f"{self.folder.parent}: this run has finished all {num_steps} steps",
                hint=f"train longer with --set train.{more}=N, or start again with --overwrite.",
            )
        self.progress.finished = self.progress.finished and unchanged and not complete
        if self.budget is not None and self.learner.finished and not self.progress.finished:
            # there is more time: `estimate` finds the number of steps
            self._resize(num_steps + 1, self.validate_every)
        if self.world.leads:
            write_whole(path, recipe.encode())

    def restore(self) -> None:
        """Restore the last checkpoint, and remove later rows from the log."""
        progress, parts = read_checkpoint(self.folder / LAST)
        self.learner.restore(parts, progress)
        self.metrics.truncate(progress.step, validated=not progress.pending)
        if self.budget is None:
            progress.lengths = []
        elif progress.lengths:
            self.validate_every = progress.lengths[-1][2]

    def fit(self, *, stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train until the last step, until validation stops improving, the time is over, or `stop` returns true.

        A validation that was interrupted is made first.
        """
        with self._same_kernels():
            return self._fit(stop)

    def _same_kernels(self) -> AbstractContextManager[None]:
        """A run goes on as it began: kernels that were built meanwhile, in the background, would round otherwise."""
        began = self.progress.native
        if began is None:
            began = self.progress.native = native.ready()
        if began and not native.ready():
            warn(
                "this run began with the native kernels, which are not in use now: it goes on without them, and is "
                "not bit for bit what it would have been"
            )
        return nullcontext() if began else native.without_kernels()

    def _fit(self, stop: Callable[[], bool]) -> Outcome:
        self._clock = time.perf_counter() - self.progress.seconds
        if self.progress.threads and len(self.threads) != 1:
            used = self.progress.threads[-1][1]
            self._choice = ThreadChoice(self.threads or (used,), first=used)
        self._next_save = time.perf_counter() + SAVE_EVERY
        stopped = False
        try:
            if self.progress.pending:
                with saving(self._save_unsaved):
                    stopped = not self._validate()
            self._use_threads()
            self.report.begin(self.estimate(), self.progress.step)
            with saving(self._save_unsaved):
                stopped = self._steps(stop, stopped=stopped)
                self.progress.finished = self.progress.finished or not stopped
                self._save()
        finally:
            self.report.end()
        self.world.wait()
        load_weights(self.learner.model, self._best())
        gather(self.learner.model)
        return Outcome(self.progress, stopped)

    def _steps(self, stop: Callable[[], bool], *, stopped: bool) -> bool:
        """Make steps until the run is over or must stop; return whether it was stopped."""
        while not (self.over or stopped):
            step = self._step()
            if step is not None:
                self._log(step)
            out_of_time = self._is_out_of_time()
            if self.learner.validation_due(self.validate_every) or out_of_time:
                self.progress.finished = self.learner.finished or out_of_time
                stopped = not self._validate()
            elif self.progress.step % self.learner.save_every == 0 or self._save_is_due():
                self._save()
            (requests,) = self.world.sums(float(stop()))
            stopped = stopped or (requests > 0 and not self.over)
        return stopped

    def estimate(self) -> Estimate:
        """Return the time and memory that the run will need; with a time limit, also plan the number of steps."""
        seconds = 0.0 if self.over else self.world.broadcast(self.learner.seconds_per_step())
        if self.budget is not None and not self.over:
            self.budget.measured(seconds)
            self._plan(self.budget)
        num_steps = self.learner.num_steps
        num_parameters = sum(p.numel() for p in self.learner.model.parameters())
        return Estimate(
            seconds * (num_steps - self.progress.step), peak_memory(), num_steps, num_parameters
        )

    def _use_threads(self) -> None:
        """Set the number of threads for the next step, and record it."""
        count = self._choice.next()
        used = self.progress.threads
        if not used or used[-1][1] != count:
            used.append([self.progress.step, count])
        if count != torch.get_num_threads():
            torch.set_num_threads(count)

    def _plan(self, budget: Budget) -> None:
        """Choose the number of steps that fit into the time, and record it unless the change is small."""
        learner, place = self.learner, self.progress
        num_steps, every = budget.plan(
            place.step, place.seconds, self.settings.validate_every, VALIDATIONS
        )
        close = abs(num_steps - learner.num_steps) <= CHANGE * (learner.num_steps - place.step)
        if not place.lengths or not close or every > 2 * self.validate_every:
            self._resize(num_steps, every)

    def _resize(self, num_steps: int, every: int) -> None:
        self.validate_every = every
        self.progress.lengths.append([self.progress.step, self.learner.length_of(num_steps), every])

    def _is_out_of_time(self) -> bool:
        """Return whether there is no time for another step; if there is, the number of steps may be planned again."""
        if self.budget is None or self.learner.finished:
            return False
        if self.budget.is_over(self.progress.seconds):
            self._resize(self.progress.step, self.validate_every)
            return True
        if self.budget.may_change(self.progress.seconds):
            self._plan(self.budget)
        return False

    def _step(self) -> Step | None:
        self._use_threads()
        began = time.perf_counter()
        try:
            step = self.learner.step()
        except NotFiniteError as error:
            self._diverged(error.rows)
            return None
        finally:
            self._is_saved = False
        now = time.perf_counter()
        seconds, self.progress.seconds = now - began, now - self._clock
        if self.budget is not None:  # the clock of the first process decides for all
            seconds, self.progress.seconds = self.world.broadcast([seconds, self.progress.seconds])
            self.budget.measured(seconds)
        if step is not None:
            self._choice.measured(step.num_tokens / seconds)
        return step

    def _diverged(self, rows: list[int]) -> None:
        """Handle a step without a finite gradient: skip it, roll back, or fail, as the recipe says."""
        place = self.progress
        policy = self.settings.divergence
        place.diverged.append(place.step + 1)
        message = (
            f"step {place.step + 1}: the gradient is not finite (rows {rows} of the training part)"
        )
        can_roll_back = (
            policy == "rollback"
            and place.rate > 0.5**MAX_ROLLBACKS
            and (self.folder / LAST).exists()
        )
        recent = place.diverged[-MAX_DIVERGED:]
        hopeless = len(recent) == MAX_DIVERGED and recent[-1] - recent[0] == MAX_DIVERGED - 1
        if policy == "stop" or hopeless or not (can_roll_back or self._is_finite()):
            raise RunError(
                message,
                hint="lower train.learning_rate or train.clip; the last checkpoint is unchanged.",
            )
        if can_roll_back:
            self.restore()
            self.progress.rate, self.progress.diverged = place.rate / 2, place.diverged
            if self.progress.pending:
                self._validate()
            self._save()
        else:
            place.step += 1
        self.metrics.append(
            self.progress.step, diverged=place.diverged[-1], rows=rows, rate=self.progress.rate
        )
        self.report.diverged(message, "rollback" if can_roll_back else "skip")

    def _is_finite(self) -> bool:
        """Return whether all weights are finite."""
        not_finite = [
            weight
            for weight in self.learner.model.parameters()
            if not part(weight).isfinite().all()
        ]
        return self.world.sums(float(len(not_finite))) == [0.0]

    def _log(self, step: Step) -> None:
        self.report.step(step)
        if step.step % self.learner.log_every and not self.learner.finished:
            return
        names = ("loss", "gradient_norm", "learning_rate", "climb")
        values = {name: value for name in names if (value := getattr(step, name)) is not None}
        speed = round(step.tokens_per_second)
        self.metrics.append(
            step.step, **values, tokens_per_second=speed, seconds=round(self.progress.seconds, 2)
        )

    def _validate(self) -> bool:
        """Validate the weights, and keep them if they are the best; return False if the validation was interrupted.

        The checkpoint is written before, so that nothing is lost by an interruption.
        """
        place = self.progress
        model = self.learner.model
        weights = self.learner.weights()
        place.pending = True
        self._save()
        metrics: dict[str, float] = {}
        began = time.perf_counter()
        try:
            with temporary_weights(model, weights), gathered(model):
                if self.world.leads:
                    with abandonable() if self.world.size == 1 else nullcontext():
                        metrics = self.validate()
        except StopNowError:
            return False
        seconds = time.perf_counter() - began
        metrics, seconds = self.world.broadcast([metrics, seconds])
        if self.budget is not None:
            self.budget.validation = seconds
        with state_lock:
            self._is_saved = False
            place.pending = False
            self._record(metrics, weights)
        return True

    def _record(self, metrics: Metrics, weights: Weights) -> None:
        """Record a validation: keep the weights if it is the best; finish if the last improvement is too long ago."""
        place = self.progress
        best = self.learner.is_best(metrics)
        if best is not None:
            place.worse = 0 if best else place.worse + 1
        if best:
            place.best_loss, place.best_step = metrics["loss"], place.step
            place.best_accuracy = metrics.get("token_accuracy", 0.0)
            self._write(self.folder / BEST, {"model": weights})
        if self.settings.keep:
            self._keep(weights)
        self.metrics.append(
            place.step, validation=metrics, best=bool(best), seconds=round(place.seconds, 2)
        )
        self.report.validated(place.step, metrics, best=bool(best))
        place.finished = place.finished or place.worse >= (self.settings.patience or math.inf)

    def _keep(self, weights: Weights) -> None:
        """Store the weights of this validation, and delete the oldest beyond `train.keep`."""
        folder = self.folder / KEPT
        folder.mkdir(exist_ok=True)
        self._write(folder / f"{self.progress.step:08}.safetensors", {"model": weights})
        if self.world.leads:
            for old in sorted(folder.glob("*.safetensors"))[: -self.settings.keep]:
                old.unlink()

    def _best(self) -> Weights:
        """Return the weights of the best validation; without one, the current weights."""
        path = self.folder / BEST
        if self.progress.best_loss is None or not path.exists():
            return self.learner.weights()
        return read_checkpoint(path)[1]["model"]

    def _save(self) -> None:
        began = time.perf_counter()
        with state_lock:
            self._write(self.folder / LAST, self.learner.state())
            self._is_saved = True
        now = time.perf_counter()
        self._next_save = now + max(SAVE_EVERY, 50 * (now - began))

    def _save_is_due(self) -> bool:
        """Return whether the last checkpoint is old. Several processes save by their steps, as clocks differ."""
        return self.world.size == 1 and time.perf_counter() > self._next_save

    def _save_unsaved(self) -> None:
        """Save the current state if it is not saved; a single one of several processes cannot."""
        with state_lock:
            if not self._is_saved and self.world.size == 1:
                self._save()

    def _write(self, path: Path, parts: dict[str, dict[str, Tensor]]) -> None:
        parts = {
            name: {key: whole(tensor) for key, tensor in group.items()}
            for name, group in parts.items()
        }
        if self.world.leads:
            write_checkpoint(path, self.progress, parts)
