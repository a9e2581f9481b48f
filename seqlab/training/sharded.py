"""Tensors of which each process has a part: torch's FSDP2 (`fully_shard`; Zhao et al. 2023), with `train.shard`.

Weights, gradients, averages and what the optimiser remembers lie spread over the processes; for the time of a step or
of a validation each gathers the weights. On disk there are whole tensors only, as if there were one process.
Torch's part of this takes a second to import, so it is imported where it is used, and known by what it can do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from seqlab.errors import RecipeError


def sharded(module: nn.Module, num_processes: int) -> nn.Module:
    """The module, which keeps a part of each weight here and gathers them whenever it is called."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for name, parameter in module.named_parameters():
        if parameter.dim() == 0:
            raise RecipeError(
                f"weight '{name.removeprefix('model.')}' is a single number, which cannot be shared out",
                hint="leave out train.shard.",
            )
    fully_shard(module, mesh=init_device_mesh(torch.get_default_device().type, (num_processes,)))
    return module


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
