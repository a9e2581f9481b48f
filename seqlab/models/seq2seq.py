"""Models that write sequences: from a source (S13-S16), or from nothing (S7); and what drives their decoders."""

import zlib
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Int, Shaped
from torch import Tensor, nn

from seqlab.equations.attention import mean_pool
from seqlab.models.interface import (
    Decoder,
    Encoder,
    Memory,
    Quick,
    Reading,
    Scorer,
    TrainableDecoder,
)
from seqlab.padded import Batch, Padded
from seqlab.randomness import current_noise, uniform
from seqlab.types import Logits, PositionIds, PositionLogits, RowIds, State, Vector

RESTART_SHARE = 0.02  # the share of streams that begin anew with a chunk
KEY = zlib.crc32(b"anew")


class EncoderModel(nn.Module):
    """A model that reads a source with an encoder."""

    encoder: Callable[[Padded], Memory]

    def vectors(self, source: Padded) -> Vector:
        """One vector for each row: the mean of what the encoder made of its positions."""
        states = self.encoder(source).require_states()
        return mean_pool(states.values, states.real)


class Seq2Seq(EncoderModel):
    """Sequence to sequence, unaligned: any encoder under any decoder."""

    def __init__(self, encoder: Encoder, decoder: TrainableDecoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        memory = self.encoder(batch.require("source"))
        context, state = self.decoder.start(memory)
        reading = read_target(self.decoder, batch.require("target"), context, state)
        return replace(reading, penalty=sum_penalties(memory.penalty, reading.penalty))

    @property
    def head(self) -> Scorer:
        return self.decoder.head


class LanguageModel(nn.Module):
    """A decoder without a source. The state carried out of one batch may be carried into the next (E35)."""

    def __init__(self, decoder: TrainableDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        context, state = self.decoder.start(Memory(len(batch)))
        return read_target(
            self.decoder, batch.require("target"), context, _restart_some(carried, state) or state
        )

    def vectors(self, tokens: Padded) -> Vector:
        """One vector for each row: the mean of the states after each of its tokens."""
        context, state = self.decoder.start(Memory(len(tokens)))
        return mean_pool(self.decoder.features(tokens.values, context, state).features, tokens.real)

    @property
    def head(self) -> Scorer:
        return self.decoder.head


class FeatureDecoder(nn.Module):
    """What every decoder shares that is a head on features: it reads many tokens, or steps by one."""

    def read(
        self: TrainableDecoder, tokens: PositionIds, context: State, state: State
    ) -> tuple[PositionLogits, State]:
        read = self.features(tokens, context, state)
        return self.head(read.features), read.state

    def step(
        self: TrainableDecoder, token: RowIds, context: State, state: State
    ) -> tuple[Logits, State]:
        logits, state = self.read(token[:, None], context, state)
        return logits[:, 0], state


def _restart_some(carried: State, state: State) -> State:
    """In training a few streams forget what came before.

    A recurrent network that begins with a state of its own only once an epoch may never learn to: its states settle
    where training keeps them, and from a fresh start it can end up elsewhere, and stay there.
    """
    drawn = current_noise()
    if drawn is None or not carried:
        return carried
    anew = uniform(drawn.rows, drawn.seed, drawn.step, KEY) < RESTART_SHARE
    return tuple(
        torch.where(anew[:, None], begun, part)
        if begun.shape == part.shape
        else part  # what was read is no state
        for begun, part in zip(state, carried, strict=True)
    )


def for_search(decoder: Decoder) -> Decoder:
    """A decoder as a search should drive it."""
    return decoder.quick() if isinstance(decoder, Quick) else decoder


def read_target(decoder: TrainableDecoder, target: Padded, context: State, state: State) -> Reading:
    """Teacher forcing: all tokens but the last are read, all but the first are to be predicted."""
    tokens, lengths = target.values, (target.lengths - 1).clamp(min=0)
    read = decoder.features(tokens[:, :-1], context, state)
    observed = None if target.observed is None else target.observed[:, 1:]
    return Reading(
        read.features, Padded(tokens[:, 1:], lengths, observed), read.state, read.penalty
    )


def sum_penalties(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Two penalties as one, where there are any."""
    return other if one is None else one if other is None else one + other


def for_each_hypothesis(part: Shaped[Tensor, "B *R"], rows: int) -> Shaped[Tensor, "R *R"]:
    """A part of the context for `rows` hypotheses, which stand source by source."""
    return part if len(part) == rows else part.repeat_interleave(rows // len(part), dim=0)


def reorder(state: State, rows: Int[Tensor, " K"]) -> State:
    """The state of the rows that survived, in their new places."""
    return tuple(part.index_select(0, rows) for part in state)
