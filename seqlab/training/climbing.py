"""A hidden Markov model fitted in a run's folder: by counting in one step, or by EM, one iteration a step.

Nothing in it is random but the starts, which are keyed by (seed, climb): resuming equals never having stopped. The
climbs come one after another.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seqlab.models.hidden import Probabilities
from seqlab.models.hmm import HMM
from seqlab.recipe import Train
from seqlab.training.average import load_weights
from seqlab.training.checkpoint import Progress, read_checkpoint, write_checkpoint
from seqlab.training.em import Ascent, Expected, check_ascent
from seqlab.training.gradient import Outcome, peak_memory
from seqlab.training.log import Estimate, MetricsFile, Reporter, Step


@dataclass(frozen=True)
class Fitting:
    """Where each climb starts, and how it goes up; without an ascent the start is what was looked for.

    What is kept is the end of the highest climb; or, `by_validation`, the step with the best loss on what is held out:
    a tagger that already knows some labels is soon worse for climbing on (Merialdo 1994).
    """

    start: Callable[[int], HMM]
    ascent: Ascent | None
    by_validation: bool = False


class Climbing:
    """A run in a folder: `fit` begins it, or goes on where `last.safetensors` says it stood.

    Of `progress`, `epoch` is the climb, `index` its step, and `recent` holds what EM climbed at each of its steps.
    """

    def __init__(
        self,
        model: Probabilities,
        fitting: Fitting,
        settings: Train,
        *,
        validate: Callable[[], dict[str, float]],
        folder: Path,
        report: Reporter,
    ) -> None:
        self.model, self.fitting, self.settings = model, fitting, settings
        self.validate, self.folder, self.report = validate, folder, report
        self.metrics = MetricsFile(folder / "metrics.jsonl", tensorboard=settings.tensorboard)
        self.progress = Progress()
        self.ended: list[list[float]] = []  # of each climb that is over: how high, in how many steps, converged
        self._hmm = model.model
        self._counts: tuple[Expected, float] | None = None

    @property
    def num_climbs(self) -> int:
        return 1 if self.fitting.ascent is None else self.settings.restarts

    @property
    def num_steps(self) -> int:
        """The most that the run can take; what converges takes fewer."""
        each = 1 if self.fitting.ascent is None else self.settings.steps or 1
        return self.progress.step + (self.num_climbs - self.progress.epoch) * each - self.progress.index

    def resume(self) -> None:
        """Go back to where the last checkpoint stood."""
        self.progress, parts = read_checkpoint(self.folder / "last.safetensors")
        load_weights(self.model, parts["model"])
        self._hmm, self._counts = self.model.model, None
        self.ended = parts["ended"]["climbs"].tolist()
        self.metrics.cut_back(self.progress.step)

    def fit(self, *, stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Climb as often as the recipe says, or until `stop` says so; the model is then the best that was met."""
        place = self.progress
        self.report.begin(self.estimate(), place.step)
        began, before, stopped = time.perf_counter(), place.seconds, False
        every = self.settings.validate_every or max(1, self.num_climbs * (self.settings.steps or 1) // 20)
        try:
            while place.epoch < self.num_climbs and not stopped:
                over = self._step()
                place.seconds = before + time.perf_counter() - began
                if over or place.step % every == 0:
                    self._validate(over)
                stopped = stop() and place.epoch < self.num_climbs
        finally:
            self.report.end()
        place.finished = not stopped
        self._save()
        if place.best_loss is not None:
            load_weights(self.model, read_checkpoint(self.folder / "best.safetensors")[1]["model"])
        else:
            self._wear()
        return Outcome(place, stopped)

    def estimate(self) -> Estimate:
        """Time and memory of the run, from the first look at the data."""
        began, ascent, left = time.perf_counter(), self.fitting.ascent, self.num_steps - self.progress.step
        if ascent is not None and left:
            self._hmm = self._hmm if self.progress.index else self.fitting.start(self.progress.epoch)
            self._look(ascent)  # which the first step then need not do
        seconds = (time.perf_counter() - began) * left
        return Estimate(seconds, peak_memory(), self.num_steps, sum(p.numel() for p in self.model.parameters()))

    def steps_in(self, seconds: float) -> int:
        """As many steps of each climb as this machine takes in that time."""
        if self.fitting.ascent is None:
            return 1
        one = self.estimate()
        return max(1, int(seconds * one.num_steps / max(one.seconds, 1e-3) / self.num_climbs))

    def verdict(self) -> dict[str, Any]:
        """How far the fit can be trusted: which climb got highest, and whether it had converged."""
        if self.fitting.ascent is None:
            return {"by": "counting"}
        table: dict[str, Any] = {"by": "EM", "climbs": len(self.ended), "monotone": True}  # else it had been refused
        if not self.ended:
            return table
        best = max(range(len(self.ended)), key=lambda climb: self.ended[climb][0])
        height, steps, converged = self.ended[best]
        heights = [climb[0] / self.fitting.ascent.num_observed for climb in self.ended]
        table |= {"best_climb": best + 1, "steps": int(steps), "converged": bool(converged)}
        table |= {"kept_step": self.progress.best_step} if self.fitting.by_validation else {}
        return table | {"objective": height / self.fitting.ascent.num_observed, "objectives": heights}

    def _step(self) -> bool:
        """One iteration; whether it was the last of its climb."""
        began, place, ascent = time.perf_counter(), self.progress, self.fitting.ascent
        if place.index == 0 or ascent is None:
            self._hmm = self._hmm if self._counts else self.fitting.start(place.epoch)
        else:
            self._hmm, self._counts = ascent.maximise(self._hmm, self._look(ascent)[0]), None
        place.step, place.index = place.step + 1, place.index + 1
        if ascent is None:
            self.ended.append([0.0, 1.0, 1.0])
            return True
        _, log_likelihood = self._look(ascent)
        place.recent.append([ascent.objective(self._hmm, log_likelihood)])
        objectives = [height for (height,) in place.recent]
        check_ascent(objectives)
        converged = ascent.converged(objectives)
        self._log(log_likelihood / ascent.num_observed, ascent.num_observed, time.perf_counter() - began)
        over = converged or place.index >= (self.settings.steps or 1)
        if over:
            self.ended.append([objectives[-1], float(place.index), float(converged)])
        return over

    def _look(self, ascent: Ascent) -> tuple[Expected, float]:
        """The E step of the model as it stands; done once, however often it is asked for."""
        self._counts = self._counts or ascent.expect(self._hmm)
        return self._counts

    def _log(self, per_token: float, num_tokens: int, seconds: float) -> None:
        left = self.num_steps - self.progress.step
        rate = num_tokens / seconds
        self.report.step(
            Step(self.progress.step, self.num_steps, -per_token, tokens_per_second=rate, seconds_left=left * seconds)
        )
        self.metrics.append(
            self.progress.step,
            loss=-per_token,
            climb=self.progress.epoch + 1,
            tokens_per_second=round(rate),
            seconds=round(self.progress.seconds, 2),
        )

    def _validate(self, over: bool) -> None:
        """Validate the climb as it stands and keep it if it is the best; where it is over, make ready for the next."""
        place = self.progress
        self._wear()
        metrics = self.validate()
        if self.fitting.by_validation:
            best = place.best_loss is None or metrics["loss"] < place.best_loss
        else:
            best = over and self.ended[-1][0] >= max(climb[0] for climb in self.ended)
        if best:
            place.best_loss, place.best_step = metrics["loss"], place.step
            write_checkpoint(self.folder / "best.safetensors", place, {"model": self._hmm.tensors()})
        self.metrics.append(place.step, validation=metrics, best=best, seconds=round(place.seconds, 2))
        self.report.validated(place.step, metrics, best=best)
        if over:
            place.epoch, place.index, place.recent, self._counts = place.epoch + 1, 0, [], None
        self._save()

    def _wear(self) -> None:
        load_weights(self.model, self._hmm.tensors())

    def _save(self) -> None:
        ended = {"climbs": torch.tensor(self.ended, dtype=torch.float64).view(-1, 3)}
        parts = {"model": self._hmm.tensors(), "ended": ended}
        write_checkpoint(self.folder / "last.safetensors", self.progress, parts)
