"""Backtesting: a forecast from every moment of a part, scored beside baselines over the same windows."""

import math
from collections import defaultdict
from itertools import chain, islice

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Json
from seqlab.codecs.series import series_of
from seqlab.data.windows import Windows
from seqlab.distributed import ALONE, World
from seqlab.metrics.forecasts import LinearForecast, carried_forward, season_ago
from seqlab.metrics.scores import ExampleScores
from seqlab.models.forecaster import Forecasts
from seqlab.padded import Batch
from seqlab.tasks.task import Scores

BUDGET = 200_000  # numbers read together
LINEAR_ON = 5000  # moments of the training part from which the linear baseline learns


class Tally:
    """Sums of scores at each step ahead, and how many values each was taken over."""

    def __init__(self) -> None:
        self.sums: Json = defaultdict(float)
        self.counts: Json = defaultdict(int)
        # of each window: its moment, its variable, the sum of its absolute errors, and how many
        self.windows: list[Float[np.ndarray, "B 4"]] = []

    def add(
        self, name: str, sums: Float[np.ndarray, " K"], counts: Shaped[np.ndarray, " K"]
    ) -> None:
        self.sums[name] = self.sums[name] + sums
        self.counts[name] = self.counts[name] + counts

    def add_scores(
        self, name: str, scores: Float[np.ndarray, "B K"], where: Bool[np.ndarray, "B K"]
    ) -> None:
        self.add(name, np.where(where, scores, 0.0).sum(0), where.sum(0))

    def add_errors(
        self,
        errors: Float[np.ndarray, "B K"],
        observed: Bool[np.ndarray, "B K"],
        naive: Float[np.ndarray, "B 1"],
    ) -> None:
        self.add_scores("mse", errors**2, observed)
        self.add_scores("mae", np.abs(errors), observed)
        self.add_scores(
            "mase", np.abs(errors) / np.where(naive > 0, naive, 1.0), observed & (naive > 0)
        )

    def add_windows(
        self, apart: np.ndarray, observed: np.ndarray, origins: np.ndarray, which: np.ndarray
    ) -> None:
        sums = np.where(observed, np.abs(apart), 0.0).sum(1)
        self.windows.append(np.stack([origins, which, sums, observed.sum(1)], axis=1))

    def errors(self, column: int) -> tuple[list[int], Float[np.ndarray, "N 2"]]:
        """The absolute errors and how many there are, by moment (column 0) or by variable (1)."""
        table = np.concatenate([*self.windows, np.zeros((0, 4))])
        keys, places = np.unique(table[:, column], return_inverse=True)
        sums = np.zeros((len(keys), 2))
        np.add.at(sums, places, table[:, 2:])
        return keys.astype(int).tolist(), sums

    def to_json(self) -> Json:
        """Its sums, for another process."""
        steps = {
            name: [total.tolist(), self.counts[name].tolist()] for name, total in self.sums.items()
        }
        return {"steps": steps, "windows": [rows.tolist() for rows in self.windows]}

    def include(self, other: Json) -> None:
        """Add what another process has summed up."""
        for name, (sums, counts) in other["steps"].items():
            self.add(name, np.asarray(sums), np.asarray(counts))
        self.windows += map(np.asarray, other["windows"])

    def by_example(self) -> ExampleScores | None:
        """The mean absolute error, by moment; moments that are nearer than the horizon share values."""
        origins, sums = self.errors(0)
        if not origins:
            return None
        horizon = len(self.sums["mae"])
        apart = max(1.0, (origins[-1] - origins[0]) / max(1, len(origins) - 1))
        run = math.ceil(horizon / apart)
        return ExampleScores(
            "mae", sums, lambda totals: totals[:, 0] / np.maximum(totals[:, 1], 1e-12), True, run
        )

    def scores(self) -> Scores:
        """Means over all values."""
        return {
            name: float(self.sums[name].sum() / count.sum())
            for name, count in self.counts.items()
            if count.sum()
        }

    def by_step(self) -> dict[str, list[float | None]]:
        return {
            name: [float(s / n) if n else None for s, n in zip(self.sums[name], count, strict=True)]
            for name, count in self.counts.items()
        }


