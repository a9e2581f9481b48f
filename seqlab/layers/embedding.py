"""Ids to vectors."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.layers.tap import tap


class Embedding(nn.Module):
    """One learned vector for each id."""

    def __init__(self, num_tokens: int, size: int, *, name: str) -> None:
        super().__init__()
        self.name = name
        self.size = size
        self.weight = nn.Parameter(nn.init.normal_(nn.Linear(size, num_tokens, bias=False).weight, std=size**-0.5))

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return tap(f"{self.name}.embedding", nn.functional.embedding(ids, self.weight))
