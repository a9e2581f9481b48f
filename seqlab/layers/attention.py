"""Attention with parameters: one score between a recurrent state and the source, and many heads side by side."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from seqlab.equations.attention import additive_score, attention_weights, dot_score, scaled_score, split_heads
from seqlab.equations.attention import context as weighted_sum
from seqlab.layers.linear import Linear
from seqlab.layers.tap import listened_to, tap

ScoreKind = Literal["dot", "general", "additive", "scaled"]
Heads = tuple[Tensor, Tensor]  # keys and values, each B H T d


class SourceAttention(nn.Module):
    """Where in the source to look, given a state: E41-E44 for the score, then E38 and E39.

    `keys` is computed once for each source; queries come as many at a time as there are, several hypotheses of one
    source among them.
    """

    def __init__(self, kind: ScoreKind, query_size: int, memory_size: int, *, name: str) -> None:
        super().__init__()
        self.kind, self.name = kind, name
        # dot and scaled need both sides of one size; where they are not, the memory is projected once
        self.key: nn.Linear | None = None
        if kind in ("general", "additive") or query_size != memory_size:
            self.key = nn.Linear(memory_size, query_size, bias=False)
        self.query = nn.Linear(query_size, query_size) if kind == "additive" else None
        self.v = nn.Parameter(torch.randn(query_size) * query_size**-0.5) if kind == "additive" else None

    def keys(self, memory: Float[Tensor, "B S M"]) -> Float[Tensor, "B S Q"]:
        return tap(f"{self.name}.k", memory if self.key is None else self.key(memory))

    def forward(
        self,
        query: Float[Tensor, "B T Q"],
        keys: Float[Tensor, "B S Q"],
        memory: Float[Tensor, "B S M"],
        visible: Bool[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B T M"], Float[Tensor, "B T S"]]:
        """What each query gets, and where it looked for it."""
        query = tap(f"{self.name}.q", query if self.query is None else self.query(query))
        if self.v is not None:
            score = additive_score(query, keys, self.v)
        elif self.kind == "scaled":
            score = scaled_score(query, keys)
        else:
            score = dot_score(query, keys)  # for "general" the keys are W s, so that this is hᵀ W s
        weights = attention_weights(tap(f"{self.name}.score", score), visible[:, None])
        weights = tap(f"{self.name}.weights", weights)
        return weighted_sum(weights, memory), weights


class MultiHeadAttention(nn.Module):
    """E47: several attentions side by side, concatenated and mixed.

    Queries may be more than the keys' rows: K hypotheses of one source are K times as many queries to its keys.
    """

    def __init__(self, size: int, *, num_heads: int, name: str) -> None:
        super().__init__()
        if size % num_heads:
            raise ValueError(
                f"{num_heads} heads cannot share {size} features evenly; choose a size that {num_heads} divides"
            )
        self.num_heads, self.name = num_heads, name
        self.query_key_value = Linear(size, 3 * size)
        self.mix = Linear(size, size)
        for linear in (self.query_key_value, self.mix):
            for block in linear.weight.split(size):
                nn.init.xavier_uniform_(block)
            nn.init.zeros_(linear.bias)
        self.query_key_value.weight.num_blocks = 3  # type: ignore[attr-defined]  # for optimisers that see matrices

    def project_all(self, x: Float[Tensor, "B T D"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the same positions in one product, as self-attention needs them."""
        q, k, v = self.query_key_value(tap(f"{self.name}.x", x)).chunk(3, dim=-1)
        return self._split(q), self._split(k), self._split(v)

    def project_memory(self, memory: Float[Tensor, "B S D"]) -> Heads:
        """Keys and values of a source: computed once, used at every step."""
        k, v = self.keys_and_values(memory).chunk(2, dim=-1)
        return self._split(k), self._split(v)

    def keys_and_values(self, memory: Float[Tensor, "B S D"]) -> Float[Tensor, "B S 2*D"]:
        """The same with keys and values side by side, as they come out of the product."""
        size = self.mix.in_features
        return self.query_key_value.part(size, 3 * size)(tap(f"{self.name}.memory", memory))

    def project_queries(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T d"]:
        return self._split(self.query_key_value.part(0, self.mix.in_features)(tap(f"{self.name}.x", x)))

    def forward(
        self, q: Float[Tensor, "B H T d"], heads: Heads, visible: Bool[Tensor, "#B #T S"] | None
    ) -> Float[Tensor, "B T D"]:
        return self.mix(self.side_by_side(q, heads, visible))

    def side_by_side(
        self, q: Float[Tensor, "B H T d"], heads: Heads, visible: Bool[Tensor, "#B #T S"] | None
    ) -> Float[Tensor, "B T D"]:
        """What the heads have heard, before it is mixed."""
        k, v = heads
        mask = None if visible is None else visible[:, None]
        if listened_to():
            heard = self._observed(q, k, v, mask)
        else:
            heard = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return heard.transpose(1, 2).flatten(-2)

    def _observed(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """The same heads by the equation, so that the weights exist and can be seen or replaced."""
        for name, value in (("q", q), ("k", k), ("v", v)):
            tap(f"{self.name}.{name}", value)
        visible = torch.ones(1, 1, 1, k.shape[2], dtype=torch.bool) if mask is None else mask
        weights = attention_weights(tap(f"{self.name}.score", scaled_score(q, k)), visible)
        return tap(f"{self.name}.heads", weighted_sum(tap(f"{self.name}.weights", weights), v))

    def _split(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L d"]:
        return split_heads(x, self.num_heads)
