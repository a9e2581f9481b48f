"""The E step and the M step of EM for hidden Markov models (E11, Baum & Welch).

A state without expected visits keeps its parameters. The likelihood, multiplied by the prior of the pseudo-counts,
never decreases; `check_ascent` raises an error if it does by more than rounding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from seqlab.equations.hmm import Initial, Moves, Trellis, reestimate
from seqlab.errors import DataError, RunError
from seqlab.kernels.forward_backward import posterior
from seqlab.models.emissions import Counts
from seqlab.models.hmm import HMM, ObservedSteps
from seqlab.padded import Padded
from seqlab.types import PerRow, PositionIds, RowIds

_MAX_NUMBERS = 1 << 22  # in the largest tensor of a batch


@dataclass(frozen=True, eq=False)
class HMMData:
    """The data for a fit. A label is a state, or -1 if it is unknown; a weight is how many times a row counts."""

    observations: Padded
    labels: PositionIds | None = None
    weights: PerRow | None = None

    @property
    def known_labels(self) -> PositionIds:
        """The label of each position, -1 if it is unknown or a pad."""
        unknown = torch.full(self.observations.real.shape, -1)
        if self.labels is None:
            return unknown
        return self.labels.where(self.observations.real, unknown)


class ExpectedCounts(NamedTuple):
    """Expected counts of first states, transitions and emissions."""

    first: Initial
    moves: Moves
    emitted: Counts


class PseudoCounts(NamedTuple):
    """Numbers added to the counts: one for all, or a table."""

    first: float | Initial
    moves: float | Moves
    emitted: float | Float[Tensor, "K V"]


NO_COUNTS = PseudoCounts(0.0, 0.0, 0.0)


class EMSteps:
    """The two halves of E11, for models of the shape of `like`; each part of the data has rows of similar length.

    EM has converged at a gain below `tolerance`, in nats per observation. `floor` is the smallest variance, as a share
    of that of the feature. If several states have the same label (pairs that end in it), a known label allows all.
    """

    def __init__(
        self,
        parts: Sequence[HMMData],
        like: HMM,
        *,
        tolerance: float = 1e-6,
        floor: float = 1e-3,
        pseudo: PseudoCounts = NO_COUNTS,
    ) -> None:
        labels = torch.arange(like.num_states) % like.num_rows
        self._batches = [_prepare(part, labels) for part in parts]
        self.pseudo = pseudo
        observed = [batch.observed for batch in self._batches]
        self.num_observed = sum(len(each.values) for each in observed)
        self.gain = tolerance * self.num_observed
        self.floor = None
        if observed[0].values.is_floating_point():
            self.floor = floor * moments(observed)[1]

    def expect(self, model: HMM) -> tuple[ExpectedCounts, float]:
        """The E step: return the expected counts and the log-likelihood of the data."""
        parts = []
        total = 0.0
        for batch in self._batches:
            observed = batch.observed
            gamma, xi, log_p = posterior(
                model.initial,
                model.transitions,
                _log_emissions(model, batch),
                batch.lengths,
                batch.weights,
                which=batch.symbols,
            )
            if batch.weights is not None:
                gamma, log_p = gamma * batch.weights[:, None, None], log_p * batch.weights
            emitted = model.emissions.counts(
                observed.values, observed.present, model.folded(observed.gather(gamma))
            )
            parts.append((gamma[:, 0].sum(0), xi, *emitted))
            total += float(log_p.sum())
        if not math.isfinite(total):
            raise DataError(
                "a row has probability zero under the model that EM starts from",
                hint="check its labels for contradictions; or the start excludes its observations.",
            )
        first, moves, *others = (torch.stack(same).sum(0) for same in zip(*parts, strict=True))
        return ExpectedCounts(first, moves, tuple(others)), total

    def objective(self, model: HMM, log_likelihood: float) -> float:
        """Return what EM maximises: the log-likelihood plus the log prior of the pseudo-counts."""
        return log_likelihood + model.log_prior(*self.pseudo)

    def converged(self, objectives: Sequence[float]) -> bool:
        return len(objectives) > 1 and objectives[-1] - objectives[-2] <= self.gain

    def maximise(self, model: HMM, counts: ExpectedCounts) -> HMM:
        """The M step (E11)."""
        return HMM(
            reestimate(counts.first, model.initial, pseudo=self.pseudo.first),
            reestimate(counts.moves, model.transitions, pseudo=self.pseudo.moves),
            model.emissions.maximise(counts.emitted, pseudo=self.pseudo.emitted, floor=self.floor),
        )


def check_ascent(objectives: Sequence[float]) -> None:
    """Raise an error if the objective has decreased.

    It may after the first step, because the start may have variances below the floor.
    """
    if len(objectives) > 2 and objectives[-1] < objectives[-2] - 1e-9 * (1 + abs(objectives[-2])):
        raise RunError(
            f"iteration {len(objectives) - 1}: the log-likelihood fell from {objectives[-2]!r} to {objectives[-1]!r}",
            hint="this is an error in Seqlab; please report it with the data.",
        )


def rows_at_once(num_states: int) -> int:
    """Return the largest number of positions in a batch, pads included."""
    return max(1, _MAX_NUMBERS // num_states)


def moments(parts: Sequence[ObservedSteps]) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """Return mean and variance of each feature over its present values; the variance of a constant is 1."""
    values = torch.cat([observed.values for observed in parts])
    present = [
        torch.ones_like(s.values, dtype=torch.bool) if s.present is None else s.present
        for s in parts
    ]
    is_present = torch.cat(present)
    count = is_present.sum(0).clamp(min=1)
    mean = values.double().masked_fill(~is_present, 0.0).sum(0) / count
    variance = (values - mean).masked_fill(~is_present, 0.0).square().sum(0) / count
    return mean, torch.where(variance > 0, variance, 1.0)


class _Batch(NamedTuple):
    """Rows of similar length, with everything that is the same in all iterations."""

    observed: ObservedSteps
    lengths: RowIds
    weights: PerRow | None
    forbidden: Bool[Tensor, "B T N"] | None
    symbols: PositionIds | None  # if there are few; the number after the largest means none


def _prepare(part: HMMData, labels: Int[Tensor, " N"]) -> _Batch:
    """Return a part as a batch; `labels` are the labels of the states."""
    forbidden = None
    if part.labels is not None:
        forbidden = (part.labels[..., None] >= 0) & (part.labels[..., None] != labels)
    rows = part.observations
    observed = ObservedSteps.of(rows)
    symbols = None
    if forbidden is None and len(observed.values) and not observed.values.is_floating_point():
        largest = int(observed.values.max())
        if largest < len(observed.values):
            symbols = torch.where(rows.scored, rows.values, largest + 1)
    return _Batch(observed, rows.lengths, part.weights, forbidden, symbols)


def _log_emissions(model: HMM, batch: _Batch) -> Trellis | Float[Tensor, "V N"]:
    """Return log p(x_t | z_t) of each position, or of each symbol and of none; -inf if the label excludes the state."""
    if batch.symbols is not None:
        return pad(model.log_b(torch.arange(int(batch.observed.values.max()) + 1)), (0, 0, 0, 1))
    log_b = batch.observed.scatter(model.log_b(batch.observed.values, batch.observed.present))
    return log_b if batch.forbidden is None else log_b.masked_fill(batch.forbidden, -math.inf)
