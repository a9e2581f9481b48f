"""Backtesting: score a forecaster and baselines on forecasts from every origin of a part of a series."""

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
from seqlab.distributed import SINGLE_PROCESS, World
from seqlab.metrics.forecasts import LinearForecast, carried_forward, season_ago
from seqlab.metrics.scores import ExampleScores
from seqlab.models.forecaster import Forecasts
from seqlab.padded import Batch
from seqlab.tasks.task import Scores

# numbers of a batch
BUDGET = 200_000
# origins of the training part from which the linear baseline learns
LINEAR_ORIGINS = 5000


class Tally:
    """Sums of scores at each step of the horizon, with the number of values in each sum."""

    def __init__(self) -> None:
        self.sums: Json = defaultdict(float)
        self.counts: Json = defaultdict(int)
        # of each window: its origin, its variable, the sum of its absolute errors, and their number
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
        absolute = np.abs(errors)
        self.add_scores("mae", absolute, observed)
        scale = np.where(naive > 0, naive, 1.0)
        self.add_scores("mase", absolute / scale, observed & (naive > 0))

    def add_windows(
        self,
        errors: np.ndarray,
        observed: np.ndarray,
        origins: np.ndarray,
        variables: np.ndarray,
    ) -> None:
        sums = np.where(observed, np.abs(errors), 0.0).sum(1)
        self.windows.append(np.stack([origins, variables, sums, observed.sum(1)], axis=1))

    def errors(self, column: int) -> tuple[list[int], Float[np.ndarray, "N 2"]]:
        """Return the sum and the number of absolute errors of each origin (column 0) or variable (column 1)."""
        table = np.concatenate([*self.windows, np.zeros((0, 4))])
        keys, groups = np.unique(table[:, column], return_inverse=True)
        sums = np.zeros((len(keys), 2))
        np.add.at(sums, groups, table[:, 2:])
        return keys.astype(int).tolist(), sums

    def to_json(self) -> Json:
        """Return the sums as JSON, to send them to another process."""
        steps = {
            name: [total.tolist(), self.counts[name].tolist()] for name, total in self.sums.items()
        }
        return {"steps": steps, "windows": [rows.tolist() for rows in self.windows]}

    def include(self, other: Json) -> None:
        """Add the sums of another process."""
        for name, (sums, counts) in other["steps"].items():
            self.add(name, np.asarray(sums), np.asarray(counts))
        self.windows += map(np.asarray, other["windows"])

    def by_example(self) -> ExampleScores | None:
        """Return the mean absolute error by origin; neighbouring origins share values, so they are drawn in runs."""
        origins, sums = self.errors(0)
        if not origins:
            return None
        horizon = len(self.sums["mae"])
        distance = max(1.0, (origins[-1] - origins[0]) / max(1, len(origins) - 1))
        run = math.ceil(horizon / distance)
        return ExampleScores(
            "mae", sums, lambda totals: totals[:, 0] / np.maximum(totals[:, 1], 1e-12), True, run
        )

    def scores(self) -> Scores:
        """Return the mean of each score over all values."""
        return {
            name: float(self.sums[name].sum() / count.sum())
            for name, count in self.counts.items()
            if count.sum()
        }

    def by_step(self) -> dict[str, list[float | None]]:
        """Return the mean of each score at each step of the horizon, None if no value was observed there."""
        table = {}
        for name, counts in self.counts.items():
            pairs = zip(self.sums[name], counts, strict=True)
            table[name] = [float(total / count) if count else None for total, count in pairs]
        return table


def backtest(
    bundle: Bundle,
    windows: Windows,
    train: Windows | None,
    *,
    most: int | None = None,
    world: World = SINGLE_PROCESS,
) -> dict[str, Tally]:
    """Return the scores of the model, under the name "", and of the baselines.

    Errors are in standard deviations of the training part, as is usual in the literature. The linear baseline needs
    `train`, the training part. `most` limits the number of origins, which are then evenly spread.
    """
    source = series_of(bundle.codec)
    filled = _filled(windows)
    linear = None if train is None or train.begin < train.look_back else _fit_linear(train)
    tallies: dict[str, Tally] = defaultdict(Tally)
    for rows in islice(windows.in_order(budget=BUDGET, most=most), world.rank, None, world.size):
        batch = windows.batch(rows)
        origins = windows.origins(rows)
        variables = rows % windows.num_variables
        y, observed = observations(batch)
        naive = np.asarray(source.naive)[variables][:, None]
        errors = _score(bundle.model, batch, tallies[""], naive)
        tallies[""].add_windows(errors, observed, origins, variables)
        forecasts = {}
        for name, season in (("last value", 1), ("one season ago", source.season)):
            forecasts[name] = season_ago(
                filled, origins, variables, horizon=windows.horizon, season=season
            )
        if linear is not None:
            forecasts["linear"] = linear(_past(filled, windows, rows))
        for name, forecast in forecasts.items():
            tallies[name].add_errors(forecast - y, observed, naive)
    return tallies if world.size == 1 else _sum_over_processes(tallies, world)


def _sum_over_processes(tallies: dict[str, Tally], world: World) -> dict[str, Tally]:
    """Add up the tallies of all processes."""
    own = [[name, tally.to_json()] for name, tally in tallies.items()]
    total: dict[str, Tally] = defaultdict(Tally)
    for name, part in chain(*world.all_gather(own)):
        total[name].include(part)
    return total


@torch.inference_mode()
def _score(
    model: Forecasts, batch: Batch, tally: Tally, naive: Float[np.ndarray, "B 1"]
) -> np.ndarray:
    """Add the scores of a batch of windows to a tally, and return the errors of their means."""
    output = model.output
    raw = model.distribution(batch)
    calibrated = output.widened(raw, model.widths)
    y, observed = observations(batch)
    errors = output.mean(calibrated).numpy(force=True) - y
    tally.add_errors(errors, observed, naive)
    crps = output.crps(calibrated, batch.require("target").values)
    tally.add_scores("crps", crps.numpy(force=True), observed)
    for name, parameters in (("coverage", calibrated), ("coverage_uncalibrated", raw)):
        low, high = (part.numpy(force=True) for part in output.band(parameters))
        tally.add_scores(name, ((low <= y) & (y <= high)).astype(np.float64), observed)
        if parameters is calibrated:
            tally.add_scores("width", high - low, observed)
    return errors


def observations(batch: Batch) -> tuple[Float[np.ndarray, "B K"], Bool[np.ndarray, "B K"]]:
    """Return the values that followed, and which of them were observed."""
    target = batch.require("target")
    return target.values.numpy(force=True), target.scored.numpy(force=True)


def _fit_linear(train: Windows) -> LinearForecast:
    filled = _filled(train, train.end)
    batches = train.in_order(budget=BUDGET, most=LINEAR_ORIGINS)
    return LinearForecast.fit(
        (_past(filled, train, rows), *observations(train.batch(rows))) for rows in batches
    )


def _filled(windows: Windows, end: int | None = None) -> Float[np.ndarray, "T C"]:
    """Return the variables with missing values replaced by the last observed ones."""
    return carried_forward(np.asarray(windows.table[:end, : windows.num_variables]))


def _past(
    filled: Float[np.ndarray, "T C"], windows: Windows, rows: np.ndarray
) -> Float[np.ndarray, "B L"]:
    """Return the values of the look-back of each window."""
    steps = windows.origins(rows)[:, None] + np.arange(-windows.look_back, 0)
    return filled[steps, (rows % windows.num_variables)[:, None]]
