"""Fitting a hidden Markov model: where EM starts, the best of several restarts, and the number of states."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from seqlab.errors import DataError
from seqlab.keyed import uniform
from seqlab.models.emissions import Categorical, DiagonalGaussian, Emissions, FullGaussian, Untied
from seqlab.models.hmm import HMM, Seen
from seqlab.training.baum_welch import EMSteps, HMMData, HMMSettings, Restart, baum_welch, grouped, moments

_START_FLOOR = 0.05  # a start is no narrower than this share of the whole variance, however small its cluster


@dataclass(frozen=True)
class Family:
    """Which models are fitted: how many states, and what they emit; of symbols, by default those that occur."""

    num_states: int
    emissions: Literal["categorical", "diagonal", "full"] = "categorical"
    num_symbols: int | None = None


class HMMFit(NamedTuple):
    """All restarts, and the one that got highest."""

    restarts: tuple[Restart, ...]
    best: Restart


class Candidate(NamedTuple):
    """A number of states, and its scores."""

    num_states: int
    bic: float
    held_out: float | None
    fit: Restart


def fit_hmm(
    data: HMMData,
    family: Family,
    *,
    settings: HMMSettings | None = None,
    progress: Callable[[int, int, float], None] = lambda restart, iteration, objective: None,
) -> HMMFit:
    """The best of several restarts, each from a start of its own: clusters of the vectors, or random symbols.

    Known labels shape the start, and fix the states of their positions during EM.
    """
    settings = settings or HMMSettings()
    restarts = []
    for number in range(settings.restarts):
        start = start_hmm(data, family, seed=settings.seed, restart=number)
        restarts.append(baum_welch(start, data, settings=settings, progress=partial(progress, number)))
    return HMMFit(tuple(restarts), max(restarts, key=lambda restart: restart.objectives[-1]))


def select_order(
    data: HMMData,
    family: Family,
    candidates: Sequence[int],
    *,
    held_out: HMMData | None = None,
    settings: HMMSettings | None = None,
) -> tuple[list[Candidate], int]:
    """A fit for each number of states, and the place of the best.

    By the likelihood of rows held out, else by BIC = k log n - 2 log p(x).
    """
    num_observed, table = len(Seen.of(data.observations, data.present).values), []
    for num_states in candidates:
        fit = fit_hmm(data, replace(family, num_states=num_states), settings=settings).best
        bic = fit.model.num_parameters * math.log(num_observed) - 2 * fit.log_likelihood
        likelihood = None
        if held_out is not None:
            likelihood = float(fit.model.log_likelihood(held_out.observations, held_out.present).sum())
        table.append(Candidate(num_states, bic, likelihood, fit))
    scores = [-candidate.bic if candidate.held_out is None else candidate.held_out for candidate in table]
    if max(scores) == -math.inf:
        raise DataError("to every model some held-out row is impossible", hint="give pseudo_emissions, say 0.1.")
    return table, scores.index(max(scores))


def count_hmm(data: HMMData, family: Family, *, settings: HMMSettings | None = None) -> HMM:
    """The model of complete labels: relative frequencies, with pseudo-counts added. EM with nothing hidden finds it.

    Only where the vectors of a full Gaussian have gaps does it take more than one step.
    """
    if (data.known_labels[data.observations.real] < 0).any():
        raise DataError("counting needs a label at every position", hint="use fit_hmm: it works with some, or none.")
    num_states, seen = family.num_states, _seen(data, family)
    even = torch.full((num_states, num_states), 1 / num_states, dtype=torch.float64)
    if family.emissions == "categorical":
        num_symbols = _num_symbols(seen, family)
        emissions: Emissions = Categorical(even.new_full((num_states, num_symbols), 1 / num_symbols))
    else:
        mean, scale = moments([seen])
        emissions = _gaussian(family, mean.repeat(num_states, 1), scale)
    return baum_welch(HMM(even[0], even, emissions), data, settings=settings).model


def start_hmm(data: HMMData, family: Family, *, seed: int, restart: int = 0) -> HMM:
    """Where EM starts: a random model, but known labels are counted, and vectors without labels are clustered."""
    seen, labels = _seen(data, family), data.labels
    width = _num_symbols(seen, family) if family.emissions == "categorical" else seen.values.shape[-1]
    model = draw_hmm(family, width, seed=seed, restart=restart)
    if family.emissions != "categorical":
        means, clusters = _clusters(seen, family.num_states, seed, restart)
        model = replace(model, emissions=_gaussian(family, means, moments([seen])[1]))
        labels = clusters if labels is None else labels
    if labels is None:
        return model
    observations = replace(data.observations, observed=data.observations.scored & (labels >= 0))
    labelled = grouped(replace(data, observations=observations, labels=labels), family.num_states)
    em = EMSteps(labelled, model, settings=HMMSettings(pseudo=1.0, pseudo_emissions=1.0, floor=_START_FLOOR))
    return em.maximise(model, em.expect(model)[0])


def draw_hmm(family: Family, width: int, *, seed: int, restart: int = 0) -> HMM:
    """A random model of so many symbols or features."""
    initial, transitions = (_dirichlet([family.num_states] * dims, seed, restart) for dims in (1, 2))
    if family.emissions == "categorical":
        return HMM(initial, transitions, Categorical(_dirichlet((family.num_states, width), seed, restart)))
    means = uniform(torch.arange(family.num_states * width), seed, restart).unflatten(0, (family.num_states, width))
    return HMM(initial, transitions, _gaussian(family, means, means.new_ones(width)))


def _seen(data: HMMData, family: Family) -> Seen:
    """What was observed, once it is clear that such models can have emitted it."""
    seen, symbols = Seen.of(data.observations, data.present), family.emissions == "categorical"
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


def _clusters(seen: Seen, num_states: int, seed: int, restart: int) -> tuple[Float[Tensor, "N D"], Int[Tensor, "B T"]]:
    """Centres and labels by k-means from distant points (Arthur & Vassilvitskii 2007); gaps count as the mean."""
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
    return centres * scale.sqrt() + mean, seen.spread(labels[:, None], elsewhere=-1).squeeze(-1)


def _dirichlet(shape: Sequence[int], seed: int, restart: int) -> Float[Tensor, "*rows N"]:
    """Distributions drawn evenly from all there are."""
    places = torch.arange(math.prod(shape)).view(*shape)
    draws = -uniform(places, seed, restart, *shape).clamp(min=2.0**-53).log()
    return draws / draws.sum(-1, keepdim=True)
