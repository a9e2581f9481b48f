"""forecast: a series to the values that follow, with bands (S2, S12)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Nothing, SourceType, TargetType
from seqlab.codecs.series import SeriesSource, series_of
from seqlab.corpus.examples import Corpus, ExampleBatches
from seqlab.corpus.series import open_series, open_windows, prepare_series, read_table, windows_over
from seqlab.data.series import future_times
from seqlab.data.sources import Example
from seqlab.data.windows import Windows
from seqlab.errors import DataError, UsageError
from seqlab.models.build import build_encoder, build_pooling
from seqlab.models.forecaster import Forecaster, Forecasts, LDSForecaster
from seqlab.models.lds import LDS, cycle, local_level, local_linear_trend
from seqlab.models.outputs import GaussianOutput, PointOutput, QuantileOutput
from seqlab.padded import Batch, Measured, Padded
from seqlab.recipe import Decode, Dynamics, Recipe
from seqlab.subject import Question, Subject
from seqlab.tasks import checks
from seqlab.tasks.backtest import backtest
from seqlab.tasks.bands import Forecast, calibrate, calibrated, forecast
from seqlab.tasks.examples import SCORED_AT_THE_END, gradient_learner, refuse_many_processes, writes_no_text
from seqlab.tasks.smoothing import smoothing_forecaster, smoothing_learner
from seqlab.tasks.task import DataKind, Job, Opening, Report, Scoring, Task
from seqlab.training.kalman_em import start_lds
from seqlab.training.lds_em import LDSLearner
from seqlab.training.run import Learner
from seqlab.world import World

ROWS_OF_EM = 10_000  # the last ones of a series: a few noises need no more, and each iteration reads them all
OUTPUTS: dict[str, type[GaussianOutput] | type[QuantileOutput]] = {
    "gaussian": GaussianOutput,
    "quantiles": QuantileOutput,
    "point": PointOutput,
}


@dataclass(frozen=True)
class Moments:
    """The windows of a series, each with the values that followed."""

    windows: Windows

    def some(self, most: int) -> "Moments":
        return self

    def batch(self, bundle: Bundle, most: int) -> Batch:
        return self.windows.batch(np.arange(min(most, len(self.windows))))

    def examples(self) -> list[Example]:
        raise UsageError("a model of a series has no examples to examine", hint="`seqlab evaluate` scores it.")

    def typed(self, bundle: Bundle, most: int) -> list[str]:
        return list(bundle.metrics.get("examples", []))

    def timed(self, task: Task, bundle: Bundle, most: int) -> tuple[int, Callable[[], object]]:
        batch, model = self.batch(bundle, most), cast(Forecasts, bundle.model)
        return len(batch), lambda: calibrated(model, batch)


class SeriesKind:
    """One file: a column of times, columns of numbers. Its last part is held out."""

    def look(self, task: Task, recipe: Recipe, files: Sequence[str]) -> dict[str, Any]:
        series = read_table(recipe, files[0])
        columns = {}
        for name, values in zip(series.columns, series.values.T, strict=True):
            there = values[~np.isnan(values)]
            figures = f"{there.min():.6g} to {there.max():.6g}, mean {there.mean():.6g}" if len(there) else "no values"
            columns[name] = f"{figures}, {len(values) - len(there):,} missing"
        ends = {"from": series.times[0], "to": series.times[-1], "next": future_times(series, 1)[0]}
        return {"rows": len(series), **ends, "columns": columns}

    def prepare(
        self, task: Task, recipe: Recipe, files: Sequence[str], valid: Sequence[str], folder: Path, old: Codec | None
    ) -> Codec:
        return prepare_series(recipe, files, valid, folder)

    def open(self, recipe: Recipe, codec: Codec, folder: Path) -> Corpus:
        return open_series(recipe, codec, folder)

    def data(self, task: Task, bundle: Bundle, files: Sequence[str], stores: Path) -> Moments:
        """All moments of a file; without one, the test part where there is one, else the validation part."""
        if len(files) > 1:
            raise UsageError("a forecaster is evaluated on one file at a time", hint="give one.")
        if files:
            return Moments(_windows_of_file(bundle, files[0]))
        parts = open_windows(bundle.recipe, series_of(bundle.codec), stores)
        return Moments(parts.get("test", parts["validation"]))

    def finish(self, task: Task, bundle: Bundle, stores: Path) -> Report:
        """Set the width of the bands on the validation part, and score the model there."""
        validation = open_windows(bundle.recipe, series_of(bundle.codec), stores)["validation"]
        calibrate(bundle, validation)
        return task.evaluate(bundle, Moments(validation), Scoring(train=stores, most=SCORED_AT_THE_END))


SERIES = SeriesKind()


class Forecasting:
    """Windows of the past into a network or a Kalman filter, all steps ahead out of it."""

    name = "forecast"
    tuned = ""
    ladder = ("lds-forecast", "gru-forecast", "transformer-forecast")
    recurrent = "gru-forecast"
    judged_by = ("mse",)
    ask = " SERIES.csv"

    def check(self, recipe: Recipe) -> None:
        checks.check_settings(recipe, "flat", "lds", "smoothing", "vectors")
        checks.check_parts(recipe, encoder=True)

    def data_kind(self, recipe: Recipe) -> DataKind:
        return SERIES

    def reads(self, recipe: Recipe) -> SourceType:
        return SeriesSource

    def writes(self, recipe: Recipe) -> TargetType:
        return Nothing

    def read(self, recipe: Recipe, files: Sequence[str]) -> Iterator[Example]:
        raise UsageError("a series has no examples", hint="give the file to `seqlab evaluate`.")

    def build(self, recipe: Recipe, codec: Codec) -> nn.Module:
        settings, source = recipe.forecast, series_of(codec)
        count, horizon = len(source.columns), settings.horizon
        if recipe.model.lds is not None:
            start = _system(recipe.model.lds, source.season, source.num_covariates, seed=recipe.train.seed)
            return LDSForecaster(start, num_variables=count, horizon=horizon, level=settings.level)
        if recipe.model.smoothing is not None:
            return smoothing_forecaster(recipe, codec)
        num_patches, width = math.ceil(settings.look_back / settings.patch), settings.patch * len(source.entry.mean)
        entry = Measured((0.0,) * width, (1.0,) * width)
        encoder = build_encoder(recipe, entry, most=num_patches)
        return Forecaster(
            encoder,
            build_pooling(recipe, encoder, positions=num_patches),
            OUTPUTS[settings.output](settings.level),
            patch=settings.patch,
            horizon=horizon,
            num_variables=count,
            num_covariates=source.num_covariates,
            scale_windows=settings.scale == "window",
            dropout=recipe.model.dropout,
        )

    def learner(self, recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
        if recipe.model.lds is not None:
            refuse_many_processes(recipe, world)
            series = cast(Windows, cast(ExampleBatches, corpus.train).rows).whole(most=ROWS_OF_EM)
            free = recipe.model.lds.states > 0
            return LDSLearner(cast(LDSForecaster, network), series, recipe.train, free=free)
        if recipe.model.smoothing is not None:
            refuse_many_processes(recipe, world)
            return smoothing_learner(recipe, recipe.model.smoothing.form, network, corpus)
        return gradient_learner(recipe, network, corpus, world)

    def validate(self, bundle: Bundle, data: Any) -> dict[str, float]:
        return {}

    def predict(self, job: Job) -> list[Forecast]:
        """The rows that follow each series."""
        return [forecast(job.bundle, value) for value in job.inputs]

    def evaluate(self, bundle: Bundle, data: Any, scoring: Scoring) -> Report:
        """Scores of a forecast from every moment, or from some that lie evenly, beside baselines."""
        windows, train = data.windows, None
        if scoring.train is not None:
            train = open_windows(bundle.recipe, series_of(bundle.codec), scoring.train)["train"]
        tallies = backtest(bundle, windows, train, most=scoring.most, world=scoring.world)
        model = tallies.pop("")
        floors = {name: tally.scores() for name, tally in tallies.items()}
        moments = windows.num_origins if scoring.most is None else min(scoring.most, windows.num_origins)
        note = "" if train is not None else "the linear floor needs the training part, which is not beside this model"
        steps = model.by_step()
        return Report(self.name, moments, model.scores(), floors, floor_note=note, by_step=steps, unit="moments")

    def opening(self, bundle: Bundle, value: Any, decode: Decode) -> Opening:
        raise writes_no_text(self)

    def subject(self, question: Question) -> Subject:
        raise UsageError(
            "a 'forecast' model gives no answer in tokens or labels to look into",
            hint="the view 'band' shows its forecast.",
        )

    def views(self, bundle: Bundle) -> tuple[str, ...]:
        return ("band", "evidence") if bundle.recipe.model.smoothing is not None else ("band",)


def _windows_of_file(bundle: Bundle, path: str) -> Windows:
    """All windows of another file with the same columns."""
    source, settings = series_of(bundle.codec), bundle.recipe.forecast
    series = source.load(path)
    windows = windows_over(bundle.recipe, source, source.table(series), begin=0, end=len(series))
    if not len(windows):
        raise DataError(
            f"{series.where}: {len(series):,} rows, where a look-back of {settings.look_back} and a horizon of "
            f"{settings.horizon} need {settings.look_back + settings.horizon:,}",
            hint="give a longer file.",
        )
    return windows


def _system(settings: Dynamics, season: int, num_inputs: int, *, seed: int) -> LDS:
    """Where EM begins, for values of deviation 1: free states, or a trend and waves that all move a little."""
    if settings.states:
        typical = Padded(torch.ones(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.long))
        return start_lds(typical, num_states=settings.states, num_inputs=num_inputs, seed=seed)
    parts = [cycle(season / k, wander=1e-4) for k in range(1, min(settings.harmonics, season // 2) + 1)]
    if settings.trend == "slope":
        parts.append(local_linear_trend(level=0.05, slope=1e-4, noise=0.2))
    elif settings.trend == "level" or not parts:
        parts.append(local_level(level=0.05, noise=0.2))
    whole = reduce(add, parts)
    if not float(whole.observation_noise):
        whole = replace(whole, observation_noise=torch.full_like(whole.observation_noise, 0.2))
    inputs = torch.zeros(len(whole.transition), num_inputs, dtype=torch.float64) if num_inputs else None
    return replace(whole, input_matrix=inputs)
