"""The loss: what training makes small, in one process or in several, and what validation reports.

Of several processes, each computes the gradient of its share of every batch, and all take the same step.

`torchrun --nproc-per-node=N -m seqlab train ...` starts them; torch's own DistributedDataParallel adds up gradients.
Which rows a batch has, and the noise of each row, do not depend on how many there are, so neither does the result.

With `train.shard`, torch's FSDP2 (`fully_shard`; Zhao et al. 2023) also spreads weights, gradients, averages and what
the optimiser remembers over the processes; each gathers the weights for the time of a step or of a validation. On disk
there are whole tensors only, as if there were one process. Torch's part of this takes a second to import, so it is
imported where it is used, and recognised by its methods.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from itertools import chain, islice
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from seqlab.distributed import SINGLE_PROCESS, World
from seqlab.equations.decoding import cross_entropy, perplexity
from seqlab.errors import RecipeError
from seqlab.layers.linear import Head
from seqlab.models.interface import SequenceModel
from seqlab.padded import Batch
from seqlab.randomness import training
from seqlab.recipe import TrainConfig
from seqlab.types import Scalar, State


@dataclass(frozen=True)
class Loss:
    """A sum over the scored positions of a batch, how many there are, and the state that the next chunk begins in."""

    total: Scalar
    num_scored: int
    num_right: int | None  # of classes
    carried: State
    penalty: Scalar | None = None

    @property
    def summed(self) -> Scalar:
        """The sum, with whatever the model adds for how it worked."""
        return self.total if self.penalty is None else self.total + self.penalty

    @property
    def to_minimise(self) -> Scalar:
        """The mean over the scored positions."""
        return self.summed / max(1, self.num_scored)


def batch_loss(
    model: SequenceModel, batch: Batch, carried: State = (), *, label_smoothing: float = 0.0
) -> Loss:
    """Cross-entropy (E4) summed over the positions that carry a known label, or what a model's own output says.

    The head runs at those positions only: a pad costs no logits. A label of -1 was never seen in training: no
    prediction can hit it, so it has no likelihood.
    """
    reading = model.read_batch(batch, carried)
    scored = reading.gold.scored
    if reading.output is None:
        scored = scored & (reading.gold.values >= 0)
    features, gold, right, head = (
        reading.features[scored],
        reading.gold.values[scored],
        None,
        model.head,
    )
    if reading.output is not None:
        total = reading.output.losses(head(features), gold).sum()
    elif training() and isinstance(head, Head):
        total, right = (
            head.loss(features, gold, label_smoothing=label_smoothing),
            0,
        )  # nobody asks in training
    else:
        logits = head(features)
        total = cross_entropy(logits, gold, label_smoothing=label_smoothing).sum()
        right = int((logits.argmax(-1) == gold).sum())
    carries_on = tuple(part.detach() for part in reading.carried)
    return Loss(total, len(gold), right, carries_on, reading.penalty)


@torch.inference_mode()
def mean_loss(
    model: SequenceModel, batches: Iterable[Batch], *, carries: bool, world: World = SINGLE_PROCESS
) -> dict[str, float]:
    """Loss per token in nats and its perplexity; with `carries`, each batch goes on where the last one ended.

    Of real numbers there is the loss alone. Many processes share the batches, unless each goes on where another ended:
    then they are the leader's. The sum is rounded once, so it is the same for any number of processes.
    """
    carried: State = ()
    parts = []
    size = 1 if carries else world.size
    for batch in islice(batches, world.rank, None, size) if world.rank < size else ():
        loss = batch_loss(model, batch, carried if carries else ())
        carried = loss.carried
        parts.append((float(loss.total), loss.num_scored, loss.num_right))
    totals, scored, right = zip((0.0, 0, 0), *chain(*world.all_gather(parts)), strict=True)
    num_scored = sum(scored)
    mean = math.fsum(totals) / num_scored if num_scored else math.nan
    if None in right:
        return {"loss": mean}
    share = sum(right) / num_scored if num_scored else math.nan
    return {"loss": mean, "perplexity": perplexity(mean), "token_accuracy": share}


class DistributedLoss(nn.Module):
    """The loss of a batch; of many processes, each its share, and the gradient of all of them."""

    def __init__(self, model: nn.Module, world: World, settings: TrainConfig) -> None:
        super().__init__()
        self.world = world
        own = _ModelLoss(model, settings)
        self.own: nn.Module = own
        if world.size > 1 and settings.shard:
            self.own = sharded(own, world.size)
            model.unshard, model.reshard = (
                own.unshard,
                own.reshard,
            )  # so that a run, which has the model, can gather it
        elif world.size > 1:
            # which weights a batch leaves untouched may differ from process to process; buffers are constants, which
            # each makes for itself, and the table of positions is as long as what this process has read
            self.own = DistributedDataParallel(own, find_unused_parameters=True, **_own_buffers())

    def share(self, batch: Batch) -> Batch:
        """This process's rows; where there are too few for all, some row, which then does not count."""
        return (
            batch if self.world.size == 1 else batch.rows_at(self.world.own_rows(len(batch)) or [0])
        )

    def forward(self, batch: Batch, carried: State = ()) -> tuple[Loss, float, float]:
        """The loss of its share, with the gradient sent back; the summed loss of all, and how many scored positions."""
        share = self.share(batch)
        loss: Loss = self.own(share, carried)
        counts = 1.0 if self.world.rank < len(batch) else 0.0
        total, scored = self.world.sums(counts * loss.total.item(), counts * loss.num_scored)
        # the mean of the gradients is what torch gives: their sum is wanted
        (loss.summed * (counts * self.world.size) / max(1.0, scored)).backward()
        return loss, total, scored


def own_rows(state: State, world: World) -> State:
    """Of a state of all rows, those of this process."""
    return tuple(part[world.own_rows(len(part)) or [0]] for part in state)


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


class _ModelLoss(nn.Module):
    """The loss of some rows as a module, which is what torch distributes."""

    def __init__(self, model: nn.Module, settings: TrainConfig) -> None:
        super().__init__()
        self.model, self.settings = model, settings

    def forward(self, batch: Batch, carried: State) -> Loss:
        model: SequenceModel = self.model  # type: ignore[assignment]
        device = batch.rows.device.type
        half = (
            self.settings.precision == "bfloat16" and device != "cpu"
        )  # there: `kernels/products.py`
        with torch.autocast(device, torch.bfloat16, enabled=half):
            return batch_loss(model, batch, carried, label_smoothing=self.settings.label_smoothing)


def _own_buffers() -> dict[str, Any]:
    """Buffers are not sent around before each step; torch has renamed how that is said."""
    parameters = signature(DistributedDataParallel.__init__).parameters
    return {
        next(
            name for name in ("forward_sync_buffers", "broadcast_buffers") if name in parameters
        ): False
    }
