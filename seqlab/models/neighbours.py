"""A nearest-neighbour text generator: the encoder finds similar training examples, the decoder repeats their targets.

Each of the training examples with the most similar sources, by the cosine of their n-grams, predicts the next token of
its own target. The predictions are weighted by similarity; a neighbour loses weight with each wrong prediction:

    p(y_t | y_<t) = (1 - ε) Σ_n w_n [y_t is the next token of n] + ε / V
    w_n ∝ exp(sharpness cos_n) MISS^(misses of n)
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.rnn import pad_sequence

from seqlab.layers.tap import tap
from seqlab.models.interface import Memory, Read, Reading, Scorer
from seqlab.models.seq2seq import FeatureDecoder, for_each_hypothesis, read_target
from seqlab.models.tf_idf import NgramWeights, SparseTable
from seqlab.padded import Batch, Padded
from seqlab.recipe import NeighboursConfig
from seqlab.types import PositionIds, State

MISS = 1e-3  # factor of a neighbour's weight after a wrong prediction
EPSILON = 1e-3  # probability that the next token is that of no neighbour
ROWS_AT_ONCE = 64  # sources whose n-grams are written into a dense matrix at once


class NeighbourEncoder(nn.Module):
    """The training sources; its memory holds the indices of the nearest ones and the logarithms of their weights."""

    summary_size = output_size = 2

    def __init__(self, num_words: int, num_features: int, settings: NeighboursConfig) -> None:
        super().__init__()
        self.ngrams, self.settings = NgramWeights(num_words, num_features), settings
        self.ids = UninitializedParameter(requires_grad=False)
        self.values = UninitializedParameter(requires_grad=False)
        self.offsets = UninitializedParameter(requires_grad=False)

    def forward(self, source: Padded) -> Memory:
        cosine = tap("encoder.cosine", self.cosines(source))
        best = cosine.topk(min(self.settings.count, cosine.shape[1]), dim=1)
        weights = (self.settings.sharpness * best.values).log_softmax(1)
        states = torch.stack([best.indices.double(), weights.double()], dim=-1)
        return Memory(len(source), Padded(states, torch.full((len(states),), states.shape[1])))

    def cosines(self, source: Padded) -> Float[Tensor, "B N"]:
        """Return the cosine of each source with each training source: of words and characters together."""
        table = SparseTable(self.ids, self.offsets, self.values)
        ids, values = (each.split(ROWS_AT_ONCE) for each in self.ngrams(source))
        return torch.cat([self._cosines(table, *both) for both in zip(ids, values, strict=True)])

    def _cosines(
        self, table: SparseTable, ids: Int[Tensor, "B T"], values: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B N"]:
        dense = values.new_zeros(len(self.ngrams.idf), len(ids))
        columns = torch.arange(len(ids))[:, None].expand_as(ids)
        dense.index_put_((ids, columns), values, accumulate=True)
        return table.times(dense).T / 2


class NeighbourDecoder(FeatureDecoder):
    """The training targets. The state is the logarithm of each neighbour's weight and the number of tokens read."""

    def __init__(self, num_tokens: int, end: int) -> None:
        super().__init__()
        self.num_tokens, self.end = num_tokens, end
        self.targets = UninitializedParameter(requires_grad=False)
        self.starts = UninitializedParameter(requires_grad=False)

    def start(self, memory: Memory) -> tuple[State, State]:
        """Return as context the targets of the neighbours, padded with end tokens."""
        places, weights = memory.require_states().values.unbind(-1)
        ends = torch.cat([self.starts[1:], self.starts.new_tensor([len(self.targets)])])
        rows = [self.targets[self.starts[n] : ends[n]] for n in places.flatten().long().tolist()]
        rows.append(self.targets[:0])
        written = pad_sequence(rows, batch_first=True, padding_value=self.end)[:-1].long()
        written = torch.cat([written, torch.full_like(written[:, :1], self.end)], dim=1)
        return (written.unflatten(0, places.shape),), (
            weights,
            torch.zeros(memory.rows, dtype=torch.long),
        )

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
        """Return the next token of each neighbour and its weight, at each position."""
        written = for_each_hypothesis(context[0], len(tokens))
        weights, place = state
        last = written.shape[-1] - 1
        votes = []
        for token in tokens.unbind(1):
            is_right = self._at(written, place, last) == token[:, None]
            weights = weights + torch.where(is_right, 0.0, torch.log(weights.new_tensor(MISS)))
            place = place + 1
            votes.append(
                torch.cat([self._at(written, place, last).double(), weights.softmax(1)], dim=1)
            )
        return Read(tap("decoder.said", torch.stack(votes, 1)), (weights, place))

    def _at(
        self, written: Int[Tensor, "B N L"], place: Int[Tensor, " B"], last: int
    ) -> Int[Tensor, "B N"]:
        at = place.clamp(max=last)[:, None, None].expand(-1, written.shape[1], 1)
        return written.gather(2, at)[..., 0]

    def head(self, features: Float[Tensor, "... N2"]) -> Float[Tensor, "... V"]:
        tokens, weights = features.chunk(2, dim=-1)
        p = torch.full((*features.shape[:-1], self.num_tokens), EPSILON / self.num_tokens)
        p = p.scatter_add(-1, tokens.long(), ((1 - EPSILON) * weights).float())
        return tap("logits", p.log())


class NeighbourModel(nn.Module):
    """The encoder and the decoder as one model."""

    def __init__(self, encoder: NeighbourEncoder, decoder: NeighbourDecoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        context, state = self.decoder.start(self.encoder(batch.require("source")))
        return read_target(self.decoder, batch.require("target"), context, state)

    @property
    def head(self) -> Scorer:
        return self.decoder.head
