"""The Transformer: encoder and decoder (S15), the Universal Transformer (S16), and the decoder as a causal LM (S17)."""

import math
import mmap
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.attention import mean_pool, sinusoidal_positions
from seqlab.equations.transformer import halting_step, ponder_cost, start_halting
from seqlab.kernels import native
from seqlab.layers.inputs import Embedding, Entrance, Inputs, ids_of
from seqlab.layers.linear import Head, Linear
from seqlab.layers.tap import listened_to, tap
from seqlab.layers.transformer import ACTIVATIONS, AddNorm, LayerNorm, TransformerBlock
from seqlab.models.interface import Decoder, Memory, Read
from seqlab.models.seq2seq import FeatureDecoder
from seqlab.padded import Padded
from seqlab.randomness import training
from seqlab.recipe import TransformerConfig
from seqlab.text.vocabulary import SEP
from seqlab.types import Logits, Mask, PositionIds, PositionLogits, RowIds, Scalar, State, Vectors

AtDepth = Callable[[int, Tensor], Tensor]  # runs the block of a depth

ROOM = 64  # positions of the first cache; it doubles when full, and pages that are not written take no memory
LONGEST = (
    256  # positions of a source up to which the encoder's kernel is quicker than torch's attention
)
LARGE = 1 << 25  # bytes above which the C library asks the system for new pages each time


class Ponder(nn.Module):
    """E56 around a block: the step signal, the halting unit, and which tokens still run."""

    def __init__(self, settings: TransformerConfig, *, name: str) -> None:
        super().__init__()
        self.settings, self.name = settings, name
        self.halt = nn.Linear(settings.size, 1)
        nn.init.constant_(self.halt.bias, -1.0)  # a token takes about four steps at first
        self.signal = nn.Buffer(
            sinusoidal_positions(settings.layers, settings.size), persistent=False
        )

    def forward(self, x: Vectors, block: AtDepth, real: Mask) -> tuple[Vectors, Scalar]:
        """Apply the block until each token has halted; return the states and the ponder cost."""
        settings, halting = self.settings, start_halting(x)
        for depth, signal in enumerate(self.signal):
            entered = halting.state + signal.to(x.dtype)  # the signal encodes the depth
            proposed = block(depth, entered)
            p = tap(f"{self.name}.{depth}.halt", self.halt(entered)[..., 0].sigmoid())
            last = depth == settings.layers - 1
            halting = halting_step(halting, proposed, p, threshold=settings.halt, last=last)
        tap(f"{self.name}.ponder", halting.steps)
        return halting.state, settings.ponder * ponder_cost(halting, real)


class BlockStack(nn.Module):
    """The blocks of an encoder or decoder: `layers` blocks, or one block applied repeatedly (S16), and a final norm.

    In a Universal Transformer, a halted token keeps its state, and the others still attend to it.
    """

    settings: TransformerConfig
    norm: LayerNorm | None
    ponder: Ponder | None

    def add_blocks(
        self, settings: TransformerConfig, *, dropout: float, name: str, reads_source: bool = False
    ) -> None:
        def block(depth: int) -> TransformerBlock:
            return TransformerBlock(
                settings, reads_source=reads_source, dropout=dropout, name=f"{name}.{depth}"
            )

        self.settings, self.ponder = settings, None
        if settings.kind == "universal":
            self.block = block(0)
            self.ponder = Ponder(settings, name=name)
        else:
            self.blocks = nn.ModuleList(map(block, range(settings.layers)))
        self.norm = (
            LayerNorm(settings.size, epsilon=settings.epsilon) if settings.norm == "pre" else None
        )

    def each_block(self) -> list[TransformerBlock]:
        return (
            [self.block]
            if self.ponder is not None
            else cast(list[TransformerBlock], list(self.blocks))
        )

    def run(self, x: Vectors, block: AtDepth, real: Tensor) -> tuple[Vectors, Scalar | None]:
        """Return the output of the last block, and the penalty of a Universal Transformer; `block` runs a depth."""
        penalty = None
        if self.ponder is not None:
            x, penalty = self.ponder(x, block, real)
        else:
            for depth in range(self.settings.layers):
                x = block(depth, x)
        return (x if self.norm is None else self.norm(x)), penalty


