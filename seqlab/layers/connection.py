"""How a layer's output is joined with its input in a deep stack (S6)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.recurrent import dense, highway, residual
from seqlab.layers.tap import tap
from seqlab.recipe import Connection as Kind


class Connection(nn.Module):
    """Plain, residual (E27), highway (E26) or dense (E28) around a layer from `input_size` to `size` features.

    Residual and highway connections add the input to the output, so an input of another size is projected first.
    """

    def __init__(self, kind: Kind, input_size: int, size: int, *, name: str) -> None:
        super().__init__()
        self.kind, self.name = kind, name
        self.output_size = input_size + size if kind == "dense" else size
        adds = kind in ("residual", "highway")
        self.project = nn.Linear(input_size, size, bias=False) if adds and input_size != size else None
        self.transform = nn.Linear(size, size) if kind == "highway" else None
        if self.transform is not None:
            nn.init.constant_(self.transform.bias, -2.0)  # at first it carries (Srivastava et al. 2015)

    def forward(self, x: Float[Tensor, "B T D"], hx: Float[Tensor, "B T H"]) -> Float[Tensor, "B T R"]:
        if self.kind == "plain":
            return hx
        if self.kind == "dense":
            return dense(x, hx)
        if self.project is not None:
            x = self.project(x)
        if self.transform is None:
            return residual(x, hx)
        return highway(x, hx, tap(f"{self.name}.transform", torch.sigmoid(self.transform(x))))
