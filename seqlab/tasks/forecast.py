"""The task `forecast`: predict the next values of a series, with bands (S2, S12)."""

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

# EM reads at most this many rows from the end of a series; a few noises need no more
ROWS_OF_EM = 10_000
# windows on which the initial weights of simple forecasts are fitted
WEIGHT_WINDOWS = 2000
# factor on the residual that a network adds to exponential smoothing, so that their forecasts have equal weights
RESIDUAL_SHARE = 0.5
OUTPUTS: dict[str, type[GaussianOutput] | type[QuantileOutput]] = {
    "gaussian": GaussianOutput,
    "quantiles": QuantileOutput,
    "point": PointOutput,
}


@dataclass(frozen=True)
class WindowData:
    """The windows of a series, each with the values that followed."""

    windows: Windows
    # the windows before these, for a forecaster that was fitted again after it was scored on these
    before: Windows | None = None

    def sample(self, most: int) -> "WindowData":
        """Return all windows: an evaluation takes its own sample of origins."""
        return self

    def batch(self, bundle: Bundle, most: int) -> Batch:
        return self.windows.batch(np.arange(min(most, len(self.windows))))

    def example_inputs(self, bundle: Bundle, most: int) -> list[str]:
        return list(bundle.metrics.get("examples", []))

    def prediction_work(
        self, task: Task, bundle: Bundle, most: int
    ) -> tuple[int, Callable[[], object]]:
        batch = self.batch(bundle, most)
        return len(batch), lambda: calibrated(bundle.model, batch)


def _summarise(task: Task, recipe: Recipe, files: Files) -> Json:
    series = read_table(recipe, files[0])
    columns = {}
    for name, values in zip(series.columns, series.values.T, strict=True):
        observed = values[~np.isnan(values)]
        figures = "no values"
        if len(observed):
            figures = f"{observed.min():.6g} to {observed.max():.6g}, mean {observed.mean():.6g}"
        columns[name] = f"{figures}, {len(values) - len(observed):,} missing"
    times = {"from": series.times[0], "to": series.times[-1], "next": future_times(series, 1)[0]}
    return {"rows": len(series), **times, "columns": columns}


def _data(task: Task, bundle: Bundle, files: Files, stores: Path) -> WindowData:
    """Return all windows of a file; without a file those of the test part, or else of the validation part."""
    if len(files) > 1:
        raise UsageError("a forecaster is evaluated on one file at a time", hint="give one file.")
    if files:
        return WindowData(_windows_of_file(bundle, files[0]))
    parts = open_windows(bundle.recipe, series_of(bundle.codec), stores)
    if "test" in parts:
        return WindowData(parts["test"])
    return WindowData(parts["validation"], before=parts["train"])


def _finish(task: Task, bundle: Bundle, stores: Path, most: int) -> Report:
    """Calibrate the bands and score the model on the validation part, then fit exponential smoothing on it too."""
    parts = open_windows(bundle.recipe, series_of(bundle.codec), stores)
    _refit_smoothing(bundle, parts["train"])
    if isinstance(network := bundle.model, Forecaster) and network.share is not None:
        network.share.fill_(RESIDUAL_SHARE)
    calibrate(bundle, parts["validation"])
    report = _evaluate(bundle, WindowData(parts["validation"]), Scoring(train=stores, most=most))
    _refit_smoothing(bundle, parts["validation"])
    return report


def _refit_smoothing(bundle: Bundle, windows: Windows) -> None:
    """Fit exponential smoothing again to all rows up to the end of these windows.

    A short series has few rows, so a forecaster also learns from the validation part before it is used.
    """
    if (smoothing := smoothing_of(bundle.model)) is not None:
        settings = bundle.recipe.model.smoothing
        form = "best" if settings is None else settings.form
        fit_smoothing(smoothing, series_of(bundle.codec), windows, form)


# one file with a column of times and columns of numbers; its last part is held out
SERIES = DataKind(
    _summarise, lambda task, *args: prepare_series(*args), open_series, _data, _finish
)


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


