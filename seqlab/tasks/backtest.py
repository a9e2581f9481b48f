"""Backtesting: a forecast from every moment of a part, scored beside baselines over the same windows."""

from collections import defaultdict
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float

from seqlab.bundle import Bundle
from seqlab.codecs.series import series_of
from seqlab.data.windows import Windows
from seqlab.metrics.forecasts import LinearForecast, carried_forward, season_ago
from seqlab.models.forecaster import Forecasts
from seqlab.padded import Batch
from seqlab.world import ALONE, World

BUDGET = 200_000  # numbers read together
LINEAR_ON = 5000  # moments of the training part from which the linear floor learns


class Tally:
    """Sums of scores at each step ahead, and how many values each was taken over."""

    def __init__(self) -> None:
        self.sums: dict[str, Any] = defaultdict(float)
        self.counts: dict[str, Any] = defaultdict(int)

    def add(self, name: str, scores: Float[np.ndarray, "B K"], where: Bool[np.ndarray, "B K"]) -> None:
        self.sums[name] = self.sums[name] + np.where(where, scores, 0.0).sum(0)
        self.counts[name] = self.counts[name] + where.sum(0)

    def add_errors(
        self, errors: Float[np.ndarray, "B K"], seen: Bool[np.ndarray, "B K"], naive: Float[np.ndarray, "B 1"]
    ) -> None:
        self.add("mse", errors**2, seen)
        self.add("mae", np.abs(errors), seen)
        self.add("mase", np.abs(errors) / np.where(naive > 0, naive, 1.0), seen & (naive > 0))

    def scores(self) -> dict[str, float]:
        """Means over all values."""
        return {name: float(self.sums[name].sum() / count.sum()) for name, count in self.counts.items() if count.sum()}

    def to_json(self) -> list[dict[str, list[float]]]:
        return [{name: row.tolist() for name, row in part.items()} for part in (self.sums, self.counts)]

    def by_step(self) -> dict[str, list[float | None]]:
        return {
            name: [float(s / n) if n else None for s, n in zip(self.sums[name], count, strict=True)]
            for name, count in self.counts.items()
        }


def backtest(
    bundle: Bundle, windows: Windows, train: Windows | None, *, most: int | None = None, world: World = ALONE
) -> dict[str, Tally]:
    """The model's scores ("") and those of the floors, in deviations of the training part, as the literature has them.

    With `train`, the training part, there is a linear floor; `most` moments, evenly spread, are enough where time is
    short.
    """
    model, source = cast(Forecasts, bundle.model), series_of(bundle.codec)
    count, horizon = len(source.columns), windows.horizon
    filled, naive = carried_forward(np.asarray(windows.table[:, :count])), np.asarray(source.naive)
    linear = None if train is None else _linear(train)
    tallies: dict[str, Tally] = defaultdict(Tally)
    for rows in islice(windows.in_order(budget=BUDGET, most=most), world.rank, None, world.size):
        batch, origins, which = windows.batch(rows), windows.origins(rows), rows % count
        target, scale = batch.require("target"), naive[which][:, None]
        y, seen = target.values.numpy(force=True), target.scored.numpy(force=True)
        _score(model, batch, tallies[""], scale)
        floors = {
            name: season_ago(filled, origins, which, horizon=horizon, season=season)
            for name, season in (("last value", 1), ("one season ago", source.season))
        }
        if linear is not None:
            floors["linear"] = linear(_past(filled, windows, rows))
        for name, said in floors.items():
            tallies[name].add_errors(said - y, seen, scale)
    return _together(tallies, world)


def _together(tallies: dict[str, Tally], world: World) -> dict[str, Tally]:
    """What all processes have added up."""
    if world.size == 1:
        return tallies
    whole: dict[str, Tally] = defaultdict(Tally)
    for said in world.told({name: tally.to_json() for name, tally in tallies.items()}):
        for name, (sums, counts) in said.items():
            for score in sums:
                whole[name].sums[score] = whole[name].sums[score] + np.asarray(sums[score])
                whole[name].counts[score] = whole[name].counts[score] + np.asarray(counts[score])
    return whole


@torch.inference_mode()
def _score(model: Forecasts, batch: Batch, tally: Tally, naive: Float[np.ndarray, "B 1"]) -> None:
    target = batch.require("target")
    gold, raw = target.values, model.distribution(batch)
    parameters = model.output.widened(raw, model.widths)
    y, seen = gold.numpy(force=True), target.scored.numpy(force=True)
    tally.add_errors(model.output.mean(parameters).numpy(force=True) - y, seen, naive)
    tally.add("crps", model.output.crps(parameters, gold).numpy(force=True), seen)
    for name, said in (("coverage", parameters), ("coverage_uncalibrated", raw)):
        low, high = (part.numpy(force=True) for part in model.output.band(said))
        tally.add(name, ((low <= y) & (y <= high)).astype(np.float64), seen)
        if said is parameters:
            tally.add("width", high - low, seen)


def _linear(train: Windows) -> LinearForecast:
    filled = carried_forward(np.asarray(train.table[: train.end, : train.num_variables]))

    def parts() -> Any:
        for rows in train.in_order(budget=BUDGET, most=LINEAR_ON):
            target = train.batch(rows).require("target")
            yield _past(filled, train, rows), target.values.numpy(force=True), target.scored.numpy(force=True)

    return LinearForecast.fit(parts())


def _past(filled: Float[np.ndarray, "T C"], windows: Windows, rows: np.ndarray) -> Float[np.ndarray, "B L"]:
    steps = windows.origins(rows)[:, None] + np.arange(-windows.look_back, 0)
    return filled[steps, (rows % windows.num_variables)[:, None]]
