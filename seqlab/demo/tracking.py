"""The tracking demo: a Kalman filter follows a moving target from noisy measurements, of which some are missing (C25).

The filter uses the measurements so far, the smoother all of them. Both are given the true variances of acceleration and
measurement; EM learns them from a wrong first guess.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.explain.plots import Band, Curve, Lines
from seqlab.explain.view import View
from seqlab.models.lds import LDS, constant_velocity
from seqlab.padded import Padded
from seqlab.randomness import uniform
from seqlab.training.kalman_em import NOISES, LDSSettings, fit_lds

Path = Float[np.ndarray, "T 2"]
QUANTILE = 1.2816  # of the standard normal distribution at 90 %


@dataclass(frozen=True)
class Simulation:
    """Settings of the simulation. `acceleration` is the variance of the velocity's change in a step, `noise` that of a
    coordinate of a measurement, `missing` the share of steps without a measurement.

    The first guess of EM is `acceleration * wrong` and `noise / wrong`.
    """

    steps: int = 80
    acceleration: float = 0.1
    noise: float = 36.0
    missing: float = 0.2
    wrong: float = 100.0
    iterations: int = 100


@dataclass(frozen=True, eq=False)
class TrackingResult:
    """The true path, the measurements (NaN where missing), and the path estimated by each method.

    Deviations are the standard deviations of the Gaussians that filter and smoother compute.
    """

    path: Path
    sightings: Path
    last_sighting: Path
    filtered: Path
    filtered_deviation: Path
    smoothed: Path
    smoothed_deviation: Path
    guessed: Path
    learnt: Path
    noise: float
    noise_guessed: float
    noise_learnt: float
    iterations: int

    @property
    def num_unseen(self) -> int:
        return int(np.isnan(self.sightings).any(1).sum())

    @property
    def errors(self) -> dict[str, float]:
        """The root mean square error of a coordinate, by method."""
        estimates = {
            "last sighting": self.last_sighting,
            "filter": self.filtered,
            "smoother": self.smoothed,
            "smoother, noises guessed": self.guessed,
            "smoother, noises learnt by EM": self.learnt,
        }
        return {
            name: float(np.sqrt(np.square(estimate - self.path).mean()))
            for name, estimate in estimates.items()
        }

    def to_json(self) -> dict[str, Any]:
        parts = {
            name: part.tolist() if isinstance(part, np.ndarray) else part
            for name, part in asdict(self).items()
        }
        parts["sightings"] = [None if math.isnan(x) else [x, y] for x, y in parts["sightings"]]
        return {"errors": self.errors, **parts}

    def view(self) -> View:
        """The path in the plane, and one coordinate over time with the smoother's 80 % band."""
        # a point between two gaps is drawn as a dot
        dots = np.full((2 * len(self.sightings), 2), np.nan)
        dots[::2] = self.sightings
        paths = {
            "true path": self.path,
            "measurements": dots,
            "filter": self.filtered,
            "smoother": self.smoothed,
        }
        plane = [
            Curve(name, p[:, 1], p[:, 0], dashed=name == "filter") for name, p in paths.items()
        ]
        steps = np.arange(len(self.path), dtype=float)
        lines = [
            Curve("true path", self.path[:, 0]),
            Curve("measurements", dots[:, 0], np.repeat(steps, 2)),
            Curve("smoother", self.smoothed[:, 0]),
        ]
        reach = QUANTILE * self.smoothed_deviation[:, 0]
        band = Band("smoother, 80 %", self.smoothed[:, 0] - reach, self.smoothed[:, 0] + reach)
        return View(
            "tracking",
            "a moving target, from noisy measurements",
            self.to_json(),
            [
                Lines(plane, title="the plane", titles=("x", "y"), size=(720, 520)).draw(),
                Lines(
                    lines,
                    [band],
                    title="x over time",
                    titles=("step", "x"),
                ).draw(),
                lambda width, colour: self.picture(width=min(width, 78)),
            ],
        )

    def picture(self, *, width: int = 78, height: int = 22) -> str:
        """Draw the plane in letters: `.` is the true path, `o` a measurement, `*` the smoothed path."""
        sightings = self.sightings[~np.isnan(self.sightings).any(1)]
        everything = np.concatenate([self.path, sightings, self.smoothed])
        low = everything.min(0)
        extent = np.maximum(everything.max(0) - low, 1e-9)
        layers = {".": _interpolate(self.path), "o": sightings, "*": _interpolate(self.smoothed)}
        canvas = np.full((height, width), " ")
        for letter, points in layers.items():
            columns, rows = ((points - low) / extent).T * [[width - 1], [height - 1]]
            canvas[height - 1 - rows.round().astype(int), columns.round().astype(int)] = letter
        return "\n".join("".join(line).rstrip() for line in canvas)


def track(scene: Simulation | None = None, *, seed: int) -> TrackingResult:
    """Simulate a target and its measurements, and follow it by every method."""
    scene = scene or Simulation()
    target = constant_velocity(
        dimensions=2, acceleration=scene.acceleration, noise=scene.noise, initial_variance=1.0
    )
    states, rows = target.sample(1, scene.steps, seed=seed)
    steps = torch.arange(scene.steps)
    observed = uniform(steps, seed, 1) >= scene.missing
    observed[0] = True
    last_observed = torch.where(observed, steps, 0).cummax(0).values
    sightings = Padded(rows.values, rows.lengths, observed[None])

    guessed_noise = scene.noise / scene.wrong
    guess = constant_velocity(
        dimensions=2,
        acceleration=scene.acceleration * scene.wrong,
        noise=guessed_noise,
        initial_variance=1.0,
    )
    fit = fit_lds(guess, sightings, settings=LDSSettings(learn=NOISES, iterations=scene.iterations))

    filtered = target.filter(sightings)
    smoothed = target.smooth(sightings)
    return TrackingResult(
        path=_positions(target, states),
        sightings=np.where(observed[:, None].numpy(), rows.values[0].numpy(), np.nan),
        last_sighting=rows.values[0, last_observed].numpy(),
        filtered=_positions(target, filtered.mean),
        filtered_deviation=_deviation(target, filtered.covariance),
        smoothed=_positions(target, smoothed.mean),
        smoothed_deviation=_deviation(target, smoothed.covariance),
        guessed=_positions(guess, guess.smooth(sightings).mean),
        learnt=_positions(fit.model, fit.model.smooth(sightings).mean),
        noise=math.sqrt(scene.noise),
        noise_guessed=math.sqrt(guessed_noise),
        noise_learnt=math.sqrt(float(fit.model.observation_noise.diagonal().mean())),
        iterations=len(fit.log_likelihoods) - 1,
    )


def _positions(model: LDS, states: Float[Tensor, "1 T H"]) -> Path:
    """Return the expected measurement in each state."""
    return (states[0] @ model.observation.mT).numpy()


def _deviation(model: LDS, covariance: Float[Tensor, "1 T H H"]) -> Path:
    """Return the standard deviation of each coordinate."""
    projected = model.observation @ covariance[0] @ model.observation.mT
    return projected.diagonal(dim1=-2, dim2=-1).sqrt().numpy()


def _interpolate(points: Path, *, parts: int = 8) -> Float[np.ndarray, "N 2"]:
    """Return the points, and `parts` - 1 points on the line from each to the next."""
    share = np.arange(parts)[:, None, None] / parts
    return np.concatenate(
        [((1 - share) * points[:-1] + share * points[1:]).reshape(-1, 2), points[-1:]]
    )
