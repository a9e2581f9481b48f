"""forecast: a series to the values that follow, with bands (S2, S12)."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from torch import nn

from seqlab.bundle import Bundle
from seqlab.codecs.codec import Codec, Files, Json, Nothing
from seqlab.codecs.series import SeriesSource, series_of
from seqlab.corpus.examples import Corpus
from seqlab.corpus.series import open_series, open_windows, prepare_series, read_table, windows_over
from seqlab.data.example import Example
from seqlab.data.time_series import future_times
from seqlab.data.windows import Windows
from seqlab.distributed import World
from seqlab.errors import DataError, UsageError
from seqlab.models.build import build_encoder, build_pooling
from seqlab.models.exponential_smoothing import SmoothingForecaster
from seqlab.models.forecaster import Forecaster, LDSForecaster, smoothing_of
from seqlab.models.outputs import GaussianOutput, PointOutput, QuantileOutput
from seqlab.models.simple_forecasts import SimpleForecasts
from seqlab.padded import Batch, Measured
from seqlab.recipe import LDSConfig, Recipe
from seqlab.tasks.backtest import BUDGET, backtest
from seqlab.tasks.bands import Forecast, calibrate, calibrated, forecast
from seqlab.tasks.settings import choose_forecast
from seqlab.tasks.smoothing_fitting import (
    fit_smoothing,
    smoothing_forecaster,
    smoothing_learner,
    training_windows,
)
from seqlab.tasks.task import (
    Classical,
    DataKind,
    Job,
    Report,
    Scoring,
    Task,
    gradient_learner,
    no_subject,
)
from seqlab.training.lds_em import LDSLearner, first_system
from seqlab.training.run import Learner

ROWS_OF_EM = 10_000  # the last ones of a series: a few noises need no more, and each iteration reads them all
WEIGHED_ON = 2000  # windows by which simple forecasts are weighed, before a network adds to them
SHARE = 0.5  # of what a network has learnt to add to exponential smoothing: their forecasts weigh the same
OUTPUTS: dict[str, type[GaussianOutput] | type[QuantileOutput]] = {
    "gaussian": GaussianOutput,
    "quantiles": QuantileOutput,
    "point": PointOutput,
}


@dataclass(frozen=True)
class Moments:
    """The windows of a series, each with the values that followed."""

    windows: Windows
    before: Windows | None = (
        None  # the part before them, where the forecaster has learnt from them since
    )

    def sample(self, most: int) -> "Moments":
        return self

    def batch(self, bundle: Bundle, most: int) -> Batch:
        return self.windows.batch(np.arange(min(most, len(self.windows))))

    def example_inputs(self, bundle: Bundle, most: int) -> list[str]:
        return list(bundle.metrics.get("examples", []))

    def prediction_work(
        self, task: Task, bundle: Bundle, most: int
    ) -> tuple[int, Callable[[], object]]:
        batch, model = self.batch(bundle, most), bundle.model
        return len(batch), lambda: calibrated(model, batch)


def _look(task: Task, recipe: Recipe, files: Files) -> Json:
    series = read_table(recipe, files[0])
    columns = {}
    for name, values in zip(series.columns, series.values.T, strict=True):
        there = values[~np.isnan(values)]
        figures = (
            f"{there.min():.6g} to {there.max():.6g}, mean {there.mean():.6g}"
            if len(there)
            else "no values"
        )
        columns[name] = f"{figures}, {len(values) - len(there):,} missing"
    ends = {"from": series.times[0], "to": series.times[-1], "next": future_times(series, 1)[0]}
    return {"rows": len(series), **ends, "columns": columns}


def _data(task: Task, bundle: Bundle, files: Files, stores: Path) -> Moments:
    """All moments of a file; without one, the test part where there is one, else the validation part."""
    if len(files) > 1:
        raise UsageError("a forecaster is evaluated on one file at a time", hint="give one.")
    if files:
        return Moments(_windows_of_file(bundle, files[0]))
    parts = open_windows(bundle.recipe, series_of(bundle.codec), stores)
    if "test" in parts:
        return Moments(parts["test"])
    return Moments(parts["validation"], before=parts["train"])


def _finish(task: Task, bundle: Bundle, stores: Path, most: int) -> Report:
    """Set the width of the bands on the validation part, score the model there, and then smooth that part too.

    What a network adds to exponential smoothing is halved before.
    """
    parts = open_windows(bundle.recipe, series_of(bundle.codec), stores)
    _smooth_again(bundle, parts["train"])
    if isinstance(network := bundle.model, Forecaster) and network.share is not None:
        network.share.fill_(SHARE)
    calibrate(bundle, parts["validation"])
    report = _evaluate(bundle, Moments(parts["validation"]), Scoring(train=stores, most=most))
    _smooth_again(bundle, parts["validation"])
    return report


def _smooth_again(bundle: Bundle, windows: Windows) -> None:
    """Choose rates and weights of exponential smoothing from all rows up to the end of these windows.

    A short series has no rows to spare: what was held out to choose a model by is learnt from before it forecasts.
    """
    if (smoothing := smoothing_of(bundle.model)) is not None:
        settings = bundle.recipe.model.smoothing
        form = "best" if settings is None else settings.form
        fit_smoothing(smoothing, series_of(bundle.codec), windows, form)


# One file: a column of times, columns of numbers. Its last part is held out.
SERIES = DataKind(_look, lambda task, *job: prepare_series(*job), open_series, _data, _finish)


def _read(recipe: Recipe, files: Files) -> Iterator[Example]:
    raise UsageError("a series has no examples", hint="give the file to `seqlab evaluate`.")


def _build(recipe: Recipe, codec: Codec) -> nn.Module:
    settings, source = recipe.forecast, series_of(codec)
    num_patches = math.ceil(settings.look_back / settings.patch)
    width = settings.patch * len(source.entry.mean)
    encoder = build_encoder(recipe, Measured((0.0,) * width, (1.0,) * width), most=num_patches)
    return Forecaster(
        encoder,
        build_pooling(recipe, encoder, positions=num_patches),
        OUTPUTS[settings.output](settings.level),
        patch=settings.patch,
        look_back=settings.look_back,
        horizon=settings.horizon,
        num_variables=len(source.columns),
        num_covariates=source.num_covariates,
        scale_windows=settings.scale == "window",
        dropout=recipe.model.dropout,
        simple=_simple(recipe, codec) if settings.residual else None,
    )


def _system(recipe: Recipe, settings: LDSConfig, codec: Codec) -> nn.Module:
    ahead, source = recipe.forecast, series_of(codec)
    start = first_system(settings, source.season, source.num_covariates, seed=recipe.train.seed)
    return LDSForecaster(
        start, num_variables=len(source.columns), horizon=ahead.horizon, level=ahead.level
    )


def _simple(recipe: Recipe, codec: Codec) -> SimpleForecasts | SmoothingForecaster:
    """What a network adds to."""
    if recipe.forecast.smoothing:
        return smoothing_forecaster(recipe, None, codec)
    return SimpleForecasts(series_of(codec).season, recipe.forecast.horizon)


def _learner(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
    windows = training_windows(corpus)
    budget = WEIGHED_ON * (windows.history + windows.horizon)
    moments = next(windows.in_order(budget=budget, most=WEIGHED_ON))
    if (smoothing := smoothing_of(network)) is not None:
        fit_smoothing(smoothing, series_of(corpus.codec), windows)
        # many at once are quicker than those of each step
        for some in windows.in_order(budget=BUDGET):
            smoothing.remembered_means(windows.batch(some))
    cast(Forecaster, network).start_simple(windows.batch(moments))
    return gradient_learner(recipe, network, corpus, world)


def _system_learner(
    recipe: Recipe, settings: LDSConfig, network: nn.Module, corpus: Corpus
) -> Learner:
    series = training_windows(corpus).whole(most=ROWS_OF_EM)
    return LDSLearner(cast(LDSForecaster, network), series, recipe.train, free=settings.states > 0)


def _predict(job: Job) -> list[Forecast]:
    """The rows that follow each series."""
    return [forecast(job.bundle, value) for value in job.inputs]


def _evaluate(bundle: Bundle, data: Moments, scoring: Scoring) -> Report:
    """Scores of a forecast from every moment, or from some that lie evenly, beside baselines."""
    windows, train = data.windows, None
    if data.before is not None and smoothing_of(bundle.model) is not None:
        bundle = replace(bundle, model=copy.deepcopy(bundle.model))
        _smooth_again(bundle, data.before)
    note = "the linear baseline needs the training part, which is not beside this model"
    if scoring.train is not None:
        train, note = (
            open_windows(bundle.recipe, series_of(bundle.codec), scoring.train)["train"],
            "",
        )
    tallies = backtest(bundle, windows, train, most=scoring.most, world=scoring.world)
    model = tallies.pop("")
    baselines = {name: tally.scores() for name, tally in tallies.items()}
    count = windows.num_origins if scoring.most is None else min(scoring.most, windows.num_origins)
    steps = model.by_step()
    source = series_of(bundle.codec)
    own_units = {
        source.columns[place]: float(total / max(1, number) * source.deviation[place])
        for place, (total, number) in zip(*model.errors(1), strict=True)
    }
    scores = model.scores() | ({"mae_by_column": own_units} if own_units else {})
    by_example = model.by_example()
    return Report(
        "forecast",
        count,
        scores,
        baselines,
        baseline_note=note,
        by_step=steps,
        unit="moments",
        by_example=by_example,
    )


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


# Windows of the past into a network or a Kalman filter, all steps ahead out of it.
FORECAST = Task(
    name="forecast",
    ladder=("lds-forecast", "gru-forecast", "transformer-forecast"),
    judged_by=("mae", "mse"),
    data_kind=lambda recipe: SERIES,
    reads=lambda recipe: SeriesSource,
    writes=lambda recipe: Nothing,
    read=_read,
    build=_build,
    predict=_predict,
    evaluate=_evaluate,
    baseline=lambda recipe: "exponential-smoothing",
    subject=no_subject("the view 'band' shows its forecast."),
    choose=choose_forecast,
    special_settings=("flat", "vectors"),
    learner=_learner,
    classical={
        "lds": Classical(_system, _system_learner),
        "smoothing": Classical(smoothing_forecaster, smoothing_learner, ("band", "evidence")),
    },
    views=lambda bundle: ("band",),
    recurrent_recipe="gru-forecast",
    predict_arguments=" SERIES.csv",
)
