"""What a search asks of logits: what they sum to, and which are the largest."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqlab.kernels import native


def log_total(logits: Float[Tensor, "B V"]) -> Float[Tensor, " B"]:
    """log Σ_v e^logit_v: what is taken from a logit to make it a log-probability."""
    if logits.dtype == torch.float32 and native.ready():
        return torch.ops.seqlab.log_total(logits)
    return logits.logsumexp(-1)


def largest(
    logits: Float[Tensor, "B V"], keep: int, never: tuple[int, ...] = ()
) -> tuple[Float[Tensor, "B k"], Int[Tensor, "B k"]]:
    """The largest logits of each row, and whose they are, largest first; those of `never` count as -inf."""
    keep = min(keep, logits.shape[-1])
    if logits.dtype == torch.float32 and native.ready():
        return torch.ops.seqlab.largest(logits, keep, never)
    logits = without(logits, never)
    if keep == 1:
        best = logits.argmax(-1, keepdim=True)
        return logits.gather(-1, best), best
    return logits.topk(keep, dim=-1)


def without(logits: Float[Tensor, "B V"], never: tuple[int, ...]) -> Float[Tensor, "B V"]:
    """The same logits, but -inf for those of `never`."""
    return logits.index_fill(-1, torch.tensor(never, dtype=torch.long), -math.inf) if never else logits
