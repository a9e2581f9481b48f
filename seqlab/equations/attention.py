"""Attention, as the lectures write it: a score for each key, a softmax over keys, a weighted sum of values.

Queries and keys come as `... S D` and `... T D`: the leading dimensions are rows, and heads where there are several.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqlab.equations.similarity import masked_softmax


def dot_score(query: Float[Tensor, "... S D"], key: Float[Tensor, "... T D"]) -> Float[Tensor, "... S T"]:
    """E41: hᵀs."""
    return query @ key.mT


def general_score(
    query: Float[Tensor, "... S Q"], key: Float[Tensor, "... T D"], W: Float[Tensor, "Q D"]
) -> Float[Tensor, "... S T"]:
    """E42: hᵀ W s (Luong et al. 2015)."""
    return query @ W @ key.mT


def additive_score(
    query: Float[Tensor, "... S D"], key: Float[Tensor, "... T D"], v: Float[Tensor, " D"]
) -> Float[Tensor, "... S T"]:
    """E43: vᵀ tanh(W₁h + W₂s), with W₁h and W₂s already projected (Bahdanau et al. 2015)."""
    return (query[..., :, None, :] + key[..., None, :, :]).tanh() @ v


def scaled_score(query: Float[Tensor, "... S D"], key: Float[Tensor, "... T D"]) -> Float[Tensor, "... S T"]:
    """E44: q·k / √d.

    The variance of q·k grows with d; dividing by √d keeps the softmax from saturating (C9).
    """
    return query @ key.mT / math.sqrt(query.shape[-1])


def attention_weights(
    score: Float[Tensor, "*rows S T"], visible: Bool[Tensor, "*#rows #S T"]
) -> Float[Tensor, "*rows S T"]:
    """E38: α = softmax(score) over the visible keys; a query that sees nothing gets zeros."""
    return masked_softmax(score, visible.expand(score.shape))


def context(weights: Float[Tensor, "... S T"], value: Float[Tensor, "... T R"]) -> Float[Tensor, "... S R"]:
    """E39: c_s = Σ_t α_st v_t."""
    return weights @ value


def attention_vector(
    c: Float[Tensor, "... D"], h: Float[Tensor, "... H"], W_c: Float[Tensor, "R D+H"]
) -> Float[Tensor, "... R"]:
    """E40: tanh(W_c [c; h]) (Luong et al. 2015)."""
    return (torch.cat([c, h], dim=-1) @ W_c.mT).tanh()


def attend(
    query: Float[Tensor, "*rows S D"],
    key: Float[Tensor, "*rows T D"],
    value: Float[Tensor, "*rows T R"],
    visible: Bool[Tensor, "*#rows #S T"],
) -> tuple[Float[Tensor, "*rows S R"], Float[Tensor, "*rows S T"]]:
    """E45: softmax(Q Kᵀ / √d) V, and the weights, because whoever attends will want to look."""
    weights = attention_weights(scaled_score(query, key), visible)
    return context(weights, value), weights


def self_attention(
    x: Float[Tensor, "B T D"],
    W_Q: Float[Tensor, "R D"],
    W_K: Float[Tensor, "R D"],
    W_V: Float[Tensor, "P D"],
    visible: Bool[Tensor, "#B #T T"],
) -> tuple[Float[Tensor, "B T P"], Float[Tensor, "B T T"]]:
    """E46: E45 with Q = X W_Qᵀ, K = X W_Kᵀ, V = X W_Vᵀ: every position asks every position."""
    return attend(x @ W_Q.mT, x @ W_K.mT, x @ W_V.mT, visible)


def split_heads(x: Float[Tensor, "B T D"], num_heads: int) -> Float[Tensor, "B H T D/H"]:
    """E47: the features of each head side by side."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def join_heads(heads: Float[Tensor, "B H T D"], W_O: Float[Tensor, "R H*D"]) -> Float[Tensor, "B T R"]:
    """E47: concat(head_1 .. head_h) W_Oᵀ."""
    return heads.transpose(1, 2).flatten(-2) @ W_O.mT


def causal(num_queries: int, num_keys: int, *, window: int | None = None) -> Bool[Tensor, "S T"]:
    """E48: query s sees the keys up to its own place; the queries are the last of the keys' positions.

    With a window it sees no further back than that many keys, itself among them.
    """
    last = num_keys - num_queries
    seen = torch.ones(num_queries, num_keys, dtype=torch.bool).tril(last)
    return seen if window is None else seen.triu(last - window + 1)


def doubly_stochastic_penalty(weights: Float[Tensor, "B S T"], real: Bool[Tensor, "B S"]) -> Float[Tensor, " B"]:
    """Σ_t (1 - Σ_s α_st)², over the real queries s: zero when every key is looked at once in all (Xu et al. 2015)."""
    return (1 - weights.masked_fill(~real[..., None], 0.0).sum(1)).square().sum(1)


def diversity_penalty(weights: Float[Tensor, "B J T"]) -> Float[Tensor, " B"]:
    """E49: ‖A Aᵀ - I‖²_F: zero when each hop looks at one place of its own (Lin et al. 2017)."""
    overlap = weights @ weights.mT
    return (overlap - torch.eye(weights.shape[1], dtype=weights.dtype, device=weights.device)).square().sum((1, 2))


def hop_overlap(weights: Float[Tensor, "B J T"]) -> Float[Tensor, " B"]:
    """Σ_t min(a_it, a_jt), the mean over pairs of hops: the share of their weight that lies on the same places."""
    first, second = torch.triu_indices(weights.shape[1], weights.shape[1], offset=1)
    return torch.minimum(weights[:, first], weights[:, second]).sum(-1).mean(-1)
