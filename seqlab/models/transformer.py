"""The Transformer: encoder and decoder (S15), and the causal language model (S17), which is its decoder alone."""

import math
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.equations.pooling import mean_pool
from seqlab.layers.blocks import DecoderBlock, EncoderBlock
from seqlab.layers.dropout import Dropout, training
from seqlab.layers.embedding import Embedding
from seqlab.layers.inputs import Inputs, ids_of
from seqlab.layers.norms import LayerNorm
from seqlab.layers.positions import Positions
from seqlab.layers.tap import listened_to
from seqlab.models.heads import Head
from seqlab.models.interface import Decoder, Memory, Read, logits_of
from seqlab.models.stepping import Stepping
from seqlab.padded import Padded
from seqlab.recipe import Transformer
from seqlab.text.vocabulary import SEP
from seqlab.types import State


class Entrance(nn.Module):
    """Vectors of tokens at the door: scaled to the size of the positions, plus the positions, plus the segments."""

    def __init__(self, input_size: int, settings: Transformer, *, most: int, dropout: float, name: str) -> None:
        super().__init__()
        self.bridge = nn.Linear(input_size, settings.size) if input_size != settings.size else None
        self.scale = math.sqrt(settings.size) if settings.scale else 1.0
        self.positions = Positions(settings.positions, settings.size, most=most, name=name)
        self.segments: nn.Parameter | None = None
        if settings.segments:
            self.segments = nn.Parameter(torch.randn(settings.segments, settings.size) * settings.size**-0.5)
        self.norm = LayerNorm(settings.size, epsilon=settings.epsilon) if settings.entrance_norm else None
        self.dropout = Dropout(dropout, name=f"{name}.input")

    def forward(
        self, x: Float[Tensor, "B T E"], *, first: int = 0, tokens: Int[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """`tokens` tell the segments apart, where the model knows segments: what follows a [SEP] is the next one."""
        x = x if self.bridge is None else self.bridge(x)
        x = self.positions(x * self.scale, first=first)
        if self.segments is not None and tokens is not None:
            x = x + self.segments[segment_numbers(tokens).clamp(max=len(self.segments) - 1)]
        return self.dropout(x if self.norm is None else self.norm(x))


def segment_numbers(tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Which text of a pair each token belongs to; a [SEP] is the last token of its own."""
    ends = (tokens == SEP).long()
    return ends.cumsum(1) - ends


class TransformerEncoder(nn.Module):
    """N blocks of self-attention; its summary is the mean of its states."""

    def __init__(self, inputs: Inputs, entrance: Entrance, settings: Transformer, *, dropout: float) -> None:
        super().__init__()
        self.inputs, self.entrance = inputs, entrance
        self.blocks = nn.ModuleList(
            EncoderBlock(settings, dropout=dropout, name=f"encoder.{depth}") for depth in range(settings.layers)
        )
        self.norm = LayerNorm(settings.size, epsilon=settings.epsilon) if settings.norm == "pre" else None
        self.output_size = self.summary_size = settings.size

    def forward(self, source: Padded) -> Memory:
        x, real = self.entrance(self.inputs(source), tokens=ids_of(source)), source.real
        if training() or torch.is_grad_enabled() or listened_to() or real.all():
            for block in self.blocks:
                x = block(x, real)
        else:  # nobody looks at the padding: no work on it
            packed = x[real][None]
            for block in self.blocks:
                packed = cast(EncoderBlock, block).without_padding(packed, real)
            x = torch.zeros_like(x)
            x[real] = packed[0]
        return remembered(source, x if self.norm is None else self.norm(x))


class TransformerDecoder(nn.Module):
    """N blocks of masked self-attention, each looking at the source where there is one.

    The state holds each row's position and the keys and values of the tokens so far, the context those of the source.
    """

    def __init__(
        self,
        embedding: Embedding,
        entrance: Entrance,
        settings: Transformer,
        head: Head,
        *,
        memory_size: int | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding, self.entrance, self.head, self.settings = embedding, entrance, head, settings
        reads = memory_size is not None
        self.blocks = nn.ModuleList(
            DecoderBlock(settings, reads_source=reads, dropout=dropout, name=f"decoder.{depth}")
            for depth in range(settings.layers)
        )
        self.norm = LayerNorm(settings.size, epsilon=settings.epsilon) if settings.norm == "pre" else None
        self.bridge = memory_bridge(memory_size, settings.size)

    def start(self, memory: Memory) -> tuple[State, State]:
        state = empty_caches(memory.rows, self.settings, like=self.embedding.weight)
        if memory.states is None:
            return (), state
        states = memory.states.values if self.bridge is None else self.bridge(memory.states.values)
        crosses = [cast(DecoderBlock, block).cross for block in self.blocks]
        heads = [part for cross in crosses if cross is not None for part in cross.project_memory(states)]
        return (memory.states.real, *heads), state

    def features(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> Read:
        place, *caches = state
        first = position_of(place)
        x = self.entrance(self.embedding(tokens), first=first)
        after = [place + tokens.shape[1]]
        for depth, block in enumerate(self.blocks):
            past = (caches[2 * depth], caches[2 * depth + 1])
            source = (context[1 + 2 * depth], context[2 + 2 * depth]) if context else None
            x, now = block(x, past, source, context[0] if context else None, first=first)
            after.extend(now)
        return Read(x if self.norm is None else self.norm(x), tuple(after))

    def read(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> tuple[Float[Tensor, "B T V"], State]:
        return logits_of(self, tokens, context, state)

    def step(self, token: Int[Tensor, " B"], context: State, state: State) -> tuple[Float[Tensor, "B V"], State]:
        logits, state = self.read(token[:, None], context, state)
        return logits[:, 0], state

    def quick(self) -> Decoder:
        return self if listened_to() else Stepping(self)


def remembered(source: Padded, x: Float[Tensor, "B S D"], penalty: Tensor | None = None) -> Memory:
    """The states of an encoder as memory, with their mean as summary."""
    states = source.with_values(x).masked()
    return Memory(len(source), states, mean_pool(states.values, states.real), penalty)


def memory_bridge(memory_size: int | None, size: int) -> nn.Linear | None:
    """What makes a memory of another size fit."""
    return nn.Linear(memory_size, size) if memory_size not in (None, size) else None


def empty_caches(rows: int, settings: Transformer, *, like: Tensor) -> State:
    """Position 0 and the keys and values of no tokens yet, for each depth."""
    shape = (rows, settings.heads, 0, settings.size // settings.heads)
    caches = (torch.zeros(shape, dtype=like.dtype) for _ in range(2 * settings.layers))
    return (torch.zeros(rows, dtype=torch.long), *caches)


def position_of(place: Int[Tensor, " B"]) -> int:
    """How many tokens were read; all rows of a call stand at the same place."""
    return int(place[0]) if len(place) else 0
