"""EM for the linear dynamical systems of a forecaster (E16) as a learner: a step is an iteration."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from operator import add

import torch

from seqlab.machine import release_memory, state_lock
from seqlab.models.forecaster import LDSForecaster, history_of
from seqlab.models.lds import LDS, cycle, local_level, local_linear_trend
from seqlab.padded import Batch, Padded
from seqlab.recipe import LDSConfig, TrainConfig
from seqlab.training.checkpoint import Progress
from seqlab.training.kalman_em import NOISES, LDSSettings, em_iterations, start_lds
from seqlab.training.log import Step
from seqlab.training.run import Learner
from seqlab.training.weights import Weights

STRUCTURE = LDSSettings(learn=(*NOISES, "input_matrix"), diagonal=True)
# without the initial state: a window can begin anywhere in the series
FREE = LDSSettings(learn=(*NOISES, "transition", "observation", "input_matrix"))
TOLERANCE = 1e-5  # nats per observed number; a smaller gain ends the training


class LDSLearner(Learner):
    """EM for the system of each variable on its whole training part; the loss is -log p (E68) per observed number.

    In `progress`, `recent` has the last loss. Only the last iteration, which is the best, is validated.
    """

    model: LDSForecaster

    def __init__(
        self, model: LDSForecaster, series: Batch, settings: TrainConfig, *, free: bool
    ) -> None:
        self.model = model
        self.settings = FREE if free else STRUCTURE
        self._num_steps = settings.steps or math.ceil(settings.epochs or 1)
        self.progress = Progress()
        self.starts = [
            LDS(**{name: tensor.clone() for name, tensor in system.tensors().items()})
            for system in model.systems
        ]
        rows = (history_of(series, torch.tensor([i])) for i in range(len(self.starts)))
        self.evidence = [
            s.evidence(row, inputs) for s, (row, inputs) in zip(self.starts, rows, strict=True)
        ]
        self.num_observed = max(1, sum(int(evidence.observed.sum()) for evidence in self.evidence))
        self._converged = False
        self._iterations: list[Iterator[tuple[LDS, float]]] = []
        self._next_iteration: list[tuple[LDS, float]] = []

    @property
    def num_steps(self) -> int:
        return self.progress.length or self._num_steps

    @property
    def finished(self) -> bool:
        return self._converged or super().finished

    def step(self) -> Step:
        began = time.perf_counter()
        place = self.progress
        systems, log_likelihoods = zip(*(self._next_iteration or self._iterate()), strict=True)
        loss = -sum(log_likelihoods) / self.num_observed
        before = place.recent[0][0] if place.recent else math.inf
        with state_lock:
            self._next_iteration = []
            self.model.learn(systems)
            self._converged = before - loss < TOLERANCE
            place.step, place.recent = place.step + 1, [[loss]]
            # a run that was extended after its last validation must not keep those weights
            place.best_loss = None
            place.best_step = 0
        release_memory()
        seconds = time.perf_counter() - began
        left = (self.num_steps - place.step) * seconds
        speed = self.num_observed / seconds
        return Step(
            place.step, self.num_steps, loss, speed, left, num_tokens=float(self.num_observed)
        )

    def restore(self, parts: Mapping[str, Weights], progress: Progress) -> None:
        super().restore(parts, progress)
        self._converged, self._iterations, self._next_iteration = False, [], []

    def seconds_per_step(self) -> float:
        """Measure the time of an iteration, whose result the next step uses."""
        self._begin()
        began = time.perf_counter()
        self._next_iteration = self._next_iteration or self._iterate()
        return time.perf_counter() - began

    def _iterate(self) -> list[tuple[LDS, float]]:
        """Make the next iteration for each variable."""
        self._begin()
        return [next(iteration) for iteration in self._iterations]

    def _begin(self) -> None:
        """Start EM, or continue it from the systems of a checkpoint."""
        if not self._iterations:
            current = self.model.systems if self.progress.step else [None] * len(self.starts)
            parts = zip(self.starts, self.evidence, current, strict=True)
            self._iterations = [
                em_iterations(start, data, self.settings, current=now) for start, data, now in parts
            ]
            for iteration in self._iterations:
                next(iteration)  # skip the start itself


def first_system(settings: LDSConfig, season: int, num_inputs: int, *, seed: int) -> LDS:
    """Return the start of EM for values of deviation 1: free states, or a trend and harmonics with small noises."""
    if settings.states:
        typical = Padded(torch.ones(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.long))
        return start_lds(typical, num_states=settings.states, num_inputs=num_inputs, seed=seed)
    parts = [
        cycle(season / k, wander=1e-4) for k in range(1, min(settings.harmonics, season // 2) + 1)
    ]
    if settings.trend == "slope":
        parts.append(local_linear_trend(level=0.05, slope=1e-4, noise=0.2))
    elif settings.trend == "level" or not parts:
        parts.append(local_level(level=0.05, noise=0.2))
    whole = reduce(add, parts)
    if not float(whole.observation_noise):
        whole = replace(whole, observation_noise=torch.full_like(whole.observation_noise, 0.2))
    inputs = (
        torch.zeros(len(whole.transition), num_inputs, dtype=torch.float64) if num_inputs else None
    )
    return replace(whole, input_matrix=inputs)
