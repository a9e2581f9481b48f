"""What training makes small, and what validation reports."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice

import torch

from seqlab.equations.decoding import cross_entropy, perplexity
from seqlab.layers.dropout import training
from seqlab.layers.linear import Head
from seqlab.models.interface import Model
from seqlab.padded import Batch
from seqlab.types import Scalar, State
from seqlab.world import ALONE, World


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
    model: Model, batch: Batch, carried: State = (), *, label_smoothing: float = 0.0
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
    model: Model, batches: Iterable[Batch], *, carries: bool, world: World = ALONE
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
    totals, scored, right = zip((0.0, 0, 0), *chain(*world.told(parts)), strict=True)
    num_scored = sum(scored)
    mean = math.fsum(totals) / num_scored if num_scored else math.nan
    if None in right:
        return {"loss": mean}
    share = sum(right) / num_scored if num_scored else math.nan
    return {"loss": mean, "perplexity": perplexity(mean), "token_accuracy": share}
