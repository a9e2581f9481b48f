"""Ids to vectors."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.layers.dropout import Dropout, training
from seqlab.layers.tap import tap


class Embedding(nn.Module):
    """One learned vector for each id. In training, a share of the tokens goes unseen (Iyyer et al. 2015).

    A vector begins with length 1, unless its numbers are given another deviation.
    """

    def __init__(
        self, num_tokens: int, size: int, *, name: str, unseen: float = 0.0, deviation: float | None = None
    ) -> None:
        super().__init__()
        self.name = name
        self.size = size
        self.unseen = Dropout(unseen, name=f"{name}.tokens")
        drawn, std = nn.Linear(size, num_tokens, bias=False).weight, size**-0.5 if deviation is None else deviation
        self.weight = nn.Parameter(nn.init.normal_(drawn, std=std))

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        vectors = tap(f"{self.name}.embedding", nn.functional.embedding(ids, self.weight))
        if not (self.unseen.rate and training()):
            return vectors
        return vectors * self.unseen(vectors.new_ones(ids.shape))[..., None]
