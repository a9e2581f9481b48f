"""Fitting a hidden Markov model by expectation and maximisation (E11), with all labels, some, or none.

A state that nothing visits keeps its last parameters. The likelihood (with the prior that pseudo-counts amount to)
never falls from one iteration to the next; should it fall by more than rounding, the code is wrong, and says so.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot, pad

from seqlab.equations.hmm import reestimate
from seqlab.errors import DataError, RunError
from seqlab.kernels.forward_backward import posterior
from seqlab.keyed import uniform
from seqlab.models.hmm import HMM, Categorical, Counts, DiagonalGaussian, Emissions, FullGaussian, Present, Seen
from seqlab.padded import Padded
from seqlab.training.memory import keep_memory

_CELLS = 1 << 22  # numbers in the largest tensor of a batch
_START_FLOOR = 0.05  # a start is no narrower than this share of the whole variance, however small its cluster


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a model is fitted to. A label is a state, -1 where it is unknown; a weight says how often a row counts."""

    observations: Padded
    present: Present = None
    labels: Int[Tensor, "B T"] | None = None
    weights: Float[Tensor, " B"] | None = None

    def rows(self, chosen: Int[Tensor, " R"]) -> "Evidence":
        """Some of the rows, without the columns in which all of them are padded."""
        whole, lengths = self.observations, self.observations.lengths[chosen]
        width = int(lengths.max())
        optional = (whole.observed, self.present, self.labels)
        observed, present, labels = (None if part is None else part[chosen, :width] for part in optional)
        weights = None if self.weights is None else self.weights[chosen]
        return Evidence(Padded(whole.values[chosen, :width], lengths, observed), present, labels, weights)


@dataclass(frozen=True)
class Family:
    """Which models are fitted: how many states, and what they emit; of symbols, by default those that occur."""

    num_states: int
    emissions: Literal["categorical", "diagonal", "full"] = "categorical"
    num_symbols: int | None = None


@dataclass(frozen=True)
class Climb:
    """How EM looks for the best model. A gain below `tolerance`, in nats for each observation, is no gain.

    `pseudo` is added to the counts of all possible starts and moves, `pseudo_emissions` to those of symbols. `floor`
    is the smallest variance, as a share of each feature's own.
    """

    restarts: int = 4
    iterations: int = 100
    tolerance: float = 1e-6
    seed: int = 0
    pseudo: float = 0.0
    pseudo_emissions: float = 0.0
    floor: float = 1e-3


class Progress(NamedTuple):
    restart: int
    iteration: int
    objective: float


Watch = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class Run:
    """One climb: the log-likelihood plus log prior of its start and after each iteration, and where it ended."""

    model: HMM
    objectives: tuple[float, ...]
    log_likelihood: float
    converged: bool


@dataclass(frozen=True, eq=False)
class Fit:
    """All climbs, and which of them got highest."""

    runs: tuple[Run, ...]
    best: int

    @property
    def model(self) -> HMM:
        return self.runs[self.best].model

    @property
    def converged(self) -> bool:
        return self.runs[self.best].converged

    @property
    def iterations(self) -> int:
        return len(self.runs[self.best].objectives) - 1

    @property
    def log_likelihoods(self) -> tuple[float, ...]:
        return tuple(run.log_likelihood for run in self.runs)


def fit_hmm(evidence: Evidence, family: Family, *, climb: Climb | None = None, progress: Watch | None = None) -> Fit:
    """The best of several climbs, each from a start of its own: clusters of the vectors, or chance for symbols.

    Known labels shape the start, and hold their positions during the climb.
    """
    climb = climb or Climb()
    starts = (start_hmm(evidence, family, seed=climb.seed, restart=restart) for restart in range(climb.restarts))
    runs = [baum_welch(s, evidence, climb=climb, progress=progress, restart=r) for r, s in enumerate(starts)]
    return Fit(tuple(runs), max(range(len(runs)), key=lambda run: runs[run].objectives[-1]))


