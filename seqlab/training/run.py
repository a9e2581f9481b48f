"""A training run: one loop for every learner, and the folder that it can be continued from.

The run decides when to log, validate, save and stop; the learner knows what a step is. A learner is determined by its
progress and its tensors, so a run that was resumed equals one that never stopped.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from seqlab.device import peak_memory
from seqlab.errors import RunError
from seqlab.recipe import Train
from seqlab.training.average import Weights, load_weights, temporary_weights
from seqlab.training.checkpoint import Progress, read_checkpoint, write_checkpoint, write_whole
from seqlab.training.distributed import gather, gathered, part, whole
from seqlab.training.log import Estimate, Metrics, MetricsFile, Reporter, Step
from seqlab.world import ALONE, World

VALIDATIONS = 20  # in a run, unless the recipe sets the interval
MOST_IN_A_ROW = 20  # steps without a finite gradient, after which the run gives up
MOST_ROLLBACKS = 5
LAST, BEST = "last.safetensors", "best.safetensors"
KEPT = "kept"  # the folder of weights along the way


class NotFiniteError(Exception):
    """A step was not made because its gradient is not finite; `rows` are the rows of the training part to blame."""

    def __init__(self, rows: list[int]) -> None:
        super().__init__(rows)
        self.rows = rows


@runtime_checkable
class Learner(Protocol):
    """A way to fit a model, one step at a time: gradient descent, EM or counting."""

    progress: Progress  # the learner counts its steps in it; the run notes the best validation and the time
    log_every: int  # steps
    save_every: int  # steps; there is always a checkpoint after a validation
    extended_by: str  # the setting of `train` that makes it longer

    @property
    def model(self) -> nn.Module: ...

    @property
    def num_steps(self) -> int:
        """The most steps that the run can take; a learner that converges takes fewer."""

    @property
    def finished(self) -> bool:
        """Whether there is no step left."""

    def step(self) -> Step | None:
        """Make one step. Returns what it measured, or nothing if it measured nothing."""

    def state(self) -> dict[str, Weights]:
        """The tensors that a checkpoint needs beside the progress; `model` are the weights."""

    def restore(self, parts: Mapping[str, Weights], progress: Progress) -> None:
        """Go back to the state of a checkpoint."""

    def due(self, every: int) -> bool:
        """Whether a validation follows the last step; `every` is the interval that the recipe asks for."""

    def weights(self) -> Weights:
        """The weights that are validated and kept."""

    def judge(self, metrics: Metrics) -> bool | None:
        """Whether the validation of these weights is the best so far; None if they could not be kept anyway."""

    def seconds_per_step(self) -> float:
        """How long a step takes, measured without a lasting effect; 0 if it takes no time."""

    def facts(self) -> dict[str, Any]:
        """What `metrics.json` says about the fit."""


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
        settings: Train,
        *,
        validate: Callable[[], dict[str, float]],
        folder: Path,
        report: Reporter,
        world: World = ALONE,
    ) -> None:
        self.learner, self.settings, self.world = learner, settings, world
        self.validate, self.folder, self.report = validate, folder, report
        self.metrics = MetricsFile(folder / "metrics.jsonl", writes=world.leads, tensorboard=settings.tensorboard)
        self.validate_every = settings.validate_every or max(1, learner.num_steps // VALIDATIONS)

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
        complete = self.world.heard(written) == self.progress.step
        num_steps, path = self.learner.num_steps, self.folder / "recipe.toml"
        if complete and self.progress.finished and self.progress.step >= num_steps:
            raise RunError(
                f"{self.folder.parent}: this run has finished all {num_steps} steps",
                hint=f"give it more with --set train.{self.learner.extended_by}=N, or begin anew with --overwrite.",
            )
        unchanged = self.world.heard(path.read_text("utf-8") == recipe)
        self.progress.finished = self.progress.finished and unchanged and not complete
        if self.world.leads:
            write_whole(path, recipe.encode())

    def restore(self) -> None:
        """Go back to the last checkpoint; the log is cut back with it."""
        progress, parts = read_checkpoint(self.folder / LAST)
        self.learner.restore(parts, progress)
        self.metrics.cut_back(progress.step)

    def fit(self, *, stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train to the last step, until validation stops improving, or until `stop` returns true."""
        self.report.begin(self.estimate(), self.progress.step)
        began, before, stopped = time.perf_counter(), self.progress.seconds, False
        try:
            while not (self.over or stopped):
                step = self._step()
                self.progress.seconds = before + time.perf_counter() - began
                if step is not None:
                    self._log(step)
                if self.learner.due(self.validate_every):
                    self._validate()
                elif self.progress.step % self.learner.save_every == 0:
                    self._save()
                (requests,) = self.world.total(float(stop()))
                stopped = requests > 0 and not self.over
        finally:
            self.report.end()
        self.progress.finished = not stopped
        self._save()
        self.world.wait()
        load_weights(self.learner.model, self._best())
        gather(self.learner.model)
        return Outcome(self.progress, stopped)

    def estimate(self) -> Estimate:
        """The time and memory that the run will take."""
        num_steps, num_parameters = self.learner.num_steps, sum(p.numel() for p in self.learner.model.parameters())
        seconds = 0.0 if self.over else self.learner.seconds_per_step() * (num_steps - self.progress.step)
        return Estimate(seconds, peak_memory(), num_steps, num_parameters)

    def times_in(self, seconds: float) -> int:
        """How many times the steps of this run fit into a time, beside the validations of a whole run; at least one."""
        each = self.learner.num_steps * self.learner.seconds_per_step()
        began = time.perf_counter()
        if self.world.leads:
            self.validate()
        if self.settings.validate_every is None:
            seconds = max(seconds / 2, seconds - VALIDATIONS * (time.perf_counter() - began))
        return int(self.world.heard(max(1, int(seconds / each)) if each else 1))

    def _step(self) -> Step | None:
        try:
            return self.learner.step()
        except NotFiniteError as error:
            self._diverged(error.rows)
            return None

    def _diverged(self, rows: list[int]) -> None:
        """A step was not made: leave it out, undo the last ones or stop, as the recipe says."""
        place, policy = self.progress, self.settings.divergence
        place.diverged.append(place.step + 1)
        message = f"step {place.step + 1}: the gradient is not finite (rows {rows} of the training part)"
        back = policy == "rollback" and place.rate > 0.5**MOST_ROLLBACKS and (self.folder / LAST).exists()
        recent = place.diverged[-MOST_IN_A_ROW:]
        hopeless = len(recent) == MOST_IN_A_ROW and recent[-1] - recent[0] == MOST_IN_A_ROW - 1
        if policy == "stop" or hopeless or not (back or self._finite()):
            raise RunError(message, hint="lower train.learning_rate or train.clip; the last checkpoint is untouched.")
        if back:
            self.restore()
            self.progress.rate, self.progress.diverged = place.rate / 2, place.diverged
            self._save()
        else:
            place.step += 1
        self.metrics.append(self.progress.step, diverged=place.diverged[-1], rows=rows, rate=self.progress.rate)
        self.report.diverged(message, "rollback" if back else "skip")

    def _finite(self) -> bool:
        """Whether the weights are still numbers."""
        lost = [weight for weight in self.learner.model.parameters() if not part(weight).isfinite().all()]
        return self.world.total(float(len(lost))) == [0.0]

    def _log(self, step: Step) -> None:
        self.report.step(step)
        if step.step % self.learner.log_every and not self.learner.finished:
            return
        names = ("loss", "gradient_norm", "learning_rate", "climb")
        values = {name: value for name in names if (value := getattr(step, name)) is not None}
        speed = round(step.tokens_per_second)
        self.metrics.append(step.step, **values, tokens_per_second=speed, seconds=round(self.progress.seconds, 2))

    def _validate(self) -> None:
        """Validate the weights that would be kept, keep them if they are the best, and save."""
        place, model, weights = self.progress, self.learner.model, self.learner.weights()
        metrics: dict[str, float] = {}
        with temporary_weights(model, weights), gathered(model):
            if self.world.leads:
                metrics = self.validate()
        metrics = self.world.heard(metrics)
        best = self.learner.judge(metrics)
        if best is not None:
            place.worse = 0 if best else place.worse + 1
        if best:
            place.best_loss, place.best_step = metrics["loss"], place.step
            place.best_accuracy = metrics.get("token_accuracy", 0.0)
            self._write(self.folder / BEST, {"model": weights})
        if self.settings.keep:
            self._keep(weights)
        self.metrics.append(place.step, validation=metrics, best=bool(best), seconds=round(place.seconds, 2))
        self.report.validated(place.step, metrics, best=bool(best))
        place.finished = self.learner.finished or place.worse >= (self.settings.patience or math.inf)
        self._save()

    def _keep(self, weights: Weights) -> None:
        folder = self.folder / KEPT
        folder.mkdir(exist_ok=True)
        self._write(folder / f"{self.progress.step:08}.safetensors", {"model": weights})
        for old in sorted(folder.glob("*.safetensors"))[: -self.settings.keep] if self.world.leads else ():
            old.unlink()

    def _best(self) -> Weights:
        """The weights of the best validation; without one, those that would be validated now."""
        path = self.folder / BEST
        if self.progress.best_loss is None or not path.exists():
            return self.learner.weights()
        return read_checkpoint(path)[1]["model"]

    def _save(self) -> None:
        self._write(self.folder / LAST, self.learner.state())

    def _write(self, path: Path, parts: dict[str, dict[str, Tensor]]) -> None:
        parts = {name: {key: whole(tensor) for key, tensor in group.items()} for name, group in parts.items()}
        if self.world.leads:
            write_checkpoint(path, self.progress, parts)
