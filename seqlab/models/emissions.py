"""What each of the N states of a hidden Markov model emits: symbols, or vectors with perhaps some features missing.

Emissions work on positions side by side (P of them): those that carry a value. `present` marks which features of each
vector were measured; the others are integrated out, so nothing is ever filled in, and what lies there is not read.
Their `counts` are the expected sufficient statistics of EM, which add up over batches; `maximise` is the M step.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from seqlab.equations import hmm
from seqlab.equations.hmm import Distributions
from seqlab.errors import DataError
from seqlab.randomness import mix

Counts = tuple[Tensor, ...]
PresentHere = Bool[Tensor, "P D"] | None
Points = Float[Tensor, "P D"]
Means = Float[Tensor, "N D"]
PerState = Float[Tensor, "P N"]
Floor = Float[Tensor, " D"] | None
PseudoCounts = float | Float[Tensor, "..."]
_ALIVE = 1e-30  # a state with fewer expected visits than this keeps its parameters


@dataclass(frozen=True, eq=False)
class Categorical:
    """B_jv = p(x_t = v | z_t = j)."""

    probabilities: Float[Tensor, "N V"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "probabilities", distributions("emissions", self.probabilities))

    def log_likelihood(self, values: Int[Tensor, " P"], present: PresentHere = None) -> PerState:
        return self.probabilities.log().mT.contiguous().index_select(0, values)

    def counts(self, values: Int[Tensor, " P"], present: PresentHere, gamma: PerState) -> Counts:
        """Σ_{t: x_t = v} γ_t(j)."""
        return (gamma.new_zeros(self.probabilities.mT.shape).index_add_(0, values, gamma).mT,)

    def maximise(self, counts: Counts, *, pseudo: PseudoCounts, floor: Floor) -> "Categorical":
        return Categorical(hmm.reestimate(counts[0], self.probabilities, pseudo=pseudo))


@dataclass(frozen=True, eq=False)
class DiagonalGaussian:
    """p(x_t | z_t = j) = Π_d N(x_td; μ_jd, σ²_jd), over the features that are present."""

    means: Means
    variances: Means

    def log_likelihood(self, values: Points, present: PresentHere = None) -> PerState:
        log_normal = self.variances.log() + math.log(2 * math.pi)
        constant = (
            log_normal.sum(1) if present is None else present.to(log_normal.dtype) @ log_normal.mT
        )
        apart = self._apart(values, present)
        distance = [d.square() @ v.reciprocal() for d, v in zip(apart, self.variances, strict=True)]
        return -0.5 * (torch.stack(distance, 1) + constant)

    def counts(self, values: Points, present: PresentHere, gamma: PerState) -> Counts:
        """Σ γ, Σ γ (x - μ) and Σ γ (x - μ)², of each feature where it is present."""
        there = (
            torch.ones_like(values, dtype=gamma.dtype)
            if present is None
            else present.to(gamma.dtype)
        )
        sums = [
            (g @ d, g @ d.square())
            for g, d in zip(gamma.mT, self._apart(values, present), strict=True)
        ]
        return (
            gamma.mT @ there,
            torch.stack([first for first, _ in sums]),
            torch.stack([second for _, second in sums]),
        )

    def maximise(self, counts: Counts, *, pseudo: PseudoCounts, floor: Floor) -> "DiagonalGaussian":
        total, first, second = counts
        alive, total = total > _ALIVE, total.clamp(min=_ALIVE)
        variances = second / total - (first / total).square()
        variances = variances if floor is None else variances.maximum(floor)
        means = torch.where(alive, self.means + first / total, self.means)
        return DiagonalGaussian(means, torch.where(alive, variances, self.variances))

    def _apart(self, values: Tensor, present: Tensor | None) -> Iterator[Tensor]:
        """x - μ_j state by state, 0 where absent; all states at once would not fit into memory for long series."""
        for mean in self.means:
            apart = values.to(mean.dtype) - mean
            yield apart if present is None else apart.masked_fill_(~present, 0.0)


@dataclass(frozen=True, eq=False)
class FullGaussian:
    """p(x_t | z_t = j) = N(x_t; μ_j, Σ_j); of a vector with gaps, the marginal over what is present."""

    means: Means
    covariances: Float[Tensor, "N D D"]

    def log_likelihood(self, values: Points, present: PresentHere = None) -> PerState:
        log_p = self.means.new_empty(len(values), len(self.means))
        for where, observed, _ in _patterns(values, present):
            x = values[where][:, observed].to(self.means.dtype)
            for j, factor in enumerate(
                torch.linalg.cholesky(self.covariances[:, observed][:, :, observed])
            ):
                white = torch.linalg.solve_triangular(
                    factor, (x - self.means[j, observed]).mT, upper=False
                )
                log_normal = 2 * factor.diagonal().log().sum() + len(observed) * math.log(
                    2 * math.pi
                )
                log_p[where, j] = -0.5 * (white.square().sum(0) + log_normal)
        return log_p

    def counts(self, values: Points, present: PresentHere, gamma: PerState) -> Counts:
        """Σ γ, Σ γ E[x - μ] and Σ γ E[(x - μ)(x - μ)ᵀ], expected over what is absent given what is present."""
        first, second = torch.zeros_like(self.means), torch.zeros_like(self.covariances)
        for where, observed, absent in _patterns(values, present):
            x = values[where][:, observed].to(self.means.dtype)
            for j, (mean, covariance) in enumerate(zip(self.means, self.covariances, strict=True)):
                weight, apart = gamma[where, j], x.new_zeros(len(x), len(mean))
                across = covariance[observed][:, absent]
                slope = torch.cholesky_solve(
                    across, torch.linalg.cholesky(covariance[observed][:, observed])
                )
                apart[:, observed] = x - mean[observed]
                apart[:, absent] = apart[:, observed] @ slope
                first[j] += weight @ apart
                second[j] += apart.mT @ (weight[:, None] * apart)
                second[j, absent[:, None], absent] += weight.sum() * (
                    covariance[absent][:, absent] - across.mT @ slope
                )
        return gamma.sum(0)[:, None], first, second

    def maximise(self, counts: Counts, *, pseudo: PseudoCounts, floor: Floor) -> "FullGaussian":
        total, first, second = counts
        alive, total = total > _ALIVE, total.clamp(min=_ALIVE)
        shift = first / total
        covariances = second / total[..., None] - shift[:, :, None] * shift[:, None]
        covariances = covariances if floor is None else at_least(covariances, floor)
        covariances = torch.where(
            alive[..., None], (covariances + covariances.mT) / 2, self.covariances
        )
        return FullGaussian(torch.where(alive, self.means + shift, self.means), covariances)


Emissions = Categorical | DiagonalGaussian | FullGaussian


def _patterns(
    values: Tensor, present: Tensor | None
) -> Iterator[tuple[Tensor | slice, Tensor, Tensor]]:
    """Positions with the same gaps together: where they are, which features are seen, and which are gone."""
    features = torch.arange(values.shape[1])
    if present is None:
        yield slice(None), features, features[:0]
        return
    codes = (present * mix(features, 0)).sum(
        -1
    )  # sixty-three random bits: sorting numbers is quicker than rows
    for code in codes.unique():
        where = (codes == code).nonzero().squeeze(1)
        pattern = present[where[0]]
        yield where, features[pattern], features[~pattern]


def at_least(
    covariances: Float[Tensor, "*rows D D"], floor: Float[Tensor, " D"]
) -> Float[Tensor, "*rows D D"]:
    """No direction keeps less variance than diag(floor) gives it: of all Σ that obey this, the likeliest."""
    unit = floor.sqrt()[:, None] * floor.sqrt()
    values, vectors = torch.linalg.eigh(covariances / unit)
    return (vectors * values.clamp(min=1.0)[..., None, :]) @ vectors.mT * unit


def distributions(name: str, rows: Distributions) -> Distributions:
    """The rows, each made to sum to one where rounding on the way (float32, text) has left it a little off."""
    if not (rows >= 0).all():
        raise DataError(
            f"{name}: a probability is negative or not a number", hint="look at how it was made."
        )
    wrong = float((rows.sum(-1) - 1).abs().max())
    if wrong > 1e-4:
        raise DataError(
            f"{name}: a row is {wrong:.2g} away from summing to one",
            hint="divide each row by its sum.",
        )
    return rows / rows.sum(-1, keepdim=True) if wrong > 64 * torch.finfo(rows.dtype).eps else rows