def count_hmm(evidence: Evidence, family: Family, *, climb: Climb | None = None) -> HMM:
    """The model of complete labels: relative frequencies, with pseudo-counts added. EM with nothing hidden finds it.

    Only where the vectors of a full Gaussian have gaps does it take more than one step.
    """
    if evidence.labels is None or (evidence.labels[evidence.observations.real] < 0).any():
        raise DataError("counting needs a label at every position", hint="use fit_hmm: it works with some, or none.")
    num_states, seen = family.num_states, _seen(evidence, family)
    even = torch.full((num_states, num_states), 1 / num_states, dtype=torch.float64)
    if family.emissions == "categorical":
        num_symbols = _num_symbols(seen, family)
        emissions: Emissions = Categorical(even.new_full((num_states, num_symbols), 1 / num_symbols))
    else:
        mean, scale = _moments(seen)
        emissions = _gaussian(family, mean.repeat(num_states, 1), scale)
    return baum_welch(HMM(even[0], even, emissions), evidence, climb=climb).model


def baum_welch(
    start: HMM,
    evidence: Evidence,
    *,
    climb: Climb | None = None,
    progress: Watch | None = None,
    restart: int = 0,
) -> Run:
    """E11 from a given model until nothing is gained or the iterations are spent.

    What the start holds impossible stays impossible: a chain that only goes right keeps its shape.
    """
    keep_memory()
    climb = climb or Climb()
    batches, scale = _batches(evidence, start.num_states), _scale(evidence)
    gain = climb.tolerance * sum(len(batch.seen.values) for batch in batches)
    model, objectives = start, list[float]()
    while True:
        counts, log_likelihood = _expect(model, batches)
        objectives.append(log_likelihood + model.log_prior(climb.pseudo, climb.pseudo_emissions))
        _check_ascent(objectives)
        if progress is not None:
            progress(Progress(restart, len(objectives) - 1, objectives[-1]))
        converged = len(objectives) > 1 and objectives[-1] - objectives[-2] <= gain
        if converged or len(objectives) > climb.iterations:
            return Run(model, tuple(objectives), log_likelihood, converged)
        model = _maximise(model, counts, climb, scale)


def start_hmm(evidence: Evidence, family: Family, *, seed: int, restart: int = 0) -> HMM:
    """Where a climb begins: chance, overruled by what known labels say of themselves, or by clusters of the vectors."""
    seen, labels = _seen(evidence, family), evidence.labels
    initial, transitions = (_dirichlet([family.num_states] * dims, seed, restart) for dims in (1, 2))
    if family.emissions == "categorical":
        shape = (family.num_states, _num_symbols(seen, family))
        emissions: Emissions = Categorical(_dirichlet(shape, seed, restart))
    else:
        means, clusters = _clusters(seen, family.num_states, seed, restart)
        emissions = _gaussian(family, means, _moments(seen)[1])
        labels = clusters if labels is None else labels
    model = HMM(initial, transitions, emissions)
    if labels is None:
        return model
    observations = replace(evidence.observations, observed=evidence.observations.scored & (labels >= 0))
    told = _batches(replace(evidence, observations=observations, labels=labels), family.num_states)
    broad = Climb(pseudo=1.0, pseudo_emissions=1.0, floor=_START_FLOOR)
    return _maximise(model, _expect(model, told)[0], broad, _scale(evidence))


class _Expected(NamedTuple):
    """Expected counts of first states, of moves, and of what was emitted."""

    first: Float[Tensor, " N"]
    xi: Float[Tensor, "N N"]
    emitted: Counts


class _Rows(NamedTuple):
    """Rows of like length, with all that stays the same from one iteration to the next."""

    seen: Seen
    lengths: Int[Tensor, " B"]
    weights: Float[Tensor, " B"] | None
    forbidden: Bool[Tensor, "B T N"] | None
    symbols: Int[Tensor, "B T"] | None  # where there are few: one more stands for none


