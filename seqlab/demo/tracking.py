"""The demo of the Kalman filter: a moving target, followed from noisy sightings of which some are missing (C25).

The filter knows the sightings so far, the smoother all of them. Both know how much the target swerves and how noisy
the sightings are; EM finds that out by itself, from a guess that is far off.
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


@dataclass(frozen=True)
class Simulation:
    """What is simulated; noises are variances, of the velocity for each step and of each coordinate of a sighting."""

    steps: int = 80
    acceleration: float = 0.1
    noise: float = 36.0
    missing: float = 0.2
    wrong: float = (
        100.0  # by this factor the guess takes the target for wilder, and the sightings for better
    )
    iterations: int = 100


@dataclass(frozen=True, eq=False)
class Tracked:
    """Where the target was, where it was seen (NaN where it was not), and where each method took it to be.

    Deviations are those of the Gaussians: how far off the filter and the smoother expect to be.
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
        """The root of the mean square by which a coordinate is off, for each way to follow the target."""
        ways = {
            "last sighting": self.last_sighting,
            "filter": self.filtered,
            "smoother": self.smoothed,
            "smoother, noises guessed": self.guessed,
            "smoother, noises learnt by EM": self.learnt,
        }
        return {
            name: float(np.sqrt(np.square(estimate - self.path).mean()))
            for name, estimate in ways.items()
        }

    def to_json(self) -> dict[str, Any]:
        parts = {
            name: part.tolist() if isinstance(part, np.ndarray) else part
            for name, part in asdict(self).items()
        }
        parts["sightings"] = [None if math.isnan(x) else [x, y] for x, y in parts["sightings"]]
        return {"errors": self.errors, **parts}

    def view(self) -> View:
        """The plane, and one coordinate over time with the smoother's band."""
        apart = np.full(
            (2 * len(self.sightings), 2), np.nan
        )  # a point between two gaps is drawn as a dot
        apart[::2] = self.sightings
        ways = {
            "where it was": self.path,
            "where it was seen": apart,
            "filter": self.filtered,
            "smoother": self.smoothed,
        }
        plane = [Curve(name, p[:, 1], p[:, 0], dashed=name == "filter") for name, p in ways.items()]
        low, high = (
            self.smoothed[:, 0] + side * 1.2816 * self.smoothed_deviation[:, 0] for side in (-1, 1)
        )
        dots = Curve(
            "where it was seen", apart[:, 0], np.repeat(np.arange(len(self.path), dtype=float), 2)
        )
        lines = [
            Curve("where it was", self.path[:, 0]),
            dots,
            Curve("smoother", self.smoothed[:, 0]),
        ]
        return View(
            "tracking",
            "a moving target, from noisy sightings",
            self.to_json(),
            [
                Lines(plane, title="the plane", titles=("x", "y"), size=(720, 520)).draw(),
                Lines(
                    lines,
                    [Band("smoother, 80 %", low, high)],
                    title="x over time",
                    titles=("step", "x"),
                ).draw(),
                lambda width, colour: self.picture(width=min(width, 78)),
            ],
        )

    def picture(self, *, width: int = 78, height: int = 22) -> str:
        """The plane in letters: the path as dots, sightings as o, the smoothed path as stars."""
        sightings = self.sightings[~np.isnan(self.sightings).any(1)]
        low, high = (
            edge(np.concatenate([self.path, sightings, self.smoothed]), 0)
            for edge in (np.min, np.max)
        )
        canvas = np.full((height, width), " ")
        for points, letter in (
            (_between(self.path), "."),
            (sightings, "o"),
            (_between(self.smoothed), "*"),
        ):
            column, row = ((points - low) / np.maximum(high - low, 1e-9)).T * [
                [width - 1],
                [height - 1],
            ]
            canvas[height - 1 - row.round().astype(int), column.round().astype(int)] = letter
        return "\n".join("".join(line).rstrip() for line in canvas)


def track(scene: Simulation | None = None, *, seed: int) -> Tracked:
    """Simulate a target, look at it through noise, and follow it in every way."""
    scene = scene or Simulation()
    target = constant_velocity(
        dimensions=2, acceleration=scene.acceleration, noise=scene.noise, initial_variance=1.0
    )
    states, rows = target.sample(1, scene.steps, seed=seed)
    there = uniform(torch.arange(scene.steps), seed, 1) >= scene.missing
    there[0] = True
    latest = (
        torch.where(there, torch.arange(scene.steps), 0).cummax(0).values
    )  # the step of the last sighting
    sightings = Padded(rows.values, rows.lengths, there[None])

    wild, sharp = scene.acceleration * scene.wrong, scene.noise / scene.wrong
    guess = constant_velocity(dimensions=2, acceleration=wild, noise=sharp, initial_variance=1.0)
    fit = fit_lds(guess, sightings, settings=LDSSettings(learn=NOISES, iterations=scene.iterations))

    filtered, smoothed = target.filter(sightings), target.smooth(sightings)
    return Tracked(
        path=_places(target, states),
        sightings=np.where(there[:, None].numpy(), rows.values[0].numpy(), np.nan),
        last_sighting=rows.values[0, latest].numpy(),
        filtered=_places(target, filtered.mean),
        filtered_deviation=_deviation(target, filtered.covariance),
        smoothed=_places(target, smoothed.mean),
        smoothed_deviation=_deviation(target, smoothed.covariance),
        guessed=_places(guess, guess.smooth(sightings).mean),
        learnt=_places(fit.model, fit.model.smooth(sightings).mean),
        noise=math.sqrt(scene.noise),
        noise_guessed=math.sqrt(sharp),
        noise_learnt=math.sqrt(float(fit.model.observation_noise.diagonal().mean())),
        iterations=len(fit.log_likelihoods) - 1,
    )


def _places(model: LDS, states: Float[Tensor, "1 T H"]) -> Path:
    return (states[0] @ model.observation.mT).numpy()


def _deviation(model: LDS, covariance: Float[Tensor, "1 T H H"]) -> Path:
    spread = model.observation @ covariance[0] @ model.observation.mT
    return spread.diagonal(dim1=-2, dim2=-1).sqrt().numpy()


def _between(points: Path, *, parts: int = 8) -> Float[np.ndarray, "N 2"]:
    """The points, and some on the lines from each to the next."""
    share = np.arange(parts)[:, None, None] / parts
    return np.concatenate(
        [((1 - share) * points[:-1] + share * points[1:]).reshape(-1, 2), points[-1:]]
    )
