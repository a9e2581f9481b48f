"""Nothing to sequence: a language model (S7)."""

import zlib

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.pooling import mean_pool
from seqlab.keyed import uniform
from seqlab.layers.dropout import current_noise
from seqlab.models.interface import Memory, Reading, Scorer, Teachable, read_target
from seqlab.padded import Batch, Padded
from seqlab.types import State

ANEW = 0.02  # the share of streams that begin anew with a chunk
KEY = zlib.crc32(b"anew")


class LanguageModel(nn.Module):
    """A decoder without a source. The state carried out of one batch may be carried into the next (E35)."""

    def __init__(self, decoder: Teachable) -> None:
        super().__init__()
        self.decoder = decoder

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        assert batch.target is not None, "a language model reads its target"
        context, state = self.decoder.start(Memory(len(batch)))
        return read_target(self.decoder, batch.target, context, _some_anew(carried, state) or state)

    def vectors(self, tokens: Padded) -> Float[Tensor, "B D"]:
        """One vector for each row: the mean of the states after each of its tokens."""
        context, state = self.decoder.start(Memory(len(tokens)))
        return mean_pool(self.decoder.features(tokens.values, context, state).features, tokens.real)

    @property
    def head(self) -> Scorer:
        return self.decoder.head


def _some_anew(carried: State, state: State) -> State:
    """In training a few streams forget what came before.

    A recurrent network that begins with a state of its own only once an epoch may never learn to: its states settle
    where training keeps them, and from a fresh start it can end up elsewhere, and stay there.
    """
    drawn = current_noise()
    if drawn is None or not carried:
        return carried
    anew = uniform(drawn.rows, drawn.seed, drawn.step, KEY) < ANEW
    return tuple(
        torch.where(anew[:, None], begun, part) if begun.shape == part.shape else part  # what was read is no state
        for begun, part in zip(state, carried, strict=True)
    )
