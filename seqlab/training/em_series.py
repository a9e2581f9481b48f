"""A run of EM in a folder, as the loop of gradients is one: here the systems of a forecaster, an iteration a step."""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import torch

from seqlab.models.forecaster import LDSForecaster, evidence_of
from seqlab.models.lds import LDS
from seqlab.padded import Batch
from seqlab.recipe import Train
from seqlab.training.average import load_weights, parameters_of
from seqlab.training.checkpoint import Progress, read_checkpoint, write_checkpoint
from seqlab.training.em_lds import NOISES, Climb, ascent
from seqlab.training.gradient import Outcome, peak_memory
from seqlab.training.log import Estimate, MetricsFile, Reporter, Step
from seqlab.training.memory import tidy_memory

STRUCTURE = Climb(learn=(*NOISES, "input_matrix"), diagonal=True)
FREE = Climb(learn=(*NOISES, "transition", "observation", "input_matrix"))  # each window begins anywhere, not at h_1
ENOUGH = 1e-5  # nats for each number seen: a gain below it is no gain


class SystemsTraining:
    """Each variable's system by EM (E16) on its whole training part; the loss is -log p (E68) for each number seen."""

    def __init__(
        self,
        model: LDSForecaster,
        whole: Batch,
        settings: Train,
        *,
        free: bool,
        validate: Callable[[], dict[str, float]],
        folder: Path,
        report: Reporter,
    ) -> None:
        self.model, self.climb = model, FREE if free else STRUCTURE
        self.validate, self.folder, self.report = validate, folder, report
        self.num_steps = settings.steps or math.ceil(settings.epochs or 1)  # an iteration reads the whole training part
        self.starts = model.systems
        parts = (evidence_of(whole, torch.tensor([i])) for i in range(len(self.starts)))
        self.evidence = [
            start.evidence(row, None, inputs) for start, (row, inputs) in zip(self.starts, parts, strict=True)
        ]
        self.metrics = MetricsFile(folder / "metrics.jsonl", tensorboard=settings.tensorboard)
        self.progress = Progress()

    def resume(self) -> None:
        """Go back to where the last checkpoint stood."""
        self.progress, parts = read_checkpoint(self.folder / "last.safetensors")
        load_weights(self.model, parts["model"])
        self.metrics.cut_back(self.progress.step)

    def fit(self, *, stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Climb to the last step, until nothing is gained, or until `stop` says so."""
        place, began, before = self.progress, time.perf_counter(), self.progress.seconds
        climbs = self._climbs()
        num_seen = max(1, sum(int(seen.seen.sum()) for seen in self.evidence))
        last, stopped = place.recent[0][0] if place.recent else math.inf, False
        found = [next(climb) for climb in climbs]
        each = time.perf_counter() - began
        num_parameters = sum(parameter.numel() for parameter in self.model.parameters())
        left = self.num_steps - place.step
        self.report.begin(Estimate(2 * each * left, peak_memory(), self.num_steps, num_parameters), place.step)
        try:
            while place.step < self.num_steps and not place.finished and not stopped:
                tick = time.perf_counter()
                found = [next(climb) for climb in climbs]
                place.step += 1
                place.seconds = before + time.perf_counter() - began
                loss = -sum(likelihood for _, likelihood in found) / num_seen
                place.finished, last, place.recent = last - loss < ENOUGH, loss, [[loss]]
                self._keep([system for system, _ in found], loss, num_seen, time.perf_counter() - tick)
                stopped = stop() and not place.finished and place.step < self.num_steps
            metrics = self.validate()
            place.best_loss, place.best_step = metrics["loss"], place.step
            if not (stopped or any("validation" in row for row in self.metrics.rows() if row["step"] == place.step)):
                self.metrics.append(place.step, validation=metrics, best=True, seconds=round(place.seconds, 2))
            self.report.validated(place.step, metrics, best=True)
        finally:
            self.report.end()
        place.finished = not stopped
        self._save()
        return Outcome(place, stopped)

    def steps_in(self, seconds: float) -> int:
        """As many steps as this machine takes in that time."""
        climbs, times = self._climbs(), list[float]()
        for _ in range(3):  # the first one has nothing to learn from yet
            began = time.perf_counter()
            for climb in climbs:
                next(climb)
            times.append(time.perf_counter() - began)
        return max(1, int(seconds / fmean(times[1:])))

    def _climbs(self) -> list[Iterator[tuple[LDS, float]]]:
        """Each variable's way up, from its start or from where it stands."""
        current = self.model.systems if self.progress.step else [None] * len(self.starts)
        return [
            ascent(start, seen, self.climb, current=now)
            for start, seen, now in zip(self.starts, self.evidence, current, strict=True)
        ]

    def _keep(self, systems: list[LDS], loss: float, num_seen: int, seconds: float) -> None:
        place = self.progress
        self.model.learn(systems)
        tidy_memory()
        left = (self.num_steps - place.step) * seconds
        step = Step(place.step, self.num_steps, loss, tokens_per_second=num_seen / seconds, seconds_left=left)
        self.report.step(step)
        self.metrics.append(place.step, loss=loss, seconds=round(place.seconds, 2))
        self._save()  # last, for what was logged after a checkpoint is forgotten

    def _save(self) -> None:
        write_checkpoint(self.folder / "last.safetensors", self.progress, {"model": parameters_of(self.model)})
