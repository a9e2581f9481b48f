"""A recurrent decoder that looks at the source at every step, in the three wirings of the lectures (S14)."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqlab.equations.attention import (
    additive_score,
    attention_weights,
    dot_score,
    doubly_stochastic_penalty,
    scaled_score,
)
from seqlab.equations.attention import context as weighted_sum
from seqlab.layers.dropout import Dropout
from seqlab.layers.inputs import Embedding
from seqlab.layers.linear import Head
from seqlab.layers.stack import CausalStack
from seqlab.layers.tap import tap
from seqlab.models.interface import Memory, Read
from seqlab.models.recurrent import Bridge
from seqlab.models.seq2seq import FeatureDecoder
from seqlab.recipe import Attention
from seqlab.text.vocabulary import PAD
from seqlab.types import PositionIds, State

ScoreKind = Literal["dot", "general", "additive", "scaled"]
Step = Callable[[Tensor, State, State], tuple[Tensor, Tensor, State]]  # features, where it looked, the state after


class SourceAttention(nn.Module):
    """Where in the source to look, given a state: E41-E44 for the score, then E38 and E39.

    `keys` is computed once for each source; queries come as many at a time as there are, several hypotheses of one
    source among them.
    """

    def __init__(self, kind: ScoreKind, query_size: int, memory_size: int, *, name: str) -> None:
        super().__init__()
        self.kind, self.name = kind, name
        # dot and scaled need both sides of one size; where they are not, the memory is projected once
        projected = kind in ("general", "additive") or query_size != memory_size
        self.key = nn.Linear(memory_size, query_size, bias=False) if projected else nn.Identity()
        self.query = nn.Linear(query_size, query_size) if kind == "additive" else nn.Identity()
        self.v = nn.Parameter(torch.randn(query_size) * query_size**-0.5) if kind == "additive" else None

    def keys(self, memory: Float[Tensor, "B S M"]) -> Float[Tensor, "B S Q"]:
        return tap(f"{self.name}.k", self.key(memory))

    def forward(
        self,
        query: Float[Tensor, "B T Q"],
        keys: Float[Tensor, "B S Q"],
        memory: Float[Tensor, "B S M"],
        visible: Bool[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B T M"], Float[Tensor, "B T S"]]:
        """What each query gets, and where it looked for it."""
        query = tap(f"{self.name}.q", self.query(query))
        if self.v is not None:
            score = additive_score(query, keys, self.v)
        elif self.kind == "scaled":
            score = scaled_score(query, keys)
        else:
            score = dot_score(query, keys)  # for "general" the keys are W s, so that this is hᵀ W s
        weights = attention_weights(tap(f"{self.name}.score", score), visible[:, None])
        weights = tap(f"{self.name}.weights", weights)
        return weighted_sum(weights, memory), weights


class AttentiveDecoder(FeatureDecoder):
    """Which state asks, and where the answer goes:

    bahdanau   the previous state asks; the context enters the recurrence          h_t = RNN([y; c_t], h_{t-1})
    luong      the current state asks; the attention vector is what is read out    tanh(W_c [c_t; h_t]) (E40)
    concat     the current state asks; both are read out as they are               [c_t; h_t]

    With `feeding`, luong and concat give their result to the next step as well, as part of the state.
    """

    def __init__(
        self,
        embedding: Embedding,
        stack: CausalStack,
        attention: SourceAttention,
        head: Head,
        *,
        bridge: Bridge,
        memory_size: int,
        settings: Attention,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding, self.stack, self.attention = embedding, stack, attention
        self.head, self.bridge, self.settings = head, bridge, settings
        self.dropout = Dropout(dropout, name=f"{embedding.name}.input")
        self.vector: nn.Linear | None = None
        if settings.wiring == "luong":
            self.vector = nn.Linear(memory_size + stack.output_size, stack.output_size, bias=False)

    def start(self, memory: Memory) -> tuple[State, State]:
        states = memory.require_states().values
        context = (self.attention.keys(states), states, memory.require_states().real)
        state = self.bridge(memory.require_summary())
        if self.settings.feeding:
            state = (*state, states.new_zeros(memory.rows, feature_size(self.settings, self.stack, states.shape[-1])))
        return context, state

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
        x = self.dropout(self.embedding(tokens))
        if self.settings.wiring == "bahdanau":
            features, weights, state = self._steps(x, context, state, self._bahdanau_step)
        elif self.settings.feeding:
            features, weights, state = self._steps(x, context, state, self._feeding_step)
        else:  # nothing that is attended to enters the recurrence: all steps at once
            h, state = self.stack(x, state)
            c, weights = self._look(h, context)
            features = self._join(c, h)
        if not self.settings.doubly_stochastic:
            return Read(features, state)
        penalty = doubly_stochastic_penalty(weights, tokens != PAD).sum()
        return Read(features, state, self.settings.doubly_stochastic * penalty)

    def _steps(self, x: Tensor, context: State, state: State, step: Step) -> tuple[Tensor, Tensor, State]:
        features, weights = [], []
        for x_t in x.split(1, dim=1):
            out, looked, state = step(x_t, context, state)
            features.append(out)
            weights.append(looked)
        return torch.cat(features, dim=1), torch.cat(weights, dim=1), state

    def _bahdanau_step(self, x: Tensor, context: State, state: State) -> tuple[Tensor, Tensor, State]:
        c, weights = self._look(state[self.stack.top][:, None], context)
        h, state = self.stack(torch.cat([x, c], dim=-1), state)
        return torch.cat([c, h], dim=-1), weights, state

    def _feeding_step(self, x: Tensor, context: State, state: State) -> tuple[Tensor, Tensor, State]:
        *state_parts, fed = state
        h, after = self.stack(torch.cat([x, fed[:, None]], dim=-1), tuple(state_parts))
        c, weights = self._look(h, context)
        out = self._join(c, h)
        return out, weights, (*after, out[:, 0])

    def _look(
        self, query: Float[Tensor, "R T Q"], context: State
    ) -> tuple[Float[Tensor, "R T M"], Float[Tensor, "R T S"]]:
        """The answer to each query; the hypotheses of one source stand side by side as queries to the same keys."""
        keys, memory, visible = context
        c, weights = self.attention(query.reshape(len(keys), -1, query.shape[-1]), keys, memory, visible)
        return c.reshape(*query.shape[:2], c.shape[-1]), weights.reshape(*query.shape[:2], weights.shape[-1])

    def _join(self, c: Tensor, h: Tensor) -> Tensor:
        both = torch.cat([c, h], dim=-1)
        return both if self.vector is None else self.vector(both).tanh()


def feature_size(settings: Attention, stack: CausalStack, memory_size: int) -> int:
    """How many features the head is given."""
    return stack.output_size if settings.wiring == "luong" else memory_size + stack.output_size


def input_size(settings: Attention, embedding: int, output_size: int, memory_size: int) -> int:
    """How many features enter the recurrence beside the embedding."""
    if settings.wiring == "bahdanau":
        return embedding + memory_size
    fed = output_size if settings.wiring == "luong" else memory_size + output_size
    return embedding + (fed if settings.feeding else 0)
