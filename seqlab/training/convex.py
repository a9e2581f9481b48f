"""Convex models by L-BFGS as a learner: a step is an iteration, for a series of penalties.

Each penalty starts from the weights of the one before, so that the series costs little more than one fit; the one with
the lowest held-out loss is kept. Nothing is random.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.models.tf_idf import SparseTable
from seqlab.recipe import TrainConfig
from seqlab.training.checkpoint import Progress
from seqlab.training.lbfgs import Descent, Flat, flat, unflat
from seqlab.training.log import Metrics, Step
from seqlab.training.run import Learner
from seqlab.training.weights import Weights

PATIENCE = 5  # iterations in which the loss must fall by the tolerance


@runtime_checkable
class Problem(Protocol):
    """The loss of a model over the whole training part, as a function of its weights."""

    num_scored: int  # the loss is a mean over so many

    def loss(self, weights: Sequence[Tensor]) -> tuple[float, list[Tensor]]:
        """Return the mean loss and its gradient with respect to each tensor."""


class ConvexLearner(Learner):
    """Minimises the loss of a problem plus |w|² / (2 strength num_scored) over the parameters `learnt`.

    In `progress`, `epoch` counts the finished strengths, `index` the iterations at the current one, and `recent` has
    the losses of the last iterations.
    """

    save_every = 50  # the history of L-BFGS is much larger than the weights

    def __init__(
        self,
        model: nn.Module,
        learnt: Sequence[nn.Parameter],
        problem: Problem,
        settings: TrainConfig,
        strengths: Sequence[float],
    ) -> None:
        self.model = model
        self.learnt = list(learnt)
        self.problem = problem
        self.strengths = strengths
        self.steps_each = settings.steps or math.ceil(settings.epochs or 1)
        self.tolerance = settings.tolerance
        self.best = settings.best
        self.progress = Progress()
        self._descent: Descent | None = None

    @property
    def num_steps(self) -> int:
        place = self.progress
        return place.step + (len(self.strengths) - place.epoch) * self.steps_each - place.index

    @property
    def finished(self) -> bool:
        return self.progress.epoch >= len(self.strengths)

    def length_of(self, num_steps: int) -> int:
        return max(1, num_steps // len(self.strengths))

    def step(self) -> Step:
        began = time.perf_counter()
        place = self.progress
        descent = self._current_descent()
        improved = descent.step(self._objective)
        with torch.no_grad():
            for parameter, value in zip(
                self.learnt, unflat(descent.weights, self.learnt), strict=True
            ):
                parameter.copy_(value)
        place.step, place.index = place.step + 1, place.index + 1
        place.recent = [*place.recent, [descent.loss]][-PATIENCE - 1 :]
        if not improved or place.index >= self.steps_each or self._converged():
            place.epoch, place.index, place.recent = place.epoch + 1, 0, []
        seconds = time.perf_counter() - began
        left = (self.num_steps - place.step) * seconds
        return Step(
            place.step, self.num_steps, descent.loss, self.problem.num_scored / seconds, left
        )

    def _converged(self) -> bool:
        losses = [loss for (loss,) in self.progress.recent]
        return len(losses) > PATIENCE and losses[0] - losses[-1] < self.tolerance * max(
            1e-3, losses[-1]
        )

    def state(self) -> dict[str, Weights]:
        descent = {} if self._descent is None else self._descent.tensors()
        return {**super().state(), "descent": descent}

    def restore(self, parts: Mapping[str, Weights], progress: Progress) -> None:
        super().restore(parts, progress)
        losses = [0.0, *(loss for (loss,) in progress.recent)]
        self._descent = None
        if parts.get("descent"):
            self._descent = Descent.restored(flat(self.learnt), losses[-1], parts["descent"])

    def validation_due(self, every: int) -> bool:
        return self.progress.index == 0

    def is_best(self, metrics: Metrics) -> bool:
        """Compare by loss or by accuracy: the former gives better probabilities, the latter more correct answers."""
        best, accuracy = self.progress.best_loss, metrics.get("token_accuracy", 0.0)
        if best is not None and self.best == "accuracy" and accuracy != self.progress.best_accuracy:
            return accuracy > self.progress.best_accuracy
        return best is None or metrics["loss"] < best

    def seconds_per_step(self) -> float:
        """Measure the time of an evaluation, which the first step needs anyway."""
        began = time.perf_counter()
        self._current_descent()
        return time.perf_counter() - began

    def fit_facts(self) -> dict[str, Any]:
        return {"by": "L-BFGS", "strengths": list(self.strengths)}

    def _current_descent(self) -> Descent:
        """Return the minimisation at this strength; a new one starts with the curvature of the one before."""
        if self._descent is None or self.progress.index == 0:
            history = (
                ([], []) if self._descent is None else (self._descent.moves, self._descent.bends)
            )
            self._descent = Descent.begin(self._objective, flat(self.learnt), *history)
        return self._descent

    def _objective(self, weights: Flat) -> tuple[float, Flat]:
        penalty = 1 / (self.strengths[self.progress.epoch] * max(1, self.problem.num_scored))
        loss, gradients = self.problem.loss(unflat(weights, self.learnt))
        total = loss + 0.5 * penalty * float(weights.double() @ weights.double())
        return total, flat(gradients) + penalty * weights


@dataclass(frozen=True)
class DenseTable:
    """A dense table of features with a row for each example."""

    values: Float[Tensor, "N V"]

    def times(self, weight: Float[Tensor, "V K"]) -> Float[Tensor, "N K"]:
        return self.values @ weight

    def transposed(self, num_columns: int) -> "DenseTable":
        return DenseTable(self.values.T)


class LogisticRegression:
    """E4 for logits X W + b: the mean of -log softmax(X W + b) at the label of each row."""

    def __init__(
        self, table: SparseTable | DenseTable, labels: Int[Tensor, " N"], num_features: int
    ) -> None:
        self.table, self.transposed = table, table.transposed(num_features)
        self.labels, self.num_scored = labels, len(labels)

    @torch.no_grad()
    def loss(self, weights: Sequence[Tensor]) -> tuple[float, list[Tensor]]:
        weight, bias = weights
        log_p = (self.table.times(weight) + bias).log_softmax(-1)
        loss = -float(log_p.gather(1, self.labels[:, None]).double().mean())
        surplus = log_p.exp_().scatter_add_(1, self.labels[:, None], -torch.ones_like(log_p[:, :1]))
        surplus /= max(1, self.num_scored)
        return loss, [self.transposed.times(surplus), surplus.sum(0)]
