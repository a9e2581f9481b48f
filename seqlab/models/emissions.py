"""Emissions of the N states of a hidden Markov model: symbols, or vectors whose features may be missing.

Emissions read the P observed positions of a batch. `present` marks the observed features of each vector; the others are
integrated out, so that no value is imputed, and their values are ignored. `counts` are the expected sufficient
statistics of EM, which are summed over batches; `maximise` is the M step.
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
_MIN_COUNT = 1e-30  # a state with a smaller expected count keeps its parameters


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
    """p(x_t | z_t = j) = Π_d N(x_td; μ_jd, σ²_jd), over the observed features."""

    means: Means
    variances: Means

    def log_likelihood(self, values: Points, present: PresentHere = None) -> PerState:
        log_normal = self.variances.log() + math.log(2 * math.pi)
        constant = (
            log_normal.sum(1) if present is None else present.to(log_normal.dtype) @ log_normal.mT
        )
        deviations = self._deviations(values, present)
        distance = [
            d.square() @ v.reciprocal() for d, v in zip(deviations, self.variances, strict=True)
        ]
        return -0.5 * (torch.stack(distance, 1) + constant)

    def counts(self, values: Points, present: PresentHere, gamma: PerState) -> Counts:
        """Return Σ γ, Σ γ (x - μ) and Σ γ (x - μ)² of each feature over the positions where it is observed."""
        is_present = (
            torch.ones_like(values, dtype=gamma.dtype)
            if present is None
            else present.to(gamma.dtype)
        )
        deviations = self._deviations(values, present)
        sums = [(g @ d, g @ d.square()) for g, d in zip(gamma.mT, deviations, strict=True)]
        return (
            gamma.mT @ is_present,
            torch.stack([first for first, _ in sums]),
            torch.stack([second for _, second in sums]),
        )

    def maximise(self, counts: Counts, *, pseudo: PseudoCounts, floor: Floor) -> "DiagonalGaussian":
        total, first, second = counts
        is_used = total > _MIN_COUNT
        total = total.clamp(min=_MIN_COUNT)
        variances = second / total - (first / total).square()
        variances = variances if floor is None else variances.maximum(floor)
        means = torch.where(is_used, self.means + first / total, self.means)
        return DiagonalGaussian(means, torch.where(is_used, variances, self.variances))

    def _deviations(self, values: Tensor, present: Tensor | None) -> Iterator[Tensor]:
        """Yield x - μ_j for one state after another, to limit the memory; 0 at missing features."""
        for mean in self.means:
            deviation = values.to(mean.dtype) - mean
            yield deviation if present is None else deviation.masked_fill_(~present, 0.0)


@dataclass(frozen=True, eq=False)
class FullGaussian:
    """p(x_t | z_t = j) = N(x_t; μ_j, Σ_j); with missing features, the marginal of the observed ones."""

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
        """Return Σ γ, Σ γ E[x - μ] and Σ γ E[(x - μ)(x - μ)ᵀ], with missing features expected given the observed."""
        first, second = torch.zeros_like(self.means), torch.zeros_like(self.covariances)
        for where, observed, absent in _patterns(values, present):
            x = values[where][:, observed].to(self.means.dtype)
            for j, (mean, covariance) in enumerate(zip(self.means, self.covariances, strict=True)):
                weight = gamma[where, j]
                deviation = x.new_zeros(len(x), len(mean))
                cross = covariance[observed][:, absent]
                factor = torch.linalg.cholesky(covariance[observed][:, observed])
                slope = torch.cholesky_solve(cross, factor)
                deviation[:, observed] = x - mean[observed]
                deviation[:, absent] = deviation[:, observed] @ slope
                conditional = covariance[absent][:, absent] - cross.mT @ slope
                first[j] += weight @ deviation
                second[j] += deviation.mT @ (weight[:, None] * deviation)
                second[j, absent[:, None], absent] += weight.sum() * conditional
        return gamma.sum(0)[:, None], first, second

    def maximise(self, counts: Counts, *, pseudo: PseudoCounts, floor: Floor) -> "FullGaussian":
        total, first, second = counts
        is_used = total > _MIN_COUNT
        total = total.clamp(min=_MIN_COUNT)
        shift = first / total
        covariances = second / total[..., None] - shift[:, :, None] * shift[:, None]
        covariances = covariances if floor is None else at_least(covariances, floor)
        covariances = torch.where(
            is_used[..., None], (covariances + covariances.mT) / 2, self.covariances
        )
        return FullGaussian(torch.where(is_used, self.means + shift, self.means), covariances)


Emissions = Categorical | DiagonalGaussian | FullGaussian


def _patterns(
    values: Tensor, present: Tensor | None
) -> Iterator[tuple[Tensor | slice, Tensor, Tensor]]:
    """Yield groups of positions with the same missing features: positions, observed features, missing features."""
    features = torch.arange(values.shape[1])
    if present is None:
        yield slice(None), features, features[:0]
        return
    # a hash of 63 bits for each pattern, because sorting numbers is faster than sorting rows
    codes = (present * mix(features, 0)).sum(-1)
    for code in codes.unique():
        where = (codes == code).nonzero().squeeze(1)
        pattern = present[where[0]]
        yield where, features[pattern], features[~pattern]


def at_least(
    covariances: Float[Tensor, "*rows D D"], floor: Float[Tensor, " D"]
) -> Float[Tensor, "*rows D D"]:
    """Return the likeliest Σ with Σ ≥ diag(floor): in no direction is the variance smaller than that of the floor."""
    unit = floor.sqrt()[:, None] * floor.sqrt()
    values, vectors = torch.linalg.eigh(covariances / unit)
    return (vectors * values.clamp(min=1.0)[..., None, :]) @ vectors.mT * unit


def distributions(name: str, rows: Distributions) -> Distributions:
    """Check that rows are distributions; sums that are slightly off by rounding (float32, text) are normalised."""
    if not (rows >= 0).all():
        raise DataError(
            f"{name}: a probability is negative or not a number",
            hint="check how these probabilities were computed.",
        )
    wrong = float((rows.sum(-1) - 1).abs().max())
    if wrong > 1e-4:
        raise DataError(
            f"{name}: the sum of a row differs from 1 by {wrong:.2g}",
            hint="divide each row by its sum.",
        )
    return rows / rows.sum(-1, keepdim=True) if wrong > 64 * torch.finfo(rows.dtype).eps else rows
