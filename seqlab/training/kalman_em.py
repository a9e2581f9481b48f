"""EM for linear dynamical systems (E16).

The E step is the smoother (E15); the M step regresses states on the states before them, and observations on states. The
settings say which parameters are learnt; for a system designed by hand, these are usually the noises. A component that
starts without noise keeps none. The likelihood never decreases; if it does by more than rounding, an error is raised.
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
    """Which parameters EM learns, and when it stops: at a gain below `tolerance`, in nats per observed number.

    With `diagonal`, the noises of components are independent. `floor` is the smallest variance: of the observation
    noise as a share of the variance of the data, of others as a share of that of the start.
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
    """The fitted system, and the log-likelihoods of the start and of each iteration."""

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
    """Fit a system by E16, until it converges or the iterations are used up."""
    keep_freed_memory()
    settings = settings or LDSSettings()
    evidence = start.evidence(observations, inputs)
    gain = settings.tolerance * max(1, int(evidence.observed.sum()))
    iterations = em_iterations(start, evidence, settings)
    log_likelihoods: list[float] = []
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
    """Yield the start with its log-likelihood, then the system of each iteration with its own, without end.

    An interrupted fit continues from `current`; the variance floors still come from the start.
    """
    floors = _floors(start, evidence, settings)
    model = current or replace(
        start,
        **{
            name: _raise_variance(getattr(start, name), floors[name], settings.diagonal)
            for name in floors
        },
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
            better[name] = _raise_variance(better[name], floors[name], settings.diagonal)
        model = replace(model, **{name: better[name] for name in settings.learn if name in better})


def start_lds(observations: Padded, *, num_states: int, num_inputs: int = 0, seed: int) -> LDS:
    """Return a random start for EM: a random rotation that decays by half; half of the variance is noise.

    States with equal dynamics would stay equal. Decaying states can learn any frequency, persistent ones cannot.
    """
    values, observed = measured(observations)
    power = torch.where(observed, values, 0.0).double().square().sum((0, 1)) / observed.sum(
        (0, 1)
    ).clamp(min=1)
    power = torch.where(power > 0, power, 1.0)
    eye = torch.eye(num_states, dtype=torch.float64)
    decay = 0.5
    return LDS(
        transition=decay * torch.linalg.qr(_normal(num_states, num_states, seed, 0)).Q,
        observation=(power[:, None] / num_states).sqrt() * _normal(len(power), num_states, seed, 1),
        process_noise=(1 - decay**2) * eye,
        observation_noise=(power / 2).diag(),
        initial_mean=torch.zeros(num_states, dtype=torch.float64),
        initial_covariance=eye,
        input_matrix=0.1 * _normal(num_states, num_inputs, seed, 2) if num_inputs else None,
    )


def _maximise(
    model: LDS, evidence: Evidence, smoothed: Smoothed, learn: tuple[str, ...]
) -> dict[str, Tensor]:
    """Return the parameters of the M step (E16), given those that are not learnt."""
    learnt: dict[str, Tensor] = {}
    size = len(model.transition)

    transitions = _transition_pairs(evidence, smoothed)
    matrix = (
        model.transition
        if model.input_matrix is None
        else torch.cat([model.transition, model.input_matrix], dim=1)
    )
    if len(transitions.y):
        free = torch.where(
            torch.arange(matrix.shape[1]) < size, "transition" in learn, "input_matrix" in learn
        )
        matrix, learnt["process_noise"] = reestimate(transitions, matrix, free)
        learnt["transition"] = matrix[:, :size]
        if model.input_matrix is not None:
            learnt["input_matrix"] = matrix[:, size:]

    observations = _observation_pairs(model, evidence, smoothed)
    if len(observations.y):
        free = torch.full((size,), "observation" in learn)
        learnt["observation"], learnt["observation_noise"] = reestimate(
            observations, model.observation, free
        )

    initial = _initial_pairs(evidence, smoothed)
    if len(initial.y):
        free = torch.tensor(["initial_mean" in learn])
        mean, learnt["initial_covariance"] = reestimate(initial, model.initial_mean[:, None], free)
        learnt["initial_mean"] = mean[:, 0]
    return learnt


def _transition_pairs(evidence: Evidence, smoothed: Smoothed) -> Pairs:
    """Return h_t and [h_{t-1}; x_t] for every real step but the first."""
    after = evidence.real.clone()
    before = torch.zeros_like(evidence.real)
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


def _observation_pairs(model: LDS, evidence: Evidence, smoothed: Smoothed) -> Pairs:
    """Return y_t and h_t for steps with an observation; missing entries are their expectation given the others.

    With G = R_mo R_oo⁻¹, a missing part is y_m = W_m h + G (y_o - W_o h) + e, where e has the covariance R_mm - G R_om.
    """
    where = evidence.observed.any(-1)
    y = evidence.y[where]
    z = smoothed.mean[where]
    zz = _total(smoothed.covariance, where)
    yy = torch.zeros_like(model.observation_noise)
    yz = torch.zeros_like(model.observation)
    gaps = where & ~evidence.observed.all(-1)
    if gaps.any():
        observed = evidence.observed[gaps]
        matrix = model.observation
        noise = model.observation_noise
        row, column = observed[:, :, None], observed[:, None]
        block = torch.where(row & column, noise, torch.eye(len(noise), dtype=noise.dtype))
        slope = torch.cholesky_solve(noise * (row & ~column), factor(block)).mT
        mean, spread = smoothed.mean[gaps] @ matrix.mT, smoothed.covariance[gaps]
        residual = torch.where(observed, evidence.y[gaps] - mean, 0.0)
        y = y.clone()
        y[gaps[where]] = torch.where(
            observed, evidence.y[gaps], mean + (slope @ residual[..., None])[..., 0]
        )
        of_state = (matrix - slope @ matrix) * ~row
        yz = (of_state @ spread).sum(0)
        yy = (of_state @ spread @ of_state.mT + (noise - slope @ noise) * ~(row | column)).sum(0)
    return Pairs(y, z, yy, yz, zz)


def _initial_pairs(evidence: Evidence, smoothed: Smoothed) -> Pairs:
    """Return h_1 and the constant 1 for every row that has a first step."""
    first = evidence.real[:, 0]
    y, yy = smoothed.mean[first, 0], smoothed.covariance[first, 0].sum(0)
    return Pairs(y, y.new_ones(len(y), 1), yy, y.new_zeros(y.shape[1], 1), y.new_zeros(1, 1))


def _total(part: Float[Tensor, "B T H H"], where: Mask) -> Square:
    """Return the sum over some positions; covariances shared by several rows are weighted by their number."""
    rows = num_groups(part)
    counts = where[:rows].flatten().to(part.dtype) * (len(part) // rows)
    return (counts @ part[:rows].flatten(2).flatten(0, 1)).unflatten(0, part.shape[2:])


def _floors(start: LDS, evidence: Evidence, settings: LDSSettings) -> dict[str, HiddenVector]:
    """Return the smallest variance of each component of the learnt covariances."""
    count = evidence.observed.sum((0, 1)).clamp(min=1)
    mean = torch.where(evidence.observed, evidence.y, 0.0).sum((0, 1)) / count
    residual = torch.where(evidence.observed, evidence.y - mean, 0.0)
    variance = residual.square().sum((0, 1)) / count
    scales = {name: getattr(start, name).diagonal() for name in _COVARIANCES}
    scales["observation_noise"] = torch.where(variance > 0, variance, 1.0)
    return {
        name: settings.floor * scale for name, scale in scales.items() if name in settings.learn
    }


def _raise_variance(covariance: Square, floor: HiddenVector, diagonal: bool) -> Square:
    """Return the most likely covariance that is at least diag(floor) in every direction; 0 where the floor is 0."""
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
            hint="this is an error in Seqlab; please report it with the data.",
        )


def _normal(rows: int, columns: int, seed: int, stream: int) -> Float[Tensor, "_ _"]:
    """Return standard normal numbers determined by (seed, stream, entry)."""
    return normal(torch.arange(rows * columns).view(rows, columns), seed, stream)
