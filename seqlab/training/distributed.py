"""Many processes, one run: each learns from its share of every batch, and all of them take the same step.

`torchrun --nproc-per-node=N -m seqlab train ...` starts them; torch's own DistributedDataParallel adds up gradients, or
FSDP2 where the weights are shared out too.
Which rows a batch has, and the noise of each row, do not depend on how many there are, so neither does the result.
"""

from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from seqlab.models.interface import Model
from seqlab.padded import Batch
from seqlab.recipe import Train
from seqlab.training.objective import Loss, batch_loss
from seqlab.training.sharded import sharded
from seqlab.training.world import World
from seqlab.types import State


class Lesson(nn.Module):
    """The loss of a batch; of many processes, each its share, and the gradient of all of them."""

    def __init__(self, model: nn.Module, world: World, settings: Train) -> None:
        super().__init__()
        self.world = world
        own = _Own(model, settings)
        self.own: nn.Module = own
        if world.size > 1 and settings.shard:
            self.own = sharded(own, world.size)
            model.unshard, model.reshard = own.unshard, own.reshard  # so that a run, which has the model, can gather it
        elif world.size > 1:
            # which weights a batch leaves untouched may differ from process to process; buffers are constants, which
            # each makes for itself, and the table of positions is as long as what this process has read
            self.own = DistributedDataParallel(own, find_unused_parameters=True, **_own_buffers())

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
    def __init__(self, model: nn.Module, settings: Train) -> None:
        super().__init__()
        self.model, self.settings = model, settings

    def forward(self, batch: Batch, carried: State) -> Loss:
        model: Model = self.model  # type: ignore[assignment]
        half = self.settings.precision == "bfloat16"
        with torch.autocast(batch.rows.device.type, torch.bfloat16, enabled=half):
            return batch_loss(model, batch, carried, label_smoothing=self.settings.label_smoothing)


def own_rows(state: State, world: World) -> State:
    """Of a state of all rows, those of this process."""
    return tuple(part[world.places(len(part)) or [0]] for part in state)


def _own_buffers() -> dict[str, Any]:
    """Buffers are not sent around before each step; torch has renamed how that is said."""
    known = signature(DistributedDataParallel.__init__).parameters
    return {next(name for name in ("forward_sync_buffers", "broadcast_buffers") if name in known): False}
