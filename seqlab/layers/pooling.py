"""Many states to one vector: the ways of S10 behind one call."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.attention import diversity_penalty, masked_softmax, max_pool, mean_pool
from seqlab.layers.tap import tap
from seqlab.layers.transformer import BatchNorm
from seqlab.padded import Padded
from seqlab.types import Scalar, Summary

Kind = Literal["final", "mean", "max", "detectors", "theme", "attention", "hops", "flat"]


class Pooling(nn.Module):
    """The final state (E23), the mean (E22), the maximum, a learned weighting of the states, or several of these.

    "detectors" takes the maximum of learned mixtures of the states' features: what a state says best is seldom in one
    unit of a pretrained encoder, each of which is large somewhere in every text.

    "theme" takes a few mixtures of the mean: a narrow vector, from which a masked model learns to guess the words of
    the whole text, and which then says what a text is about, and in which tone.

    "flat" puts all states side by side, where each sequence has the same number of `positions`.

    With "hops" (S21) there are J weightings, and their results stand side by side; what they share is penalised by
    E49, so that each hop learns to look elsewhere.

    With `normalise`, each number of the result is brought to mean 0 and deviation 1 over the texts (E51): the mean of a
    pretrained encoder's states is nearly the same for all of them, and what differs is what a head has to hear.
    """

    def __init__(
        self,
        kind: Kind,
        size: int,
        *,
        summary_size: int,
        hops: int = 1,
        penalty: float = 0.0,
        positions: int = 1,
        theme: int = 1,
        normalise: bool = False,
    ) -> None:
        super().__init__()
        self.kind, self.penalty = kind, penalty
        sizes = {
            "final": summary_size,
            "hops": hops * size,
            "flat": positions * size,
            "theme": theme,
        }
        self.output_size = sizes.get(kind, size)
        self.norm = BatchNorm(self.output_size) if normalise else None
        mixtures = {"hops": size, "detectors": size, "theme": theme}.get(kind)
        self.hidden = nn.Linear(size, mixtures, bias=kind != "hops") if mixtures else nn.Identity()
        self.score = (
            nn.Linear(size, hops, bias=False) if kind in ("attention", "hops") else nn.Identity()
        )

    def forward(
        self, states: Padded, summary: Summary
    ) -> tuple[Float[Tensor, "B R"], Scalar | None]:
        """The vector of each row, and the penalty summed over the rows where there is one."""
        pooled, penalty = self._pooled(states, summary)
        return (pooled if self.norm is None else self.norm(pooled[:, None])[:, 0]), penalty

    def _pooled(
        self, states: Padded, summary: Summary
    ) -> tuple[Float[Tensor, "B R"], Scalar | None]:
        if self.kind == "final":
            return summary, None
        if self.kind in ("mean", "theme"):  # hidden is the identity for a plain mean
            return self.hidden(mean_pool(states.values, states.real)), None
        if self.kind == "max":
            return max_pool(states.values, states.real), None
        if self.kind == "detectors":
            return max_pool(self.hidden(states.values), states.real).tanh(), None
        if self.kind == "flat":
            return states.masked().values.flatten(1), None
        x = states.masked().values
        scores = self.score(self.hidden(x).tanh() if self.kind == "hops" else x)
        weights = tap("pooling.weights", masked_softmax(scores.mT, states.real[:, None]))
        penalty = self.penalty * diversity_penalty(weights).sum() if self.penalty else None
        return (weights @ x).flatten(1), penalty
