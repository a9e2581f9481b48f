"""EM for a hidden Markov model (E11) as a learner: a step is an iteration, and there are several starts.

Only the starts are random; each is a function of (seed, restart).
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.machine import state_lock
from seqlab.models.emissions import Categorical, DiagonalGaussian, Emissions, FullGaussian
from seqlab.models.hmm import HMM, Probabilities
from seqlab.randomness import uniform
from seqlab.recipe import TrainConfig
from seqlab.training.baum_welch import EMSteps, ExpectedCounts, check_ascent
from seqlab.training.checkpoint import Progress
from seqlab.training.log import Metrics, Step
from seqlab.training.run import Learner
from seqlab.training.weights import Weights


class HMMLearner(Learner):
    """EM from `settings.restarts` starts, with up to `settings.steps` iterations each (a climb).

    The end of the best climb is kept; with `by_validation`, the iteration with the best held-out loss, because a tagger
    that starts from some labels soon gets worse (Merialdo 1994).
    In `progress`, `epoch` is the climb, `index` its step, and `recent` the objective after each of its steps.
    """

    model: Probabilities
    extended_by = "restarts"

    def __init__(
        self,
        model: Probabilities,
        start: Callable[[int], HMM],
        em: EMSteps,
        settings: TrainConfig,
        *,
        by_validation: bool = False,
    ) -> None:
        self.model = model
        self.start = start
        self.em = em
        self.by_validation = by_validation
        self.restarts = settings.restarts
        self._steps_each = settings.steps or 1
        self.progress = Progress()
        # objective, number of steps and convergence of each finished climb
        self.ended: list[list[float]] = []
        self._hmm = model.model
        self._expected: tuple[ExpectedCounts, float] | None = None

    @property
    def num_steps(self) -> int:
        place = self.progress
        return place.step + (self.restarts - place.epoch) * self.steps_each - place.index

    @property
    def finished(self) -> bool:
        return self.progress.epoch >= self.restarts

    @property
    def steps_each(self) -> int:
        """The largest number of iterations of a climb."""
        return self.progress.length or self._steps_each

    def length_of(self, num_steps: int) -> int:
        place = self.progress
        return max(1, (num_steps - place.step + place.index) // max(1, self.restarts - place.epoch))

    def step(self) -> Step:
        """Compute the next model and its E step, then change the whole state at once."""
        began = time.perf_counter()
        place = self.progress
        counts, log_likelihood = self._expect()
        hmm, expected = self._hmm, self._expected
        if place.index > 0:
            hmm = self.em.maximise(hmm, counts)
            expected = self.em.expect(hmm)
            log_likelihood = expected[1]
        objectives = [objective for (objective,) in place.recent] + [
            self.em.objective(hmm, log_likelihood)
        ]
        check_ascent(objectives)
        converged = self.em.converged(objectives)
        climb = place.epoch + 1
        with state_lock:
            self._hmm, self._expected = hmm, expected
            place.recent.append([objectives[-1]])
            place.step += 1
            place.index += 1
            if converged or place.index >= self.steps_each:
                self.ended.append([objectives[-1], float(place.index), float(converged)])
                place.epoch, place.index, place.recent, self._expected = climb, 0, [], None
        seconds, num_observed = time.perf_counter() - began, self.em.num_observed
        left = (self.num_steps - place.step) * seconds
        loss, speed = -log_likelihood / num_observed, num_observed / seconds
        return Step(
            place.step,
            self.num_steps,
            loss,
            speed,
            left,
            climb=climb,
            num_tokens=float(num_observed),
        )

    def state(self) -> dict[str, Weights]:
        ended = torch.tensor(self.ended, dtype=torch.float64).view(-1, 3)
        return {**super().state(), "ended": {"climbs": ended}}

    def restore(self, parts: Mapping[str, Weights], progress: Progress) -> None:
        super().restore(parts, progress)
        self._hmm, self._expected = self.model.model, None
        self.ended = parts["ended"]["climbs"].tolist()

    def validation_due(self, every: int) -> bool:
        return self.progress.index == 0 or self.progress.step % every == 0

    def weights(self) -> Weights:
        return self._hmm.tensors()

    def is_best(self, metrics: Metrics) -> bool | None:
        best = self.progress.best_loss
        if self.by_validation:
            return best is None or metrics["loss"] < best
        if self.progress.index > 0:
            return None
        return self.ended[-1][0] >= max(climb[0] for climb in self.ended)

    def seconds_per_step(self) -> float:
        """Measure the time of an E step, whose result the next step uses."""
        began = time.perf_counter()
        self._expect()
        return time.perf_counter() - began

    def fit_facts(self) -> dict[str, Any]:
        """Return how far the fit can be trusted: the best climb, and whether it has converged."""
        # check_ascent would have raised an error if it were not monotone
        table: dict[str, Any] = {"by": "EM", "climbs": len(self.ended), "monotone": True}
        if not self.ended:
            return table
        best = max(range(len(self.ended)), key=lambda climb: self.ended[climb][0])
        objectives = [climb[0] / self.em.num_observed for climb in self.ended]
        _, steps, converged = self.ended[best]
        table |= {"best_climb": best + 1, "steps": int(steps), "converged": bool(converged)}
        if self.by_validation:
            table["kept_step"] = self.progress.best_step
        return table | {"objective": objectives[best], "objectives": objectives}

    def _expect(self) -> tuple[ExpectedCounts, float]:
        """Return the E step of the current model, computed once; at the beginning of a climb, draw its start."""
        if self._expected is None:
            if self.progress.index == 0:
                self._hmm = self.start(self.progress.epoch)
            self._expected = self.em.expect(self._hmm)
        return self._expected


@dataclass(frozen=True)
class HMMShape:
    """The shape of a model: number of states, kind of emissions, number of symbols (by default those that occur)."""

    num_states: int
    emissions: Literal["categorical", "diagonal", "full"] = "categorical"
    num_symbols: int | None = None


def draw_hmm(shape: HMMShape, width: int, *, seed: int, restart: int = 0) -> HMM:
    """Draw a random model; `width` is the number of symbols or features."""
    initial, transitions = (_dirichlet([shape.num_states] * dims, seed, restart) for dims in (1, 2))
    if shape.emissions == "categorical":
        return HMM(
            initial, transitions, Categorical(_dirichlet((shape.num_states, width), seed, restart))
        )
    means = uniform(torch.arange(shape.num_states * width), seed, restart).unflatten(
        0, (shape.num_states, width)
    )
    return HMM(initial, transitions, gaussian(shape, means, means.new_ones(width)))


def gaussian(shape: HMMShape, means: Float[Tensor, "N D"], scale: Float[Tensor, " D"]) -> Emissions:
    """Return Gaussians with these means and the variance of all data."""
    if shape.emissions == "diagonal":
        return DiagonalGaussian(means, scale.repeat(len(means), 1))
    return FullGaussian(means, scale.diag().repeat(len(means), 1, 1))


def _dirichlet(shape: Sequence[int], seed: int, restart: int) -> Float[Tensor, "*rows N"]:
    """Draw distributions from a uniform Dirichlet distribution."""
    places = torch.arange(math.prod(shape)).view(*shape)
    draws = -uniform(places, seed, restart, *shape).clamp(min=2.0**-53).log()
    return draws / draws.sum(-1, keepdim=True)
