"""L-BFGS (Nocedal 1980) on one flat vector: smooth convex problems are solved in tens of iterations, nothing is random.

The last few changes of the weights (s) and of the gradient (y) say how the gradient bends. A step is halved until the
loss falls by a part of what the slope promises (Armijo).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Flat = Float[Tensor, " D"]
Objective = Callable[[Flat], tuple[float, Flat]]  # the loss of some weights, and its gradient

HISTORY = 8  # pairs of changes
PROMISED = 1e-4  # the part of the promised fall that a step must reach
HALVINGS = 30


@dataclass
class Descent:
    """Where a minimisation stands: with the objective, all that is needed to go on."""

    weights: Flat
    loss: float
    gradient: Flat
    moves: list[Flat]
    bends: list[Flat]

    @classmethod
    def begin(
        cls, objective: Objective, weights: Flat, moves: list[Flat], bends: list[Flat]
    ) -> "Descent":
        loss, gradient = objective(weights)
        return cls(weights, loss, gradient, moves, bends)

    def step(self, objective: Objective) -> bool:
        """One iteration; false where no step along the gradient makes the loss smaller any more."""
        direction = self._direction()
        slope = float(direction @ self.gradient)
        if slope >= 0:  # rounding has spoilt the history
            self.moves, self.bends = [], []
            direction, slope = -self.gradient, -float(self.gradient @ self.gradient)
        size = 1.0 if self.moves else min(1.0, 1.0 / max(1e-12, float(self.gradient.abs().sum())))
        for _ in range(HALVINGS):
            weights = self.weights + size * direction
            loss, gradient = objective(weights)
            if loss <= self.loss + PROMISED * size * slope:
                self._remember(weights - self.weights, gradient - self.gradient)
                self.weights, self.loss, self.gradient = weights, loss, gradient
                return True
            size /= 2
        return False

    def _direction(self) -> Flat:
        """The inverse curvature that the history knows, times the gradient: the two loops."""
        direction, shares = -self.gradient, []
        for move, bend in zip(reversed(self.moves), reversed(self.bends), strict=True):
            share = (move @ direction) / (move @ bend)
            direction = direction - share * bend
            shares.append(share)
        if self.moves:
            direction = (
                direction * (self.moves[-1] @ self.bends[-1]) / (self.bends[-1] @ self.bends[-1])
            )
        for move, bend, share in zip(self.moves, self.bends, reversed(shares), strict=True):
            direction = direction + (share - (bend @ direction) / (move @ bend)) * move
        return direction

    def _remember(self, move: Flat, bend: Flat) -> None:
        if float(move @ bend) > 1e-10 * float(bend @ bend):
            self.moves = [*self.moves, move][-HISTORY:]
            self.bends = [*self.bends, bend][-HISTORY:]

    def tensors(self) -> dict[str, Tensor]:
        """The history, for a checkpoint; the weights are the model's."""
        return {"gradient": self.gradient} | {
            f"{name}.{place}": each
            for name, pairs in (("moves", self.moves), ("bends", self.bends))
            for place, each in enumerate(pairs)
        }

    @classmethod
    def restored(cls, weights: Flat, loss: float, tensors: dict[str, Tensor]) -> "Descent":
        """The inverse of `tensors`, copied: how a sum is rounded depends on where its numbers lie in memory."""
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        count = sum(name.startswith("moves.") for name in tensors)
        moves, bends = (
            [tensors[f"{name}.{place}"] for place in range(count)] for name in ("moves", "bends")
        )
        return cls(weights, loss, tensors["gradient"], moves, bends)


def flat(tensors: Sequence[Tensor]) -> Flat:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def unflat(weights: Flat, like: Sequence[Tensor]) -> list[Tensor]:
    """A flat vector in the shapes of some tensors."""
    parts = weights.split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
