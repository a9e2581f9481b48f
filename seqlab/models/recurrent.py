"""The recurrent encoder (S3-S6), and recurrent decoders without attention (S7, S13) and with it (S14)."""

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
from seqlab.layers.inputs import Embedding, Inputs, ids_of
from seqlab.layers.linear import Head
from seqlab.layers.stack import BidirectionalStack, CausalStack
from seqlab.layers.tap import tap
from seqlab.models.interface import Memory, Read
from seqlab.models.seq2seq import FeatureDecoder, for_each_hypothesis
from seqlab.padded import Padded
from seqlab.randomness import Dropout
from seqlab.recipe import AttentionConfig
from seqlab.text.vocabulary import PAD
from seqlab.types import PositionIds, State, Summary


class RecurrentEncoder(nn.Module):
    """A recurrent stack over the vectors of tokens (S3-S6)."""

    def __init__(
        self, inputs: Inputs, stack: CausalStack | BidirectionalStack, *, dropout: float
    ) -> None:
        super().__init__()
        self.inputs, self.stack = inputs, stack
        self.dropout = Dropout(dropout, name="encoder.input")
        self.output_size, self.summary_size = stack.output_size, stack.summary_size

    def forward(self, source: Padded) -> Memory:
        states, summary = self.stack.encode(source.with_values(self.dropout(self.inputs(source))))
        return Memory(len(source), states, summary, tokens=ids_of(source))


