"""The loss of a conditional random field over a whole training part, and its gradient by E9."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from seqlab.kernels.forward_backward import posterior
from seqlab.models.crf import NEVER, as_chain
from seqlab.models.tf_idf import SparseTable
from seqlab.padded import Padded

Labels = Int[Tensor, "B T"]
Scores = Float[Tensor, "B T K"]


class CRFProblem:
    """-log p(labels | words), a mean over the positions: expected counts minus those that were seen.

    Where a label is not known (-1), what was seen is what the known ones make likely.
    """

    def __init__(
        self, parts: Sequence[Padded], labels: Sequence[Labels], num_features: int
    ) -> None:
        self.parts = parts
        ids = torch.cat([part.values[part.real] for part in parts])
        there = ids > 0
        counts = there.sum(1)
        self.table = SparseTable(ids[there], counts.cumsum(0) - counts)
        self.transposed = self.table.transposed(num_features)
        self.labels = labels
        self.num_scored = len(ids)

    @torch.no_grad()
    def loss(self, weights: Sequence[Tensor]) -> tuple[float, list[Tensor]]:
        weight, bias, moves, first, last = weights
        scores = (self.table.times(weight) + bias).split(
            [int(part.lengths.sum()) for part in self.parts]
        )
        total, surplus = 0.0, []
        edges = [torch.zeros_like(each, dtype=torch.float64) for each in (moves, first, last)]
        for part, labels, flat in zip(self.parts, self.labels, scores, strict=True):
            spread = flat.new_zeros(*labels.shape, len(bias))
            spread[part.real] = flat
            chain = (part, spread, moves, first, last)
            free = expected(*chain)
            clamped = (
                counted(labels, *chain)
                if (labels >= 0)[part.real].all()
                else expected(*_clamped(labels, *chain))
            )
            total += free[0] - clamped[0]
            surplus.append((free[1] - clamped[1])[part.real])
            for edge, one, other in zip(edges, free[2:], clamped[2:], strict=True):
                edge += one - other
        n = max(1, self.num_scored)
        flat_surplus = (torch.cat(surplus) / n).float()
        gradients = [
            self.transposed.times(flat_surplus),
            flat_surplus.sum(0),
            *((edge / n).float() for edge in edges),
        ]
        return total / n, gradients


def expected(
    part: Padded, scores: Scores, moves: Tensor, first: Tensor, last: Tensor
) -> tuple[float, Scores, Tensor, Tensor, Tensor]:
    """log Σ_z exp(score), and how often each label, each move, and each first and last label is expected."""
    gamma, xi, log_p = posterior(*as_chain(scores, part, moves, first, last))
    log_p = log_p + first.double().logsumexp(0)
    return (
        float(log_p.sum()),
        gamma,
        xi,
        gamma[:, 0].sum(0),
        gamma[torch.arange(len(part)), part.lengths - 1].sum(0),
    )


def counted(
    labels: Labels, part: Padded, scores: Scores, moves: Tensor, first: Tensor, last: Tensor
) -> tuple[float, Scores, Tensor, Tensor, Tensor]:
    """The same where the labels are known: the score of their path, and how often each is there."""
    num_labels, real = len(first), part.real
    here = F.one_hot(labels.clamp(min=0), num_labels).double() * real[..., None]
    pairs = (labels[:, :-1] * num_labels + labels[:, 1:])[real[:, 1:]]
    xi = torch.bincount(pairs, minlength=num_labels**2).view(num_labels, num_labels).double()
    begins, ends = here[:, 0].sum(0), here[torch.arange(len(part)), part.lengths - 1].sum(0)
    score = (
        (here * scores).sum() + (xi * moves).sum() + begins @ first.double() + ends @ last.double()
    )
    return float(score), here, xi, begins, ends


def _clamped(
    labels: Labels, part: Padded, scores: Scores, moves: Tensor, first: Tensor, last: Tensor
) -> tuple[Padded, Scores, Tensor, Tensor, Tensor]:
    """The same chain with every label but the known one made impossible."""
    labelled = (labels >= 0)[..., None]
    right = torch.arange(scores.shape[-1]) == labels[..., None]
    return part, torch.where(labelled & ~right, NEVER, scores), moves, first, last
