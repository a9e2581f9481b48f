"""The weights of a model as a run handles them: read, set, gathered from several processes, and averaged.

An average of the weights along the way is often better than the last ones, and free at inference. It follows the
weights (`after_step`, `after_validation`) and gives those to validate and keep (`weights`). A checkpoint holds its
`tensors`, from which `restore` continues.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from seqlab.models.build import fill
from seqlab.recipe import TrainConfig

Weights = dict[str, Tensor]


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


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Within this block each process has all weights, and the model can be used in any way."""
    gather(module)
    try:
        yield
    finally:
        if hasattr(module, "reshard"):
            module.reshard()  # type: ignore[operator]


def gather(module: nn.Module) -> None:
    """From here on each process has all weights."""
    if hasattr(module, "unshard"):
        module.unshard()  # type: ignore[operator]


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, for which all processes must ask; one that lies here is whole already."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def part(tensor: Tensor) -> Tensor:
    """What of a tensor lies here."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def spread(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, spread as another one is."""
    if not hasattr(like, "placements") or hasattr(tensor, "placements"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    other = cast(Any, like)
    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)
