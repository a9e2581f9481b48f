"""x Wᵀ + b, by bytes where a model was rounded to them."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from seqlab.kernels import int8
from seqlab.kernels.int8 import Matrix


class Linear(nn.Linear):
    """torch's linear layer; once `in_bytes`, its product is taken with int8 weights where that can be.

    The weight itself stays as floats, on the grid of int8: whoever looks, differentiates or has no native kernels
    gets the same numbers up to rounding.
    """

    def __init__(self, size: int, outputs: int, bias: bool = True) -> None:
        super().__init__(size, outputs, bias)
        self.in_bytes = False
        self._packed: dict[tuple[int, int], Matrix] = {}

    def forward(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows N"]:
        if not self.in_bytes:
            return nn.functional.linear(x, self.weight, self.bias)
        return self.part(0, self.out_features)(x)

    def part(self, first: int, last: int) -> Matrix:
        """The product for some of the outputs."""
        if self.in_bytes and int8.usable(self.weight):
            if (first, last) not in self._packed:
                bias = None if self.bias is None else self.bias[first:last].detach()
                self._packed[first, last] = int8.packed(self.weight[first:last].detach(), bias)
            return self._packed[first, last]
        return Matrix(self.weight[first:last], None, None if self.bias is None else self.bias[first:last])


def is_rounded(weight: Shaped[Tensor, "..."]) -> bool:
    """Whether a weight is one that int8 rounds: a matrix or larger, of float32."""
    return weight.dim() > 1 and weight.dtype == torch.float32


@torch.no_grad()
def round_to_bytes(model: nn.Module) -> None:
    """Every matrix of a model on the grid of int8, one scale for each output, and its products in bytes from now on."""
    for parameter in model.parameters():
        if is_rounded(parameter):
            parameter.copy_(int8.dequantise(*int8.quantise(parameter)))
    for module in model.modules():
        if isinstance(module, Linear):
            module.in_bytes = True
            module._packed.clear()


def in_bytes(model: nn.Module) -> bool:
    """Whether a model was rounded to bytes."""
    return any(isinstance(module, Linear) and module.in_bytes for module in model.modules())
