"""A linear-chain conditional random field (Lafferty et al. 2001): a tagger whose features may be anything.

p(z | x) ∝ exp(Σ_t w·f(x, t, z_t) + Σ_t m(z_{t-1}, z_t) + first(z_1) + last(z_T)). It has the same distribution as a
hidden Markov model: the rows of exp m are normalised, and the normalisers are added to the emissions of the label
before. Therefore E9 and E10 of the hidden Markov model compute its posterior and its best path.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.equations.hmm import viterbi
from seqlab.kernels.forward_backward import posterior
from seqlab.layers.tap import tap
from seqlab.models.interface import Reading, frozen
from seqlab.padded import Batch, Padded
from seqlab.types import PositionIds, State

NEVER = -1e4  # a log-probability so low that no path takes this transition


class CRF(nn.Module):
    """One label for each position; a position is a list of feature ids, padded with 0.

    `barred` keeps decoding from impossible label sequences, such as an inside label after an outside label.
    """

    def __init__(self, num_features: int, num_labels: int) -> None:
        super().__init__()

        self.weight = frozen(torch.zeros(num_features, num_labels))
        self.bias = frozen(torch.zeros(num_labels))
        self.moves = frozen(torch.zeros(num_labels, num_labels))
        self.first = frozen(torch.zeros(num_labels))
        self.last = frozen(torch.zeros(num_labels))
        # from each label, and in the last row from the start of the sequence
        self.barred = frozen(torch.zeros(num_labels + 1, num_labels))

    @property
    def learnt(self) -> list[nn.Parameter]:
        return [self.weight, self.bias, self.moves, self.first, self.last]

    @property
    def label_bias(self) -> Float[Tensor, " K"]:
        return self.bias

    def emissions(self, source: Padded) -> Float[Tensor, "B T K"]:
        """Return Σ w over the features of each position."""
        ids = (source.values * source.real[..., None]).flatten(0, 1)
        if not len(ids):
            return self.bias.expand(*source.values.shape[:2], -1)
        summed = F.embedding_bag(ids, self.weight, mode="sum", padding_idx=0)
        return (summed + self.bias).unflatten(0, source.values.shape[:2])

    def features(self, source: Padded) -> Float[Tensor, "B T K"]:
        """E9: return the posterior of each label at each position."""
        if not source.values.shape[1]:
            return self.emissions(source)
        chain = as_chain(self.emissions(source), source, self.moves, self.first, self.last)
        return tap("encoder.posterior", posterior(*chain).gamma.float())

    def head(self, features: Float[Tensor, "... K"]) -> Float[Tensor, "... K"]:
        return features.clamp(min=torch.finfo(features.dtype).tiny).log()

    def read_batch(self, batch: Batch, carried: State = ()) -> Reading:
        return Reading(self.features(batch.require("source")), batch.require("target"))

    def decode(self, source: Padded) -> PositionIds:
        """E10: return the labels of the likeliest path."""
        moves = self.moves + self.barred[:-1]
        first = self.first + self.barred[-1]
        return viterbi(*as_chain(self.emissions(source), source, moves, first, self.last))[0]

    def contributions(self, source: Padded) -> Float[Tensor, "T M K"]:
        """Return what each feature adds to the score of each label, at each position of a batch of one row."""
        return self.weight[source.values[0]] * (source.values[0] > 0)[..., None]


def as_chain(
    scores: Float[Tensor, "B T K"],
    source: Padded,
    moves: Float[Tensor, "K K"],
    first: Float[Tensor, " K"],
    last: Float[Tensor, " K"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return π, A, log b and lengths of the hidden Markov model with the same distribution over paths.

    Its log-likelihood is log Σ_z exp(score of z) - log Σ_j exp first(j).
    """
    scores = scores.double()
    moves = moves.double()
    normalisers = moves.logsumexp(1)
    position = torch.arange(scores.shape[1])
    is_last = (position == source.lengths[:, None] - 1)[..., None]
    log_b = scores + torch.where(is_last, last.double(), normalisers)
    return first.double().softmax(0), moves.softmax(1), log_b, source.lengths
