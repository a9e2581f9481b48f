"""An interpolated n-gram language model as a decoder.

    p(w | h) = a(hw) + b(h) p(w | h'),    h' the history without its oldest token; below the empty one, 1 / V

a and b come from the smoothing (`training.kneser_ney`). An n-gram (history, token) is stored as one number, and a
history as the index of its own n-gram in the table of the next lower order, so that a step looks up one number for
each order.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from seqlab.layers.tap import tap
from seqlab.models.interface import Memory, Read
from seqlab.models.seq2seq import FeatureDecoder
from seqlab.types import PositionIds, State


class NgramDecoder(FeatureDecoder):
    """The state is the index of the history of each length, -1 if it is not in the training text."""

    def __init__(self, num_tokens: int, order: int) -> None:
        super().__init__()
        self.num_tokens, self.order = num_tokens, order

        def sized_later() -> nn.ParameterList:
            return nn.ParameterList(
                [UninitializedParameter(requires_grad=False) for _ in range(order)]
            )

        self.ngrams, self.shares, self.backs = sized_later(), sized_later(), sized_later()

    def start(self, memory: Memory) -> tuple[State, State]:
        places = torch.full((memory.rows, self.order), -1)
        places[:, 0] = 0  # the empty history
        return (), (places,)

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
        """Return the indices of the histories after each token; each is a shorter history plus the token."""
        places = [torch.zeros_like(tokens)]
        for ngrams, before in zip(self.ngrams, state[0].unbind(1)[: self.order - 1], strict=False):
            history = torch.cat([before[:, None], places[-1][:, :-1]], dim=1)
            codes = history * self.num_tokens + tokens
            place = torch.searchsorted(ngrams, codes).clamp(max=len(ngrams) - 1)
            places.append(torch.where((history >= 0) & (ngrams[place] == codes), place, -1))
        after = torch.stack(places, -1)
        return Read(tap("decoder.histories", after.double()), (after[:, -1],))

    def head(self, features: Float[Tensor, "... N"]) -> Float[Tensor, "... V"]:
        """Return log p of every token, interpolating from the empty history to the longest."""
        places = features.flatten(0, -2).long()
        p = torch.full((len(places), self.num_tokens), 1 / self.num_tokens)
        tables = zip(self.ngrams, self.shares, self.backs, places.unbind(1), strict=True)
        for ngrams, shares, backs, history in tables:
            rows = (history >= 0).nonzero()[:, 0]
            first, last = (
                torch.searchsorted(ngrams, (history[rows] + k) * self.num_tokens) for k in (0, 1)
            )
            counts = last - first
            owner = torch.repeat_interleave(torch.arange(len(rows)), counts)
            place = first[owner] + torch.arange(len(owner)) - (counts.cumsum(0) - counts)[owner]
            p[rows] *= backs[history[rows], None]
            p.index_put_(
                (rows[owner], ngrams[place] % self.num_tokens), shares[place], accumulate=True
            )
        return tap("logits", p.log()).unflatten(0, features.shape[:-1])
