"""Models that generate sequences, from a source (S13-S16) or without one (S7), and functions of their decoders."""

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

RESTART_SHARE = 0.02  # of the streams whose state is reset at the start of a chunk in training
KEY = zlib.crc32(b"anew")


class EncoderModel(nn.Module):
    """A model that reads a source with an encoder."""

    encoder: Callable[[Padded], Memory]

    def vectors(self, source: Padded) -> Vector:
        """Return one vector for each row: the mean of the encoder states."""
        states = self.encoder(source).require_states()
        return mean_pool(states.values, states.real)


class Seq2Seq(EncoderModel):
    """An unaligned sequence-to-sequence model: any encoder with any decoder."""

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
        """Return one vector for each row: the mean of the states after each token."""
        context, state = self.decoder.start(Memory(len(tokens)))
        return mean_pool(self.decoder.features(tokens.values, context, state).features, tokens.real)

    @property
    def head(self) -> Scorer:
        return self.decoder.head


class FeatureDecoder(nn.Module):
    """`read` and `step` of a decoder that computes features, followed by a head."""

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
    """Reset the state of a few streams in training.

    A recurrent network that starts from the initial state only once an epoch may not learn to do so, and generate badly
    from there.
    """
    noise = current_noise()
    if noise is None or not carried:
        return carried
    restarts = uniform(noise.rows, noise.seed, noise.step, KEY) < RESTART_SHARE
    return tuple(
        torch.where(restarts[:, None], begun, part)
        if begun.shape == part.shape
        else part  # not a state
        for begun, part in zip(state, carried, strict=True)
    )


def for_search(decoder: Decoder, *, coarse: bool = True) -> Decoder:
    """Return the fast version of a decoder, if it has one; `coarse` lets an int8 model round its rows to 8 bits."""
    return decoder.quick(coarse=coarse) if isinstance(decoder, Quick) else decoder


def read_target(decoder: TrainableDecoder, target: Padded, context: State, state: State) -> Reading:
    """Teacher forcing: read all tokens but the last, to predict all but the first."""
    tokens = target.values
    lengths = (target.lengths - 1).clamp(min=0)
    read = decoder.features(tokens[:, :-1], context, state)
    observed = None if target.observed is None else target.observed[:, 1:]
    return Reading(
        read.features, Padded(tokens[:, 1:], lengths, observed), read.state, read.penalty
    )


def sum_penalties(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Return the sum of two penalties, each of which may be None."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


def for_each_hypothesis(part: Shaped[Tensor, "B *R"], rows: int) -> Shaped[Tensor, "R *R"]:
    """Repeat a part of the context for each hypothesis of its source; `rows` is the number of all hypotheses."""
    return part if len(part) == rows else part.repeat_interleave(rows // len(part), dim=0)


def reorder(state: State, rows: Int[Tensor, " K"]) -> State:
    """Return the state of the selected rows, in their new order."""
    return tuple(part.index_select(0, rows) for part in state)
