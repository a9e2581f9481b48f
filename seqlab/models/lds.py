"""The linear dynamical system: a hidden state with linear dynamics and noisy observations (S2).

It is built from the structures below (a level, a trend, seasons, a moving target; `+` combines them), or fitted by
`seqlab.training.kalman_em`. Missing positions and missing entries of vectors are integrated out, never imputed.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from seqlab.equations.kalman import Evidence, Filtered, Smoothed, System, factor
from seqlab.errors import DataError
from seqlab.kernels.kalman import kalman_filter, rts_smoother
from seqlab.padded import Padded
from seqlab.randomness import mix, uniform
from seqlab.types import Entries, HiddenStates, HiddenVector, Mask, Square, Vectors

Inputs = Float[Tensor, "B T_x X"] | None
DIFFUSE_VARIANCE = 1e6  # of an unknown initial state, for data with a scale of about one


class PredictedObservations(NamedTuple):
    """The Gaussian of each future observation."""

    mean: Float[Tensor, "B K D"]
    covariance: Float[Tensor, "B K D D"]


@dataclass(frozen=True, eq=False)
class LDS:
    """h_1 ~ N(initial mean, covariance); h_t = transition h_{t-1} + input_matrix x_t + ε; y_t = observation h_t + η."""

    transition: Square
    observation: Float[Tensor, "D H"]
    process_noise: Square
    observation_noise: Float[Tensor, "D D"]
    initial_mean: HiddenVector
    initial_covariance: Square
    input_matrix: Float[Tensor, "H X"] | None = None

    def __post_init__(self) -> None:
        size, width = len(self.transition), len(self.observation)
        needed = {"transition": (size, size), "observation": (width, size), "initial_mean": (size,)}
        squares = {"process_noise": size, "observation_noise": width, "initial_covariance": size}
        needed |= {name: (side, side) for name, side in squares.items()}
        if self.input_matrix is not None:
            needed["input_matrix"] = (size, self.input_matrix.shape[1])
        for name, shape in needed.items():
            if (actual := tuple(getattr(self, name).shape)) != shape:
                raise DataError(
                    f"{name} has the shape {actual}; with {size} states and {width} values a step it must be {shape}",
                    hint="a matrix has a row for each output and a column for each input.",
                )
        for name in squares:
            _check_covariance(name, getattr(self, name))

    @property
    def system(self) -> System:
        """Return the parameters in the letters of the lectures."""
        return System(*vars(self).values())  # both have the same order of fields

    def filter(self, observations: Padded, inputs: Inputs = None) -> Filtered:
        """E14: return each state given the past, before and after its own observation; E68: the log-likelihoods."""
        return kalman_filter(self.system, self.evidence(observations, inputs))

    def smooth(self, observations: Padded, inputs: Inputs = None) -> Smoothed:
        """E15: return each state given the whole row."""
        evidence = self.evidence(observations, inputs)
        return rts_smoother(self.system, kalman_filter(self.system, evidence), evidence.real)

    def forecast(
        self, history: Padded, horizon: int, inputs: Inputs = None
    ) -> PredictedObservations:
        """Return the distribution of the next observations of each row.

        Inputs, if the system has them, must continue for `horizon` steps after the end of each row.
        """
        evidence = self.evidence(history, inputs, ahead=horizon)
        filtered = kalman_filter(self.system, evidence)
        rows = torch.arange(len(history))[:, None]
        steps = history.lengths[:, None] + torch.arange(horizon)
        mean = filtered.predicted_mean[rows, steps]
        covariance = filtered.predicted_covariance[rows, steps]
        readout = self.observation
        return PredictedObservations(
            mean @ readout.mT, readout @ covariance @ readout.mT + self.observation_noise
        )

    def sample(
        self, num: int, length: int, *, seed: int, inputs: Inputs = None
    ) -> tuple[HiddenStates, Padded]:
        """Sample states and observations, keyed by (seed, row, step): a row does not depend on `num` and `length`."""
        width, size = self.observation.shape
        keys = mix(torch.arange(num), seed)[:, None, None] + torch.arange(
            length * (size + width)
        ).view(length, -1)
        z = normal(keys, 0).to(self.transition.dtype)
        moves = z[..., :size] @ factor(self.process_noise).mT
        moves[:, :1] = self.initial_mean + z[:, :1, :size] @ factor(self.initial_covariance).mT
        drive = self._known(inputs, torch.ones(num, length, dtype=torch.bool))
        if self.input_matrix is not None and drive is not None:
            moves[:, 1:] += drive[:, 1:] @ self.input_matrix.mT
        states = moves
        for t in range(1, length):
            states[:, t] += states[:, t - 1] @ self.transition.mT
        values = states @ self.observation.mT + z[..., size:] @ factor(self.observation_noise).mT
        return states, Padded.full(values)

    def __add__(self, other: "LDS") -> "LDS":
        """Return the system whose observations are the sum of those of two, such as a trend plus seasons."""
        both = (self, other)
        width = max(0 if part.input_matrix is None else part.input_matrix.shape[1] for part in both)
        drives = [
            part.transition.new_zeros(len(part.transition), width)
            if part.input_matrix is None
            else part.input_matrix
            for part in both
        ]

        def blocks(name: str) -> Square:
            return torch.block_diag(*(getattr(part, name) for part in both))

        return LDS(
            transition=blocks("transition"),
            observation=torch.cat([self.observation, other.observation], dim=1),
            process_noise=blocks("process_noise"),
            observation_noise=self.observation_noise + other.observation_noise,
            initial_mean=torch.cat([self.initial_mean, other.initial_mean]),
            initial_covariance=blocks("initial_covariance"),
            input_matrix=torch.cat(drives) if width else None,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name."""
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}

    def evidence(self, observations: Padded, inputs: Inputs = None, *, ahead: int = 0) -> Evidence:
        """Return rows as arguments of the equations, followed by `ahead` steps without observations."""
        values, observed = measured(observations)
        if values.shape[2] != len(self.observation):
            actual, needed = values.shape[2], len(self.observation)
            raise DataError(
                f"the rows have {actual} values a step, the system has {needed}",
                hint="choose as many columns as the system has.",
            )
        if len(values) == 0 or values.shape[1] + ahead == 0:
            raise DataError("all rows are empty", hint="give at least one row with a value.")
        if wrong := (observed & ~values.isfinite()).nonzero().tolist():
            row, step, _ = wrong[0]
            raise DataError(
                f"row {row}, step {step}: not a number", hint="mark it as missing, in `observed`."
            )
        values, observed = (
            pad(part, (0, 0, 0, ahead)) for part in (values.to(self.transition.dtype), observed)
        )
        real = torch.arange(values.shape[1]) < observations.lengths[:, None] + ahead
        return Evidence(values, real, observed, self._known(inputs, real))

    def _known(self, inputs: Inputs, real: Mask) -> Inputs:
        """Return the inputs, with zeros at pads; raise an error if one is missing."""
        if (inputs is None) != (self.input_matrix is None):
            raise DataError(
                "there are inputs without an input matrix, or the reverse",
                hint="give both, or neither.",
            )
        if inputs is None:
            return None
        if inputs.shape[:2] != real.shape or not inputs[real].isfinite().all():
            actual = "x".join(map(str, inputs.shape[:2]))
            needed = "x".join(map(str, real.shape))
            raise DataError(
                f"the inputs must be known for {needed} rows and steps, and are for {actual}",
                hint="give inputs without missing values, for a forecast up to its last step.",
            )
        return inputs.to(self.transition.dtype).masked_fill(~real[..., None], 0.0)