class TransformerEncoder(BlockStack):
    """Blocks of self-attention; the summary is the mean of the states."""

    def __init__(
        self, inputs: Inputs, entrance: Entrance, settings: TransformerConfig, *, dropout: float
    ) -> None:
        super().__init__()
        self.inputs, self.entrance = inputs, entrance
        self.add_blocks(settings, dropout=dropout, name="encoder")
        self.output_size = self.summary_size = settings.size

    def forward(self, source: Padded) -> Memory:
        x, real = self.entrance(self.inputs(source), segments=segment_numbers(source)), source.real
        blocks = self.each_block()
        if (
            self.ponder is not None
            or training()
            or torch.is_grad_enabled()
            or listened_to()
            or (real.all() and not self._is_native(source))
        ):
            x, penalty = self.run(x, lambda depth, x: blocks[depth % len(blocks)](x, real), real)
            return encoder_memory(source, x, penalty)
        if self._is_native(source):
            x[real] = self._native(x[real], source.lengths)
            return encoder_memory(source, x)
        # without gradients and listeners, pads need not be computed
        packed, _ = self.run(
            x[real][None], lambda depth, x: blocks[depth].without_padding(x, real), real
        )
        x[real] = packed[0]
        return encoder_memory(source, x)

    def _is_native(self, source: Padded) -> bool:
        """Whether the native kernel runs this encoder: in int8, where a row then gets the same states in each batch."""
        settings, (block, *_) = self.settings, self.each_block()
        plain = settings.normalise == "layer" and settings.window is None and not settings.causal
        short = source.values.shape[1] <= LONGEST
        in_bytes = block.attention.query_key_value.in_bytes
        return in_bytes and plain and short and self.ponder is None and native.ready()

    def _native(self, x: Float[Tensor, "N D"], lengths: RowIds) -> Float[Tensor, "N D"]:
        """The blocks and the last norm, for the real positions of all sources one below the other."""
        settings, weights = self.settings, list[Tensor]()
        for block in self.each_block():
            weights += _norm(block.first.norm)
            weights += _matrix(block.attention.query_key_value, 3 * settings.size)
            weights += _matrix(block.attention.mix, settings.size)
            weights += _feed_forward(block, settings)
        if self.norm is not None:
            weights += _norm(self.norm)
        head = settings.size // settings.heads
        turned = settings.positions == "rotary"
        return torch.ops.seqlab.encoder(
            x.contiguous(),
            lengths,
            weights,
            sinusoidal_positions(int(lengths.max()) if turned else 0, head),
            settings.layers,
            settings.heads,
            settings.epsilon,
            settings.norm == "pre",
            list(ACTIVATIONS).index(settings.activation),
        )


