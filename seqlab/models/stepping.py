"""A Transformer decoder as a search drives it: one call a step, and keys and values that are never moved."""

from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqlab.equations.attention import split_heads
from seqlab.equations.transformer import sinusoidal_positions
from seqlab.kernels import memory as pages
from seqlab.kernels import native
from seqlab.kernels.int8 import Matrix
from seqlab.layers.attention import Heads
from seqlab.layers.blocks import ACTIVATIONS, AddNorm, DecoderBlock
from seqlab.models.interface import Memory
from seqlab.types import State

ROOM = 64  # positions that the first cache has, each next one twice as many: pages that nobody writes to cost nothing


class Stepping:
    """One search of a Transformer decoder, for one batch of sources; the decoder itself stays the oracle.

    The keys and values of a token lie in the cache in the row in which they were made, for good. The state is a table
    that says of each row and position in which row of the cache to look; the context, of which source each row is.
    Hypotheses change places, and rows end, by small tables of numbers alone.
    """

    def __init__(self, decoder: Any) -> None:
        self.decoder, self.settings = decoder, decoder.settings
        self.blocks = cast(list[DecoderBlock], list(decoder.blocks))
        self.native = native.ready() and decoder.embedding.weight.dtype == torch.float32
        self.native &= self.settings.normalise == "layer"
        self.weights = self._weights() if self.native else []

    def start(self, memory: Memory) -> tuple[State, State]:
        like, size = self.decoder.embedding.weight, self.settings.size
        self.cache = like.new_empty(len(self.blocks), 0, 0, 2 * size)
        self.cross, self.lengths = like.new_empty(0), torch.zeros(0, dtype=torch.long)
        self.waves = sinusoidal_positions(0, size // self.settings.heads)
        self.seen: tuple[Tensor | None, State] = (None, ())
        if memory.states is not None:
            bridge, states = self.decoder.bridge, memory.states.values
            states = states if bridge is None else bridge(states)
            self.real, self.lengths = memory.states.real, memory.states.lengths
            places = self.real.flatten().nonzero()[:, 0]  # the padding is not worth a product
            known = states.flatten(0, 1)[places][None]
            self.cross = states.new_zeros(len(self.blocks), *self.real.shape, 2 * size)
            for layer, block in zip(self.cross.flatten(1, 2), self.blocks, strict=True):
                if block.cross is not None:
                    layer[places] = block.cross.keys_and_values(known)[0]
        return (torch.arange(memory.rows),), (torch.zeros(memory.rows, 0, dtype=torch.long),)

    def read(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> tuple[Float[Tensor, "B T V"], State]:
        """By the decoder itself; then its keys and values are laid into the cache."""
        table = self._with_room(state[0], tokens.shape[1])
        rows, before = table.shape
        place = torch.full((rows,), before)
        window = self.settings.window
        past = None if window is None else window - 1
        caches = [part for depth in range(len(self.blocks)) for part in self._kept(depth, table, past)]
        logits, (_, *after) = self.decoder.read(tokens, self._sources(context[0]), (place, *caches))
        now = before + tokens.shape[1]
        for depth, (k, v) in enumerate(zip(after[0::2], after[1::2], strict=True)):
            both = torch.cat([k, v], dim=1).transpose(1, 2).flatten(2)
            self.cache[depth, now - both.shape[1] : now, :rows] = both.transpose(0, 1)
        return logits, (torch.arange(rows)[:, None].expand(-1, now).contiguous(),)

    def step(self, token: Int[Tensor, " B"], context: State, state: State) -> tuple[Float[Tensor, "B V"], State]:
        table = self._with_room(state[0], 1)
        rows, first = table.shape
        table = torch.cat([table, torch.arange(rows)[:, None]], dim=1)
        x = self.decoder.entrance(self.decoder.embedding(token[:, None]), first=first)
        if self.native:
            return self._native_step(x[:, 0], context[0], table), (table,)
        source = self._sources(context[0])
        for depth, block in enumerate(self.blocks):
            own = (source[1 + 2 * depth], source[2 + 2 * depth]) if source else None
            remember = partial(self._remember, depth, table)
            x, _ = block.further(x, remember, own, source[0] if source else None, first=first)
        norm = self.decoder.norm
        return self.decoder.head(x[:, 0] if norm is None else norm(x)[:, 0]), (table,)

    def _native_step(self, x: Float[Tensor, "B D"], source: Int[Tensor, " S"], table: Int[Tensor, "B T"]) -> Tensor:
        settings, now = self.settings, table.shape[1] - 1
        return torch.ops.seqlab.decoder_step(
            x.contiguous(),
            self.weights,
            self.cache,
            table,
            source,
            self.cross,
            self.lengths,
            self.waves[now] if settings.positions == "rotary" else self.waves[:0],
            settings.heads,
            settings.epsilon,
            settings.norm == "pre",
            list(ACTIVATIONS).index(settings.activation),
            settings.window or 0,
        )

    def _remember(self, depth: int, table: Int[Tensor, "B T"], k: Tensor, v: Tensor) -> Heads:
        """The new keys and values into the cache, and all that the rows can see of it."""
        rows, now = len(table), table.shape[1] - 1
        self.cache[depth, now, :rows] = torch.cat([k, v], dim=1).flatten(1)
        return self._kept(depth, table, self.settings.window)

    def _kept(self, depth: int, table: Int[Tensor, "B T"], most: int | None) -> Heads:
        """The keys and values of the last positions, at most so many."""
        rows, length = table.shape
        first = 0 if most is None else max(0, length - most)
        kept, places = self.cache[depth, first:length, :rows].transpose(0, 1), torch.arange(first, length)
        if not torch.equal(table[:, first:], torch.arange(rows)[:, None].expand(-1, length - first)):
            kept = self.cache[depth][places, table[:, first:]]
        k, v = kept.chunk(2, dim=-1)
        return split_heads(k, self.settings.heads), split_heads(v, self.settings.heads)

    def _with_room(self, table: Int[Tensor, "B T"], more: int) -> Int[Tensor, "B T"]:
        """A larger cache where this one is too small; what is still needed moves, row by row, into its place."""
        (rows, length), (_, positions, there, _) = table.shape, self.cache.shape
        if rows <= there and length + more <= positions:
            return table
        old, most = self.cache, max(ROOM, 2 * (length + more))
        self.cache = pages.empty(len(self.blocks), most, rows, old.shape[3], like=old)
        if length:
            self.cache[:, :length] = old[:, torch.arange(length)[:, None], table.t()]
        if self.settings.positions == "rotary":
            self.waves = sinusoidal_positions(most, self.settings.size // self.settings.heads)
        return torch.arange(rows)[:, None].expand(-1, length)

    def _sources(self, numbers: Int[Tensor, " S"]) -> State:
        """The context of the decoder itself, for the sources that are left."""
        if not len(self.lengths):
            return ()
        if self.seen[0] is not numbers:
            halves = [half for layer in self.cross[:, numbers] for half in layer.chunk(2, dim=-1)]
            heads = [split_heads(half, self.settings.heads) for half in halves]
            self.seen = (numbers, (self.real[numbers], *heads))
        return self.seen[1]

    def _weights(self) -> list[Tensor]:
        """All weights in the order of their use; a matrix is three tensors: itself, its scales, its bias."""
        none, size, found = torch.empty(0), self.settings.size, list[Tensor]()

        def matrix(one: Matrix) -> None:
            found.extend((one.weight, none if one.scale is None else one.scale, cast(Tensor, one.bias)))

        def norm(one: Any) -> None:
            found.extend((one.gain, one.bias))

        for block in self.blocks:
            norm(block.first.norm)
            matrix(block.attention.query_key_value.part(0, 3 * size))
            matrix(block.attention.mix.part(0, size))
            if block.cross is not None:
                norm(cast(AddNorm, block.third).norm)
                matrix(block.cross.query_key_value.part(0, size))
                matrix(block.cross.mix.part(0, size))
            norm(block.second.norm)
            matrix(block.feed_forward.widen.part(0, self.settings.inner))
            matrix(block.feed_forward.narrow.part(0, size))
        if self.decoder.norm is not None:
            norm(self.decoder.norm)
        matrix(self.decoder.head.output.part(0, len(self.decoder.embedding.weight)))
        return found
