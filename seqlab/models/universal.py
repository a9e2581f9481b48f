"""The Universal Transformer (S16): one block used again and again, until each token has had enough."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqlab.equations.transformer import (
    Halting,
    halting_step,
    ponder_cost,
    sinusoidal_positions,
    start_halting,
)
from seqlab.layers.inputs import Embedding, Entrance, Inputs
from seqlab.layers.linear import Head
from seqlab.layers.tap import tap
from seqlab.layers.transformer import DecoderBlock, EncoderBlock, LayerNorm
from seqlab.models.interface import Memory, Read
from seqlab.models.seq2seq import FeatureDecoder
from seqlab.models.transformer import empty_caches, memory_bridge, position_of, remembered, segment_numbers
from seqlab.padded import Padded
from seqlab.recipe import Transformer
from seqlab.types import State


class Ponder(nn.Module):
    """E56 around a block: the step signal, the halting unit, and the bookkeeping of who still runs."""

    def __init__(self, settings: Transformer, *, name: str) -> None:
        super().__init__()
        self.settings, self.name = settings, name
        self.halt = nn.Linear(settings.size, 1)
        nn.init.constant_(self.halt.bias, -1.0)  # at first a token takes four steps
        self.signal = nn.Buffer(sinusoidal_positions(settings.layers, settings.size), persistent=False)

    def enter(self, halting: Halting, depth: int) -> Float[Tensor, "B T D"]:
        """What the block is given at this depth: the state, and a signal that says how deep we are."""
        return halting.state + self.signal[depth].to(halting.state.dtype)

    def forward(self, halting: Halting, entered: Tensor, proposed: Tensor, depth: int) -> Halting:
        p = tap(f"{self.name}.{depth}.halt", self.halt(entered)[..., 0].sigmoid())
        last = depth == self.settings.layers - 1
        return halting_step(halting, proposed, p, threshold=self.settings.halt, last=last)

    def cost(self, halting: Halting, real: Bool[Tensor, "B T"]) -> Float[Tensor, ""]:
        tap(f"{self.name}.ponder", halting.steps)
        return self.settings.ponder * ponder_cost(halting, real)


class UniversalEncoder(nn.Module):
    """Self-attention by one block, up to `layers` times; a halted token is still seen by the others."""

    def __init__(self, inputs: Inputs, entrance: Entrance, settings: Transformer, *, dropout: float) -> None:
        super().__init__()
        self.inputs, self.entrance, self.depth = inputs, entrance, settings.layers
        self.block = EncoderBlock(settings, dropout=dropout, name="encoder.0")
        self.ponder = Ponder(settings, name="encoder")
        self.norm = LayerNorm(settings.size, epsilon=settings.epsilon) if settings.norm == "pre" else None
        self.output_size = self.summary_size = settings.size

    def forward(self, source: Padded) -> Memory:
        real, halting = source.real, start_halting(self.entrance(self.inputs(source), segments=segment_numbers(source)))
        for depth in range(self.depth):
            entered = self.ponder.enter(halting, depth)
            halting = self.ponder(halting, entered, self.block(entered, real), depth)
        x = halting.state if self.norm is None else self.norm(halting.state)
        return remembered(source, x, self.ponder.cost(halting, real))


class UniversalDecoder(FeatureDecoder):
    """The same for the target; each depth has a cache of its own, in which halted tokens stay as they are."""

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
        self.block = DecoderBlock(settings, reads_source=memory_size is not None, dropout=dropout, name="decoder.0")
        self.ponder = Ponder(settings, name="decoder")
        self.norm = LayerNorm(settings.size, epsilon=settings.epsilon) if settings.norm == "pre" else None
        self.bridge = memory_bridge(memory_size, settings.size)

    def start(self, memory: Memory) -> tuple[State, State]:
        state = empty_caches(memory.rows, self.settings, like=self.embedding.weight)
        if memory.states is None or self.block.cross is None:
            return (), state
        states = memory.states.values if self.bridge is None else self.bridge(memory.states.values)
        return (memory.states.real, *self.block.cross.project_memory(states)), state

    def features(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> Read:
        place, *caches = state
        first = position_of(place)
        halting = start_halting(self.entrance(self.embedding(tokens), first=first))
        visible, source = (context[0], (context[1], context[2])) if context else (None, None)
        after = [place + tokens.shape[1]]
        for depth in range(self.settings.layers):
            entered = self.ponder.enter(halting, depth)
            past = (caches[2 * depth], caches[2 * depth + 1])
            proposed, now = self.block(entered, past, source, visible, first=first)
            halting = self.ponder(halting, entered, proposed, depth)
            after.extend(now)
        everywhere = torch.ones(tokens.shape, dtype=torch.bool)  # a pad of the target is cheap and is not worth a mask
        x = halting.state if self.norm is None else self.norm(halting.state)
        return Read(x, tuple(after), self.ponder.cost(halting, everywhere))
