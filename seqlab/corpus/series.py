"""The user's table of numbers, prepared for forecasting: brought to one scale, stored, and cut into parts by time."""

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
from seqlab.models.exponential_smoothing import rows_read
from seqlab.recipe import Recipe

STORE = "series.npy"
PARTS = ("train", "validation", "test")
MANY = 10  # series, of which one may be left out without a word from the user


def prepare_series(
    recipe: Recipe, paths: Files, valid: Files, folder: Path, old: Codec | None
) -> Codec:
    """Read the table, learn its scale from the training part, and store it."""
    if len(paths) != 1 or valid:
        raise UsageError(
            "a forecaster learns from one file, and is validated on the last part of it",
            hint="give one file; data.validation and data.test say how much of it is held out.",
        )
    series = read_table(recipe, paths[0])
    bounds = _bounds(recipe, len(series), series.where)
    series = _begun(recipe, series, bounds["train"][1])
    source = _learn(recipe, series, bounds["train"][1])
    np.save(folder / STORE, source.table(series))
    return Codec(source, Nothing())


def open_series(recipe: Recipe, codec: Codec, folder: Path) -> Corpus:
    """What `prepare_series` has stored, as batches of windows."""
    parts, budget = open_windows(recipe, series_of(codec), folder), recipe.train.batch_tokens
    validation = parts["validation"]
    most = max(1, recipe.data.max_validation // validation.num_variables)
    return Corpus(
        codec,
        ExampleBatches(parts["train"], budget=budget, seed=recipe.train.seed),
        lambda: (validation.batch(rows) for rows in validation.in_order(budget=budget, most=most)),
        {f"{name}_windows": len(part) for name, part in parts.items()},
    )


def read_table(recipe: Recipe, path: str) -> Series:
    """The columns that a recipe asks for, first those to be forecast, then those that are known."""
    data = recipe.data
    in_advance = _names(data.known)
    columns = _names(data.columns)
    read = partial(read_series, path, time=data.time, ids=data.id, encoding=data.encoding)
    if in_advance and not columns:
        in_advance = list(read(columns=in_advance).columns)  # a number becomes a name
        columns = [name for name in read().columns if name not in in_advance]
    series = read(columns=[*columns, *in_advance])
    repeated = [name for name in series.columns if series.columns.count(name) > 1]
    if repeated:
        raise UsageError(
            f"column '{repeated[0]}' is asked for twice",
            hint="data.columns and data.known share no column.",
        )
    if data.rows is not None and data.rows > len(series):
        raise DataError(
            f"{series.where}: {len(series):,} rows, where data.rows asks for {data.rows:,}",
            hint="lower data.rows.",
        )
    return replace(series, times=series.times[: data.rows], values=series.values[: data.rows])


def open_windows(recipe: Recipe, source: SeriesSource, folder: Path) -> dict[str, Windows]:
    """The windows of each part of a stored series; those held out look back into what comes before them."""
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
    """The windows of a table whose horizon lies between two of its rows.

    A network reads whole windows; exponential smoothing reads a long history, or what there is of it.
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
        history=rows_read(source.season) if smooths else 0,
    )


def _bounds(recipe: Recipe, length: int, where: str) -> dict[str, tuple[int, int]]:
    """From which row to which each part goes; each must have room for what it is to show."""
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


def _begun(recipe: Recipe, series: Series, end: int) -> Series:
    """Of many series those that have begun in the training part; where most have not, nothing can be learnt."""
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
                hint="leave it out: data.columns names those to read.",
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
                f"{series.where}: column '{name}' never changes in the training part: there is nothing to learn"
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