def _batches(evidence: Evidence, num_states: int) -> list[_Rows]:
    """Rows of like length together, so that little is spent on pads; rows that do not count are left out."""
    lengths = evidence.observations.lengths
    counted = lengths > 0 if evidence.weights is None else (lengths > 0) & (evidence.weights > 0)
    rows = counted.nonzero().squeeze(1)
    if not len(rows):
        raise DataError("there is nothing to fit: all rows are empty", hint="give at least one row with a position.")
    rows = rows[lengths[rows].argsort(stable=True)]
    groups: list[list[int]] = [[]]
    for row, length in zip(rows.tolist(), lengths[rows].tolist(), strict=True):
        if groups[-1] and (len(groups[-1]) + 1) * length * num_states > _CELLS:
            groups.append([])
        groups[-1].append(row)
    return [_prepared(evidence.rows(torch.tensor(group)), num_states) for group in groups]


def _prepared(part: Evidence, num_states: int) -> _Rows:
    forbidden = None
    if part.labels is not None:
        forbidden = (part.labels[..., None] >= 0) & (part.labels[..., None] != torch.arange(num_states))
    rows, seen, symbols = part.observations, Seen.of(part.observations, part.present), None
    if forbidden is None and len(seen.values) and not seen.values.is_floating_point():
        largest = int(seen.values.max())
        symbols = torch.where(rows.scored, rows.values, largest + 1) if largest < len(seen.values) else None
    return _Rows(seen, rows.lengths, part.weights, forbidden, symbols)


def _expect(model: HMM, batches: Sequence[_Rows]) -> tuple[_Expected, float]:
    """The E step: what happened, as far as the model can tell from the data, and their log-likelihood."""
    parts, total = [], 0.0
    for batch in batches:
        log_b, chain = _log_emissions(model, batch), (model.initial, model.transitions)
        gamma, xi, log_p = posterior(*chain, log_b, batch.lengths, batch.weights, which=batch.symbols)
        if batch.weights is not None:
            gamma, log_p = gamma * batch.weights[:, None, None], log_p * batch.weights
        emitted = model.emissions.counts(batch.seen.values, batch.seen.present, batch.seen.gather(gamma))
        parts.append((gamma[:, 0].sum(0), xi, *emitted))
        total += float(log_p.sum())
    if not math.isfinite(total):
        raise DataError(
            "a row is impossible under the model that EM starts from",
            hint="its labels contradict each other, or the start forbids what was observed.",
        )
    first, xi, *others = (torch.stack(same).sum(0) for same in zip(*parts, strict=True))
    return _Expected(first, xi, tuple(others)), total


def _log_emissions(model: HMM, batch: _Rows) -> Float[Tensor, "B T N"] | Float[Tensor, "V N"]:
    """log p(x_t | z_t) of each position, or of each symbol and of none; -inf where the label is another."""
    if batch.symbols is not None:
        return pad(model.emissions.log_likelihood(torch.arange(int(batch.seen.values.max()) + 1)), (0, 0, 0, 1))
    log_b = batch.seen.spread(model.emissions.log_likelihood(batch.seen.values, batch.seen.present))
    return log_b if batch.forbidden is None else log_b.masked_fill(batch.forbidden, -math.inf)


def _maximise(model: HMM, counts: _Expected, climb: Climb, scale: Float[Tensor, " D"] | None) -> HMM:
    """The M step (E11)."""
    return HMM(
        reestimate(counts.first, model.initial, pseudo=climb.pseudo),
        reestimate(counts.xi, model.transitions, pseudo=climb.pseudo),
        model.emissions.maximise(
            counts.emitted, pseudo=climb.pseudo_emissions, floor=None if scale is None else climb.floor * scale
        ),
    )


