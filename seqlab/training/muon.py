"""Muon: momentum made orthogonal, for the matrices of a network (Jordan et al. 2024).

A gradient of a matrix has few large singular values; Muon moves all directions of its momentum by the same amount.
In float32 and batched by shape: on a CPU this is many times quicker than bfloat16, one matrix at a time.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

_A, _B, _C = 3.4445, -4.7750, 2.0315  # a quintic that drives singular values towards 1, steeply from below


def orthogonalise(x: Float[Tensor, "N R C"], *, steps: int = 5) -> Float[Tensor, "N R C"]:
    """U Vᵀ of each matrix U S Vᵀ, roughly: singular values end between 0.7 and 1.2 (Newton-Schulz iteration)."""
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised, scaled so that a step is as large as Adam's at the same learning rate.

    A parameter that stacks several matrices says so by an attribute `num_blocks`: each is made orthogonal by itself.
    A convolution is the matrix from all that a filter sees to what it says.
    """

    def __init__(self, parameters: Iterable[Any], *, lr: float, weight_decay: float, momentum: float = 0.95) -> None:
        super().__init__(list(parameters), {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    direction = self._momentum(parameter, group["momentum"])
                    blocks = direction.flatten(1).unflatten(0, (getattr(parameter, "num_blocks", 1), -1))
                    by_shape[blocks.shape[1:]].append((parameter, blocks))
            for (rows, columns), members in by_shape.items():
                update = orthogonalise(torch.cat([blocks for _, blocks in members]))
                # Adam's updates have a root mean square near 0.2 (Liu et al. 2025); an orthogonal one has 1/√max
                scale = 0.2 * max(rows, columns) ** 0.5
                for (parameter, _), piece in zip(members, update.split([len(b) for _, b in members]), strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(piece.reshape(parameter.shape), alpha=-group["lr"] * scale)

    def _momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(state["momentum"], momentum)
