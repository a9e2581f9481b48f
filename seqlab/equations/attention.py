"""Attention as in the lectures: a score for each key, a softmax over keys, a weighted sum of values.

Attention ignores the order of its inputs, so position embeddings are added to them.

Queries have the shape `... S D` and keys `... T D`; the leading dimensions are rows, and heads if there are several.
Pooling makes one vector of a sequence. The values at pads have no effect; an empty row gives zeros.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import softmax

from seqlab.padded import Padded
from seqlab.types import Features, Mask, PerPosition, PerRow, RowIds, Vector, Vectors

Queries = Float[Tensor, "*rows S D"]
Keys = Float[Tensor, "*#rows T D"]
Values = Float[Tensor, "*#rows T R"]
Weights = Float[Tensor, "*rows S T"]
Contexts = Float[Tensor, "*rows S R"]


def dot(x: Features, y: Features) -> Float[Tensor, "..."]:
    """E1: x·y = Σ_d x_d y_d."""
    return (x * y).sum(-1)


def cosine(x: Features, y: Features) -> Float[Tensor, "..."]:
    """E2: x·y / (‖x‖ ‖y‖), between -1 and 1.

    The cosine with the zero vector is 0, not NaN.
    """
    return dot(_unit(x), _unit(y)).clamp(-1.0, 1.0)


def masked_softmax(
    score: Float[Tensor, "*B T"], visible: Bool[Tensor, "*#B T"]
) -> Float[Tensor, "*B T"]:
    """E3: exp(s_t) / Σ_t' exp(s_t') over the visible t; the others have the score -inf and so the weight 0.

    A row without visible positions gets zeros, not NaN, because sequences may be empty.
    """
    weights = softmax(score.masked_fill(~visible, -math.inf), dim=-1)
    return weights.masked_fill(~visible, 0.0)


def _unit(x: Features) -> Features:
    """x / ‖x‖, and 0 for the zero vector."""
    # Dividing by the largest |x_d| first keeps squares from overflowing, and the norm is at least 1 unless x = 0.
    largest = x.detach().abs().amax(-1, keepdim=True)
    x = x / largest.masked_fill(largest == 0, 1.0)
    return x / vector_norm(x, dim=-1, keepdim=True).clamp(min=1.0)


def dot_score(query: Queries, key: Keys) -> Weights:
    """E41: hᵀs."""
    return query @ key.mT


def general_score(query: Float[Tensor, "*rows S Q"], key: Keys, W: Float[Tensor, "Q D"]) -> Weights:
    """E42: hᵀ W s (Luong et al. 2015)."""
    return query @ W @ key.mT


def additive_score(query: Queries, key: Keys, v: Float[Tensor, " D"]) -> Weights:
    """E43: vᵀ tanh(W₁h + W₂s), with W₁h and W₂s already projected (Bahdanau et al. 2015)."""
    return (query[..., :, None, :] + key[..., None, :, :]).tanh() @ v


def scaled_score(query: Queries, key: Keys) -> Weights:
    """E44: q·k / √d.

    The variance of q·k grows with d; dividing by √d keeps the softmax from saturating (C9).
    """
    return query @ key.mT / math.sqrt(query.shape[-1])


def attention_weights(score: Weights, visible: Bool[Tensor, "*#rows #S T"]) -> Weights:
    """E38: α = softmax(score) over the visible keys; a query without visible keys gets zeros."""
    return masked_softmax(score, visible.expand(score.shape))


def context(weights: Weights, value: Values) -> Contexts:
    """E39: c_s = Σ_t α_st v_t."""
    return weights @ value


def attention_vector(
    c: Features, h: Float[Tensor, "... H"], W_c: Float[Tensor, "R D+H"]
) -> Float[Tensor, "... R"]:
    """E40: tanh(W_c [c; h]) (Luong et al. 2015)."""
    return (torch.cat([c, h], dim=-1) @ W_c.mT).tanh()


def attend(
    query: Queries, key: Keys, value: Values, visible: Bool[Tensor, "*#rows #S T"]
) -> tuple[Contexts, Weights]:
    """E45: softmax(Q Kᵀ / √d) V; also returns the weights, which are shown in views."""
    weights = attention_weights(scaled_score(query, key), visible)
    return context(weights, value), weights


def self_attention(
    x: Vectors,
    W_Q: Float[Tensor, "R D"],
    W_K: Float[Tensor, "R D"],
    W_V: Float[Tensor, "P D"],
    visible: Bool[Tensor, "#B #T T"],
) -> tuple[Float[Tensor, "B T P"], Float[Tensor, "B T T"]]:
    """E46: E45 with Q = X W_Qᵀ, K = X W_Kᵀ, V = X W_Vᵀ: every position attends to every position."""
    return attend(x @ W_Q.mT, x @ W_K.mT, x @ W_V.mT, visible)


def split_heads(x: Vectors, num_heads: int) -> Float[Tensor, "B H T D/H"]:
    """E47: split the features into heads."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def join_heads(
    heads: Float[Tensor, "B H T D"], W_O: Float[Tensor, "R H*D"]
) -> Float[Tensor, "B T R"]:
    """E47: concat(head_1 .. head_h) W_Oᵀ."""
    return heads.transpose(1, 2).flatten(-2) @ W_O.mT


