"""Fitting exponential smoothing: a backtest on the training part chooses rates and weighs the forms."""

from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seqlab.codecs.codec import Codec
from seqlab.codecs.series import SeriesSource, series_of
from seqlab.corpus.examples import Corpus, ExampleBatches
from seqlab.data.windows import Windows
from seqlab.equations import exponential_smoothing as smoothing
from seqlab.models.exponential_smoothing import (
    FORMS,
    LINEAR,
    NAMES,
    SmoothingForecaster,
    max_history,
)
from seqlab.padded import Batch
from seqlab.recipe import Recipe, SmoothingConfig
from seqlab.tasks.smoothing_linear_map import fit_linear_map, late_start
from seqlab.training.counting import CountingLearner
from seqlab.training.run import Learner
from seqlab.training.weights import parameters_of

# forecast origins of the backtest, for each variable and each combination of rates
NUM_ORIGINS = 300
# forecasts of all variables together
NUM_FORECASTS = 2_000
# variables times combinations of rates that are computed together
BATCH_ROWS = 20_000
# windows from which the standard deviations are estimated
DEVIATION_WINDOWS = 2_000
# penalty on the error of a form for each rate that it has chosen
RATE_PENALTY = 0.02
# factor on the error of the linear map, which has learnt many weights
LINEAR_PENALTY = 1.1
# a form with an error this many times the smallest one gets no weight
MAX_RELATIVE_ERROR = 1.3
# the weight of a form is its relative error to the power of minus this
SHARPNESS = 8.0


class Backtest(NamedTuple):
    """Each variable as one row, and the origins from which it is forecast."""

    batch: Batch
    origins: tuple[int, ...]
    # the origins that count for each variable: those with enough observations before them
    counted: Bool[Tensor, "C T"]
    # the first of the late origins, on which the linear map is tested
    first_late: int


class Errors(NamedTuple):
    """The mean absolute error of each combination of rates, over all origins and over the late ones."""

    whole: Float[Tensor, "C G"]
    late: Float[Tensor, "C G"]


def smoothing_forecaster(
    recipe: Recipe, settings: SmoothingConfig | None, codec: Codec
) -> SmoothingForecaster:
    """Build an unfitted forecaster, which predicts the mean."""
    options, source = recipe.forecast, series_of(codec)
    return SmoothingForecaster(
        len(source.columns), season=source.season, horizon=options.horizon, level=options.level
    )


def training_windows(corpus: Corpus) -> Windows:
    """Return the windows of the training part."""
    return cast(Windows, cast(ExampleBatches, corpus.train).rows)


