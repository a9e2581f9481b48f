"""How many states a hidden Markov model should have: each number is tried, and the data decide."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from seqlab.errors import DataError
from seqlab.models.hmm import Seen
from seqlab.training.em import Climb, Evidence, Family, Fit, Watch, fit_hmm


class Candidate(NamedTuple):
    """One number of states, and what speaks for it."""

    num_states: int
    num_parameters: int
    log_likelihood: float
    bic: float
    held_out: float | None
    fit: Fit


class Order(NamedTuple):
    """Every number of states that was tried, and the place of the best."""

    table: tuple[Candidate, ...]
    best: int


def select_order(
    evidence: Evidence,
    family: Family,
    candidates: Sequence[int],
    *,
    held_out: Evidence | None = None,
    climb: Climb | None = None,
    progress: Watch | None = None,
) -> Order:
    """How many states the data ask for: by the likelihood of rows held out, else by BIC = k log n - 2 log p(x)."""
    num_observed, table = len(Seen.of(evidence.observations, evidence.present).values), []
    for num_states in candidates:
        fit = fit_hmm(evidence, replace(family, num_states=num_states), climb=climb, progress=progress)
        log_p, size = fit.log_likelihoods[fit.best], fit.model.num_parameters
        bic = size * math.log(num_observed) - 2 * log_p
        other = None if held_out is None else fit.model.log_likelihood(held_out.observations, held_out.present)
        told = None if other is None else float(other.sum())
        table.append(Candidate(num_states, size, log_p, bic, told, fit))
    scores = [-candidate.bic if candidate.held_out is None else candidate.held_out for candidate in table]
    if max(scores) == -math.inf:
        raise DataError("to every model some held-out row is impossible", hint="give pseudo_emissions, say 0.1.")
    return Order(tuple(table), scores.index(max(scores)))
