"""Sequence to sequence, unaligned: an encoder, and a decoder that begins where it ended (S13)."""

from jaxtyping import Float
from torch import Tensor, nn

from seqlab.models.decoders import RecurrentDecoder
from seqlab.models.encoders import RecurrentEncoder
from seqlab.models.interface import Reading
from seqlab.models.language_model import read_target
from seqlab.padded import Batch
from seqlab.types import State


class Seq2Seq(nn.Module):
    def __init__(self, encoder: RecurrentEncoder, decoder: RecurrentDecoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        assert batch.source is not None, "an encoder reads a source"
        assert batch.target is not None, "a decoder reads a target"
        context, state = self.decoder.start(self.encoder(batch.source))
        return read_target(self.decoder, batch.target, context, state)

    def head(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        return self.decoder.head(features)