def smoothing_learner(
    recipe: Recipe, settings: SmoothingConfig, model: nn.Module, corpus: Corpus
) -> Learner:
    """Fit exponential smoothing to the training part, and estimate the standard deviation of each step ahead."""
    forecaster = cast(SmoothingForecaster, model)
    windows = training_windows(corpus)
    fit_smoothing(forecaster, series_of(corpus.codec), windows, settings.form)
    num_origins = max(1, DEVIATION_WINDOWS // windows.num_variables)
    rows = np.concatenate(list(windows.in_order(budget=10**9, most=num_origins)))
    with torch.no_grad():
        forecaster.deviations.copy_(_deviations(forecaster, windows.batch(rows)))
    return CountingLearner(model, parameters_of(model), by="backtesting")


@torch.no_grad()
def fit_smoothing(
    model: SmoothingForecaster, source: SeriesSource, windows: Windows, form_name: str = "best"
) -> None:
    """Choose the rates of each form and the weights of all forms from the rows up to the end of these windows."""
    count = windows.num_variables
    scale = zip(source.mean[:count], source.deviation[:count], strict=True)
    model.shift.copy_(
        torch.tensor([mean / deviation for mean, deviation in scale], dtype=torch.float64)
    )
    model.cache.clear()
    backtest = _backtest(windows, source.season)
    observed = backtest.batch.require("source").scored.sum(1)
    positive = _positive(model, backtest.batch)
    errors = torch.full((count, len(NAMES)), torch.inf, dtype=torch.float64)
    late_errors = torch.full((count,), torch.inf, dtype=torch.float64)
    for number, (name, form) in enumerate(FORMS.items()):
        possible = torch.ones(count, dtype=torch.bool)
        if form_name == "best" and form.seasonal:
            enough = 2 * source.season + 1 if form.starts else source.season
            possible = (observed > enough) & (source.season > 1)
        if form_name == "best" and form.ratio:
            possible = possible & positive
        if form_name not in ("best", name) or not possible.any():
            continue
        by_rates = _errors(model, name, backtest)
        best = by_rates.whole.min(1)
        model.rates[:, number] = torch.tensor(form.rates, dtype=torch.float64)[best.indices]
        errors[:, number] = torch.where(possible, best.values, torch.inf)
        best_late = torch.minimum(late_errors, by_rates.late.amin(1))
        late_errors = torch.where(possible, best_late, late_errors)
    if form_name in ("best", "linear"):
        errors[:, LINEAR] = fit_linear_map(model, windows, errors.amin(1) / late_errors)
        if form_name == "linear":
            errors[:, LINEAR] = errors[:, LINEAR].nan_to_num(1.0, posinf=1.0)
    model.weights.copy_(_form_weights(errors))
    model.errors.copy_(errors)


def _form_weights(errors: Float[Tensor, "C M"]) -> Float[Tensor, "C M"]:
    """Weigh forms by their errors; forms that chose more parameters are penalised."""
    penalties = [1 + RATE_PENALTY * form.chosen for form in FORMS.values()] + [LINEAR_PENALTY]
    penalised = (errors * torch.tensor(penalties).double()).clamp(min=1e-9)
    relative = penalised / penalised.amin(1, keepdim=True)
    weights = torch.where(relative <= MAX_RELATIVE_ERROR, relative.pow(-SHARPNESS), 0.0)
    return weights / weights.sum(1, keepdim=True)


def _backtest(windows: Windows, season: int) -> Backtest:
    """Choose origins from the first third, or from two seasons in a short series, to the last row but one."""
    batch = windows.whole(most=max(max_history(season), windows.history))
    observed = batch.require("source").scored
    num_before = observed.long().cumsum(1)
    total = observed.sum(1)
    least = torch.maximum(total // 3, (total // 2).clamp(max=2 * season))
    least = torch.minimum(least, total - windows.horizon).clamp(min=2)
    no_origin = torch.zeros(len(observed), 1, dtype=torch.bool)
    counted = torch.cat([no_origin, num_before[:, :-1] >= least[:, None]], 1)
    origins = counted.any(0).nonzero()[:, 0].tolist()
    most = min(NUM_ORIGINS, max(10, NUM_FORECASTS // len(observed)))
    if len(origins) > most:
        origins = [origins[int(index)] for index in np.linspace(0, len(origins) - 1, most)]
    first_late = late_start(windows) - windows.end + observed.shape[1]
    return Backtest(batch, tuple(origins), counted, first_late)


def _positive(model: SmoothingForecaster, batch: Batch) -> Bool[Tensor, " C"]:
    """Whether all values of a variable are positive, as multiplicative forms need."""
    source = batch.require("source")
    values = source.values.double() + model.shifts(batch)[:, None]
    return torch.where(source.scored, values, torch.inf).amin(1) > 0


def _errors(model: SmoothingForecaster, name: str, backtest: Backtest) -> Errors:
    """Return the error of each combination of rates of a form, for each variable."""
    candidates = torch.tensor(FORMS[name].rates, dtype=torch.float64)
    variables = torch.arange(len(backtest.batch))
    parts = [
        _errors_of(model, name, backtest, rows, candidates)
        for rows in variables.split(max(1, BATCH_ROWS // len(candidates)))
    ]
    whole, late = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return Errors(whole, late)


def _errors_of(
    model: SmoothingForecaster,
    name: str,
    backtest: Backtest,
    rows: Int[Tensor, " R"],
    candidates: Float[Tensor, "G 4"],
) -> Errors:
    """Filter each variable with each combination of rates, and forecast from each origin."""
    form = FORMS[name]
    count = len(candidates)
    batch = backtest.batch.rows_at(rows.tolist())
    source = batch.require("source")
    values = source.values.double() + model.shifts(batch)[:, None]
    observed = source.scored
    repeated_values = values.repeat_interleave(count, 0)
    repeated_observed = observed.repeat_interleave(count, 0)
    rates = candidates.repeat(len(rows), 1)
    start = model.start(name, repeated_values, repeated_observed, rates)
    states = smoothing.states(repeated_values, repeated_observed, rates, start, ratio=form.ratio)
    origins = set(backtest.origins)
    length = values.shape[1]
    # sums over all origins, and over the late ones
    sums = torch.zeros(2, len(rows), count, dtype=torch.float64)
    counts = torch.zeros(2, len(rows), 1, dtype=torch.float64)
    for row, state in enumerate(states, start=1):
        if row not in origins or row == length:
            continue
        steps = min(model.horizon, length - row)
        means = smoothing.forecast(state, rates, steps, row=row, ratio=form.ratio)
        means = means.unflatten(0, (len(rows), count))
        scored = observed[:, row : row + steps] & backtest.counted[rows, row][:, None]
        errors = (means - values[:, None, row : row + steps]).abs()
        errors = torch.where(scored[:, None], errors, 0.0).sum(2)
        for part in range(1 + (row >= backtest.first_late)):
            sums[part] += errors
            counts[part] += scored.sum(1, keepdim=True)
    whole, late = (sums / counts.clamp(min=1)).nan_to_num(torch.inf, torch.inf)
    return Errors(
        torch.where(counts[0] > 0, whole, torch.inf), torch.where(counts[1] > 0, late, torch.inf)
    )


def _deviations(model: SmoothingForecaster, batch: Batch) -> Float[Tensor, "C K"]:
    """Return the root mean square error of each variable at each step ahead."""
    variables = batch.rows % len(model.shift)
    target = batch.require("target")
    errors = model.means(batch) - target.values.double()
    squares = torch.where(target.scored, errors.square(), 0.0)
    zeros = torch.zeros(len(model.shift), model.horizon, dtype=torch.float64)
    sums = zeros.index_add(0, variables, squares)
    counts = zeros.index_add(0, variables, target.scored.double())
    return (sums / counts.clamp(min=1)).sqrt().float()
