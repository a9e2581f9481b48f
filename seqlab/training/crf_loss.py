"""The loss of a conditional random field over the whole training part, with its gradient by E9."""

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
    """The mean of -log p(labels | words) over the positions; its gradient is expected minus observed counts.

    If some labels are unknown (-1), the observed counts are those expected given the known labels.
    """

    def __init__(
        self, parts: Sequence[Padded], labels: Sequence[Labels], num_features: int
    ) -> None:
        self.parts = parts
        ids = torch.cat([part.values[part.real] for part in parts])
        present = ids > 0
        counts = present.sum(1)
        self.table = SparseTable(ids[present], counts.cumsum(0) - counts)
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
            padded = flat.new_zeros(*labels.shape, len(bias))
            padded[part.real] = flat
            chain = (part, padded, moves, first, last)
            free = expected_counts(*chain)
            if (labels >= 0)[part.real].all():
                clamped = observed_counts(labels, *chain)
            else:
                clamped = expected_counts(*_clamp(labels, *chain))
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


def expected_counts(
    part: Padded, scores: Scores, moves: Tensor, first: Tensor, last: Tensor
) -> tuple[float, Scores, Tensor, Tensor, Tensor]:
    """Return log Σ_z exp(score), and the expected counts of labels, transitions, first and last labels."""
    gamma, xi, log_p = posterior(*as_chain(scores, part, moves, first, last))
    log_p = log_p + first.double().logsumexp(0)
    return (
        float(log_p.sum()),
        gamma,
        xi,
        gamma[:, 0].sum(0),
        gamma[torch.arange(len(part)), part.lengths - 1].sum(0),
    )


def observed_counts(
    labels: Labels, part: Padded, scores: Scores, moves: Tensor, first: Tensor, last: Tensor
) -> tuple[float, Scores, Tensor, Tensor, Tensor]:
    """Return the same for known labels: the score of their path, and their counts."""
    num_labels, real = len(first), part.real
    here = F.one_hot(labels.clamp(min=0), num_labels).double() * real[..., None]
    pairs = (labels[:, :-1] * num_labels + labels[:, 1:])[real[:, 1:]]
    xi = torch.bincount(pairs, minlength=num_labels**2).view(num_labels, num_labels).double()
    begins, ends = here[:, 0].sum(0), here[torch.arange(len(part)), part.lengths - 1].sum(0)
    score = (
        (here * scores).sum() + (xi * moves).sum() + begins @ first.double() + ends @ last.double()
    )
    return float(score), here, xi, begins, ends


def _clamp(
    labels: Labels, part: Padded, scores: Scores, moves: Tensor, first: Tensor, last: Tensor
) -> tuple[Padded, Scores, Tensor, Tensor, Tensor]:
    """Return the chain with all labels impossible but the known ones."""
    labelled = (labels >= 0)[..., None]
    correct = torch.arange(scores.shape[-1]) == labels[..., None]
    return part, torch.where(labelled & ~correct, NEVER, scores), moves, first, last
