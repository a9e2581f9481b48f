"""Kernels on logits: the loss with its gradient (E4), and what a search asks of them.

The gradient of the loss is written out: softmax minus target, in one buffer instead of one for each operation. With the
head in it (E18), logits are made, scored and turned into their gradient for a few rows at a time: a matrix of tokens by
vocabulary is the largest thing in a small model's step, and this way it never leaves the cache.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import log_softmax

from seqlab.kernels import native
from seqlab.types import BestIds, BestScores, FlatIds, FlatLogits, FlatNumbers, FlatVectors, Logits, PerRow, Scalar

LOGITS = 2**22  # at a time: 16 MB


def cross_entropy(logits: FlatLogits, gold: FlatIds, *, label_smoothing: float = 0.0) -> FlatNumbers:
    """The twin of `equations.decoding.cross_entropy`."""
    loss: Tensor = _CrossEntropy.apply(logits, gold, label_smoothing)
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, gold: Tensor, smoothing: float) -> Tensor:
        half = logits.dtype == torch.bfloat16  # eight bits are not enough for a sum over a vocabulary
        log_p = log_softmax(logits, dim=-1, dtype=torch.float32 if half else None)
        ctx.save_for_backward(log_p, gold)
        ctx.smoothing = smoothing
        return _losses(log_p, gold, smoothing)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        log_p, gold = ctx.saved_tensors
        gradient = log_p.exp()
        _subtract_target(gradient, gold, ctx.smoothing)
        gradient *= gradients[0][:, None]
        return gradient, None, None


def head_cross_entropy(
    features: FlatVectors,
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"],
    gold: FlatIds,
    *,
    label_smoothing: float = 0.0,
) -> Scalar:
    """The sum of E4 over the rows, with o = V h + c (E18)."""
    total: Tensor = _HeadCrossEntropy.apply(features, weight, bias, gold, label_smoothing)
    return total


class _HeadCrossEntropy(torch.autograd.Function):
    """The gradients are found on the way there, as long as the logits are at hand; on the way back they are scaled."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, smoothing: float) -> Tensor:
        total = features.new_zeros(())
        d_features, d_weight, d_bias = (torch.zeros_like(part) for part in (features, weight, bias))
        rows = max(1, LOGITS // len(weight))
        logits, log_p = features.new_empty(2, min(rows, len(features)), len(weight))
        for x, label, back in zip(features.split(rows), gold.split(rows), d_features.split(rows), strict=True):
            o, p = logits[: len(x)], log_p[: len(x)]
            torch.addmm(bias, x, weight.mT, out=o)
            torch.log_softmax(o, dim=-1, out=p)
            total += _losses(p, label, smoothing).sum()
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


def _losses(log_p: FlatLogits, gold: FlatIds, smoothing: float) -> FlatNumbers:
    loss = -log_p.gather(-1, gold[:, None])[:, 0]
    return loss if not smoothing else (1 - smoothing) * loss - smoothing * log_p.mean(-1)


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
    return logits.index_fill(-1, torch.tensor(never, dtype=torch.long), -math.inf) if never else logits
