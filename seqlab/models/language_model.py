"""Nothing to sequence: a language model (S7)."""

from jaxtyping import Float
from torch import Tensor, nn

from seqlab.models.decoders import RecurrentDecoder
from seqlab.models.interface import Memory, Reading
from seqlab.padded import Batch, Padded
from seqlab.types import State


class LanguageModel(nn.Module):
    """A decoder without a source. The state carried out of one batch may be carried into the next (E35)."""

    def __init__(self, decoder: RecurrentDecoder) -> None:
        super().__init__()
        self.decoder = decoder

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        assert batch.target is not None, "a language model reads its target"
        context, state = self.decoder.start(Memory(len(batch)))
        return read_target(self.decoder, batch.target, context, carried or state)

    def head(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        return self.decoder.head(features)


def read_target(decoder: RecurrentDecoder, target: Padded, context: State, state: State) -> Reading:
    """Teacher forcing: all tokens but the last are read, all but the first are to be predicted."""
    tokens, lengths = target.values, (target.lengths - 1).clamp(min=0)
    features, state = decoder.features(tokens[:, :-1], context, state)
    observed = None if target.observed is None else target.observed[:, 1:]
    return Reading(features, Padded(tokens[:, 1:], lengths, observed), state)
