"""Optimisers and their schedules."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from seqlab.recipe import Train


def optimizer(model: nn.Module, settings: Train) -> torch.optim.Optimizer:
    """AdamW or SGD; weight decay acts on matrices alone, since a bias or a gain has nothing to overfit with."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=settings.learning_rate, momentum=settings.momentum)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)


def learning_rate(step: int, num_steps: int, settings: Train) -> float:
    """The rate at a step counted from 0: a linear warm-up, then cosine to nothing, 1/sqrt, or constant."""
    warmup = min(settings.warmup, num_steps)
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    if settings.schedule == "cosine":
        done = (step - warmup) / max(1, num_steps - warmup)
        return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    if settings.schedule == "inverse-sqrt":
        return settings.learning_rate * math.sqrt(max(1, warmup) / (step + 1))
    return settings.learning_rate


def clip_(parameters: Iterable[nn.Parameter], threshold: float) -> float:
    """E37 in place: gradients are scaled down to a global norm of `threshold`; returns the norm they had."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
    if norm > threshold:
        torch._foreach_mul_(gradients, threshold / norm)
    return norm


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What the optimiser remembers, as named tensors for a checkpoint."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for index, values in state.items()
        for name, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
