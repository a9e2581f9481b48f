"""Fitting a linear dynamical system by expectation and maximisation (E16).

The E step smooths (E15); the M step regresses states on the states before them and observations on states. Which
parameters are learnt is free: of a structure made by hand, usually the noises. A component that starts without noise
stays without. The likelihood never falls; should it fall by more than rounding, the code is wrong, and says so.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from seqlab.equations.kalman import Evidence, Pairs, Smoothed, factor, reestimate
from seqlab.errors import RunError, UsageError, nearest
from seqlab.kernels.kalman import kalman_filter, num_groups, rts_smoother
from seqlab.machine import keep_freed_memory
from seqlab.models.emissions import at_least
from seqlab.models.lds import LDS, Inputs, measured, normal
from seqlab.padded import Padded
from seqlab.types import HiddenVector, Mask, Square

PARAMETERS = tuple(field.name for field in fields(LDS))
NOISES = ("process_noise", "observation_noise")
_COVARIANCES = (*NOISES, "initial_covariance")


@dataclass(frozen=True)
class LDSSettings:
    """What is learnt, and how long. A gain below `tolerance`, in nats for each observed number, ends the search.

    `diagonal` keeps the noises of components apart. `floor` is the smallest variance, as a share of the data's for the
    observation noise, of the start's for the others.
    """

    learn: tuple[str, ...] = PARAMETERS
    diagonal: bool = False
    iterations: int = 200
    tolerance: float = 1e-6
    floor: float = 1e-8

    def __post_init__(self) -> None:
        for name in self.learn:
            if name not in PARAMETERS:
                raise UsageError(
                    f"a linear dynamical system has no '{name}' to learn",
                    hint=nearest(name, PARAMETERS),
                )


class LDSFit(NamedTuple):
    """The system at the end, and the log-likelihood of the start and of each iteration."""

    model: LDS
    log_likelihoods: list[float]
    converged: bool


def fit_lds(
    start: LDS,
    observations: Padded,
    inputs: Inputs = None,
    *,
    settings: LDSSettings | None = None,
    progress: Callable[[int, float], None] = lambda iteration, log_likelihood: None,
) -> LDSFit:
    """E16 from a given system until nothing is gained or the iterations are spent."""
    keep_freed_memory()
    settings = settings or LDSSettings()
    evidence = start.evidence(observations, inputs)
    gain = settings.tolerance * max(1, int(evidence.observed.sum()))
    iterations, log_likelihoods = em_iterations(start, evidence, settings), list[float]()
    while True:
        model, log_likelihood = next(iterations)
        log_likelihoods.append(log_likelihood)
        progress(len(log_likelihoods) - 1, log_likelihood)
        converged = len(log_likelihoods) > 1 and log_likelihood - log_likelihoods[-2] <= gain
        if converged or len(log_likelihoods) > settings.iterations:
            return LDSFit(model, log_likelihoods, converged)


def em_iterations(
    start: LDS, evidence: Evidence, settings: LDSSettings, *, current: LDS | None = None
) -> Iterator[tuple[LDS, float]]:
    """E16 without end: the start and its log-likelihood, then each better system and its own.

    A search that was left goes on at `current`; the start still decides how small a variance may become.
    """
    floors = _floors(start, evidence, settings)
    model = current or replace(
        start,
        **{name: _above(getattr(start, name), floors[name], settings.diagonal) for name in floors},
    )
    before = -math.inf
    while True:
        filtered = kalman_filter(model.system, evidence)
        now = float(filtered.log_likelihood.sum())
        _check_ascent(before, now)
        yield model, now
        before = now
        smoothed = rts_smoother(model.system, filtered, evidence.real)
        better = _maximise(model, evidence, smoothed, settings.learn)
        for name in floors.keys() & better.keys():
            better[name] = _above(better[name], floors[name], settings.diagonal)
        model = replace(model, **{name: better[name] for name in settings.learn if name in better})


def start_lds(observations: Padded, *, num_states: int, num_inputs: int = 0, seed: int) -> LDS:
    """A start for EM: states that turn at random and fade by half; half of the variance is noise.

    States that all move alike would stay alike. Fading states can take any frequency, slow ones cannot.
    """
    values, observed = measured(observations)
    power = torch.where(observed, values, 0.0).double().square().sum((0, 1)) / observed.sum(
        (0, 1)
    ).clamp(min=1)
    power = torch.where(power > 0, power, 1.0)
    eye, fade = torch.eye(num_states, dtype=torch.float64), 0.5
    return LDS(
        transition=fade * torch.linalg.qr(_normal(num_states, num_states, seed, 0)).Q,
        observation=(power[:, None] / num_states).sqrt() * _normal(len(power), num_states, seed, 1),
        process_noise=(1 - fade**2) * eye,
        observation_noise=(power / 2).diag(),
        initial_mean=torch.zeros(num_states, dtype=torch.float64),
        initial_covariance=eye,
        input_matrix=0.1 * _normal(num_states, num_inputs, seed, 2) if num_inputs else None,
    )


def _maximise(
    model: LDS, evidence: Evidence, smoothed: Smoothed, learn: tuple[str, ...]
) -> dict[str, Tensor]:
    """The M step (E16): every parameter, each given those others that are not learnt."""
    learnt: dict[str, Tensor] = {}
    size = len(model.transition)

    moved = _moves(evidence, smoothed)
    matrix = (
        model.transition
        if model.input_matrix is None
        else torch.cat([model.transition, model.input_matrix], dim=1)
    )
    if len(moved.y):
        free = torch.where(
            torch.arange(matrix.shape[1]) < size, "transition" in learn, "input_matrix" in learn
        )
        matrix, learnt["process_noise"] = reestimate(moved, matrix, free)
        learnt["transition"] = matrix[:, :size]
        if model.input_matrix is not None:
            learnt["input_matrix"] = matrix[:, size:]

    sighted = _sightings(model, evidence, smoothed)
    if len(sighted.y):
        free = torch.full((size,), "observation" in learn)
        learnt["observation"], learnt["observation_noise"] = reestimate(
            sighted, model.observation, free
        )

    begun, free = _starts(evidence, smoothed), torch.tensor(["initial_mean" in learn])
    if len(begun.y):
        mean, learnt["initial_covariance"] = reestimate(begun, model.initial_mean[:, None], free)
        learnt["initial_mean"] = mean[:, 0]
    return learnt


def _moves(evidence: Evidence, smoothed: Smoothed) -> Pairs:
    """h_t beside [h_{t-1}; x_t], at every real step but the first."""
    after, before = evidence.real.clone(), torch.zeros_like(evidence.real)
    after[:, 0] = False
    before[:, :-1] = after[:, 1:]
    z = smoothed.mean[before]
    yy, yz = (_total(part, after) for part in (smoothed.covariance, smoothed.lagged))
    zz = _total(smoothed.covariance, before)
    if evidence.x is not None:
        x = evidence.x[after]
        width = x.shape[1]
        z, yz, zz = torch.cat([z, x], dim=1), pad(yz, (0, width)), pad(zz, (0, width, 0, width))
    return Pairs(smoothed.mean[after], z, yy, yz, zz)


def _sightings(model: LDS, evidence: Evidence, smoothed: Smoothed) -> Pairs:
    """y_t beside h_t, wherever something was seen; entries that were not are expected, given those that were.

    With G = R_mo R_oo⁻¹, a missing part is y_m = W_m h + G (y_o - W_o h) + e, where e has the covariance R_mm - G R_om.
    """
    where = evidence.observed.any(-1)
    y, z, zz = evidence.y[where], smoothed.mean[where], _total(smoothed.covariance, where)
    yy, yz = torch.zeros_like(model.observation_noise), torch.zeros_like(model.observation)
    gaps = where & ~evidence.observed.all(-1)
    if gaps.any():
        observed, matrix, noise = (
            evidence.observed[gaps],
            model.observation,
            model.observation_noise,
        )
        row, column = observed[:, :, None], observed[:, None]
        block = torch.where(row & column, noise, torch.eye(len(noise), dtype=noise.dtype))
        slope = torch.cholesky_solve(noise * (row & ~column), factor(block)).mT
        mean, spread = smoothed.mean[gaps] @ matrix.mT, smoothed.covariance[gaps]
        apart = torch.where(observed, evidence.y[gaps] - mean, 0.0)
        y = y.clone()
        y[gaps[where]] = torch.where(
            observed, evidence.y[gaps], mean + (slope @ apart[..., None])[..., 0]
        )
        lean = (matrix - slope @ matrix) * ~row
        yz = (lean @ spread).sum(0)
        yy = (lean @ spread @ lean.mT + (noise - slope @ noise) * ~(row | column)).sum(0)
    return Pairs(y, z, yy, yz, zz)


def _starts(evidence: Evidence, smoothed: Smoothed) -> Pairs:
    """h_1 beside a one, in every row that has a first step."""
    first = evidence.real[:, 0]
    y, yy = smoothed.mean[first, 0], smoothed.covariance[first, 0].sum(0)
    return Pairs(y, y.new_ones(len(y), 1), yy, y.new_zeros(y.shape[1], 1), y.new_zeros(1, 1))


def _total(part: Float[Tensor, "B T H H"], where: Mask) -> Square:
    """The sum over some positions; rows that share their covariances are counted, not added up one by one."""
    rows = num_groups(part)
    counts = where[:rows].flatten().to(part.dtype) * (len(part) // rows)
    return (counts @ part[:rows].flatten(2).flatten(0, 1)).unflatten(0, part.shape[2:])


def _floors(start: LDS, evidence: Evidence, settings: LDSSettings) -> dict[str, HiddenVector]:
    """The smallest variance of each entry of the covariances that are learnt."""
    count = evidence.observed.sum((0, 1)).clamp(min=1)
    apart = torch.where(evidence.observed, evidence.y, 0.0)
    apart = torch.where(evidence.observed, evidence.y - apart.sum((0, 1)) / count, 0.0)
    variance = apart.square().sum((0, 1)) / count
    scales = {name: getattr(start, name).diagonal() for name in _COVARIANCES}
    scales["observation_noise"] = torch.where(variance > 0, variance, 1.0)
    return {
        name: settings.floor * scale for name, scale in scales.items() if name in settings.learn
    }


def _above(covariance: Square, floor: HiddenVector, diagonal: bool) -> Square:
    """The likeliest covariance of which no direction has less variance than diag(floor) gives it; 0 where that is 0."""
    if diagonal:
        return torch.where(floor > 0, covariance.diagonal().maximum(floor), 0.0).diag()
    free = floor > 0
    whole = torch.zeros_like(covariance)
    whole[free[:, None] & free] = at_least(covariance[free][:, free], floor[free]).flatten()
    return (whole + whole.mT) / 2


def _check_ascent(before: float, now: float) -> None:
    if now < before - 1e-8 * (1 + abs(before)):
        raise RunError(
            f"the log-likelihood fell from {before!r} to {now!r}",
            hint="EM cannot do this: it is an error in Seqlab. Please report it with the data.",
        )


def _normal(rows: int, columns: int, seed: int, stream: int) -> Float[Tensor, "_ _"]:
    """Standard normal numbers for each (seed, stream, entry)."""
    return normal(torch.arange(rows * columns).view(rows, columns), seed, stream)
