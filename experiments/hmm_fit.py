"""Fitting a hidden Markov model to tensors: starts of EM, several restarts, and the number of states.

The package trains its models through recipes; benchmarks and tests of EM need these.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from seqlab.errors import DataError
from seqlab.machine import keep_freed_memory
from seqlab.models.emissions import Categorical, Emissions
from seqlab.models.hmm import HMM, ObservedSteps
from seqlab.padded import Padded
from seqlab.randomness import uniform
from seqlab.training.baum_welch import (
    EMSteps,
    HMMData,
    PseudoCounts,
    check_ascent,
    moments,
    rows_at_once,
)
from seqlab.training.hmm_em import HMMShape, draw_hmm, gaussian

Watch = Callable[[int, float], None]  # is called with the iteration and its objective
_START_FLOOR = (
    0.05  # a start is no narrower than this share of the whole variance, however small its cluster
)


@dataclass(frozen=True)
class HMMSettings:
    """Settings of EM, which stops at a gain below `tolerance`, in nats per observation.

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


@dataclass(frozen=True, eq=False)
class Restart:
    """EM from one start: its last model, and log-likelihood plus log prior of the start and each iteration."""

    model: HMM
    objectives: tuple[float, ...]
    log_likelihood: float
    converged: bool


class HMMFit(NamedTuple):
    """All restarts and the best one."""

    restarts: tuple[Restart, ...]
    best: Restart


class Candidate(NamedTuple):
    """A number of states and its scores."""

    num_states: int
    bic: float
    held_out: float | None
    fit: Restart


def fit_hmm(
    data: HMMData,
    family: HMMShape,
    *,
    settings: HMMSettings | None = None,
    progress: Callable[[int, int, float], None] = lambda restart, iteration, objective: None,
) -> HMMFit:
    """Run EM from several starts (clusters of vectors, or random symbols), and return the best result.

    Known labels shape the start, and fix the states of their positions during EM.
    """
    settings = settings or HMMSettings()
    restarts = []
    for number in range(settings.restarts):
        start = start_hmm(data, family, seed=settings.seed, restart=number)
        restarts.append(
            baum_welch(start, data, settings=settings, progress=partial(progress, number))
        )
    return HMMFit(tuple(restarts), max(restarts, key=lambda restart: restart.objectives[-1]))


def select_order(
    data: HMMData,
    family: HMMShape,
    candidates: Sequence[int],
    *,
    held_out: HMMData | None = None,
    settings: HMMSettings | None = None,
) -> tuple[list[Candidate], int]:
    """Fit a model for each number of states; return them and the index of the best.

    By the likelihood of rows held out, else by BIC = k log n - 2 log p(x).
    """
    num_observed, table = len(ObservedSteps.of(data.observations).values), []
    for num_states in candidates:
        fit = fit_hmm(data, replace(family, num_states=num_states), settings=settings).best
        bic = num_parameters(fit.model) * math.log(num_observed) - 2 * fit.log_likelihood
        likelihood = None
        if held_out is not None:
            likelihood = float(fit.model.posterior(held_out.observations).log_likelihood.sum())
        table.append(Candidate(num_states, bic, likelihood, fit))
    scores = [
        -candidate.bic if candidate.held_out is None else candidate.held_out for candidate in table
    ]
    if max(scores) == -math.inf:
        raise DataError(
            "to every model some held-out row is impossible", hint="give pseudo_emissions, say 0.1."
        )
    return table, scores.index(max(scores))


def num_parameters(model: HMM) -> int:
    """Return the number of free parameters: all but one of a distribution, the upper triangle of a covariance."""
    count = 0
    for name, x in model.tensors().items():
        if name == "emissions.covariances":
            count += len(x) * x.shape[1] * (x.shape[1] + 1) // 2
        else:
            count += x.numel() - (
                0 if name in ("emissions.means", "emissions.variances") else x[..., 0].numel()
            )
    return count


def count_hmm(data: HMMData, family: HMMShape, *, settings: HMMSettings | None = None) -> HMM:
    """Return the model for complete labels: relative frequencies with pseudo-counts, which EM would also give.

    Only where the vectors of a full Gaussian have gaps does it take more than one step.
    """
    if (data.known_labels[data.observations.real] < 0).any():
        raise DataError(
            "counting needs a label at every position",
            hint="use fit_hmm: it works with some, or none.",
        )
    num_states, seen = family.num_states, _seen(data, family)
    even = torch.full((num_states, num_states), 1 / num_states, dtype=torch.float64)
    if family.emissions == "categorical":
        num_symbols = _num_symbols(seen, family)
        emissions: Emissions = Categorical(
            even.new_full((num_states, num_symbols), 1 / num_symbols)
        )
    else:
        mean, scale = moments([seen])
        emissions = gaussian(family, mean.repeat(num_states, 1), scale)
    return baum_welch(HMM(even[0], even, emissions), data, settings=settings).model


