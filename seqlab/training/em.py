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

from seqlab.equations.hmm import Moves, reestimate
from seqlab.errors import DataError, RunError
from seqlab.kernels.forward_backward import posterior
from seqlab.keyed import uniform
from seqlab.models.hmm import HMM, Categorical, Counts, DiagonalGaussian, Emissions, FullGaussian, Present, Seen, Untied
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
        mean, scale = _moments([seen])
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
    ascent = Ascent(_grouped(evidence, start.num_states), start, climb=climb or Climb())
    model, objectives = start, list[float]()
    while True:
        counts, log_likelihood = ascent.expect(model)
        objectives.append(ascent.objective(model, log_likelihood))
        check_ascent(objectives)
        if progress is not None:
            progress(Progress(restart, len(objectives) - 1, objectives[-1]))
        converged = ascent.converged(objectives)
        if converged or len(objectives) > ascent.climb.iterations:
            return Run(model, tuple(objectives), log_likelihood, converged)
        model = ascent.maximise(model, counts)


def start_hmm(evidence: Evidence, family: Family, *, seed: int, restart: int = 0) -> HMM:
    """Where a climb begins: chance, overruled by what known labels say of themselves, or by clusters of the vectors."""
    seen, labels = _seen(evidence, family), evidence.labels
    width = _num_symbols(seen, family) if family.emissions == "categorical" else seen.values.shape[-1]
    model = draw_hmm(family, width, seed=seed, restart=restart)
    if family.emissions != "categorical":
        means, clusters = _clusters(seen, family.num_states, seed, restart)
        model = replace(model, emissions=_gaussian(family, means, _moments([seen])[1]))
        labels = clusters if labels is None else labels
    if labels is None:
        return model
    observations = replace(evidence.observations, observed=evidence.observations.scored & (labels >= 0))
    told = _grouped(replace(evidence, observations=observations, labels=labels), family.num_states)
    ascent = Ascent(told, model, climb=Climb(pseudo=1.0, pseudo_emissions=1.0, floor=_START_FLOOR))
    return ascent.maximise(model, ascent.expect(model)[0])


def draw_hmm(family: Family, width: int, *, seed: int, restart: int = 0) -> HMM:
    """A model by chance alone, over so many symbols or features."""
    initial, transitions = (_dirichlet([family.num_states] * dims, seed, restart) for dims in (1, 2))
    if family.emissions == "categorical":
        return HMM(initial, transitions, Categorical(_dirichlet((family.num_states, width), seed, restart)))
    means = uniform(torch.arange(family.num_states * width), seed, restart).unflatten(0, (family.num_states, width))
    return HMM(initial, transitions, _gaussian(family, means, means.new_ones(width)))


class Expected(NamedTuple):
    """Expected counts of first states, of moves, and of what was emitted."""

    first: Float[Tensor, " N"]
    moves: Moves
    emitted: Counts


class Pseudo(NamedTuple):
    """What is added to the counts: a number for all of them, or a table."""

    first: float | Float[Tensor, " N"]
    moves: float | Moves
    emitted: float | Float[Tensor, "K V"]


class _Rows(NamedTuple):
    """Rows of like length, with all that stays the same from one iteration to the next."""

    seen: Seen
    lengths: Int[Tensor, " B"]
    weights: Float[Tensor, " B"] | None
    forbidden: Bool[Tensor, "B T N"] | None
    symbols: Int[Tensor, "B T"] | None  # where there are few: one more stands for none


class Ascent:
    """E11 as its two halves, for models like the one given; rows of like length stand in one part of the evidence.

    Where several states share a label (pairs that end in one), a known label holds to all of them.
    """

    def __init__(self, parts: Sequence[Evidence], like: HMM, *, climb: Climb, pseudo: Pseudo | None = None) -> None:
        labels = torch.arange(like.num_states) % like.emissions.num_rows
        self.climb, self._batches = climb, [_prepared(part, labels) for part in parts]
        self.pseudo = pseudo or Pseudo(climb.pseudo, climb.pseudo, climb.pseudo_emissions)
        seen = [batch.seen for batch in self._batches]
        self.num_observed = sum(len(each.values) for each in seen)
        self.scale = _moments(seen)[1] if seen[0].values.is_floating_point() else None

    def expect(self, model: HMM) -> tuple[Expected, float]:
        """The E step: what happened, as far as the model can tell from the data, and their log-likelihood."""
        parts, total = [], 0.0
        for batch in self._batches:
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
        first, moves, *others = (torch.stack(same).sum(0) for same in zip(*parts, strict=True))
        return Expected(first, moves, tuple(others)), total

    def objective(self, model: HMM, log_likelihood: float) -> float:
        """What EM climbs: the log-likelihood and the log prior that the pseudo-counts amount to."""
        return log_likelihood + model.log_prior(*self.pseudo)

    def converged(self, objectives: Sequence[float]) -> bool:
        gain = self.climb.tolerance * self.num_observed
        return len(objectives) > 1 and objectives[-1] - objectives[-2] <= gain

    def maximise(self, model: HMM, counts: Expected) -> HMM:
        """The M step (E11)."""
        floor = None if self.scale is None else self.climb.floor * self.scale
        return HMM(
            reestimate(counts.first, model.initial, pseudo=self.pseudo.first),
            reestimate(counts.moves, model.transitions, pseudo=self.pseudo.moves),
            model.emissions.maximise(counts.emitted, pseudo=self.pseudo.emitted, floor=floor),
        )