class Bridge(nn.Module):
    """The initial state of a decoder from the summary of the source (S13): tanh(W c + b) for each part."""

    def __init__(self, summary_size: int, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.project = nn.Linear(summary_size, sum(sizes))

    def forward(self, summary: Summary) -> State:
        return self.project(summary).tanh().split(self.sizes, dim=-1)


class RecurrentDecoder(FeatureDecoder):
    """A recurrent stack over the tokens so far, without attention.

    Its initial state comes from the source through a bridge (S13), or is zero without one (S7). With `reads_summary`,
    the summary of the source is part of every input, h_t = phi(W_xh [x; y_{t-1}] + W_hh h_{t-1}) (E19), so that the
    state need not store it.
    """

    def __init__(
        self,
        embedding: Embedding,
        stack: CausalStack,
        head: Head,
        *,
        bridge: Bridge | None,
        reads_summary: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding, self.stack, self.head, self.bridge = embedding, stack, head, bridge
        self.reads_summary = reads_summary
        self.dropout = Dropout(dropout, name=f"{embedding.name}.input")

    def start(self, memory: Memory) -> tuple[State, State]:
        if self.bridge is None or memory.summary is None:
            return (), self.stack.start(memory.rows)
        return ((memory.summary,) if self.reads_summary else ()), self.bridge(memory.summary)

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
        x = self.dropout(self.embedding(tokens))
        if context:
            summary = for_each_hypothesis(context[0], len(x))
            x = torch.cat([x, summary[:, None].expand(-1, x.shape[1], -1)], dim=-1)
        return Read(*self.stack(x, state))


ScoreKind = Literal["dot", "general", "additive", "scaled"]
Queries = Float[Tensor, "R T Q"]
Attended = tuple[Tensor, Tensor, State]  # features, attention weights, the next state


class SourceAttention(nn.Module):
    """Attention of a decoder state over the source: E41-E44 for the score, then E38 and E39.

    The hypotheses of one source (R of all sources together) are queries to the same keys, which are computed once for
    each source.
    """

    def __init__(self, kind: ScoreKind, query_size: int, memory_size: int, *, name: str) -> None:
        super().__init__()
        self.kind, self.name = kind, name
        # dot and scaled need queries and keys of one size; otherwise the memory is projected once
        projected = kind in ("general", "additive") or query_size != memory_size
        self.key = nn.Linear(memory_size, query_size, bias=False) if projected else nn.Identity()
        self.query = nn.Linear(query_size, query_size) if kind == "additive" else nn.Identity()
        self.v = (
            nn.Parameter(torch.randn(query_size) * query_size**-0.5) if kind == "additive" else None
        )

    def context(self, memory: Memory) -> State:
        """Return what all steps share: keys, values, and the mask of real positions."""
        states = memory.require_states()
        return self.keys(states.values), states.values, states.real

    def keys(self, memory: Float[Tensor, "B S M"]) -> Float[Tensor, "B S Q"]:
        return tap(f"{self.name}.k", self.key(memory))

    def forward(
        self,
        query: Queries,
        keys: Float[Tensor, "B S Q"],
        memory: Float[Tensor, "B S M"],
        visible: Bool[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "R T M"], Float[Tensor, "R T S"]]:
        """Return the context vector and the weights of each query."""
        rows, length, size = query.shape
        query = tap(f"{self.name}.q", self.query(query.reshape(len(keys), -1, size)))
        if self.v is not None:
            score = additive_score(query, keys, self.v)
        elif self.kind == "scaled":
            score = scaled_score(query, keys)
        else:
            score = dot_score(query, keys)  # for "general" the keys are W s, so that this is hᵀ W s
        weights = attention_weights(tap(f"{self.name}.score", score), visible[:, None])
        weights = tap(f"{self.name}.weights", weights)
        c = weighted_sum(weights, memory)
        return c.reshape(rows, length, c.shape[-1]), weights.reshape(
            rows, length, weights.shape[-1]
        )

    def bahdanau_step(
        self, stack: CausalStack, x: Tensor, context: State, state: State
    ) -> Attended:
        """h_t = RNN([x; c_t], h_{t-1}), where h_{t-1} is the query; return [c_t; h_t], the weights and the state."""
        c, weights = self(state[stack.top][:, None], *context)
        h, state = stack(torch.cat([x, c], dim=-1), state)
        return torch.cat([c, h], dim=-1), weights, state


class AttentiveDecoder(FeatureDecoder):
    """A recurrent decoder with attention. The wiring is one of:

    bahdanau   the previous state is the query; the context enters the recurrence    h_t = RNN([y; c_t], h_{t-1})
    luong      the current state is the query; the head reads the attention vector   tanh(W_c [c_t; h_t]) (E40)
    concat     the current state is the query; the head reads context and state      [c_t; h_t]

    With `feeding`, the features of luong and concat are also an input of the next step, as part of the state.
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
        settings: AttentionConfig,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding, self.stack, self.attention = embedding, stack, attention
        self.head, self.bridge, self.settings = head, bridge, settings
        self.dropout = Dropout(dropout, name=f"{embedding.name}.input")
        _, self.feature_size = attentive_sizes(
            settings, embedding.size, stack.output_size, memory_size
        )
        both = memory_size + stack.output_size
        self.vector = (
            nn.Linear(both, self.feature_size, bias=False) if settings.wiring == "luong" else None
        )

    def start(self, memory: Memory) -> tuple[State, State]:
        state = self.bridge(memory.require_summary())
        if self.settings.feeding:
            state = (*state, state[0].new_zeros(memory.rows, self.feature_size))
        return self.attention.context(memory), state

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
        x = self.dropout(self.embedding(tokens))
        steps = []
        # if the context does not enter the recurrence, all steps are computed at once
        one_by_one = self.settings.feeding or self.settings.wiring == "bahdanau"
        for part in x.split(1, dim=1) if one_by_one else (x,):
            features, weights, state = self._read(part, context, state)
            steps.append((features, weights))
        features, weights = (torch.cat(parts, dim=1) for parts in zip(*steps, strict=True))
        if not self.settings.doubly_stochastic:
            return Read(features, state)
        penalty = doubly_stochastic_penalty(weights, tokens != PAD).sum()
        return Read(features, state, self.settings.doubly_stochastic * penalty)

    def _read(self, x: Tensor, context: State, state: State) -> Attended:
        if self.settings.wiring == "bahdanau":
            return self.attention.bahdanau_step(self.stack, x, context, state)
        if self.settings.feeding:
            *state_parts, fed = state
            x, state = torch.cat([x, fed[:, None]], dim=-1), tuple(state_parts)
        h, state = self.stack(x, state)
        c, weights = self.attention(h, *context)
        features = torch.cat([c, h], dim=-1)
        features = features if self.vector is None else self.vector(features).tanh()
        return features, weights, (*state, features[:, 0]) if self.settings.feeding else state


def attentive_sizes(
    settings: AttentionConfig, embedding: int, output: int, memory: int
) -> tuple[int, int]:
    """Return the number of inputs of the recurrence, and the number of features that the head reads."""
    features = output if settings.wiring == "luong" else memory + output
    attended = 0
    if settings.wiring == "bahdanau":
        attended = memory
    elif settings.feeding:
        attended = features
    return embedding + attended, features
