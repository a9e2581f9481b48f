"""L-BFGS (Nocedal 1980) on one flat vector: solves smooth convex problems in tens of iterations, deterministically.

The last few changes of the weights (s) and of the gradient (y) approximate the curvature. A step is halved until the
loss falls by a share of what the slope predicts (Armijo).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

Flat = Float[Tensor, " D"]
Objective = Callable[[Flat], tuple[float, Flat]]  # the loss of some weights, and its gradient

HISTORY = 8  # pairs of changes
ARMIJO = 1e-4  # share of the predicted decrease that a step must reach
HALVINGS = 30


@dataclass
class Descent:
    """The state of a minimisation. `moves` are the changes s of the weights, `bends` the changes y of the gradient."""

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
        """Make one iteration; return False if no step along the gradient lowers the loss."""
        direction = self._direction()
        slope = float(direction @ self.gradient)
        if slope >= 0:  # the history is unusable because of rounding
            self.moves, self.bends = [], []
            direction, slope = -self.gradient, -float(self.gradient @ self.gradient)
        size = 1.0 if self.moves else min(1.0, 1.0 / max(1e-12, float(self.gradient.abs().sum())))
        for _ in range(HALVINGS):
            weights = self.weights + size * direction
            loss, gradient = objective(weights)
            if loss <= self.loss + ARMIJO * size * slope:
                self._remember(weights - self.weights, gradient - self.gradient)
                self.weights, self.loss, self.gradient = weights, loss, gradient
                return True
            size /= 2
        return False

    def _direction(self) -> Flat:
        """Return minus the approximate inverse Hessian times the gradient (the two-loop recursion)."""
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
        """Return the gradient and the history for a checkpoint, which has the weights in the model."""
        return {"gradient": self.gradient} | {
            f"{name}.{place}": each
            for name, pairs in (("moves", self.moves), ("bends", self.bends))
            for place, each in enumerate(pairs)
        }

    @classmethod
    def restored(cls, weights: Flat, loss: float, tensors: dict[str, Tensor]) -> "Descent":
        """Return the state from `tensors`, copied, because rounding depends on the alignment in memory."""
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        count = sum(name.startswith("moves.") for name in tensors)
        moves, bends = (
            [tensors[f"{name}.{place}"] for place in range(count)] for name in ("moves", "bends")
        )
        return cls(weights, loss, tensors["gradient"], moves, bends)


def flat(tensors: Sequence[Tensor]) -> Flat:
    """Return the numbers of some tensors as one vector."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def unflat(weights: Flat, like: Sequence[Tensor]) -> list[Tensor]:
    """Split a vector into tensors of the shapes of `like`."""
    parts = weights.split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
