"""What a training step does between its products, in few passes over memory: by native kernels, or by torch.

Each function here is a twin of an equation or of a layer, against which it is tested. The native kernels compute in
float32 and round once where the tensors are bfloat16, which the factors of a product are (`products.py`).
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqlab.equations.decoding import smoothed_loss
from seqlab.kernels import native
from seqlab.types import FlatIds, FlatNumbers

Heads = Float[Tensor, "B H T d"]
Memory = Float[Tensor, "B H S d"]
Scores = Float[Tensor, "B H T S"]
_TYPES = (torch.float32, torch.bfloat16)


class MaskWindows(NamedTuple):
    """Masks of dropout: that of a row is the window of the pool that begins at its offset."""

    pool: Float[Tensor, " P"]  # 0 or 1 / (1 - rate)
    offsets: Int[Tensor, " B"]
    rate: float


def can_pass(*tensors: Tensor) -> bool:
    """Whether the native kernels take these."""
    suits = all(x.dtype in _TYPES and x.device.type == "cpu" for x in tensors)
    return suits and native.ready()


def loss_and_gradient(
    logits: Float[Tensor, "P V"], gold: FlatIds, smoothing: float
) -> tuple[FlatNumbers, Float[Tensor, "_ V"]]:
    """E4 of each row, in float32 at least, and its gradient p - q with respect to the logits, in their type.

    q is the smoothed target: ε/V everywhere, and 1 - ε more at the gold. The gradient may take the place of the logits.
    Rows of logits after those with a gold are pads, whose gradient is to meet features that are zero.
    """
    real = logits[: len(gold)]
    if can_pass(logits):
        return torch.ops.seqlab.softmax_gradient(real, gold, smoothing), logits
    wide = torch.promote_types(logits.dtype, torch.float32)  # eight bits are too few for a sum
    log_p = real.log_softmax(-1, dtype=wide)
    losses = smoothed_loss(log_p, gold, smoothing)
    gradient = log_p.exp_()
    if smoothing:
        gradient -= smoothing / gradient.shape[-1]
    gradient[torch.arange(len(gold)), gold] -= 1 - smoothing
    if wide == logits.dtype:
        return losses, gradient
    real.copy_(gradient)
    return losses, logits


def relu_dropout(x: Float[Tensor, "B *F"], windows: MaskWindows) -> Float[Tensor, "B *F"]:
    """max(x, 0) m, by the native kernels."""
    return _ReluDropout.apply(x, windows)


def add_dropout(
    x: Float[Tensor, "B *F"], y: Float[Tensor, "B *F"], windows: MaskWindows
) -> Float[Tensor, "B *F"]:
    """x + y m, by the native kernels."""
    return _AddDropout.apply(x, y, windows)


def attention(q: Heads, k: Memory, v: Memory, visible: Bool[Tensor, "#B #T S"] | None) -> Heads:
    """E46 of factors in bfloat16, whose products are faster than torch's fused attention; sums are in float32."""
    return _Attention.apply(q, k, v, visible)


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, windows: MaskWindows) -> Tensor:
        out = torch.ops.seqlab.dropout(x.contiguous(), windows.pool, windows.offsets, True)
        ctx.save_for_backward(out)
        ctx.keep = 1 - windows.rate
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        return torch.ops.seqlab.relu_dropout_back(gradient.contiguous(), out, ctx.keep), None


class _AddDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, windows: MaskWindows) -> Tensor:
        ctx.windows, ctx.dtype = windows, y.dtype
        return torch.ops.seqlab.add_dropout(
            x.contiguous(), y.contiguous(), windows.pool, windows.offsets
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pool, offsets, _ = ctx.windows
        of_y = torch.ops.seqlab.dropout(gradient.to(ctx.dtype).contiguous(), pool, offsets, False)
        return gradient, of_y, None


class _Attention(torch.autograd.Function):
    """o = p v with p = softmax(q kᵀ / √d); dL/dv = pᵀ g, and E8's gradient for the scores."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
        q, k, v = (part.contiguous() for part in (q, k, v))
        scale = q.shape[-1] ** -0.5
        weights = _softmax_(q @ k.mT, visible, scale)
        ctx.save_for_backward(q, k, v, weights)
        ctx.scale = scale
        return weights @ v

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_scores = _softmax_back_(gradient @ v.mT, weights, ctx.scale)
        return of_scores @ k, of_scores.mT @ q, weights.mT @ gradient, None


def _softmax_(scores: Scores, visible: Tensor | None, scale: float) -> Scores:
    """softmax(scale scores) over what is visible, in place where that can be; who sees nothing gets zeros."""
    if can_pass(scores):
        visible = None if visible is None else visible.contiguous()
        torch.ops.seqlab.attention_softmax(scores, visible, scale)
        return scores
    wide = scores.float() * scale
    if visible is not None:
        wide = wide.masked_fill(~visible[:, None], -torch.inf)
    return wide.softmax(-1).nan_to_num(0.0).to(scores.dtype)


def _softmax_back_(gradient: Scores, weights: Scores, scale: float) -> Scores:
    """scale p (g - Σ p g), in place where that can be."""
    if can_pass(gradient, weights):
        torch.ops.seqlab.attention_softmax_back(gradient, weights, scale)
        return gradient
    p, g = weights.float(), gradient.float()
    return (scale * p * (g - (p * g).sum(-1, keepdim=True))).to(gradient.dtype)
