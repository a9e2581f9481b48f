"""Exponential smoothing of a recipe: built, and its forms weighed by a backtest of the training part."""

from collections.abc import Iterator
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
from seqlab.metrics.forecasts import LinearForecast, Window
from seqlab.models.exponential_smoothing import (
    FORMS,
    LINEAR,
    NAMES,
    SmoothingForecaster,
    last_seen,
    longest_line,
    rows_read,
)
from seqlab.padded import Batch
from seqlab.recipe import Recipe, SmoothingConfig
from seqlab.training.counting import CountingLearner
from seqlab.training.run import Learner
from seqlab.training.weights import parameters_of

MOMENTS = 300  # from which each variable is forecast, with each choice of rates
FORECASTS = 2_000  # of all variables together
ROWS = 20_000  # variables times choices that are computed together
DEVIATIONS_ON = 2_000  # windows
PER_RATE = 0.02  # how much smaller the error must be for each rate that a form chooses
LINEAR_PENALTY = 1.1  # times the error of the linear map, which chooses many weights
FARTHEST = 1.3  # times the smallest error: a form beyond that has no say
SHARPNESS = 8.0  # how much more a form with a smaller error weighs
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
LINEAR_ON = 5_000  # windows from which the linear map learns


class Backtest(NamedTuple):
    """Each variable as one row, the moments from which it is forecast, and which of them count for which variable."""

    batch: Batch
    moments: tuple[int, ...]
    counted: Bool[Tensor, "C T"]
    late: int  # from this moment on the linear map is tested


class Errors(NamedTuple):
    """The mean absolute error of each choice of rates, from all moments and from the late ones."""

    whole: Float[Tensor, "C G"]
    late: Float[Tensor, "C G"]


def smoothing_forecaster(
    recipe: Recipe, settings: SmoothingConfig | None, codec: Codec
) -> SmoothingForecaster:
    """A forecaster that repeats the mean."""
    ahead, source = recipe.forecast, series_of(codec)
    return SmoothingForecaster(
        len(source.columns), season=source.season, horizon=ahead.horizon, level=ahead.level
    )


def training_windows(corpus: Corpus) -> Windows:
    """The windows of the training part."""
    return cast(Windows, cast(ExampleBatches, corpus.train).rows)