def backtest(
    bundle: Bundle,
    windows: Windows,
    train: Windows | None,
    *,
    most: int | None = None,
    world: World = ALONE,
) -> dict[str, Tally]:
    """The model's scores ("") and those of the baselines, in deviations of the training part, as the literature does.

    With `train`, the training part, there is a linear baseline; `most` moments, evenly spread, are enough where time is
    short.
    """
    source = series_of(bundle.codec)
    filled = _filled(windows)
    linear = None if train is None or train.begin < train.look_back else _linear(train)
    tallies: dict[str, Tally] = defaultdict(Tally)
    for rows in islice(windows.in_order(budget=BUDGET, most=most), world.rank, None, world.size):
        batch, which = windows.batch(rows), rows % windows.num_variables
        y, observed = observations(batch)
        naive = np.asarray(source.naive)[which][:, None]
        apart = _score(bundle.model, batch, tallies[""], naive)
        tallies[""].add_windows(apart, observed, windows.origins(rows), which)
        guesses = {
            name: season_ago(
                filled, windows.origins(rows), which, horizon=windows.horizon, season=season
            )
            for name, season in (("last value", 1), ("one season ago", source.season))
        }
        if linear is not None:
            guesses["linear"] = linear(_past(filled, windows, rows))
        for name, guess in guesses.items():
            tallies[name].add_errors(guess - y, observed, naive)
    return tallies if world.size == 1 else _together(tallies, world)


def _together(tallies: dict[str, Tally], world: World) -> dict[str, Tally]:
    """What all processes have added up."""
    own = [[name, tally.to_json()] for name, tally in tallies.items()]
    whole: dict[str, Tally] = defaultdict(Tally)
    for name, part in chain(*world.told(own)):
        whole[name].include(part)
    return whole


@torch.inference_mode()
def _score(
    model: Forecasts, batch: Batch, tally: Tally, naive: Float[np.ndarray, "B 1"]
) -> np.ndarray:
    """Add the scores of these windows; returns the errors."""
    raw, (y, observed) = model.distribution(batch), observations(batch)
    widened, output = model.output.widened(raw, model.widths), model.output
    apart = output.mean(widened).numpy(force=True) - y
    tally.add_errors(apart, observed, naive)
    tally.add_scores(
        "crps", output.crps(widened, batch.require("target").values).numpy(force=True), observed
    )
    for name, parameters in (("coverage", widened), ("coverage_uncalibrated", raw)):
        low, high = (part.numpy(force=True) for part in output.band(parameters))
        tally.add_scores(name, ((low <= y) & (y <= high)).astype(np.float64), observed)
        if parameters is widened:
            tally.add_scores("width", high - low, observed)
    return apart


def observations(batch: Batch) -> tuple[Float[np.ndarray, "B K"], Bool[np.ndarray, "B K"]]:
    """The values that followed, and which of them were observed."""
    target = batch.require("target")
    return target.values.numpy(force=True), target.scored.numpy(force=True)


def _linear(train: Windows) -> LinearForecast:
    filled = _filled(train, train.end)
    moments = train.in_order(budget=BUDGET, most=LINEAR_ON)
    return LinearForecast.fit(
        (_past(filled, train, rows), *observations(train.batch(rows))) for rows in moments
    )


def _filled(windows: Windows, end: int | None = None) -> Float[np.ndarray, "T C"]:
    return carried_forward(np.asarray(windows.table[:end, : windows.num_variables]))


def _past(
    filled: Float[np.ndarray, "T C"], windows: Windows, rows: np.ndarray
) -> Float[np.ndarray, "B L"]:
    steps = windows.origins(rows)[:, None] + np.arange(-windows.look_back, 0)
    return filled[steps, (rows % windows.num_variables)[:, None]]
