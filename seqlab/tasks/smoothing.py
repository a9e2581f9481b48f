"""Exponential smoothing of a recipe: built, and its forms weighed by a backtest of the training part."""

from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seqlab.codecs.codec import Codec
from seqlab.codecs.series import series_of
from seqlab.corpus.examples import Corpus, ExampleBatches
from seqlab.data.windows import Windows
from seqlab.models.smoothing import FORMS, SmoothingForecaster
from seqlab.padded import Batch
from seqlab.recipe import Recipe
from seqlab.training.average import parameters_of
from seqlab.training.counting import CountingLearner
from seqlab.training.run import Learner

WINDOWS = 4_000  # of all variables, that are forecast with each choice of rates
MOMENTS = 200  # of one variable; those of a short series overlap anyway
ROWS = 100_000  # windows times choices that are computed together
PER_RATE = 0.02  # how much smaller the error must be for each rate that a form chooses
FARTHEST = 1.3  # times the smallest error: a form beyond that has no say
SHARPNESS = 4.0  # how much more a form with a smaller error weighs
CHOSEN = {"drift": 1, "level": 1, "trend": 2, "damped": 3, "additive": 2, "multiplicative": 2}
CHOSEN |= {"additive-trend": 3, "multiplicative-trend": 3}


def smoothing_forecaster(recipe: Recipe, codec: Codec) -> nn.Module:
    """A forecaster that repeats the mean."""
    settings, source = recipe.forecast, series_of(codec)
    return SmoothingForecaster(
        len(source.columns), season=source.season, horizon=settings.horizon, level=settings.level
    )


def smoothing_learner(wanted: str, model: nn.Module, corpus: Corpus) -> Learner:
    """Every form with every choice of its rates forecasts from moments of the training part; the best ones are kept."""
    forecaster, source = cast(SmoothingForecaster, model), series_of(corpus.codec)
    windows = cast(Windows, cast(ExampleBatches, corpus.train).rows)
    count = windows.num_variables
    moments = min(windows.num_origins, MOMENTS, max(20, WINDOWS // count))
    (rows,) = windows.in_order(budget=moments * count * (windows.look_back + windows.horizon), most=moments)
    batch = windows.batch(rows)
    scale = zip(source.mean[:count], source.deviation[:count], strict=True)
    with torch.no_grad():
        forecaster.shift.copy_(torch.tensor([mean / deviation for mean, deviation in scale], dtype=torch.float64))
    positive = _positive(forecaster, batch)
    errors = torch.full((count, len(FORMS)), torch.inf, dtype=torch.float64)
    rates = torch.zeros(count, len(FORMS), 4, dtype=torch.float64)
    for number, name in enumerate(FORMS):
        if name == wanted or (wanted == "best" and _fits(name, source.season, min(windows.begin, windows.look_back))):
            error = _errors(forecaster, name, batch)  # C G
            best = error.min(1)
            tried = torch.tensor(FORMS[name].rates, dtype=torch.float64)
            errors[:, number], rates[:, number] = best.values, tried[best.indices]
            if FORMS[name].ratio and wanted == "best":
                errors[:, number].masked_fill_(~positive, torch.inf)
    penalty = torch.tensor([1 + PER_RATE * CHOSEN.get(name, 0) for name in FORMS], dtype=torch.float64)
    relative = errors * penalty / (errors * penalty).amin(1, keepdim=True).clamp(min=1e-9)
    weights = torch.where(relative <= FARTHEST, relative.pow(-SHARPNESS), 0.0)
    with torch.no_grad():
        forecaster.weights.copy_(weights / weights.sum(1, keepdim=True))
        forecaster.rates.copy_(rates)
        forecaster.errors.copy_(errors)
        forecaster.deviations.copy_(_deviations(forecaster, batch))
    return CountingLearner(model, parameters_of(model), by="backtesting")


def _fits(name: str, season: int, look_back: int) -> bool:
    """A season needs room in the window: twice, where its mean is taken."""
    form = FORMS[name]
    return not form.seasonal or (season > 1 and look_back >= (2 if form.starts else 1) * season)


def _positive(model: SmoothingForecaster, batch: Batch) -> Bool[Tensor, " C"]:
    """Whether all values of a variable are above zero, so that something may multiply them."""
    source, variables = batch.require("source"), batch.rows % len(model.shift)
    values = source.values.double() + model.shift[variables][:, None]
    least = torch.where(source.scored, values, torch.inf).amin(1)
    lowest = torch.full_like(model.shift, torch.inf).scatter_reduce(0, variables, least, "amin")
    return lowest > 0


def _errors(model: SmoothingForecaster, name: str, batch: Batch) -> Float[Tensor, "C G"]:
    """The mean absolute error of each choice of rates, for each variable."""
    tried = torch.tensor(FORMS[name].rates, dtype=torch.float64)
    variables, found = batch.rows % len(model.shift), []
    for some in tried.split(max(1, ROWS // len(batch))):
        places = torch.arange(len(batch)).repeat(len(some)).tolist()
        many = batch.rows_at(places)
        apart, seen = _apart(model.ahead(name, many, some.repeat_interleave(len(batch), 0)), many)
        for part, there in zip(apart.abs().split(len(batch)), seen.split(len(batch)), strict=True):
            found.append(_by_variable(part.sum(1), there.sum(1), variables, len(model.shift)))
    return torch.stack(found, 1)


def _deviations(model: SmoothingForecaster, batch: Batch) -> Float[Tensor, "C K"]:
    """The root mean square error at each step ahead."""
    variables = batch.rows % len(model.shift)
    apart, seen = _apart(model.distribution(batch)[..., 0].double(), batch)
    columns = zip(apart.square().unbind(1), seen.unbind(1), strict=True)
    return torch.stack([_by_variable(a, s.long(), variables, len(model.shift)) for a, s in columns], 1).sqrt().float()


def _apart(means: Float[Tensor, "B K"], batch: Batch) -> tuple[Float[Tensor, "B K"], Bool[Tensor, "B K"]]:
    target = batch.require("target")
    return torch.where(target.scored, means - target.values.double(), 0.0), target.scored


def _by_variable(sums: Tensor, counts: Tensor, variables: Tensor, count: int) -> Float[Tensor, " C"]:
    total = torch.zeros(count, dtype=torch.float64).index_add(0, variables, sums)
    return total / torch.zeros(count, dtype=torch.float64).index_add(0, variables, counts.double()).clamp(min=1)