def check_ascent(objectives: Sequence[float]) -> None:
    """EM climbs. The first step is not held to it: a start may be narrower than the floor that later models obey."""
    if len(objectives) > 2 and objectives[-1] < objectives[-2] - 1e-9 * (1 + abs(objectives[-2])):
        raise RunError(
            f"iteration {len(objectives) - 1}: the log-likelihood fell from {objectives[-2]!r} to {objectives[-1]!r}",
            hint="EM cannot do this: it is an error in Seqlab. Please report it with the data.",
        )


def rows_at_once(num_states: int) -> int:
    """How many positions, pads counted, may stand side by side."""
    return max(1, _CELLS // num_states)


def _grouped(evidence: Evidence, num_states: int) -> list[Evidence]:
    """Rows of like length together, so that little is spent on pads; rows that do not count are left out."""
    lengths = evidence.observations.lengths
    counted = lengths > 0 if evidence.weights is None else (lengths > 0) & (evidence.weights > 0)
    rows = counted.nonzero().squeeze(1)
    if not len(rows):
        raise DataError("there is nothing to fit: all rows are empty", hint="give at least one row with a position.")
    rows = rows[lengths[rows].argsort(stable=True)]
    groups: list[list[int]] = [[]]
    for row, length in zip(rows.tolist(), lengths[rows].tolist(), strict=True):
        if groups[-1] and (len(groups[-1]) + 1) * length > rows_at_once(num_states):
            groups.append([])
        groups[-1].append(row)
    return [evidence.rows(torch.tensor(group)) for group in groups]


def _prepared(part: Evidence, labels: Int[Tensor, " N"]) -> _Rows:
    """`labels` says which label each state has."""
    forbidden = None
    if part.labels is not None:
        forbidden = (part.labels[..., None] >= 0) & (part.labels[..., None] != labels)
    rows, seen, symbols = part.observations, Seen.of(part.observations, part.present), None
    if forbidden is None and len(seen.values) and not seen.values.is_floating_point():
        largest = int(seen.values.max())
        symbols = torch.where(rows.scored, rows.values, largest + 1) if largest < len(seen.values) else None
    return _Rows(seen, rows.lengths, part.weights, forbidden, symbols)


def _log_emissions(model: HMM, batch: _Rows) -> Float[Tensor, "B T N"] | Float[Tensor, "V N"]:
    """log p(x_t | z_t) of each position, or of each symbol and of none; -inf where the label is another."""
    if batch.symbols is not None:
        return pad(model.emissions.log_likelihood(torch.arange(int(batch.seen.values.max()) + 1)), (0, 0, 0, 1))
    log_b = batch.seen.spread(model.emissions.log_likelihood(batch.seen.values, batch.seen.present))
    return log_b if batch.forbidden is None else log_b.masked_fill(batch.forbidden, -math.inf)


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


def _gaussian(family: Family, means: Float[Tensor, "N D"], scale: Float[Tensor, " D"]) -> Untied:
    """Gaussians around the means, each as wide as all the data."""
    if family.emissions == "diagonal":
        return DiagonalGaussian(means, scale.repeat(len(means), 1))
    return FullGaussian(means, scale.diag().repeat(len(means), 1, 1))


def _moments(parts: Sequence[Seen]) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
    """The mean and variance of each feature where it is present; of a constant, 1."""
    values = torch.cat([seen.values for seen in parts])
    given = [torch.ones_like(s.values, dtype=torch.bool) if s.present is None else s.present for s in parts]
    there = torch.cat(given)
    count = there.sum(0).clamp(min=1)
    mean = values.double().masked_fill(~there, 0.0).sum(0) / count
    variance = (values - mean).masked_fill(~there, 0.0).square().sum(0) / count
    return mean, torch.where(variance > 0, variance, 1.0)


def _clusters(seen: Seen, num_states: int, seed: int, restart: int) -> tuple[Float[Tensor, "N D"], Int[Tensor, "B T"]]:
    """Centres and labels by k-means from distant points (Arthur & Vassilvitskii 2007); gaps count as the mean."""
    mean, scale = _moments([seen])
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
