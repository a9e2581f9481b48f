"""x Wᵀ + b, in floats or in int8, and the head that makes logits by it.

In training, logits are made, scored and turned into their gradient, softmax minus target, for a few rows at a time: a
matrix of tokens by vocabulary is the largest thing in a small model's step, and this way it never leaves the cache.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Float32, Int8, Shaped
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqlab.equations.decoding import cross_entropy
from seqlab.kernels import native, passes, products
from seqlab.kernels.products import Way
from seqlab.layers.tap import listened_to, tap
from seqlab.types import Features, FlatIds, FlatNumbers, FlatVectors, Scalar

LARGEST = 127
LOGITS = 2**22  # at a time: 16 MB


class Matrix(NamedTuple):
    """W and b of x Wᵀ + b: W as it is, or packed int8, and then with the scale of each output."""

    weight: Tensor
    scale: Float32[Tensor, " N"] | None
    bias: FlatNumbers | None

    def __call__(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows N"]:
        if self.scale is None:
            return products.linear(x, self.weight, self.bias)
        return torch.ops.seqlab.int8_linear(x, self.weight, self.scale, self.bias)

    def as_factor(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows N"]:
        """The same for what only another product reads: in the type of its factors."""
        if self.scale is None:
            return products.linear(x, self.weight, self.bias, as_factor=True)
        return self(x)


def quantise(weight: Float32[Tensor, "N *R"]) -> tuple[Int8[Tensor, "N *R"], Float32[Tensor, " N"]]:
    """The nearest s q, with s = max |w| / 127 for each output, cut to 17 bits so that every s q is a float exactly.

    Quantising what was dequantised therefore gives the same again.
    """
    largest = weight.flatten(1).abs().amax(1) if weight.numel() else weight.new_zeros(len(weight))
    scale = (largest / LARGEST).view(torch.int32).bitwise_and(-128).view(torch.float32)
    divisor = torch.where(scale > 0, scale, 1.0)
    q = (weight / divisor.view(-1, *[1] * (weight.dim() - 1))).round()
    return q.clamp(-LARGEST, LARGEST).to(torch.int8), scale


def dequantise(q: Int8[Tensor, "N *R"], scale: Float32[Tensor, " N"]) -> Float32[Tensor, "N *R"]:
    """s q."""
    return q * scale.view(-1, *[1] * (q.dim() - 1))


class Linear(nn.Linear):
    """torch's linear layer; once `in_bytes`, its product is taken with int8 weights where that can be.

    The weight itself stays as floats, on the grid of int8: whoever looks, differentiates or has no native kernels
    gets the same numbers up to rounding.
    """

    def __init__(self, size: int, outputs: int, bias: bool = True) -> None:
        super().__init__(size, outputs, bias)
        self.in_bytes = False
        self._packed: dict[tuple[int, int, bool], Matrix] = {}

    def forward(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows N"]:
        if not self.in_bytes:
            return products.linear(x, self.weight, self.bias)
        return self.part(0, self.out_features)(x)

    def as_factor(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows N"]:
        """The same for what only another product reads: in the type of its factors."""
        if not self.in_bytes:
            return products.linear(x, self.weight, self.bias, as_factor=True)
        return self(x)

    def part(self, first: int, last: int, *, coarse: bool = False) -> Matrix:
        """The product for some of the outputs. In bytes, x is rounded to 16 bits, or to 8 where `coarse`."""
        weight, bias = self.weight[first:last], None if self.bias is None else self.bias[first:last]
        # the int8 product knows float32 and no gradient, and is native
        packs = (
            self.in_bytes
            and weight.dtype == torch.float32
            and not torch.is_grad_enabled()
            and native.ready()
        )
        if not packs:
            return Matrix(weight, None, bias)
        key = first, last, coarse
        if key not in self._packed:
            q, scale = quantise(weight)
            pack = torch.ops.seqlab.pack_int8_coarse if coarse else torch.ops.seqlab.pack_int8
            self._packed[key] = Matrix(pack(q), scale, bias)
        return self._packed[key]


def is_rounded(weight: Shaped[Tensor, "..."]) -> bool:
    """Whether a weight is one that int8 rounds: a matrix or larger, of float32."""
    return weight.dim() > 1 and weight.dtype == torch.float32


@torch.no_grad()
def round_to_bytes(model: nn.Module) -> None:
    """Every matrix of a model on the grid of int8, one scale for each output, and its products in bytes from now on."""
    for parameter in model.parameters():
        if is_rounded(parameter):
            parameter.copy_(dequantise(*quantise(parameter)))
    for module in model.modules():
        if isinstance(module, Linear):
            module.in_bytes = True
            module._packed.clear()


def in_bytes(model: nn.Module) -> bool:
    """Whether a model was rounded to bytes."""
    return any(isinstance(module, Linear) and module.in_bytes for module in model.modules())


class _HeadCrossEntropy(torch.autograd.Function):
    """The sum of E4 over the rows of features [N D], with o = V h + c (E18).

    The gradients are found on the way there, as long as the logits are at hand; on the way back they are scaled.
    """

    @staticmethod
    def forward(
        ctx: Any,
        way: Way,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        gold: Tensor,
        smoothing: float,
    ) -> Tensor:
        total = features.new_zeros(())
        d_features, d_weight, d_bias = (torch.zeros_like(part) for part in (features, weight, bias))
        factor = products.rounded(weight, way)
        rows = max(1, LOGITS // len(weight))
        for x, label, back in zip(
            features.split(rows), gold.split(rows), d_features.split(rows), strict=True
        ):
            x = products.rounded_rows(x, way)
            logits = products.affine(x, factor, bias, way)
            losses, gradient = passes.loss_and_gradient(logits, label, smoothing)
            total += losses.sum()
            back.copy_(products.product(gradient, factor, way)[: len(label)])
            products.add_outer(d_weight, gradient, x, way)
            d_bias += gradient[: len(label)].sum(0, dtype=bias.dtype)
        ctx.save_for_backward(d_features, d_weight, d_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(part.mul_(gradient) for part in ctx.saved_tensors), None, None


def head_cross_entropy(
    features: FlatVectors, weight: Tensor, bias: Tensor, gold: FlatIds, smoothing: float
) -> Scalar:
    """The summed loss of a head, in the way in which layers multiply."""
    way = products.current_way(features, features.numel() * len(weight))
    return _HeadCrossEntropy.apply(way, features, weight, bias, gold, smoothing)


class Head(nn.Module):
    """E18: o = V h + c. With `tied`, V is an embedding's weight, reached through a projection where sizes differ."""

    def __init__(self, size: int, num_outputs: int, *, tied: nn.Parameter | None = None) -> None:
        super().__init__()
        inner = size if tied is None else tied.shape[1]
        self.project = Linear(size, inner, bias=False) if inner != size else None
        self.output = Linear(inner, num_outputs)
        nn.init.zeros_(self.output.bias)
        if tied is not None:
            self.output.weight = tied

    def forward(self, features: Features) -> Float[Tensor, "... V"]:
        return tap("logits", self.output(tap("features", self._projected(features))))

    def _projected(self, features: Features) -> Float[Tensor, "... E"]:
        return features if self.project is None else self.project(features)

    def loss(self, features: FlatVectors, gold: FlatIds, *, label_smoothing: float = 0.0) -> Scalar:
        """E4 summed over the rows, without holding the logits of all of them where nobody looks."""
        if listened_to() or torch.is_autocast_enabled(features.device.type):
            logits = self(features).to(
                self.output.weight.dtype
            )  # eight bits are too few for a sum over a vocabulary
            return cross_entropy(logits, gold, label_smoothing=label_smoothing).sum()
        projected, output = self._projected(features), self.output
        return head_cross_entropy(projected, output.weight, output.bias, gold, label_smoothing)
