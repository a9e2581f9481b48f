"""The masked language model (S18): some tokens are hidden, and the encoder has to guess them from both sides."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqlab.equations.pretraining import corrupt, theme_loss
from seqlab.keyed import mix, uniform
from seqlab.layers.dropout import current_noise
from seqlab.layers.pooling import Pooling
from seqlab.models.heads import Head
from seqlab.models.interface import Encoder, Reading, added, states_and_summary
from seqlab.padded import Batch, Padded
from seqlab.text.special import MASK, SPECIALS
from seqlab.types import State


class MaskedLanguageModel(nn.Module):
    """Any encoder under a head of tokens. What is hidden depends on (seed, step, row) in training, else on the row.

    With a `theme`, a narrow vector of the whole text has to guess the text's words too, in no order: the states see
    what stands around them, and this is what they have in common.
    """

    def __init__(
        self, encoder: Encoder, head: Head, *, num_tokens: int, share: float, theme: Pooling | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.head, self.num_tokens, self.share = encoder, head, num_tokens, share
        self.pooling = theme
        self.theme_head = None if theme is None else Head(theme.output_size, num_tokens)

    def features(self, source: Padded) -> Float[Tensor, "B T D"]:
        return states_and_summary(self.encoder(source))[0].values

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        assert batch.source is not None, "a masked model reads a source"
        hidden, gold = self.hide(batch.source, batch.rows)
        memory = self.encoder(hidden)
        states, summary = states_and_summary(memory)
        penalty = memory.penalty
        if self.pooling is not None and self.theme_head is not None:
            theme, _ = self.pooling(states, summary)
            words = theme_loss(self.theme_head(theme), gold.values, _words(batch.source))
            assert gold.observed is not None
            penalty = added(penalty, (words * gold.observed.sum(1)).sum())  # a text counts as its hidden tokens do
        return Reading(states.values, gold, penalty=penalty)

    def hide(self, source: Padded, rows: Int[Tensor, " B"]) -> tuple[Padded, Padded]:
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


def _words(source: Padded) -> Bool[Tensor, "B T"]:
    """Where something stands that a text is made of."""
    return source.real & (source.values >= len(SPECIALS))
