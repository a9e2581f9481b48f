"""Prepare a time series for forecasting: scale it, store it, and split it into parts by time."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from seqlab.codecs.codec import Codec, Files, Nothing
from seqlab.codecs.series import SeriesSource, series_of
from seqlab.corpus.examples import Corpus, ExampleBatches
from seqlab.data.series_files import read_series
from seqlab.data.time_series import Series, usual_season, with_columns
from seqlab.data.windows import Windows
from seqlab.errors import DataError, UsageError, warn
from seqlab.metrics.forecasts import seasonal_error
from seqlab.models.exponential_smoothing import max_history
from seqlab.recipe import Recipe

STORE = "series.npy"
PARTS = ("train", "validation", "test")
MANY = 10  # series, of which some may be left out with a warning


def prepare_series(
    recipe: Recipe, paths: Files, valid: Files, folder: Path, old: Codec | None
) -> Codec:
    """Read the table, learn its scale from the training part, and store it."""
    if len(paths) != 1 or valid:
        raise UsageError(
            "a forecaster learns from one file, and is validated on the last part of it",
            hint="give one file; data.validation and data.test are the shares that are held out.",
        )
    series = read_table(recipe, paths[0])
    bounds = _bounds(recipe, len(series), series.where)
    series = _drop_late_series(recipe, series, bounds["train"][1])
    source = _learn(recipe, series, bounds["train"][1])
    np.save(folder / STORE, source.table(series))
    return Codec(source, Nothing())


def open_series(recipe: Recipe, codec: Codec, folder: Path) -> Corpus:
    """Open the store of `prepare_series` as batches of windows."""
    parts = open_windows(recipe, series_of(codec), folder)
    budget = recipe.train.batch_tokens
    validation = parts["validation"]
    most = max(1, recipe.data.max_validation // validation.num_variables)
    return Corpus(
        codec,
        ExampleBatches(parts["train"], budget=budget, seed=recipe.train.seed),
        lambda: (validation.batch(rows) for rows in validation.in_order(budget=budget, most=most)),
        {f"{name}_windows": len(part) for name, part in parts.items()},
    )


def read_table(recipe: Recipe, path: str) -> Series:
    """Read the columns of a recipe: first those to be forecast, then those known in advance."""
    data = recipe.data
    known = _names(data.known)
    columns = _names(data.columns)
    read = partial(read_series, path, time=data.time, ids=data.id, encoding=data.encoding)
    if known and not columns:
        known = list(read(columns=known).columns)  # replaces numbers by names
        columns = [name for name in read().columns if name not in known]
    series = read(columns=[*columns, *known])
    repeated = [name for name in series.columns if series.columns.count(name) > 1]
    if repeated:
        raise UsageError(
            f"column '{repeated[0]}' is requested twice",
            hint="a column belongs in data.columns or in data.known, once.",
        )
    if data.rows is not None and data.rows > len(series):
        raise DataError(
            f"{series.where}: {len(series):,} rows, but data.rows is {data.rows:,}",
            hint="lower data.rows.",
        )
    return replace(series, times=series.times[: data.rows], values=series.values[: data.rows])


def open_windows(recipe: Recipe, source: SeriesSource, folder: Path) -> dict[str, Windows]:
    """Return the windows of each part of a stored series; those held out look back into earlier parts."""
    path = folder / STORE
    try:
        table = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: the stored series cannot be read: {error}", hint="train again."
        ) from None
    bounds = _bounds(recipe, len(table), str(path))
    return {
        name: windows_over(recipe, source, table, begin=begin, end=end)
        for name, (begin, end) in bounds.items()
        if end > begin
    }


def windows_over(
    recipe: Recipe, source: SeriesSource, table: Float[np.ndarray, "T F"], *, begin: int, end: int
) -> Windows:
    """Return the windows of a table whose horizon is within rows `begin` to `end`.

    A network reads whole windows; exponential smoothing reads a long history, or as much of it as there is.
    """
    look_back, horizon = recipe.forecast.look_back, recipe.forecast.horizon
    least = look_back
    if recipe.model.smoothing is not None:
        least = max(2, min(look_back, end - 2 * horizon, max(end // 3, 2 * source.season)))
    first = max(begin, least)
    smooths = recipe.model.smoothing is not None or recipe.forecast.smoothing
    return Windows(
        table,
        len(source.columns),
        look_back=look_back,
        horizon=horizon,
        begin=first,
        end=end,
        history=max_history(source.season) if smooths else 0,
    )


def _bounds(recipe: Recipe, length: int, where: str) -> dict[str, tuple[int, int]]:
    """Return the first and the last row of each part; refuse a part that is too short for a window."""
    data, forecast = recipe.data, recipe.forecast
    test, validation = round(length * data.test), round(length * data.validation)
    ends = (length - test - validation, length - test, length)
    look_back = (
        forecast.look_back
        if recipe.model.smoothing is None
        else min(forecast.look_back, ends[0] // 2)
    )
    needs = (look_back + forecast.horizon, forecast.horizon, forecast.horizon if data.test else 0)
    bounds = dict(zip(PARTS, zip((0, *ends), ends, strict=False), strict=True))
    for (name, (begin, end)), need in zip(bounds.items(), needs, strict=True):
        if end - begin < need:
            raise DataError(
                f"{where}: {length:,} rows leave {end - begin:,} for the {name} part, which needs {need:,} "
                f"(look-back {forecast.look_back}, horizon {forecast.horizon})",
                hint="lower forecast.look_back or forecast.horizon, or change data.validation and data.test.",
            )
    return bounds


def _drop_late_series(recipe: Recipe, series: Series, end: int) -> Series:
    """If there are many series, drop the few that have no observation in the training part."""
    count = len(series.columns) - len(_names(recipe.data.known))
    late = np.flatnonzero(np.isnan(series.values[:end, :count]).all(axis=0))
    if not late.size or count < MANY or 2 * late.size > count:
        return series
    verb, be = ("series has", "is") if late.size == 1 else ("series have", "are")
    names = ", ".join(series.columns[place] for place in late[:5]) + (
        ", ..." if late.size > 5 else ""
    )
    warn(
        f"{series.where}: {late.size} {verb} no observation in the training part and {be} left out: {names}"
    )
    return with_columns(
        series, [name for place, name in enumerate(series.columns) if place not in late]
    )


def _learn(recipe: Recipe, series: Series, end: int) -> SeriesSource:
    count = len(series.columns) - len(_names(recipe.data.known))
    train = series.values[:end]
    for place, name in enumerate(series.columns):
        if np.isnan(train[:, place]).all():
            raise DataError(
                f"{series.where}: column '{name}' has no observation in the training part (the first {end:,} rows)",
                hint="leave it out: data.columns names the columns to read.",
            )
    with np.errstate(over="ignore"):
        mean, deviation = np.nanmean(train, axis=0), np.nanstd(train, axis=0)
    for place, name in enumerate(series.columns):
        if not np.isfinite(deviation[place]):
            raise DataError(
                f"{series.where}: column '{name}' holds numbers too large to add up",
                hint="rescale it.",
            )
        if deviation[place] <= 1e-9 * max(1e-300, float(np.abs(mean[place]))):
            warn(
                f"{series.where}: column '{name}' is constant in the training part: there is nothing to learn"
            )
            deviation[place] = 1.0
    season = recipe.forecast.season or usual_season(series.times)
    scaled = (train[:, :count] - mean[:count]) / deviation[:count]
    return SeriesSource(
        columns=series.columns[:count],
        known=series.columns[count:],
        mean=tuple(mean.tolist()),
        deviation=tuple(deviation.tolist()),
        naive=tuple(seasonal_error(scaled, season).tolist()),
        season=season,
        calendar=recipe.data.calendar,
        time=recipe.data.time,
        ids=recipe.data.id,
        encoding=recipe.data.encoding,
    )


def _names(columns: str | None) -> list[str]:
    return [name.strip() for name in columns.split(",")] if columns else []