def _check_ascent(objectives: Sequence[float]) -> None:
    """EM climbs. The first step is not held to it: a start may be narrower than the floor that later models obey."""
    if len(objectives) > 2 and objectives[-1] < objectives[-2] - 1e-9 * (1 + abs(objectives[-2])):
        raise RunError(
            f"iteration {len(objectives) - 1}: the log-likelihood fell from {objectives[-2]!r} to {objectives[-1]!r}",
            hint="EM cannot do this: it is an error in Seqlab. Please report it with the data.",
        )


def _seen(evidence: Evidence, family: Family) -> Seen:
    """What was observed, once it is clear that such models can have emitted it."""
    seen, symbols = Seen.of(evidence.observations, evidence.present), family.emissions == "categorical"
    if not len(seen.values):
        raise DataError("there is nothing to fit: nothing was observed", hint="give rows that carry values.")
    if seen.values.is_floating_point() == symbols:
        there, needed = ("vectors", "symbols") if symbols else ("symbols", "vectors")
        raise DataError(
            f"{family.emissions} states emit {needed}, and these are {there}", hint="choose other emissions."
        )
    return seen


def _num_symbols(seen: Seen, family: Family) -> int:
    return family.num_symbols or int(seen.values.max()) + 1


def _gaussian(family: Family, means: Float[Tensor, "N D"], scale: Float[Tensor, " D"]) -> Emissions:
    """Gaussians around the means, each as wide as all the data."""
    if family.emissions == "diagonal":
        return DiagonalGaussian(means, scale.repeat(len(means), 1))
    return FullGaussian(means, scale.diag().repeat(len(means), 1, 1))


def _scale(evidence: Evidence) -> Float[Tensor, " D"] | None:
    """What floors are measured by: the variance of each feature; symbols have none."""
    seen = Seen.of(evidence.observations, evidence.present)
    return _moments(seen)[1] if seen.values.is_floating_point() else None


def _moments(seen: Seen) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """The mean and variance of each feature where it is present; of a constant, 1."""
    there = torch.ones_like(seen.values, dtype=torch.bool) if seen.present is None else seen.present
    count = there.sum(0).clamp(min=1)
    mean = seen.values.double().masked_fill(~there, 0.0).sum(0) / count
    variance = (seen.values - mean).masked_fill(~there, 0.0).square().sum(0) / count
    return mean, torch.where(variance > 0, variance, 1.0)


def _clusters(seen: Seen, num_states: int, seed: int, restart: int) -> tuple[Float[Tensor, "N D"], Int[Tensor, "B T"]]:
    """Centres and labels by k-means from distant points (Arthur & Vassilvitskii 2007); gaps count as the mean."""
    mean, scale = _moments(seen)
    points = (seen.values - mean) / scale.sqrt()
    points = points if seen.present is None else points.masked_fill(~seen.present, 0.0)
    some = points[:: len(points) // 20_000 + 1]
    centres, far = some.new_zeros(0, some.shape[1]), torch.ones_like(some[:, 0])
    for place in uniform(torch.arange(num_states), seed, restart, 0):
        edges = far.cumsum(0)
        chosen = torch.searchsorted(edges, place * edges[-1], right=True).clamp(max=len(some) - 1)
        centres = torch.cat([centres, some[chosen][None]])
        far = torch.cdist(some, centres).amin(1).square()
    for _ in range(10):
        members = one_hot(torch.cdist(some, centres).argmin(1), num_states).double()
        size = members.sum(0)[:, None]
        centres = torch.where(size > 0, members.mT @ some / size.clamp(min=1), centres)
    labels = torch.cdist(points, centres).argmin(1)
    return centres * scale.sqrt() + mean, seen.spread(labels[:, None], elsewhere=-1).squeeze(-1)


def _dirichlet(shape: Sequence[int], seed: int, restart: int) -> Float[Tensor, "*rows N"]:
    """Distributions drawn evenly from all there are."""
    places = torch.arange(math.prod(shape)).view(*shape)
    draws = -uniform(places, seed, restart, *shape).clamp(min=2.0**-53).log()
    return draws / draws.sum(-1, keepdim=True)
