"""The masked language model (S18): some tokens are hidden, and the encoder has to guess them from both sides."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.equations.pretraining import corrupt
from seqlab.keyed import mix, uniform
from seqlab.layers.dropout import current_noise
from seqlab.models.heads import Head
from seqlab.models.interface import Encoder, Reading
from seqlab.padded import Batch, Padded
from seqlab.text.special import MASK, SPECIALS
from seqlab.types import State


class MaskedLanguageModel(nn.Module):
    """Any encoder under a head of tokens. What is hidden depends on (seed, step, row) in training, else on the row."""

    def __init__(self, encoder: Encoder, head: Head, *, num_tokens: int, share: float) -> None:
        super().__init__()
        self.encoder, self.head, self.num_tokens, self.share = encoder, head, num_tokens, share

    def features(self, source: Padded) -> Float[Tensor, "B T D"]:
        states = self.encoder(source).states
        assert states is not None
        return states.values

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        assert batch.source is not None, "a masked model reads a source"
        hidden, gold = self.hide(batch.source, batch.rows)
        return Reading(self.features(hidden), gold)

    def hide(self, source: Padded, rows: Int[Tensor, " B"]) -> tuple[Padded, Padded]:
        """The source with some tokens hidden, and what stood there, observed where it has to be guessed."""
        drawn = current_noise()
        seed, step = (0, 0) if drawn is None else (drawn.seed, drawn.step)
        tokens = source.values
        place = mix(rows, seed, step)[:, None] + torch.arange(tokens.shape[1])
        corrupted, guessed = corrupt(
            tokens,
            source.real & (tokens >= len(SPECIALS)),
            uniform(place, 1),
            uniform(place, 2),
            len(SPECIALS) + mix(place, 3) % max(1, self.num_tokens - len(SPECIALS)),
            mask=MASK,
            share=self.share,
        )
        return source.with_values(corrupted), Padded(tokens, source.lengths, guessed)
