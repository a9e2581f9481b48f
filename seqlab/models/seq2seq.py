"""Sequence to sequence, unaligned: any encoder under any decoder (S13-S16)."""

from dataclasses import replace

from jaxtyping import Float
from torch import Tensor, nn

from seqlab.models.interface import Encoder, Reading, Scorer, Teachable, added, mean_states, read_target
from seqlab.padded import Batch, Padded
from seqlab.types import State


class Seq2Seq(nn.Module):
    def __init__(self, encoder: Encoder, decoder: Teachable) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        assert batch.source is not None, "an encoder reads a source"
        assert batch.target is not None, "a decoder reads a target"
        memory = self.encoder(batch.source)
        context, state = self.decoder.start(memory)
        reading = read_target(self.decoder, batch.target, context, state)
        return replace(reading, penalty=added(memory.penalty, reading.penalty))

    def vectors(self, source: Padded) -> Float[Tensor, "B D"]:
        return mean_states(self.encoder, source)

    @property
    def head(self) -> Scorer:
        return self.decoder.head
