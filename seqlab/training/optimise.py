"""Optimisers and their schedules."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from seqlab.layers.embedding import Embedding
from seqlab.models.heads import Head
from seqlab.recipe import Train
from seqlab.training.muon import Muon


def optimizers(model: nn.Module, settings: Train) -> list[torch.optim.Optimizer]:
    """The optimisers of a recipe, each with its share of the weights.

    Weight decay acts on matrices alone: a bias or a gain has nothing to overfit with. Muon takes the matrices inside;
    embeddings and heads, where a row belongs to a token, stay with AdamW.
    """
    by_token = {id(parameter) for module in token_tables(model) for parameter in module.parameters()}
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    vectors = [parameter for parameter in learned if parameter.dim() < 2]
    others = [parameter for parameter in learned if parameter.dim() >= 2 and id(parameter) in by_token]
    inside = [parameter for parameter in learned if parameter.dim() >= 2 and id(parameter) not in by_token]
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimizer == "muon":
        rest = [{"params": others, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
        return [Muon(inside, lr=rate, weight_decay=decay), torch.optim.AdamW(rest, lr=rate, fused=True)]
    groups = [{"params": inside + others, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    if settings.optimizer == "sgd":
        return [torch.optim.SGD(groups, lr=rate, momentum=settings.momentum)]
    return [torch.optim.AdamW(groups, lr=rate, fused=True)]


def token_tables(model: nn.Module) -> list[nn.Module]:
    """The modules in which a row belongs to a token: embeddings, and what gives the logits."""
    tables: list[nn.Module] = [module for module in model.modules() if isinstance(module, Embedding)]
    return tables + [module.output for module in model.modules() if isinstance(module, Head)]


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


def optimizer_tensors(optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """What the optimisers remember, as named tensors for a checkpoint."""
    return {
        f"{place}.{index}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for place, optimizer in enumerate(optimizers)
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if value is not None
    }


def restore_optimizers(optimizers: list[torch.optim.Optimizer], tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    states: list[dict[int, dict[str, Tensor]]] = [{} for _ in optimizers]
    for key, value in tensors.items():
        place, index, name = key.split(".", 2)
        states[int(place)].setdefault(int(index), {})[name] = value
    for optimizer, state in zip(optimizers, states, strict=True):
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
