"""The masked language model (S18): some tokens are hidden, and the encoder has to guess them from both sides."""

import torch
from torch import Tensor

from seqlab.equations.pretraining import corrupt, theme_loss
from seqlab.layers.linear import Head, Linear
from seqlab.layers.pooling import Pooling
from seqlab.models.interface import Encoder, Reading
from seqlab.models.seq2seq import EncoderModel, added
from seqlab.padded import Batch, Padded
from seqlab.randomness import current_noise, mix, uniform
from seqlab.text.vocabulary import MASK, SPECIALS
from seqlab.types import Mask, RowIds, State, Vector, Vectors


class MaskedLanguageModel(EncoderModel):
    """Any encoder under a head of tokens. What is hidden depends on (seed, step, row) in training, else on the row.

    With a `theme`, a narrow vector of the whole text is added to each of its states, and has to guess the words of the
    text by itself too, in no order: what is told in a text decides its words, wherever they stand.
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
        """What each position is guessed from, the theme in it, and what the encoder's work costs."""
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
            penalty = added(
                penalty, (words * gold.scored.sum(1)).sum()
            )  # a text counts as its hidden tokens do
        return Reading(features, gold, penalty=penalty)

    def hide(self, source: Padded, rows: RowIds) -> tuple[Padded, Padded]:
        """The source with some tokens hidden, and what stood there, observed where it has to be guessed."""
        drawn = current_noise()
        seed, step = (0, 0) if drawn is None else (drawn.seed, drawn.step)
        tokens = source.values
        place = mix(rows, seed, step)[:, None] + torch.arange(tokens.shape[1])
        corrupted, guessed = corrupt(
            tokens,
            _words(source),
            uniform(place, 1),
            uniform(place, 2),
            len(SPECIALS) + mix(place, 3) % max(1, self.num_tokens - len(SPECIALS)),
            mask=MASK,
            share=self.share,
        )
        return source.with_values(corrupted), Padded(tokens, source.lengths, guessed)


def _words(source: Padded) -> Mask:
    """Where something stands that a text is made of."""
    return source.real & (source.values >= len(SPECIALS))
