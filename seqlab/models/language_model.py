"""Nothing to sequence: a language model (S7)."""

from jaxtyping import Float
from torch import Tensor, nn

from seqlab.models.interface import Memory, Reading, Teachable, read_target
from seqlab.padded import Batch
from seqlab.types import State


class LanguageModel(nn.Module):
    """A decoder without a source. The state carried out of one batch may be carried into the next (E35)."""

    def __init__(self, decoder: Teachable) -> None:
        super().__init__()
        self.decoder = decoder

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        assert batch.target is not None, "a language model reads its target"
        context, state = self.decoder.start(Memory(len(batch)))
        return read_target(self.decoder, batch.target, context, carried or state)

    def head(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        return self.decoder.head(features)
