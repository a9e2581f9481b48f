"""Many states to one vector: the ways of S10 behind one call."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.pooling import max_pool, mean_pool, weighted_pool
from seqlab.equations.similarity import masked_softmax
from seqlab.layers.tap import tap
from seqlab.padded import Padded

Kind = Literal["final", "mean", "max", "attention"]


class Pooling(nn.Module):
    """The final state (E23), the mean (E22), the maximum, or a learned weighting of the states."""

    def __init__(self, kind: Kind, size: int, *, summary_size: int, name: str) -> None:
        super().__init__()
        self.kind, self.name = kind, name
        self.output_size = summary_size if kind == "final" else size
        self.score = nn.Linear(size, 1, bias=False) if kind == "attention" else None

    def forward(self, states: Padded, summary: Float[Tensor, "B F"]) -> Float[Tensor, "B R"]:
        if self.kind == "final":
            return summary
        if self.kind == "mean":
            return mean_pool(states.values, states.real)
        if self.kind == "max":
            return max_pool(states.values, states.real)
        assert self.score is not None
        weights = masked_softmax(self.score(states.values)[..., 0], states.real)
        return weighted_pool(states.values, tap(f"{self.name}.weights", weights), states.real)
