"""Many processes, one run: each learns from its share of every batch, and all of them take the same step.

`torchrun --nproc-per-node=N -m seqlab train ...` starts them; torch's own DistributedDataParallel adds up gradients.
Which rows a batch has, and the noise of each row, do not depend on how many there are, so neither does the result.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from seqlab.models.interface import Model
from seqlab.padded import Batch
from seqlab.training.objective import Loss, batch_loss
from seqlab.types import State


@dataclass(frozen=True)
class World:
    """How many processes there are, and which one this is; the first one leads: it alone writes, and says what is."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def places(self, num_rows: int) -> list[int]:
        """The rows that are this process's."""
        return list(range(self.rank, num_rows, self.size))

    def total(self, *values: float) -> list[float]:
        """The sums over all processes."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(numbers)
        return numbers.tolist()

    def heard(self, said: Any) -> Any:
        """What the leader says, as JSON: the others wait for it."""
        if self.size == 1:
            return said
        text = torch.tensor(list(json.dumps(said if self.leads else None).encode()), dtype=torch.uint8)
        length = torch.tensor(len(text))
        dist.broadcast(length, 0)
        text = text if self.leads else torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(text, 0)
        return json.loads(bytes(text.tolist()))

    def gathered(self, state: State, num_rows: int) -> State:
        """A state of all rows, from those that each process has."""
        if self.size == 1:
            return state
        whole = tuple(part.new_zeros(num_rows, *part.shape[1:]) for part in state)
        for part, own in zip(whole, state, strict=True):
            part[self.places(num_rows)] = own[: len(self.places(num_rows))]
            dist.all_reduce(part)
        return whole

    def wait(self) -> None:
        """Until all are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def joined() -> Iterator[World]:
    """The processes that torchrun has started, or this one alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or not dist.is_torchelastic_launched():
        yield World()
        return
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield World(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()


def restarted() -> bool:
    """Whether torchrun has started this process anew, after one of them died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


class Lesson(nn.Module):
    """The loss of a batch; of many processes, each its share, and the gradient of all of them."""

    def __init__(self, model: nn.Module, world: World, *, label_smoothing: float) -> None:
        super().__init__()
        self.world, self.label_smoothing = world, label_smoothing
        own = _Own(model, label_smoothing)
        # which weights a batch leaves untouched may differ from process to process
        self.own: nn.Module = own if world.size == 1 else DistributedDataParallel(own, find_unused_parameters=True)

    def share(self, batch: Batch) -> Batch:
        """This process's rows; where there are too few for all, some row, which then does not count."""
        return batch if self.world.size == 1 else batch.rows_at(self.world.places(len(batch)) or [0])

    def forward(self, batch: Batch, carried: State = ()) -> tuple[Loss, float, float]:
        """The loss of its share, with the gradient sent back; the summed loss of all, and how many scored positions."""
        share = self.share(batch)
        loss: Loss = self.own(share, carried)
        counts = 1.0 if self.world.rank < len(batch) else 0.0
        total, scored = self.world.total(counts * loss.total.item(), counts * loss.num_scored)
        # the mean of the gradients is what torch gives: their sum is wanted
        (loss.summed * (counts * self.world.size) / max(1.0, scored)).backward()
        return loss, total, scored


class _Own(nn.Module):
    def __init__(self, model: nn.Module, label_smoothing: float) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing

    def forward(self, batch: Batch, carried: State) -> Loss:
        model: Model = self.model  # type: ignore[assignment]
        return batch_loss(model, batch, carried, label_smoothing=self.label_smoothing)


def own_rows(state: State, world: World) -> State:
    """Of a state of all rows, those of this process."""
    return tuple(part[world.places(len(part)) or [0]] for part in state)
