"""Kernels on logits: the loss of a head with its gradient (E18, E4), and what a search asks of them.

Logits are made, scored and turned into their gradient, softmax minus target, for a few rows at a time: a matrix of
tokens by vocabulary is the largest thing in a small model's step, and this way it never leaves the cache.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqlab.equations.decoding import smoothed_loss
from seqlab.kernels import native
from seqlab.types import BestIds, BestScores, FlatIds, FlatLogits, Logits, PerRow

LOGITS = 2**22  # at a time: 16 MB


class _HeadCrossEntropy(torch.autograd.Function):
    """The sum of E4 over the rows of features [N D], with o = V h + c (E18).

    The gradients are found on the way there, as long as the logits are at hand; on the way back they are scaled.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, smoothing: float
    ) -> Tensor:
        total = features.new_zeros(())
        d_features, d_weight, d_bias = (torch.zeros_like(part) for part in (features, weight, bias))
        rows = max(1, LOGITS // len(weight))
        logits, log_p = features.new_empty(2, min(rows, len(features)), len(weight))
        for x, label, back in zip(
            features.split(rows), gold.split(rows), d_features.split(rows), strict=True
        ):
            o, p = logits[: len(x)], log_p[: len(x)]
            torch.addmm(bias, x, weight.mT, out=o)
            torch.log_softmax(o, dim=-1, out=p)
            total += smoothed_loss(p, label, smoothing).sum()
            _subtract_target(p.exp_(), label, smoothing)
            torch.mm(p, weight, out=back)
            torch.addmm(d_weight, p.mT, x, out=d_weight)
            d_bias += p.sum(0)
        ctx.save_for_backward(d_features, d_weight, d_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(part.mul_(gradient) for part in ctx.saved_tensors), None, None


head_cross_entropy = _HeadCrossEntropy.apply


def _subtract_target(p: FlatLogits, gold: FlatIds, smoothing: float) -> None:
    """dL/do = p - q in place, where q is the smoothed target: ε/V everywhere, and 1 - ε more at the gold."""
    if smoothing:
        p -= smoothing / p.shape[-1]
    p[torch.arange(len(gold)), gold] -= 1 - smoothing


def log_total(logits: Logits) -> PerRow:
    """log Σ_v e^logit_v: what is taken from a logit to make it a log-probability."""
    if logits.dtype == torch.float32 and native.ready():
        return torch.ops.seqlab.log_total(logits)
    return logits.logsumexp(-1)


def largest(logits: Logits, keep: int, never: tuple[int, ...] = ()) -> tuple[BestScores, BestIds]:
    """The largest logits of each row, and whose they are, largest first; those of `never` count as -inf."""
    keep = min(keep, logits.shape[-1])
    if logits.dtype == torch.float32 and native.ready():
        return torch.ops.seqlab.largest(logits, keep, never)
    logits = without(logits, never)
    if keep == 1:
        best = logits.argmax(-1, keepdim=True)
        return logits.gather(-1, best), best
    return logits.topk(keep, dim=-1)


def without(logits: Logits, never: tuple[int, ...]) -> Logits:
    """The same logits, but -inf for those of `never`."""
    return (
        logits.index_fill(-1, torch.tensor(never, dtype=torch.long), -math.inf) if never else logits
    )
