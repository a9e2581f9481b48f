"""A training run: one loop for every learner, and the folder that it can be continued from.

The run decides when to log, validate, save and stop; the learner knows what a step is. A learner is determined by its
progress and its tensors, so a run that was resumed equals one that never stopped.
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
MOST_IN_A_ROW = 20  # steps without a finite gradient, after which the run gives up
MOST_ROLLBACKS = 5
SAVE_EVERY = 10.0  # seconds; less often where a checkpoint takes long
LAST, BEST = "last.safetensors", "best.safetensors"
KEPT = "kept"  # the folder of weights along the way


class NotFiniteError(Exception):
    """A step was not made because its gradient is not finite; `rows` are the rows of the training part to blame."""

    def __init__(self, rows: list[int]) -> None:
        super().__init__(rows)
        self.rows = rows


@runtime_checkable
class Learner(Protocol):
    """A way to fit a model, one step at a time: gradient descent, EM or counting.

    What a learner does not write itself is that of the simplest: its tensors are the weights of the model, and those
    of its last step, which is the only one that is validated, are the best.
    """

    model: nn.Module
    progress: Progress  # the learner counts its steps in it; the run notes the best validation and the time
    log_every: int = 1  # steps
    extended_by: str = "steps"  # the setting of `train` that makes it longer

    @property
    def save_every(self) -> int:
        """Steps between checkpoints; there is also one before each validation, and every few seconds."""
        return 1

    @property
    def num_steps(self) -> int:
        """The most steps that the run can take; a learner that converges takes fewer."""

    @property
    def finished(self) -> bool:
        """Whether there is no step left."""
        return self.progress.step >= self.num_steps

    def length_of(self, num_steps: int) -> int:
        """What `progress.length` must be so that all steps together, those made included, are about so many."""
        return num_steps

    def step(self) -> Step | None:
        """Make one step. Returns what it measured, or nothing if it measured nothing.

        The state changes while `machine.state_lock` is held, so that at any other moment it can be saved.
        """

    def state(self) -> dict[str, Weights]:
        """The tensors that a checkpoint needs beside the progress; `model` are the weights."""
        return {"model": self.weights()}

    def restore(self, parts: Mapping[str, Weights], progress: Progress) -> None:
        """Go back to the state of a checkpoint."""
        self.progress = progress
        load_weights(self.model, parts["model"])

    def due(self, every: int) -> bool:
        """Whether a validation follows the last step; `every` is the interval that the recipe asks for."""
        return self.finished

    def weights(self) -> Weights:
        """The weights that are validated and kept."""
        return parameters_of(self.model)

    def judge(self, metrics: Metrics) -> bool | None:
        """Whether the validation of these weights is the best so far; None if they could not be kept anyway."""
        return True

    def seconds_per_step(self) -> float:
        """How long a step takes, measured without a lasting effect; 0 if it takes no time."""
        return 0.0

    def facts(self) -> dict[str, Any]:
        """What `metrics.json` says about the fit."""
        return {}


@dataclass(frozen=True)
class Outcome:
    """How a run ended. The model then has the best weights of all validations."""

    progress: Progress
    stopped: bool  # on request, before its last step


class Run:
    """A run in a folder: `fit` begins it, or continues it from where `resume` went back to."""

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
        """`threads` are the numbers of threads to choose from; with one, it is that; with none, the recorded one."""
        self.learner, self.settings, self.world = learner, settings, world
        self.validate, self.folder, self.report = validate, folder, report
        self.metrics = MetricsFile(
            folder / "metrics.jsonl", writes=world.leads, tensorboard=settings.tensorboard
        )
        self.validate_every = settings.validate_every or max(1, learner.num_steps // VALIDATIONS)
        self.budget = None if settings.minutes is None else Budget(60 * settings.minutes)
        self.threads = threads
        self._choice = ThreadChoice(threads or (torch.get_num_threads(),))
        self._clock = 0.0  # when the run would have begun, had it never stopped
        self._is_saved = False  # the present state
        self._next_save = 0.0

    @property
    def progress(self) -> Progress:
        return self.learner.progress

    @property
    def over(self) -> bool:
        """No step is left, or validation has stopped improving."""
        return self.progress.finished or self.learner.finished

    def resume(self, recipe: str, written: int | None) -> None:
        """Go back to the last checkpoint and note the recipe (TOML), whose settings of `train` may have changed.

        `written` is the step of the model that was saved beside the run. A run that was killed before its first
        checkpoint begins again. One that was killed after its last step stays finished: only its model is missing.
        """
        if not (self.folder / LAST).exists():
            self.metrics.cut_back(0)
            return
        self.restore()
        complete = self.world.broadcast(written) == self.progress.step
        num_steps, path = self.learner.num_steps, self.folder / "recipe.toml"
        unchanged = self.world.broadcast(path.read_text("utf-8") == recipe)
        used_up = self.progress.step >= num_steps if self.budget is None else unchanged
        if complete and self.progress.finished and used_up:
            more = self.learner.extended_by if self.budget is None else "minutes"
            raise RunError(
                f"{self.folder.parent}: this run has finished all {num_steps} steps",
                hint=f"give it more with --set train.{more}=N, or begin anew with --overwrite.",
            )
        self.progress.finished = self.progress.finished and unchanged and not complete
        if self.budget is not None and self.learner.finished and not self.progress.finished:
            self._resize(
                num_steps + 1, self.validate_every
            )  # there is more time; `estimate` finds out how many
        if self.world.leads:
            write_whole(path, recipe.encode())

    def restore(self) -> None:
        """Go back to the last checkpoint; the log is cut back with it."""
        progress, parts = read_checkpoint(self.folder / LAST)
        self.learner.restore(parts, progress)
        self.metrics.cut_back(progress.step, validated=not progress.pending)
        if self.budget is None:
            progress.lengths = []
        elif progress.lengths:
            self.validate_every = progress.lengths[-1][2]

    def fit(self, *, stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train to the last step, until validation stops improving, the time is over, or `stop` returns true.

        A run that was stopped while it validated does that first.
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
        """Make steps until the run is over, or until it is to stop; returns whether it was stopped."""
        while not (self.over or stopped):
            step = self._step()
            if step is not None:
                self._log(step)
            out_of_time = self._is_out_of_time()
            if self.learner.due(self.validate_every) or out_of_time:
                self.progress.finished = self.learner.finished or out_of_time
                stopped = not self._validate()
            elif self.progress.step % self.learner.save_every == 0 or self._save_is_due():
                self._save()
            (requests,) = self.world.sums(float(stop()))
            stopped = stopped or (requests > 0 and not self.over)
        return stopped

    def estimate(self) -> Estimate:
        """The time and memory that the run will take; where time is limited, this decides how many steps it takes."""
        seconds = 0.0 if self.over else self.world.broadcast(self.learner.seconds_per_step())
        if self.budget is not None and not self.over:
            self.budget.measured(seconds)
            self._plan(self.budget)
        num_steps, num_parameters = (
            self.learner.num_steps,
            sum(p.numel() for p in self.learner.model.parameters()),
        )
        return Estimate(
            seconds * (num_steps - self.progress.step), peak_memory(), num_steps, num_parameters
        )

    def _use_threads(self) -> None:
        """Compute the next step with the number of threads that is chosen, and take note of it."""
        count, used = self._choice.next(), self.progress.threads
        if not used or used[-1][1] != count:
            used.append([self.progress.step, count])
        if count != torch.get_num_threads():
            torch.set_num_threads(count)

    def _plan(self, budget: Budget) -> None:
        """Choose the number of steps that fit into the time, and take note of it; a small change is left out."""
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
        """Whether a limited time leaves no room for another step; if it does, the number of steps may change."""
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
        if self.budget is not None:  # of many processes, the clock of one decides
            seconds, self.progress.seconds = self.world.broadcast([seconds, self.progress.seconds])
            self.budget.measured(seconds)
        if step is not None:
            self._choice.measured(step.num_tokens / seconds)
        return step

    def _diverged(self, rows: list[int]) -> None:
        """A step was not made: leave it out, undo the last ones or stop, as the recipe says."""
        place, policy = self.progress, self.settings.divergence
        place.diverged.append(place.step + 1)
        message = (
            f"step {place.step + 1}: the gradient is not finite (rows {rows} of the training part)"
        )
        back = (
            policy == "rollback"
            and place.rate > 0.5**MOST_ROLLBACKS
            and (self.folder / LAST).exists()
        )
        recent = place.diverged[-MOST_IN_A_ROW:]
        hopeless = len(recent) == MOST_IN_A_ROW and recent[-1] - recent[0] == MOST_IN_A_ROW - 1
        if policy == "stop" or hopeless or not (back or self._finite()):
            raise RunError(
                message,
                hint="lower train.learning_rate or train.clip; the last checkpoint is untouched.",
            )
        if back:
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
        self.report.diverged(message, "rollback" if back else "skip")

    def _finite(self) -> bool:
        """Whether the weights are still numbers."""
        lost = [
            weight
            for weight in self.learner.model.parameters()
            if not part(weight).isfinite().all()
        ]
        return self.world.sums(float(len(lost))) == [0.0]

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
        """Validate the weights that would be kept, and keep them if they are the best; false if that was abandoned.

        The checkpoint is written before, so that it takes no part in a validation that is abandoned.
        """
        place, model, weights = self.progress, self.learner.model, self.learner.weights()
        place.pending = True
        self._save()
        began, metrics = time.perf_counter(), dict[str, float]()
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
            self._is_saved, place.pending = False, False
            self._judge(metrics, weights)
        return True

    def _judge(self, metrics: Metrics, weights: Weights) -> None:
        """Keep the weights if no earlier ones were better; stop if none were for too long."""
        place = self.progress
        best = self.learner.judge(metrics)
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
        folder = self.folder / KEPT
        folder.mkdir(exist_ok=True)
        self._write(folder / f"{self.progress.step:08}.safetensors", {"model": weights})
        for old in (
            sorted(folder.glob("*.safetensors"))[: -self.settings.keep] if self.world.leads else ()
        ):
            old.unlink()

    def _best(self) -> Weights:
        """The weights of the best validation; without one, those that would be validated now."""
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
        """Whether the last checkpoint is old. Many processes, whose clocks differ, go by their steps."""
        return self.world.size == 1 and time.perf_counter() > self._next_save

    def _save_unsaved(self) -> None:
        """Write what would be lost if the process ended now; many processes would have to do that together."""
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