def causal(num_queries: int, num_keys: int, *, window: int | None = None) -> Bool[Tensor, "S T"]:
    """E48: query s sees the keys up to its own position; the queries are the last of the keys' positions.

    With a window it sees only the last `window` of these keys, including its own.
    """
    last = num_keys - num_queries
    visible = torch.ones(num_queries, num_keys, dtype=torch.bool).tril(last)
    return visible if window is None else visible.triu(last - window + 1)


def doubly_stochastic_penalty(weights: Float[Tensor, "B S T"], real: Bool[Tensor, "B S"]) -> PerRow:
    """Σ_t (1 - Σ_s α_st)², over the real queries s: zero if each key has a total weight of 1 (Xu et al. 2015)."""
    return (1 - weights.masked_fill(~real[..., None], 0.0).sum(1)).square().sum(1)


def diversity_penalty(weights: Float[Tensor, "B J T"]) -> PerRow:
    """E49: ‖A Aᵀ - I‖²_F: zero if each hop attends to a single position of its own (Lin et al. 2017)."""
    overlap = weights @ weights.mT
    identity = torch.eye(weights.shape[1], dtype=weights.dtype, device=weights.device)
    return (overlap - identity).square().sum((1, 2))


def hop_overlap(weights: Float[Tensor, "B J T"]) -> PerRow:
    """Σ_t min(a_it, a_jt), the mean over pairs of hops: the share of their weight on the same positions."""
    first, second = torch.triu_indices(weights.shape[1], weights.shape[1], offset=1)
    return torch.minimum(weights[:, first], weights[:, second]).sum(-1).mean(-1)


def mean_pool(states: Vectors, real: Mask) -> Vector:
    """E22: 1/T Σ_t h_t over the real positions."""
    return _without_pads(states, real).sum(1) / real.sum(1, keepdim=True).clamp(min=1)


def final_pool(states: Vectors, lengths: RowIds) -> Vector:
    """E23: h_T, the state at the last real position.

    A bidirectional layer has two final states: that of the backward direction is at position 0.
    """
    return Padded(states, lengths).last()


def max_pool(states: Vectors, real: Mask) -> Vector:
    """max_t h_t over the real positions, feature by feature."""
    if states.shape[1] == 0:  # torch raises an error for the maximum of an empty dimension
        return states.new_zeros(len(states), states.shape[2])
    largest = states.masked_fill(~real[..., None], -math.inf).amax(1)
    return largest.masked_fill(~real.any(1, keepdim=True), 0.0)


def attention_pool(states: Vectors, score: PerPosition, real: Mask) -> tuple[Vector, PerPosition]:
    """E38, E39 with one learned query: α = softmax(score), c = Σ_t α_t h_t; return c and α."""
    weights = masked_softmax(score, real)
    return (weights[:, None] @ _without_pads(states, real)).squeeze(1), weights


def _without_pads(states: Vectors, real: Mask) -> Vectors:
    """Set the pads to zero. A weight of 0 would not be enough: 0 times NaN or infinity is NaN."""
    return states.masked_fill(~real[..., None], 0.0)


def sinusoidal_positions(num_positions: int, size: int, *, first: int = 0) -> Float[Tensor, "T D"]:
    """E54: sin(pos / 10000^(2i/d)) in the even columns, cos in the odd ones, from position `first` on."""
    position = torch.arange(first, first + num_positions, dtype=torch.float64)[:, None]
    even = torch.arange(0, size, 2, dtype=torch.float64)
    angle = position / 10000 ** (even / size)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :size].float()


def learned_positions(x: Vectors, table: Float[Tensor, "P D"], *, first: int = 0) -> Vectors:
    """E55: a learned vector for each position, added."""
    return x + table[first : first + x.shape[1]]


def rotary(x: Float[Tensor, "... T D"], *, first: int = 0) -> Float[Tensor, "... T D"]:
    """Rotate each pair of features by an angle proportional to the position (Su et al. 2021; not in the lectures).

    The angles are those of E54. q·k then depends on the distance of two positions, not on the positions themselves.
    """
    waves = sinusoidal_positions(x.shape[-2], x.shape[-1], first=first).to(x)
    sin, cos = waves[:, 0::2], waves[:, 1::2]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