def start_hmm(data: HMMData, family: HMMShape, *, seed: int, restart: int = 0) -> HMM:
    """Return a start for EM: random, but known labels are counted, and vectors without labels are clustered."""
    seen, labels = _seen(data, family), data.labels
    width = (
        _num_symbols(seen, family) if family.emissions == "categorical" else seen.values.shape[-1]
    )
    model = draw_hmm(family, width, seed=seed, restart=restart)
    if family.emissions != "categorical":
        means, clusters = _clusters(seen, family.num_states, seed, restart)
        model = replace(model, emissions=gaussian(family, means, moments([seen])[1]))
        labels = clusters if labels is None else labels
    if labels is None:
        return model
    observed, known = data.observations.observed, labels >= 0
    if observed is not None:
        known = observed & (known if observed.dim() == 2 else known[..., None])
    observations = replace(data.observations, observed=known)
    labelled = grouped(replace(data, observations=observations, labels=labels), family.num_states)
    em = EMSteps(labelled, model, floor=_START_FLOOR, pseudo=PseudoCounts(1.0, 1.0, 1.0))
    return em.maximise(model, em.expect(model)[0])


def _seen(data: HMMData, family: HMMShape) -> ObservedSteps:
    """Return the observations, after checking that models of this shape can emit them."""
    seen, symbols = ObservedSteps.of(data.observations), family.emissions == "categorical"
    if not len(seen.values):
        raise DataError(
            "there is nothing to fit: nothing was observed", hint="give rows that carry values."
        )
    if seen.values.is_floating_point() == symbols:
        there, needed = ("vectors", "symbols") if symbols else ("symbols", "vectors")
        raise DataError(
            f"{family.emissions} states emit {needed}, and these are {there}",
            hint="choose other emissions.",
        )
    return seen


def _num_symbols(seen: ObservedSteps, family: HMMShape) -> int:
    return family.num_symbols or int(seen.values.max()) + 1


def _clusters(
    seen: ObservedSteps, num_states: int, seed: int, restart: int
) -> tuple[Float[Tensor, "N D"], Int[Tensor, "B T"]]:
    """Return centres and labels by k-means++ (Arthur & Vassilvitskii 2007); missing values count as the mean."""
    mean, scale = moments([seen])
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
    return centres * scale.sqrt() + mean, seen.scatter(labels[:, None] + 1.0).squeeze(-1).long() - 1


def baum_welch(
    start: HMM, data: HMMData, *, settings: HMMSettings | None = None, progress: Watch | None = None
) -> Restart:
    """E11 from a given model until nothing is gained or the iterations are spent.

    What the start holds impossible stays impossible: a chain that only goes right keeps its shape.
    """
    keep_freed_memory()
    settings = settings or HMMSettings()
    pseudo = PseudoCounts(settings.pseudo, settings.pseudo, settings.pseudo_emissions)
    parts = grouped(data, start.num_states)
    em = EMSteps(parts, start, tolerance=settings.tolerance, floor=settings.floor, pseudo=pseudo)
    model, objectives = start, list[float]()
    while True:
        counts, log_likelihood = em.expect(model)
        objectives.append(em.objective(model, log_likelihood))
        check_ascent(objectives)
        if progress is not None:
            progress(len(objectives) - 1, objectives[-1])
        converged = em.converged(objectives)
        if converged or len(objectives) > settings.iterations:
            return Restart(model, tuple(objectives), log_likelihood, converged)
        model = em.maximise(model, counts)


def grouped(data: HMMData, num_states: int) -> list[HMMData]:
    """Rows of like length together, so that little is spent on pads; rows that do not count are left out."""
    lengths = data.observations.lengths
    counted = lengths > 0 if data.weights is None else (lengths > 0) & (data.weights > 0)
    rows = counted.nonzero().squeeze(1)
    if not len(rows):
        raise DataError(
            "there is nothing to fit: all rows are empty",
            hint="give at least one row with a position.",
        )
    rows = rows[lengths[rows].argsort(stable=True)]
    groups: list[list[int]] = [[]]
    for row, length in zip(rows.tolist(), lengths[rows].tolist(), strict=True):
        if groups[-1] and (len(groups[-1]) + 1) * length > rows_at_once(num_states):
            groups.append([])
        groups[-1].append(row)
    return [rows_of(data, torch.tensor(group)) for group in groups]


def rows_of(data: HMMData, chosen: Int[Tensor, " R"]) -> HMMData:
    """Return some rows without the columns in which all are padded."""
    whole, lengths = data.observations, data.observations.lengths[chosen]
    width = int(lengths.max())
    observed, labels = (
        None if part is None else part[chosen, :width] for part in (whole.observed, data.labels)
    )
    weights = None if data.weights is None else data.weights[chosen]
    return HMMData(Padded(whole.values[chosen, :width], lengths, observed), labels, weights)