def _build_lds(recipe: Recipe, settings: LDSConfig, codec: Codec) -> nn.Module:
    options, source = recipe.forecast, series_of(codec)
    system = first_system(settings, source.season, source.num_covariates, seed=recipe.train.seed)
    return LDSForecaster(
        system, num_variables=len(source.columns), horizon=options.horizon, level=options.level
    )


def _simple(recipe: Recipe, codec: Codec) -> SimpleForecasts | SmoothingForecaster:
    """Build the simple forecast whose residual a network predicts."""
    if recipe.forecast.smoothing:
        return smoothing_forecaster(recipe, None, codec)
    return SimpleForecasts(series_of(codec).season, recipe.forecast.horizon)


def _learner(recipe: Recipe, network: nn.Module, corpus: Corpus, world: World) -> Learner:
    windows = training_windows(corpus)
    budget = WEIGHT_WINDOWS * (windows.history + windows.horizon)
    first_rows = next(windows.in_order(budget=budget, most=WEIGHT_WINDOWS))
    if (smoothing := smoothing_of(network)) is not None:
        fit_smoothing(smoothing, series_of(corpus.codec), windows)
        # computing all means now in large batches is faster than computing those of each step later
        for rows in windows.in_order(budget=BUDGET):
            smoothing.cached_means(windows.batch(rows))
    cast(Forecaster, network).start_simple(windows.batch(first_rows))
    return gradient_learner(recipe, network, corpus, world)


def _lds_learner(
    recipe: Recipe, settings: LDSConfig, network: nn.Module, corpus: Corpus
) -> Learner:
    series = training_windows(corpus).whole(most=ROWS_OF_EM)
    return LDSLearner(cast(LDSForecaster, network), series, recipe.train, free=settings.states > 0)


def _predict(job: Job) -> list[Forecast]:
    """Forecast the next rows of each series."""
    return [forecast(job.bundle, value) for value in job.inputs]


def _evaluate(bundle: Bundle, data: WindowData, scoring: Scoring) -> Report:
    """Score forecasts from every origin, or from `scoring.most` evenly spread ones, and those of the baselines."""
    windows = data.windows
    if data.before is not None and smoothing_of(bundle.model) is not None:
        bundle = replace(bundle, model=copy.deepcopy(bundle.model))
        _refit_smoothing(bundle, data.before)
    source = series_of(bundle.codec)
    if scoring.train is None:
        train = None
        note = "the linear baseline needs the training part, which is not beside this model"
    else:
        train = open_windows(bundle.recipe, source, scoring.train)["train"]
        note = ""
    tallies = backtest(bundle, windows, train, most=scoring.most, world=scoring.world)
    model = tallies.pop("")
    count = windows.num_origins if scoring.most is None else min(scoring.most, windows.num_origins)
    scores: Json = dict(model.scores())
    # in the units of the data, whereas the other scores are in standard deviations
    mae_by_column = {
        source.columns[column]: float(total / max(1, number) * source.deviation[column])
        for column, (total, number) in zip(*model.errors(1), strict=True)
    }
    if mae_by_column:
        scores["mae_by_column"] = mae_by_column
    return Report(
        "forecast",
        count,
        scores,
        {name: tally.scores() for name, tally in tallies.items()},
        baseline_note=note,
        by_step=model.by_step(),
        unit="moments",
        by_example=model.by_example(),
    )


def _windows_of_file(bundle: Bundle, path: str) -> Windows:
    """Return all windows of another file with the same columns."""
    source, settings = series_of(bundle.codec), bundle.recipe.forecast
    series = source.load(path)
    windows = windows_over(bundle.recipe, source, source.table(series), begin=0, end=len(series))
    if not len(windows):
        raise DataError(
            f"{series.where}: {len(series):,} rows, but a look-back of {settings.look_back} and a horizon of "
            f"{settings.horizon} need {settings.look_back + settings.horizon:,}",
            hint="give a longer file.",
        )
    return windows


# A network or a Kalman filter reads a window of the past and predicts all steps of the horizon.
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
        "lds": Classical(_build_lds, _lds_learner),
        "smoothing": Classical(smoothing_forecaster, smoothing_learner, ("band", "evidence")),
    },
    views=lambda bundle: ("band",),
    recurrent_recipe="gru-forecast",
    predict_arguments=" SERIES.csv",
)