def smoothing_learner(
    recipe: Recipe, settings: SmoothingConfig, model: nn.Module, corpus: Corpus
) -> Learner:
    """Every form with every choice of its rates forecasts from moments of the training part; the best ones are kept."""
    forecaster, windows = cast(SmoothingForecaster, model), training_windows(corpus)
    fit_smoothing(forecaster, series_of(corpus.codec), windows, settings.form)
    moments = max(1, DEVIATIONS_ON // windows.num_variables)
    rows = np.concatenate(list(windows.in_order(budget=10**9, most=moments)))
    with torch.no_grad():
        forecaster.deviations.copy_(_deviations(forecaster, windows.batch(rows)))
    return CountingLearner(model, parameters_of(model), by="backtesting")


@torch.no_grad()
def fit_smoothing(
    model: SmoothingForecaster, source: SeriesSource, windows: Windows, form_name: str = "best"
) -> None:
    """Choose the rates of each form and the weights of all from the rows up to the end of these windows."""
    count = windows.num_variables
    scale = zip(source.mean[:count], source.deviation[:count], strict=True)
    model.shift.copy_(
        torch.tensor([mean / deviation for mean, deviation in scale], dtype=torch.float64)
    )
    model.remembered.clear()
    backtest = _backtest(windows, source.season)
    observed = backtest.batch.require("source").scored.sum(1)
    positive = _positive(model, backtest.batch)
    errors = torch.full((count, len(NAMES)), torch.inf, dtype=torch.float64)
    late = torch.full((count,), torch.inf, dtype=torch.float64)
    for number, (name, form) in enumerate(FORMS.items()):
        possible = torch.ones(count, dtype=torch.bool)
        if form_name == "best" and form.seasonal:
            enough = 2 * source.season + 1 if form.starts else source.season
            possible = (observed > enough) & (source.season > 1)
        if form_name == "best" and form.ratio:
            possible = possible & positive
        if form_name not in ("best", name) or not possible.any():
            continue
        tried = _errors(model, name, backtest)
        best = tried.whole.min(1)
        model.rates[:, number] = torch.tensor(form.rates, dtype=torch.float64)[best.indices]
        errors[:, number] = torch.where(possible, best.values, torch.inf)
        late = torch.where(possible, torch.minimum(late, tried.late.amin(1)), late)
    if form_name in ("best", "linear"):
        errors[:, LINEAR] = _fit_line(model, windows, errors.amin(1) / late)
        if form_name == "linear":
            errors[:, LINEAR] = errors[:, LINEAR].nan_to_num(1.0, posinf=1.0)
    chosen = torch.tensor(
        [1 + PER_RATE * form.chosen for form in FORMS.values()] + [LINEAR_PENALTY]
    )
    penalised = (errors * chosen.double()).clamp(min=1e-9)
    relative = penalised / penalised.amin(1, keepdim=True)
    weights = torch.where(relative <= FARTHEST, relative.pow(-SHARPNESS), 0.0)
    model.weights.copy_(weights / weights.sum(1, keepdim=True))
    model.errors.copy_(errors)


def _backtest(windows: Windows, season: int) -> Backtest:
    """Moments from the first third on, or from two seasons on in a short series, to the last row but one."""
    whole = windows.whole(most=max(rows_read(season), windows.history))
    observed = whole.require("source").scored
    order, total = observed.long().cumsum(1), observed.sum(1)
    least = torch.maximum(total // 3, (total // 2).clamp(max=2 * season))
    least = torch.minimum(least, total - windows.horizon).clamp(min=2)
    counted = torch.cat(
        [torch.zeros(len(observed), 1, dtype=torch.bool), order[:, :-1] >= least[:, None]], 1
    )
    moments = counted.any(0).nonzero()[:, 0].tolist()
    most = min(MOMENTS, max(10, FORECASTS // len(observed)))
    if len(moments) > most:
        moments = [moments[int(place)] for place in np.linspace(0, len(moments) - 1, most)]
    late = _late(windows) - windows.end + observed.shape[1]
    return Backtest(whole, tuple(moments), counted, late)


def _late(windows: Windows) -> int:
    """The row from which on the linear map is tested on what it has not learnt from."""
    return windows.end - max(2 * windows.horizon, windows.end // 3)


def _positive(model: SmoothingForecaster, batch: Batch) -> Bool[Tensor, " C"]:
    """Whether all values of a variable are above zero, so that something may multiply them."""
    source = batch.require("source")
    values = source.values.double() + model.shifts(batch)[:, None]
    return torch.where(source.scored, values, torch.inf).amin(1) > 0


def _errors(model: SmoothingForecaster, name: str, backtest: Backtest) -> Errors:
    """One filter for each variable and choice of rates reads the whole series, and is asked on its way."""
    tried = torch.tensor(FORMS[name].rates, dtype=torch.float64)
    places = torch.arange(len(backtest.batch))
    parts = [
        _errors_of(model, name, backtest, some, tried)
        for some in places.split(max(1, ROWS // len(tried)))
    ]
    whole, late = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return Errors(whole, late)


def _errors_of(
    model: SmoothingForecaster,
    name: str,
    backtest: Backtest,
    rows: Int[Tensor, " R"],
    tried: Float[Tensor, "G 4"],
) -> Errors:
    form, count = FORMS[name], len(tried)
    some = backtest.batch.rows_at(rows.tolist())
    source = some.require("source")
    values, observed = source.values.double() + model.shifts(some)[:, None], source.scored
    many, there = values.repeat_interleave(count, 0), observed.repeat_interleave(count, 0)
    rates = tried.repeat(len(rows), 1)
    begin = model.start(name, many, there, rates)
    moments, length = set(backtest.moments), values.shape[1]
    sums = torch.zeros(2, len(rows), count, dtype=torch.float64)
    counts = torch.zeros(2, len(rows), 1, dtype=torch.float64)
    for row, state in enumerate(
        smoothing.states(many, there, rates, begin, ratio=form.ratio), start=1
    ):
        if row not in moments or row == length:
            continue
        steps = min(model.horizon, length - row)
        means = smoothing.ahead(state, rates, steps, row=row, ratio=form.ratio).unflatten(
            0, (len(rows), count)
        )
        judged = observed[:, row : row + steps] & backtest.counted[rows, row][:, None]
        apart = (means - values[:, None, row : row + steps]).abs()
        apart = torch.where(judged[:, None], apart, 0.0).sum(2)
        for part in range(1 + (row >= backtest.late)):
            sums[part] += apart
            counts[part] += judged.sum(1, keepdim=True)
    whole, late = (sums / counts.clamp(min=1)).nan_to_num(torch.inf, torch.inf)
    return Errors(
        torch.where(counts[0] > 0, whole, torch.inf), torch.where(counts[1] > 0, late, torch.inf)
    )


def _fit_line(
    model: SmoothingForecaster, windows: Windows, scale: Float[Tensor, " C"]
) -> Float[Tensor, " C"]:
    """Learn the linear map; its error is that of the late moments, in the scale of the errors of the other forms."""
    season, horizon, end, late = model.season, windows.horizon, windows.end, _late(windows)
    none = torch.full_like(scale, torch.inf)
    best, errors = torch.inf, none
    for length in (max(6, season), longest_line(season)):
        length = min(length, (end - horizon) // 3)
        early = _windows(windows, length, length, late)
        if length < 1 or early.num_origins < 5:
            continue
        test = list(_pairs(_windows(windows, length, late, end, open_end=True)))
        for ridge in RIDGES:
            line = LinearForecast.fit(_complete(early), ridge=ridge)
            tested = _line_errors(line, test, windows.num_variables)
            mean = float(tested[tested.isfinite()].mean()) if tested.isfinite().any() else torch.inf
            if mean < best:
                best, errors, chosen = mean, tested, (length, ridge)
    if best == torch.inf:
        return none
    length, ridge = chosen
    weights = LinearForecast.fit(
        _complete(_windows(windows, length, length, end)), ridge=ridge
    ).weights
    model.line.zero_()
    model.line[-length - 1 :] = torch.from_numpy(weights)
    scaled = errors * scale
    return torch.where(scaled.isfinite(), scaled, torch.inf)


def _windows(
    windows: Windows, length: int, begin: int, end: int, *, open_end: bool = False
) -> Windows:
    """Windows of another length over other rows; with an open end, also those whose last steps are not known."""
    table, count = windows.table[:end, : windows.num_variables], windows.num_variables
    if open_end:
        table = np.concatenate(
            [table, np.full((windows.horizon - 1, count), np.nan, dtype=np.float32)]
        )
        end += windows.horizon - 1
    return Windows(table, count, look_back=length, horizon=windows.horizon, begin=begin, end=end)


def _pairs(windows: Windows) -> Iterator[tuple[Int[np.ndarray, " B"], Window]]:
    """The variable, the past and the future of some windows, and which of the future was observed."""
    for rows in windows.in_order(budget=10**6, most=max(1, LINEAR_ON // windows.num_variables)):
        batch = windows.batch(rows)
        past, target = batch.require("source"), batch.require("target")
        filled = last_seen(past.values.double(), past.scored).numpy()
        yield (
            rows % windows.num_variables,
            (filled, target.values.double().numpy(), target.scored.numpy()),
        )


def _complete(windows: Windows) -> Iterator[Window]:
    return (pair for _, pair in _pairs(windows))


def _line_errors(
    line: LinearForecast, test: list[tuple[Int[np.ndarray, " B"], Window]], count: int
) -> Float[Tensor, " C"]:
    """The mean absolute error for each variable."""
    sums, counts = np.zeros(count), np.zeros(count)
    for variables, (past, future, observed) in test:
        np.add.at(sums, variables, np.where(observed, np.abs(line(past) - future), 0.0).sum(1))
        np.add.at(counts, variables, observed.sum(1))
    return torch.from_numpy(np.where(counts > 0, sums / np.maximum(counts, 1), np.inf))


def _deviations(model: SmoothingForecaster, batch: Batch) -> Float[Tensor, "C K"]:
    """The root mean square error at each step ahead."""
    variables, target = batch.rows % len(model.shift), batch.require("target")
    apart = model.means(batch) - target.values.double()
    squares = torch.where(target.scored, apart.square(), 0.0)
    sums = torch.zeros(len(model.shift), model.horizon, dtype=torch.float64).index_add(
        0, variables, squares
    )
    counts = torch.zeros_like(sums).index_add(0, variables, target.scored.double())
    return (sums / counts.clamp(min=1)).sqrt().float()
