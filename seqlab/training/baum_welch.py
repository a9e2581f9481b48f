"""EM for hidden Markov models (E11, Baum & Welch): an E step, an M step, and the two repeated from one start.

A state that nothing visits keeps its last parameters. The likelihood (with the prior that pseudo-counts amount to)
never falls from one iteration to the next; if it falls by more than rounding, the code is wrong, and an error says so.
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

_CELLS = 1 << 22  # numbers in the largest tensor of a batch


@dataclass(frozen=True, eq=False)
class HMMData:
    """What a model is fitted to. A label is a state, -1 where it is unknown; a weight says how often a row counts."""

    observations: Padded
    labels: PositionIds | None = None
    weights: PerRow | None = None

    @property
    def known_labels(self) -> PositionIds:
        """The label of each position, -1 where it is unknown or a pad."""
        unknown = torch.full(self.observations.real.shape, -1)
        return (
            unknown if self.labels is None else self.labels.where(self.observations.real, unknown)
        )


class Expected(NamedTuple):
    """Expected counts of first states, of moves, and of what was emitted."""

    first: Initial
    moves: Moves
    emitted: Counts


class Pseudo(NamedTuple):
    """What is added to the counts: a number for all of them, or a table."""

    first: float | Initial
    moves: float | Moves
    emitted: float | Float[Tensor, "K V"]


NO_COUNTS = Pseudo(0.0, 0.0, 0.0)


class EMSteps:
    """E11 as its two halves, for models like the one given; rows of like length stand in one part of the data.

    A gain below `tolerance`, in nats for each observation, ends a search; `floor` is the smallest variance, as a share
    of each feature's own.
    Where several states share a label (pairs that end in one), a known label holds to all of them.
    """

    def __init__(
        self,
        parts: Sequence[HMMData],
        like: HMM,
        *,
        tolerance: float = 1e-6,
        floor: float = 1e-3,
        pseudo: Pseudo = NO_COUNTS,
    ) -> None:
        labels = torch.arange(like.num_states) % like.num_rows
        self._batches, self.pseudo = [_prepared(part, labels) for part in parts], pseudo
        observed = [batch.observed for batch in self._batches]
        self.num_observed = sum(len(each.values) for each in observed)
        self.gain = tolerance * self.num_observed
        self.floor = (
            floor * moments(observed)[1] if observed[0].values.is_floating_point() else None
        )

    def expect(self, model: HMM) -> tuple[Expected, float]:
        """The E step: what happened, as far as the model can tell from the data, and their log-likelihood."""
        parts, total = [], 0.0
        for batch in self._batches:
            observed, log_b, chain = (
                batch.observed,
                _log_emissions(model, batch),
                (model.initial, model.transitions),
            )
            gamma, xi, log_p = posterior(
                *chain, log_b, batch.lengths, batch.weights, which=batch.symbols
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
                "a row is impossible under the model that EM starts from",
                hint="its labels contradict each other, or the start forbids what was observed.",
            )
        first, moves, *others = (torch.stack(same).sum(0) for same in zip(*parts, strict=True))
        return Expected(first, moves, tuple(others)), total

    def objective(self, model: HMM, log_likelihood: float) -> float:
        """What EM maximises: the log-likelihood and the log prior that the pseudo-counts amount to."""
        return log_likelihood + model.log_prior(*self.pseudo)

    def converged(self, objectives: Sequence[float]) -> bool:
        return len(objectives) > 1 and objectives[-1] - objectives[-2] <= self.gain

    def maximise(self, model: HMM, counts: Expected) -> HMM:
        """The M step (E11)."""
        return HMM(
            reestimate(counts.first, model.initial, pseudo=self.pseudo.first),
            reestimate(counts.moves, model.transitions, pseudo=self.pseudo.moves),
            model.emissions.maximise(counts.emitted, pseudo=self.pseudo.emitted, floor=self.floor),
        )


def check_ascent(objectives: Sequence[float]) -> None:
    """EM never gets worse, after its first step: a start may be narrower than the floor that later models obey."""
    if len(objectives) > 2 and objectives[-1] < objectives[-2] - 1e-9 * (1 + abs(objectives[-2])):
        raise RunError(
            f"iteration {len(objectives) - 1}: the log-likelihood fell from {objectives[-2]!r} to {objectives[-1]!r}",
            hint="EM cannot do this: it is an error in Seqlab. Please report it with the data.",
        )


def rows_at_once(num_states: int) -> int:
    """How many positions, pads counted, may stand side by side."""
    return max(1, _CELLS // num_states)


def moments(parts: Sequence[ObservedSteps]) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """The mean and variance of each feature where it is present; of a constant, 1."""
    values = torch.cat([observed.values for observed in parts])
    present = [
        torch.ones_like(s.values, dtype=torch.bool) if s.present is None else s.present
        for s in parts
    ]
    there = torch.cat(present)
    count = there.sum(0).clamp(min=1)
    mean = values.double().masked_fill(~there, 0.0).sum(0) / count
    variance = (values - mean).masked_fill(~there, 0.0).square().sum(0) / count
    return mean, torch.where(variance > 0, variance, 1.0)


class _Rows(NamedTuple):
    """Rows of like length, with all that stays the same from one iteration to the next."""

    observed: ObservedSteps
    lengths: RowIds
    weights: PerRow | None
    forbidden: Bool[Tensor, "B T N"] | None
    symbols: PositionIds | None  # where there are few: one more stands for none


def _prepared(part: HMMData, labels: Int[Tensor, " N"]) -> _Rows:
    """`labels` says which label each state has."""
    forbidden = None
    if part.labels is not None:
        forbidden = (part.labels[..., None] >= 0) & (part.labels[..., None] != labels)
    rows, observed, symbols = part.observations, ObservedSteps.of(part.observations), None
    if forbidden is None and len(observed.values) and not observed.values.is_floating_point():
        largest = int(observed.values.max())
        symbols = (
            torch.where(rows.scored, rows.values, largest + 1)
            if largest < len(observed.values)
            else None
        )
    return _Rows(observed, rows.lengths, part.weights, forbidden, symbols)


def _log_emissions(model: HMM, batch: _Rows) -> Trellis | Float[Tensor, "V N"]:
    """log p(x_t | z_t) of each position, or of each symbol and of none; -inf where the label is another."""
    if batch.symbols is not None:
        return pad(model.log_b(torch.arange(int(batch.observed.values.max()) + 1)), (0, 0, 0, 1))
    log_b = batch.observed.scatter(model.log_b(batch.observed.values, batch.observed.present))
    return log_b if batch.forbidden is None else log_b.masked_fill(batch.forbidden, -math.inf)
