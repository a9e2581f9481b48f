"""The weights of a model as a run handles them: read, set, moved by an optimiser, and averaged.

Optimisers are AdamW, SGD, and Muon for the matrices of a network (Jordan et al. 2024). A gradient of a matrix has few
large singular values; Muon moves all directions of its momentum by the same amount. Matrices of one shape are batched,
and multiplied in the way in which layers multiply.

An average of the weights along the way is often better than the last ones, and free at inference. It follows the
weights (`after_step`, `after_validation`) and gives those to validate and keep (`weights`). A checkpoint holds its
`tensors`, from which `restore` continues.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.kernels import products
from seqlab.layers.inputs import Embedding
from seqlab.layers.linear import Head
from seqlab.models.build import fill
from seqlab.recipe import TrainConfig
from seqlab.training.loss import part, spread, whole

Weights = dict[str, Tensor]
Group = dict[str, Any]
_A, _B, _C = (
    3.4445,
    -4.7750,
    2.0315,
)  # a quintic that drives singular values towards 1, steeply from below


class NoAverage:
    """The weights as they are."""

    def after_step(self, model: nn.Module, step: int) -> None:
        pass

    def after_validation(self, model: nn.Module) -> None:
        pass

    def weights(self, model: nn.Module) -> Weights:
        return parameters_of(model)

    def tensors(self) -> Weights:
        return {}

    def restore(self, tensors: Weights) -> None:
        pass


class ExponentialAverage(NoAverage):
    """a <- d a + (1 - d) w after each step, with d growing from 0 so that the random start is forgotten at once."""

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.average: Weights = {}

    def after_step(self, model: nn.Module, step: int) -> None:
        weights = parameters_of(model)
        if not self.average:
            self.average = {name: weight.clone() for name, weight in weights.items()}
            return
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(
            list(self.average.values()), [weights[name] for name in self.average], 1 - decay
        )

    def weights(self, model: nn.Module) -> Weights:
        return self.average or parameters_of(model)

    def tensors(self) -> Weights:
        return self.average

    def restore(self, tensors: Weights) -> None:
        self.average = dict(tensors)


class LastAverage(NoAverage):
    """The mean of the weights at the last few validations."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.snapshots: list[Weights] = []

    def after_validation(self, model: nn.Module) -> None:
        self.snapshots.append(
            {name: weight.clone() for name, weight in parameters_of(model).items()}
        )
        del self.snapshots[: -self.count]

    def weights(self, model: nn.Module) -> Weights:
        recent = [*self.snapshots, parameters_of(model)][-self.count :]
        return {
            name: torch.stack([weights[name] for weights in recent]).mean(0) for name in recent[-1]
        }

    def tensors(self) -> Weights:
        return {
            f"{i}.{name}": w
            for i, weights in enumerate(self.snapshots)
            for name, w in weights.items()
        }

    def restore(self, tensors: Weights) -> None:
        self.snapshots = []
        for key, weight in tensors.items():
            index, name = key.split(".", 1)
            self.snapshots += [{} for _ in range(int(index) + 1 - len(self.snapshots))]
            self.snapshots[int(index)][name] = weight


def average(settings: TrainConfig) -> NoAverage:
    """The average that a recipe asks for."""
    if settings.average == "ema":
        return ExponentialAverage(settings.ema_decay)
    return LastAverage(settings.average_last) if settings.average == "last" else NoAverage()


