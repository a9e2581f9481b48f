"""One vector for a whole sequence: what a classifier reads.

Pads change nothing, whatever lies there; an empty row pools to zeros.
"""

import math

from jaxtyping import Bool, Float, Int
from torch import Tensor

from seqlab.equations.similarity import masked_softmax
from seqlab.padded import Padded


def mean_pool(states: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    """E22: 1/T Σ_t h_t over the real positions."""
    return _without_pads(states, real).sum(1) / real.sum(1, keepdim=True).clamp(min=1)


def final_pool(states: Float[Tensor, "B T D"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
    """E23: h_T, the state at the last real position.

    Of two directions, each has its own final state: the backward one's stands at position 0.
    """
    return Padded(states, lengths).last()


def max_pool(states: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"]) -> Float[Tensor, "B D"]:
    """max_t h_t over the real positions, feature by feature."""
    if states.shape[1] == 0:  # the maximum of nothing is undefined, also to torch
        return states.new_zeros(len(states), states.shape[2])
    largest = states.masked_fill(~real[..., None], -math.inf).amax(1)
    return largest.masked_fill(~real.any(1, keepdim=True), 0.0)


def attention_pool(
    states: Float[Tensor, "B T D"], score: Float[Tensor, "B T"], real: Bool[Tensor, "B T"]
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B T"]]:
    """E38, E39 with one learned query: α = softmax(score), c = Σ_t α_t h_t; returned as c, α."""
    weights = masked_softmax(score, real)
    return (weights[:, None] @ _without_pads(states, real)).squeeze(1), weights


def _without_pads(states: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    """Zeros at the pads. A weight of 0 would not do: 0 times NaN or infinity is NaN."""
    return states.masked_fill(~real[..., None], 0.0)
