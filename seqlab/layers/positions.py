"""Where a token stands: positions added to embeddings (E54, E55)."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.transformer import learned_positions, sinusoidal_positions
from seqlab.layers.tap import tap

Kind = Literal["sinusoidal", "learned", "rotary", "none"]


class Positions(nn.Module):
    """Sinusoids, a learned table of `most` positions, or nothing here (C8; rotary ones act inside attention)."""

    def __init__(self, kind: Kind, size: int, *, most: int, name: str) -> None:
        super().__init__()
        self.kind, self.size, self.most, self.name = kind, size, most, name
        self.table = nn.Parameter(torch.randn(most, size) * size**-0.5) if kind == "learned" else None
        self.waves: Tensor
        self.register_buffer("waves", torch.zeros(0, size), persistent=False)

    def forward(self, x: Float[Tensor, "B T D"], *, first: int = 0) -> Float[Tensor, "B T D"]:
        if self.kind in ("none", "rotary"):
            return x
        if self.table is not None:
            if first + x.shape[1] > self.most:
                raise ValueError(f"{first + x.shape[1]} positions where {self.most} were learned")
            return tap(f"{self.name}.positions", learned_positions(x, self.table, first=first))
        needed = first + x.shape[1]
        if len(self.waves) < needed:
            self.waves = sinusoidal_positions(max(64, 2 * needed), self.size).to(x)
        return tap(f"{self.name}.positions", x + self.waves[first:needed].to(x.dtype))