def parameters_of(model: nn.Module) -> Weights:
    """The weights by name, detached; a tied weight appears once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@contextmanager
def temporary_weights(model: nn.Module, weights: Weights) -> Iterator[None]:
    """Within this block the model has other weights."""
    own = parameters_of(model)
    if all(part(weights[name]).data_ptr() == part(own[name]).data_ptr() for name in own):
        yield
        return
    saved = {name: weight.clone() for name, weight in own.items()}
    load_weights(model, weights)
    try:
        yield
    finally:
        load_weights(model, saved)


@torch.no_grad()
def load_weights(model: nn.Module, weights: Weights) -> None:
    for name, parameter in model.named_parameters():
        fill(parameter, weights[name].shape, weights[name].dtype)
        parameter.copy_(spread(weights[name], parameter))


def optimizers(model: nn.Module, settings: TrainConfig) -> list[torch.optim.Optimizer]:
    """The optimisers of a recipe, each with its share of the weights.

    Weight decay acts on matrices alone: a bias or a gain has nothing to overfit with. Muon takes the matrices inside;
    embeddings and heads, where a row belongs to a token, stay with AdamW.
    """
    rate, decay = settings.learning_rate, settings.weight_decay
    inside, others, vectors = _groups(model, settings)
    if settings.optimizer == "muon":
        return [
            Muon(inside, lr=rate, weight_decay=decay),
            torch.optim.AdamW(others + vectors, lr=rate, fused=True),
        ]
    if settings.optimizer == "sgd":
        return [torch.optim.SGD(inside + others + vectors, lr=rate, momentum=settings.momentum)]
    return [torch.optim.AdamW(inside + others + vectors, lr=rate, fused=True)]


def set_rate(
    optimizers: list[torch.optim.Optimizer], rate: float, step: int, settings: TrainConfig
) -> None:
    """The rate of this step; an encoder that was trained before may learn more slowly, and later."""
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        factor = 1.0
        if group["encoder"]:
            factor = settings.encoder_rate if step >= settings.encoder_frozen else 0.0
        group["lr"] = rate * factor


def _groups(
    model: nn.Module, settings: TrainConfig
) -> tuple[list[Group], list[Group], list[Group]]:
    """Matrices, tables of tokens and vectors, the encoder's apart from the others where the recipe treats it so."""
    by_token = {
        id(parameter) for module in token_tables(model) for parameter in module.parameters()
    }
    apart = settings.encoder_rate != 1 or settings.encoder_frozen > 0
    members = defaultdict[tuple[int, bool], list[nn.Parameter]](list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            kind = 2 if parameter.dim() < 2 else 1 if id(parameter) in by_token else 0
            members[kind, apart and name.startswith("encoder.")].append(parameter)
    groups: tuple[list[Group], list[Group], list[Group]] = ([], [], [])
    for kind, encoder in sorted(members):
        decay = 0.0 if kind == 2 else settings.weight_decay
        groups[kind].append(
            {"params": members[kind, encoder], "weight_decay": decay, "encoder": encoder}
        )
    return groups


def token_tables(model: nn.Module) -> list[nn.Module]:
    """The modules in which a row belongs to a token: embeddings, and what gives the logits."""
    tables: list[nn.Module] = [
        module for module in model.modules() if isinstance(module, Embedding)
    ]
    return tables + [module.output for module in model.modules() if isinstance(module, Head)]


def learning_rate(step: int, num_steps: int, settings: TrainConfig) -> float:
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
    if not gradients:
        return 0.0
    norm = float(whole(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))))
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
        which, index, name = key.split(".", 2)
        states[int(which)].setdefault(int(index), {})[name] = value
    for optimizer, state in zip(optimizers, states, strict=True):
        weights: list[Tensor] = [
            weight for group in optimizer.param_groups for weight in group["params"]
        ]
        for place, values in state.items():
            state[place] = {
                n: spread(v, weights[place]) if v.dim() else v for n, v in values.items()
            }
        optimizer.load_state_dict(
            {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
        )


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised, scaled so that a step is as large as Adam's at the same learning rate.

    A parameter that stacks several matrices says so by an attribute `num_blocks`: each is made orthogonal by itself.
    A convolution is the matrix from all that a filter sees to what it says.
    """

    def __init__(
        self, parameters: Iterable[Any], *, lr: float, weight_decay: float, momentum: float = 0.95
    ) -> None:
        super().__init__(
            list(parameters), {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        )

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    direction = self._nesterov(parameter, parameter.grad, group["momentum"])
                    blocks = direction.flatten(1).unflatten(
                        0, (getattr(parameter, "num_blocks", 1), -1)
                    )
                    by_shape[blocks.shape[1:]].append((parameter, blocks))
            for (rows, columns), members in by_shape.items():
                update = orthogonalise(torch.cat([blocks for _, blocks in members]))
                # Adam's updates have a root mean square near 0.2 (Liu et al. 2025); an orthogonal one has 1/√max
                scale = 0.2 * max(rows, columns) ** 0.5
                for (parameter, _), piece in zip(
                    members, update.split([len(b) for _, b in members]), strict=True
                ):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(piece.reshape(parameter.shape), alpha=-group["lr"] * scale)

    def _nesterov(self, parameter: nn.Parameter, gradient: Tensor, momentum: float) -> Tensor:
        state = self.state[parameter]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(state["momentum"], momentum)


def orthogonalise(x: Float[Tensor, "N R C"]) -> Float[Tensor, "N R C"]:
    """U Vᵀ of each matrix U S Vᵀ, roughly: singular values end between 0.7 and 1.2 (Newton-Schulz iteration)."""
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    way = products.current_way(x, x[0].numel() * x.shape[1])
    orthogonal = products.rounded(x, way)
    for _ in range(5):
        gram = products.products(orthogonal, orthogonal.mT, way)
        gram = products.add_products(gram, gram, gram, way, beta=_B, alpha=_C)
        orthogonal = products.add_products(orthogonal, gram, orthogonal, way, beta=_A)
    orthogonal = orthogonal.to(x.dtype)
    return orthogonal.mT if tall else orthogonal
