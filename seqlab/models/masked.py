"""The masked language model (S18): some tokens are masked, and the encoder predicts them from both sides."""

import torch
from torch import Tensor

from seqlab.equations.pretraining import corrupt, theme_loss
from seqlab.layers.linear import Head, Linear
from seqlab.layers.pooling import Pooling
from seqlab.models.interface import Encoder, Reading
from seqlab.models.seq2seq import EncoderModel, sum_penalties
from seqlab.padded import Batch, Padded
from seqlab.randomness import current_noise, mix, uniform
from seqlab.text.vocabulary import MASK, SPECIALS
from seqlab.types import Mask, RowIds, State, Vector, Vectors


class MaskedLanguageModel(EncoderModel):
    """Any encoder with a head over tokens. The mask depends on (seed, step, row) in training, else on the row.

    With a `theme`, a low-dimensional vector of the whole text is added to each state. It also has to predict the set of
    words of the text by itself, so that it represents what the text is about.
    """

    def __init__(
        self,
        encoder: Encoder,
        head: Head,
        *,
        num_tokens: int,
        share: float,
        theme: Pooling | None = None,
    ) -> None:
        super().__init__()
        self.encoder, self.head, self.num_tokens, self.share = encoder, head, num_tokens, share
        self.pooling = theme
        self.widen = None if theme is None else Linear(theme.output_size, encoder.output_size)

    def features(self, source: Padded) -> Vectors:
        return self._read(source)[0]

    def _read(self, source: Padded) -> tuple[Vectors, Vector | None, Tensor | None]:
        """Return the features of each position, the theme in them, and the penalty of the encoder."""
        memory = self.encoder(source)
        states = memory.require_states()
        if self.pooling is None or self.widen is None:
            return states.values, None, memory.penalty
        theme = self.widen(self.pooling(states, memory.require_summary())[0])
        return states.values + theme[:, None], theme, memory.penalty

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        source = batch.require("source")
        hidden, gold = self.hide(source, batch.rows)
        features, theme, penalty = self._read(hidden)
        if theme is not None:
            words = theme_loss(self.head(theme), gold.values, _words(source))
            # a text has the weight of its masked tokens
            penalty = sum_penalties(penalty, (words * gold.scored.sum(1)).sum())
        return Reading(features, gold, penalty=penalty)

    def hide(self, source: Padded, rows: RowIds) -> tuple[Padded, Padded]:
        """Return the source with some tokens masked, and the original tokens, observed where they are predicted."""
        noise = current_noise()
        seed, step = (0, 0) if noise is None else (noise.seed, noise.step)
        tokens = source.values
        key = mix(rows, seed, step)[:, None] + torch.arange(tokens.shape[1])
        corrupted, predicted = corrupt(
            tokens,
            _words(source),
            uniform(key, 1),
            uniform(key, 2),
            len(SPECIALS) + mix(key, 3) % max(1, self.num_tokens - len(SPECIALS)),
            mask=MASK,
            share=self.share,
        )
        return source.with_values(corrupted), Padded(tokens, source.lengths, predicted)


def _words(source: Padded) -> Mask:
    """Return the mask of the tokens that are neither pads nor special."""
    return source.real & (source.values >= len(SPECIALS))
