"""E4 with its gradient written out: softmax minus target, in one buffer instead of one for each operation."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax


def cross_entropy(
    logits: Float[Tensor, "N V"], gold: Int[Tensor, " N"], *, label_smoothing: float = 0.0
) -> Float[Tensor, " N"]:
    """The twin of `equations.similarity.cross_entropy`."""
    loss: Tensor = _CrossEntropy.apply(logits, gold, label_smoothing)
    return loss


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, gold: Tensor, smoothing: float) -> Tensor:
        half = logits.dtype == torch.bfloat16  # eight bits are not enough for a sum over a vocabulary
        log_p = log_softmax(logits, dim=-1, dtype=torch.float32 if half else None)
        ctx.save_for_backward(log_p, gold)
        ctx.smoothing = smoothing
        loss = -log_p.gather(-1, gold[:, None])[:, 0]
        return loss if not smoothing else (1 - smoothing) * loss - smoothing * log_p.mean(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """dL/do = p - q, where q is the smoothed target; a smoothed q is ε/V everywhere and 1 - ε more at the gold."""
        log_p, gold = ctx.saved_tensors
        gradient = log_p.exp()
        if ctx.smoothing:
            gradient -= ctx.smoothing / gradient.shape[-1]
        gradient[torch.arange(len(gold)), gold] -= 1 - ctx.smoothing
        gradient *= gradients[0][:, None]
        return gradient, None, None
