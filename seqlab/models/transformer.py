"""The Transformer: encoder and decoder (S15); the decoder alone is the causal language model (S17)."""

import math
import mmap
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.equations.attention import mean_pool, split_heads
from seqlab.equations.transformer import sinusoidal_positions
from seqlab.kernels import native
from seqlab.layers.dropout import training
from seqlab.layers.inputs import Embedding, Entrance, Inputs, ids_of
from seqlab.layers.linear import Head, Matrix
from seqlab.layers.tap import listened_to
from seqlab.layers.transformer import ACTIVATIONS, AddNorm, DecoderBlock, EncoderBlock, Heads, LayerNorm
from seqlab.models.interface import Decoder, Memory, Read
from seqlab.models.seq2seq import FeatureDecoder
from seqlab.padded import Padded
from seqlab.recipe import Transformer
from seqlab.text.vocabulary import SEP
from seqlab.types import Logits, PositionIds, RowIds, State, Vector

Table = Int[Tensor, "B T"]

ROOM = 64  # positions that the first cache has, each next one twice as many: pages that nobody writes to cost nothing
LARGE = 1 << 25  # bytes from which on the C library asks the system for new pages each time


class TransformerEncoder(nn.Module):
    """N blocks of self-attention; its summary is the mean of its states."""

    def __init__(self, inputs: Inputs, entrance: Entrance, settings: Transformer, *, dropout: float) -> None:
        super().__init__()
        self.inputs, self.entrance = inputs, entrance
        self.blocks = nn.ModuleList(
            EncoderBlock(settings, dropout=dropout, name=f"encoder.{depth}") for depth in range(settings.layers)
        )
        self.norm = last_norm(settings)
        self.output_size = self.summary_size = settings.size

    def forward(self, source: Padded) -> Memory:
        x, real = self.entrance(self.inputs(source), segments=segment_numbers(source)), source.real
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


class TransformerDecoder(FeatureDecoder):
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
        self.norm = last_norm(settings)
        self.bridge = memory_bridge(memory_size, settings.size)

    def start(self, memory: Memory) -> tuple[State, State]:
        blocks = [cast(DecoderBlock, block) for block in self.blocks]
        return project_source(memory, self.bridge, blocks), empty_caches(memory.rows, self.settings, self.embedding)

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
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

    def quick(self) -> Decoder:
        return self if listened_to() else Stepping(self)


def segment_numbers(source: Padded) -> Table | None:
    """Which text of a pair each token belongs to; a [SEP] is the last token of its own text."""
    tokens = ids_of(source)
    if tokens is None:
        return None
    ends = (tokens == SEP).long()
    return ends.cumsum(1) - ends


def remembered(source: Padded, x: Float[Tensor, "B S D"], penalty: Tensor | None = None) -> Memory:
    """The states of an encoder as memory, with their mean as summary."""
    states = source.with_values(x).masked()
    return Memory(len(source), states, mean_pool(states.values, states.real), penalty)


def memory_bridge(memory_size: int | None, size: int) -> nn.Module:
    """What makes a memory of another size fit."""
    return nn.Linear(memory_size, size) if memory_size not in (None, size) else nn.Identity()


def project_source(memory: Memory, bridge: nn.Module, blocks: Iterable[DecoderBlock]) -> State:
    """The context of a decoder: which positions of the source are real, and its keys and values for each block."""
    if memory.states is None:
        return ()
    states = bridge(memory.states.values)
    crosses = [block.cross for block in blocks if block.cross is not None]
    return (memory.states.real, *(part for cross in crosses for part in cross.project_memory(states)))


def last_norm(settings: Transformer) -> LayerNorm | None:
    """The norm of what leaves the last block, where blocks have theirs before their sublayers."""
    return LayerNorm(settings.size, epsilon=settings.epsilon) if settings.norm == "pre" else None


def empty_caches(rows: int, settings: Transformer, embedding: Embedding) -> State:
    """Position 0 and the keys and values of no tokens yet, for each depth."""
    shape = (rows, settings.heads, 0, settings.size // settings.heads)
    caches = (torch.zeros(shape, dtype=embedding.weight.dtype) for _ in range(2 * settings.layers))
    return (torch.zeros(rows, dtype=torch.long), *caches)


def position_of(place: RowIds) -> int:
    """How many tokens were read; all rows of a call stand at the same place."""
    return int(place[0]) if len(place) else 0


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
            states = self.decoder.bridge(memory.states.values)
            self.real, self.lengths = memory.states.real, memory.states.lengths
            places = self.real.flatten().nonzero()[:, 0]  # the padding is not worth a product
            known = states.flatten(0, 1)[places][None]
            self.cross = states.new_zeros(len(self.blocks), *self.real.shape, 2 * size)
            for layer, block in zip(self.cross.flatten(1, 2), self.blocks, strict=True):
                if block.cross is not None:
                    layer[places] = block.cross.keys_and_values(known)[0]
        return (torch.arange(memory.rows),), (torch.zeros(memory.rows, 0, dtype=torch.long),)

    def read(self, tokens: PositionIds, context: State, state: State) -> tuple[Float[Tensor, "B T V"], State]:
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

    def step(self, token: RowIds, context: State, state: State) -> tuple[Logits, State]:
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

    def _native_step(self, x: Vector, source: Int[Tensor, " S"], table: Table) -> Tensor:
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

    def _remember(self, depth: int, table: Table, k: Tensor, v: Tensor) -> Heads:
        """The new keys and values into the cache, and all that the rows can see of it."""
        rows, now = len(table), table.shape[1] - 1
        self.cache[depth, now, :rows] = torch.cat([k, v], dim=1).flatten(1)
        return self._kept(depth, table, self.settings.window)

    def _kept(self, depth: int, table: Table, most: int | None) -> Heads:
        """The keys and values of the last positions, at most so many."""
        rows, length = table.shape
        first = 0 if most is None else max(0, length - most)
        kept, places = self.cache[depth, first:length, :rows].transpose(0, 1), torch.arange(first, length)
        if not torch.equal(table[:, first:], torch.arange(rows)[:, None].expand(-1, length - first)):
            kept = self.cache[depth][places, table[:, first:]]
        k, v = kept.chunk(2, dim=-1)
        return split_heads(k, self.settings.heads), split_heads(v, self.settings.heads)

    def _with_room(self, table: Table, more: int) -> Table:
        """A larger cache where this one is too small; what is still needed moves, row by row, into its place."""
        (rows, length), (_, positions, there, _) = table.shape, self.cache.shape
        if rows <= there and length + more <= positions:
            return table
        old, most = self.cache, max(ROOM, 2 * (length + more))
        self.cache = empty_pages(len(self.blocks), most, rows, old.shape[3], like=old)
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


def empty_pages(*shape: int, like: Tensor) -> Tensor:
    """Numbers of the kind of `like` that are not set yet, in large pages where they are many.

    What is never written to takes no memory, as with any.
    """
    size, advice = math.prod(shape) * like.element_size(), getattr(mmap, "MADV_HUGEPAGE", None)
    if size < LARGE or advice is None or like.device.type != "cpu":
        return like.new_empty(shape)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without large pages: these are memory all the same
        pages.madvise(advice)
    return torch.frombuffer(pages, dtype=like.dtype).view(shape)
