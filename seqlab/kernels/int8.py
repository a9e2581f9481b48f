"""Weights in a quarter of the room: w ≈ s q, with whole numbers |q| ≤ 127 and a scale s for each output."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Float32, Int8
from torch import Tensor
from torch.nn.functional import linear

from seqlab.kernels import native

LARGEST = 127


class Matrix(NamedTuple):
    """W and b of x Wᵀ + b: W as it is, or packed int8, and then with the scale of each output."""

    weight: Tensor
    scale: Float32[Tensor, " N"] | None
    bias: Float[Tensor, " N"] | None

    def __call__(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows N"]:
        if self.scale is None:
            return linear(x, self.weight, self.bias)
        return torch.ops.seqlab.int8_linear(x, self.weight, self.scale, self.bias)


def quantise(weight: Float32[Tensor, "N *rest"]) -> tuple[Int8[Tensor, "N *rest"], Float32[Tensor, " N"]]:
    """The nearest s q, with s = max |w| / 127 for each output, cut to 17 bits so that every s q is a float exactly.

    Quantising what was dequantised therefore gives the same again.
    """
    largest = weight.flatten(1).abs().amax(1) if weight.numel() else weight.new_zeros(len(weight))
    scale = (largest / LARGEST).view(torch.int32).bitwise_and(-128).view(torch.float32)
    divisor = torch.where(scale > 0, scale, 1.0)
    q = (weight / divisor.view(-1, *[1] * (weight.dim() - 1))).round()
    return q.clamp(-LARGEST, LARGEST).to(torch.int8), scale


def dequantise(q: Int8[Tensor, "N *rest"], scale: Float32[Tensor, " N"]) -> Float32[Tensor, "N *rest"]:
    """s q."""
    return q * scale.view(-1, *[1] * (q.dim() - 1))


def packed(weight: Float32[Tensor, "N K"], bias: Float32[Tensor, " N"] | None) -> Matrix:
    """A matrix as the int8 product wants it; only where the native kernels are."""
    q, scale = quantise(weight)
    return Matrix(torch.ops.seqlab.pack_int8(q), scale, bias)


def usable(x: Float[Tensor, "..."]) -> bool:
    """Whether the int8 product can be taken: it knows float32 and no gradient, and is native."""
    return x.dtype == torch.float32 and not torch.is_grad_enabled() and native.ready()