def measured(observations: Padded) -> tuple[Vectors, Entries]:
    """Return the vector of each step, of size one for plain numbers, and the mask of its observed entries."""
    values, observed = observations.values, observations.observed
    values = values if values.dim() == 3 else values[..., None]
    scored = observations.scored[..., None].expand(values.shape)
    return values, scored if observed is None or observed.dim() == 2 else scored & observed


def normal(keys: Int[Tensor, "..."], *more: int) -> Float[Tensor, "..."]:
    """Return a standard normal number for each key."""
    return torch.special.ndtri(uniform(keys, *more).clamp(min=2.0**-54))


def local_level(*, level: float, noise: float) -> LDS:
    """Return a random walk with variance `level` a step, observed with variance `noise`."""
    return _structure(_matrix([[1.0]]), _matrix([[level]]), noise)


def local_linear_trend(*, level: float, slope: float, noise: float) -> LDS:
    """Return a level that rises by a slope; both are random walks with their own variances a step."""
    transition = _matrix([[1.0, 1.0], [0.0, 1.0]])
    process_noise = _matrix([[level, 0.0], [0.0, slope]])
    return _structure(transition, process_noise, noise)


def cycle(period: float, *, wander: float, noise: float = 0.0) -> LDS:
    """Return a wave: two states that rotate once in a period, with noise of variance `wander` a step (Harvey 1989)."""
    cos = math.cos(2 * math.pi / period)
    sin = math.sin(2 * math.pi / period)
    process_noise = wander * torch.eye(2, dtype=torch.float64)
    return _structure(_matrix([[cos, sin], [-sin, cos]]), process_noise, noise)


def constant_velocity(
    *,
    dimensions: int,
    dt: float = 1.0,
    acceleration: float,
    noise: float,
    initial_variance: float = DIFFUSE_VARIANCE,
) -> LDS:
    """Return a target with constant velocity plus white acceleration, whose position is observed every `dt` (C25).

    The states are position and velocity of each dimension; their noise covariance is a dt [[dt²/3, dt/2], [dt/2, 1]].
    """
    drift = acceleration * dt * _matrix([[dt * dt / 3, dt / 2], [dt / 2, 1.0]])
    one = _structure(_matrix([[1.0, dt], [0.0, 1.0]]), drift, noise, initial_variance)
    blocks = {
        name: torch.block_diag(*[part] * dimensions)
        for name, part in one.tensors().items()
        if part.dim() == 2
    }
    return LDS(**blocks, initial_mean=one.initial_mean.repeat(dimensions))


def _structure(
    transition: Square,
    process_noise: Square,
    noise: float,
    initial_variance: float = DIFFUSE_VARIANCE,
) -> LDS:
    """Return a system whose first state is observed, with a diffuse initial state."""
    eye = torch.eye(len(transition), dtype=torch.float64)
    start = torch.zeros(len(transition), dtype=torch.float64)
    return LDS(
        transition, eye[:1], process_noise, _matrix([[noise]]), start, initial_variance * eye
    )


def _matrix(rows: list[list[float]]) -> Float[Tensor, "_ _"]:
    return torch.tensor(rows, dtype=torch.float64)


def _check_covariance(name: str, matrix: Square) -> None:
    slack = max(1e-9, 64 * torch.finfo(matrix.dtype).eps) * float(matrix.abs().max())
    symmetric = matrix.isfinite().all() and float((matrix - matrix.mT).abs().max()) <= slack
    if not symmetric or float(torch.linalg.eigvalsh(matrix)[0]) < -slack:
        raise DataError(
            f"{name} is not a covariance: it must be finite and symmetric, without negative eigenvalues",
            hint="the product of a matrix and its transpose is one.",
        )