class TransformerDecoder(FeatureDecoder, BlockStack):
    """Blocks of masked self-attention, with cross-attention if there is a source.

    The state has each row's position and, for each depth, the keys and values of the tokens so far; the context has
    those of the source for each block.
    """

    def __init__(
        self,
        embedding: Embedding,
        entrance: Entrance,
        settings: TransformerConfig,
        head: Head,
        *,
        memory_size: int | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding, self.entrance, self.head = embedding, entrance, head
        self.add_blocks(
            settings, reads_source=memory_size is not None, dropout=dropout, name="decoder"
        )
        fits = memory_size in (None, settings.size)
        self.bridge = nn.Identity() if fits else nn.Linear(cast(int, memory_size), settings.size)

    def start(self, memory: Memory) -> tuple[State, State]:
        settings, context = self.settings, list[Tensor]()
        if memory.states is not None:
            states = self.bridge(memory.states.values)
            context.append(memory.states.real)
            for block in self.each_block():
                context.extend(
                    ()
                    if block.cross is None
                    else block.cross.split(block.cross.keys_and_values(states))
                )
        shape = (memory.rows, settings.heads, 0, settings.size // settings.heads)
        caches = [self.embedding.weight.new_zeros(shape)] * (2 * settings.layers)
        return tuple(context), (torch.zeros(memory.rows, dtype=torch.long), *caches)

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
        place, *caches = state
        first = int(place[0]) if len(place) else 0  # all rows of a call have the same position
        blocks, after = self.each_block(), [place + tokens.shape[1]]

        def run_block(depth: int, x: Tensor) -> Tensor:
            which = depth % len(blocks)
            source = (*context[:1], *context[2 * which + 1 : 2 * which + 3])
            x, now = blocks[which].decode(x, caches[2 * depth : 2 * depth + 2], source, first=first)
            after.extend(now)
            return x

        real = torch.ones(
            tokens.shape, dtype=torch.bool
        )  # masking pads of the target saves no time
        x, penalty = self.run(self.entrance(self.embedding(tokens), first=first), run_block, real)
        return Read(x, tuple(after), penalty)

    def quick(self, *, coarse: bool = True) -> Decoder:
        """Return a decoder on the native kernel, if that is built and supports this one; else this decoder."""
        settings, dtype = self.settings, self.embedding.weight.dtype
        suits = (
            self.ponder is None
            and settings.normalise == "layer"
            and dtype == torch.float32
            and self.head.project is None
        )
        return (
            Stepping(self, coarse=coarse)
            if suits and native.ready() and not listened_to()
            else self
        )


def segment_numbers(source: Padded) -> PositionIds | None:
    """Return the number of the text that each token belongs to; a [SEP] ends its text."""
    tokens = ids_of(source)
    if tokens is None:
        return None
    ends = (tokens == SEP).long()
    return ends.cumsum(1) - ends


def encoder_memory(source: Padded, x: Vectors, penalty: Tensor | None = None) -> Memory:
    """Return the states of an encoder as memory, with their mean as summary."""
    states = source.with_values(x).masked()
    summary = mean_pool(states.values, states.real)
    return Memory(len(source), states, summary, penalty, tokens=ids_of(source))


class Stepping:
    """A Transformer decoder on the native kernel, for one search over one batch of sources.

    The keys and values of a token stay in the row of the cache in which they were computed. The state is a table with
    the row of the cache for each row and position; the context has the source of each row. So reordering hypotheses and
    ending rows changes only small tables. Tests compare it with the decoder.
    """

    def __init__(self, decoder: TransformerDecoder, *, coarse: bool = True) -> None:
        self.decoder, self.settings, self.blocks = decoder, decoder.settings, decoder.each_block()
        self.weights = self._weights(coarse)
        bridge, vectors = decoder.entrance.bridge, decoder.embedding.weight
        self.vectors = vectors if bridge is None else bridge(vectors)

    def start(self, memory: Memory) -> tuple[State, State]:
        like, size = self.decoder.embedding.weight, self.settings.size
        self.cache = like.new_empty(len(self.blocks), 0, 0, 2 * size)
        self.cross, self.lengths = like.new_empty(0), torch.zeros(0, dtype=torch.long)
        self.waves = sinusoidal_positions(0, size // self.settings.heads)
        if memory.states is not None:
            states = self.decoder.bridge(memory.states.values)
            self.real, self.lengths = memory.states.real, memory.states.lengths
            places = self.real.flatten().nonzero()[:, 0]  # pads are not projected
            states = states.flatten(0, 1)[places][None]
            self.cross = like.new_zeros(len(self.blocks), *self.real.shape, 2 * size)
            for layer, block in zip(self.cross.flatten(1, 2), self.blocks, strict=True):
                if block.cross is not None:
                    layer[places] = block.cross.keys_and_values(states)[0]
        return (torch.arange(memory.rows),), (torch.zeros(memory.rows, 0, dtype=torch.long),)

    def read(
        self, tokens: PositionIds, context: State, state: State
    ) -> tuple[PositionLogits, State]:
        """Read tokens by the decoder itself, and copy its keys and values into the cache."""
        table = state[0]
        rows, before = table.shape
        self._make_room(rows, before + tokens.shape[1])
        first = 0 if self.settings.window is None else max(0, before - self.settings.window + 1)
        caches = self._heads(self.cache[:, torch.arange(first, before), table[:, first:]])
        source = (
            (self.real[context[0]], *self._heads(self.cross[:, context[0]]))
            if len(self.lengths)
            else ()
        )
        logits, (_, *after) = self.decoder.read(
            tokens, source, (torch.full((rows,), before), *caches)
        )
        now = before + tokens.shape[1]
        for depth, (k, v) in enumerate(zip(after[0::2], after[1::2], strict=True)):
            both = torch.cat([k, v], dim=1).transpose(1, 2).flatten(2)
            self.cache[depth, now - both.shape[1] : now, :rows] = both.transpose(0, 1)
        return logits, (torch.arange(rows)[:, None].expand(-1, now).contiguous(),)

    def step(self, token: RowIds, context: State, state: State) -> tuple[Logits, State]:
        rows, first = state[0].shape
        self._make_room(rows, first + 1)
        settings, embedding = self.settings, self.decoder.embedding
        if embedding._forward_pre_hooks:  # somebody wants to know whenever a token is read
            embedding(token[:1])
        logits, table = torch.ops.seqlab.decoder_step(
            token.contiguous(),
            self.vectors,
            self.decoder.entrance.scale,
            self.decoder.entrance.positions.vector(first),
            self.weights,
            self.cache,
            state[0],
            context[0],
            self.cross,
            self.lengths,
            self.waves[first] if settings.positions == "rotary" else self.waves[:0],
            settings.heads,
            settings.epsilon,
            self.decoder.entrance.norm is not None,
            settings.norm == "pre",
            list(ACTIVATIONS).index(settings.activation),
            settings.window or 0,
        )
        return logits, (table,)

    def _heads(self, layers: Float[Tensor, "L B T E"]) -> list[Tensor]:
        """Return keys and values of each layer in the decoder's format."""
        pairs = zip(self.blocks, layers, strict=True)
        return [part for block, layer in pairs for part in block.attention.split(layer)]

    def _make_room(self, rows: int, length: int) -> None:
        """Enlarge the cache if it is too small for these rows and positions."""
        old = self.cache
        layers, positions, there, size = old.shape
        if rows <= there and length <= positions:
            return
        most = max(ROOM, 2 * length, positions)
        self.cache = empty_pages(layers, most, max(rows, there), size, like=old)
        used = old[:, :length]
        self.cache[:, : used.shape[1], :there] = used
        if self.settings.positions == "rotary":
            self.waves = sinusoidal_positions(most, self.settings.size // self.settings.heads)

    def _weights(self, coarse: bool) -> list[Tensor]:
        """All weights in the order of their use; a matrix is three tensors: itself, its scales, its bias."""
        settings, weights, matrix = self.settings, list[Tensor](), partial(_matrix, coarse=coarse)
        if self.decoder.entrance.norm is not None:
            weights += _norm(self.decoder.entrance.norm)
        for block in self.blocks:
            weights += _norm(block.first.norm)
            weights += matrix(block.attention.query_key_value, 3 * settings.size)
            weights += matrix(block.attention.mix, settings.size)
            if block.cross is not None:
                weights += _norm(cast(AddNorm, block.third).norm)
                weights += matrix(block.cross.query_key_value, settings.size)
                weights += matrix(block.cross.mix, settings.size)
            weights += _feed_forward(block, settings, coarse=coarse)
        if self.decoder.norm is not None:
            weights += _norm(self.decoder.norm)
        return weights + matrix(self.decoder.head.output, len(self.decoder.embedding.weight))


def _norm(norm: Any) -> list[Tensor]:
    return [norm.gain, norm.bias]


def _matrix(layer: Linear, outputs: int, *, coarse: bool = False) -> list[Tensor]:
    one = layer.part(0, outputs, coarse=coarse)
    scale = torch.empty(0) if one.scale is None else one.scale
    return [one.weight, scale, cast(Tensor, one.bias)]


def _feed_forward(
    block: TransformerBlock, settings: TransformerConfig, *, coarse: bool = False
) -> list[Tensor]:
    return [
        *_norm(block.second.norm),
        *_matrix(block.feed_forward.widen, settings.inner, coarse=coarse),
        *_matrix(block.feed_forward.narrow, settings.size, coarse=coarse),
    ]


def empty_pages(*shape: int, like: Tensor) -> Tensor:
    """Return an uninitialised tensor like `like`, in huge pages if it is large.

    Pages that are never written take no memory.
    """
    size, advice = math.prod(shape) * like.element_size(), getattr(mmap, "MADV_HUGEPAGE", None)
    if size < LARGE or advice is None or like.device.type != "cpu":
        return like.new_empty(shape)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # without huge pages, normal ones are used
        pages.madvise(advice)
    return torch.frombuffer(pages, dtype=like.dtype).view(shape)
