"""Numbers over time: a table with a time column, one or several variables, and gaps where nothing was observed.

A gap is inside the series: time passes and nothing is seen. It is NaN here and a mask everywhere else. A time stamp
that is missing becomes a row of gaps. Many series in one file, one a row or told apart by a
column, become columns side by side. What is not a number or not finite is refused, with its row and column.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from seqlab.data.columns import IDS, MISSING, Numerals, Profile, find_numerals, is_missing
from seqlab.data.panel import (
    Cells,
    id_columns,
    is_one_a_row,
    names_of_rows,
    read_cells,
    side_by_side,
    times_of_columns,
    values_begin,
)
from seqlab.data.time_columns import (
    EVEN_STEPS,
    column_named,
    time_columns,
    times_of_rows,
    without_month_columns,
    without_totals,
)
from seqlab.data.times import TimeStep, grid, moment_of, step_of, written
from seqlab.errors import DataError, shorten, warn

_LOOKED_AT = 1000  # cells that show what a column holds
_FEW = 0.01  # the share of moments that may be there twice
_NINES = re.compile(r"-?9{2,}(\.9+)?$")  # what many write where nothing was observed


@dataclass(frozen=True)
class Series:
    """Variables over time, NaN where nothing was observed; `times` in the form of `read_times`."""

    where: str
    columns: tuple[str, ...]
    times: tuple[str, ...]
    values: Float[np.ndarray, "T C"]

    def __len__(self) -> int:
        return len(self.values)


def read_series(
    path: str,
    *,
    time: str | None = None,
    columns: Sequence[str] = (),
    ids: str | None = None,
    encoding: str | None = None,
) -> Series:
    """The columns of a table as one series; without names, all that hold numbers but the time.

    `time` names the column that says when, or several of them with commas between (year,month,day,hour); without it
    the column that holds times is taken, and where there is none the rows are equally far apart. `ids` names the column
    that tells several series apart. Each of them is a column of the result, and so is each row of a table that has a
    series in each row.
    """
    cells = read_cells(path, encoding)
    if ids is None and time is None and is_one_a_row(cells.names, cells.rows):
        return _checked(with_columns(_one_a_row(cells), columns))
    if time is None:
        cells = without_month_columns(cells)
    when = time_columns(cells, time)
    cells = without_totals(cells, when)
    times = times_of_rows(cells, when)
    apart = _id_columns(cells, ids, when, times)
    chosen = (
        [] if apart and not set(columns) <= set(cells.names) else columns
    )  # else they are names of series
    places = [column_named(cells.names, name) for name in chosen] or _numeric_columns(
        cells, [*when, *apart]
    )
    names = [cells.names[place] for place in places]
    values = np.asarray([_column_numbers(cells, place) for place in places]).T.reshape(
        -1, len(places)
    )
    if apart:
        labels = ["/".join(row[place].strip() for place in apart) for row in cells.rows]
        series = Series(
            cells.where, *side_by_side(labels, times, names, values, cells.where, cells.numbers)
        )
        series = series if chosen else with_columns(series, columns)
    else:
        stamps = times or [str(row) for row in range(len(values))]
        series = Series(cells.where, tuple(names), tuple(stamps), values)
    return _checked(_regular(series, cells.numbers if not apart else []) if times else series)


def _one_a_row(cells: Cells) -> Series:
    """A series from each row; those without moments all end in the last row."""
    first = values_begin(cells.names, cells.rows)
    times = times_of_columns(cells.names[first:])
    labels, stamps, values, lines = list[str](), list[str](), list[float](), list[int]()
    names = names_of_rows(cells.rows, first)
    for number, row, name in zip(cells.numbers, cells.rows, names, strict=True):
        texts = [cell.strip() for cell in row[first:]]
        numbers = _numbers(texts, "", [f"{cells.where}:{number}"] * len(texts), cells.where)
        while not times and numbers and math.isnan(numbers[-1]):
            numbers.pop()
        labels += [name or str(number)] * len(numbers)
        stamps += times[: len(numbers)]
        values += numbers
        lines += [number] * len(numbers)
    table = np.asarray(values).reshape(-1, 1)
    return Series(cells.where, *side_by_side(labels, stamps, ["value"], table, cells.where, lines))


def frequency_of(series: Series) -> str:
    """How far apart the rows are, as people call it."""
    step = step_of([moment_of(time) for time in series.times])
    return "unknown" if step is None else step.frequency


def future_times(series: Series, horizon: int) -> list[str]:
    """When the next moments are, written as the series writes them."""
    times = series.times
    last, step = moment_of(times[-1]), _usual_step(times)
    if step is None or last is None:
        return [f"+{count}" for count in range(1, horizon + 1)]
    return [written(step.after(last, count), times[-1]) for count in range(1, horizon + 1)]


def usual_season(times: Sequence[str]) -> int:
    """How many steps a season has that suits the time stamps: a day, a week, a year; 1 where they tell of none."""
    step = _usual_step(times)
    return 1 if step is None else step.season


def _usual_step(times: Sequence[str]) -> TimeStep | None:
    return step_of([moment_of(time) for time in times[-50:]])


def _id_columns(
    cells: Cells, ids: str | None, when: Sequence[int], times: Sequence[str]
) -> list[int]:
    """The columns that tell series apart: those asked for, else those with which no moment is there twice."""
    if ids is not None:
        return [column_named(cells.names, name.strip()) for name in ids.split(",")]
    places = [place for place in range(len(cells.names)) if place not in when]
    profiles = {place: Profile(cells.names[place], tuple(cells.column(place))) for place in places}
    return id_columns(profiles, times)


def _numeric_columns(cells: Cells, others: Sequence[int]) -> list[int]:
    """The columns of numbers; those of text and those that only count the rows are set aside, with a warning."""
    chosen, aside = list[int](), list[str]()
    for place, name in enumerate(cells.names):
        if place in others:
            continue
        some = cells.column(place)[:: max(1, len(cells.rows) // _LOOKED_AT)]
        column = [cell for cell in some if not is_missing(cell)]
        numerals = find_numerals(column, cells.delimiter)
        numeric = sum(numerals.number(cell) is not None for cell in column)
        if column and 2 * numeric < len(column):
            aside.append(f"'{name}' (text such as {shorten(column[0], 20)})")
        elif len(cells.names) > 1 + len(others) and (
            (name.lower() in ("", *IDS) and len(set(column)) == len(column))
            or (place == 0 and _counts(cells.column(place)))
        ):
            aside.append(f"'{name}' (it counts the rows)")
        else:
            chosen.append(place)
    if not chosen:
        raise DataError(
            f"{cells.where}: no column holds numbers: {', '.join(aside)}",
            hint="a series has a column of times and columns of numbers.",
        )
    if aside:
        warn(
            f"{cells.where}: set aside: {', '.join(aside)} (--set data.columns=a,b names those to read)"
        )
    return chosen


def _counts(column: Sequence[str]) -> bool:
    """Whether a column only numbers the rows."""
    start = int(column[0]) if column[0].isdecimal() else -1
    return (
        start in (0, 1)
        and len(column) >= EVEN_STEPS
        and column == [str(start + n) for n in range(len(column))]
    )


def _column_numbers(cells: Cells, place: int) -> list[float]:
    places = (f"{cells.where}:{number}, column '{cells.names[place]}'" for number in cells.numbers)
    where = f"{cells.where}, column '{cells.names[place]}'"
    values = _numbers(cells.column(place), cells.delimiter, places, where)
    return _without_nines(values, where)


def _numbers(
    texts: Sequence[str], delimiter: str, places: Iterable[str], where: str
) -> list[float]:
    """Numbers as they are written all in one way, NaN where none is; `places` are what messages call the cells."""
    with suppress(ValueError):  # the usual form, and no gaps
        values = np.asarray(texts).astype(np.float64)
        if np.isfinite(values).all():
            return values.tolist()
    numerals = find_numerals(texts, delimiter)
    others = Counter(
        text for text in texts if not is_missing(text) and numerals.number(text) is None
    )
    marks = {
        text for text, count in others.items() if count > 1 and not any(map(str.isdigit, text))
    }
    if 10 * sum(others.values()) > len(texts):  # text among the numbers rather than marks
        marks = set()
    for mark in sorted(marks):
        warn(f"{where}: {shorten(mark)} is read as a missing value")
    return [
        math.nan if text in marks else _number(text, numerals, place)
        for text, place in zip(texts, places, strict=True)
    ]


def _without_nines(values: list[float], where: str) -> list[float]:
    """The values with NaN for one like 9999 or -99.9 that comes again and is far from all others."""
    counts = Counter(values)
    nines = [
        value for value, count in counts.items() if count > 1 and _NINES.match(f"{value:.10g}")
    ]
    for value in nines:
        rest = [
            abs(other) for other in counts if abs(other) != abs(value) and not math.isnan(other)
        ]
        if rest and 3 * max(rest) < abs(value):
            warn(f"{where}: {value:g} is read as a missing value, {counts[value]} times")
            values = [math.nan if each == value else each for each in values]
    return values


def _number(text: str, numerals: Numerals, where: str) -> float:
    if text.lower() in MISSING:
        return math.nan
    value = numerals.number(text)
    if value is None and is_missing(text):
        return math.nan
    if value is None:
        raise DataError(
            f"{where}: {shorten(text)} is not a number",
            hint="leave the column out (--set data.columns=a,b names those to read), or leave the cell empty.",
        )
    if math.isinf(value):
        raise DataError(f"{where}: infinity", hint="leave the cell empty where nothing is known.")
    return value


def _regular(series: Series, numbers: Sequence[int]) -> Series:
    """The rows in the order of time, each moment once, with a row of gaps for each moment that is missing."""
    series, numbers = _each_once(series, numbers)
    moments = [moment_of(time) or 0.0 for time in series.times]
    order = np.argsort(np.asarray(moments), kind="stable")
    if (np.diff(order) < 0).any():
        there = "the last is first" if (np.diff(order) < 0).all() else "they are not"
        warn(f"{series.where}: the rows are sorted by time; in the file {there}")
    for one, other in pairwise(order):
        if numbers and moments[one] == moments[other]:
            first, second = sorted((numbers[one], numbers[other]))
            raise DataError(
                f"{series.where}:{second}: {series.times[other]} is there twice, on line {first} too",
                hint="keep one of the two; a column that tells several series apart is named with --set data.id=NAME",
            )
    moments = [moments[place] for place in order]
    series = replace(
        series, times=tuple(series.times[place] for place in order), values=series.values[order]
    )
    step = step_of(moments)
    places = None if step is None else grid(moments, step)
    if step is None or places is None:
        if len(series) > 2:
            warn(
                f"{series.where}: the times follow no regular step; the rows are taken as equally far apart"
            )
        return series
    row_at = dict(zip(places.tolist(), range(len(series)), strict=True))
    empty = [place for place in range(places[-1] + 1) if place not in row_at]
    if not empty:
        return series
    stamps = [
        series.times[row_at[place]]
        if place in row_at
        else written(step.after(moments[0], place), series.times[0])
        for place in range(places[-1] + 1)
    ]
    values = np.full((len(stamps), len(series.columns)), np.nan)
    values[places] = series.values
    count = (
        f"{len(empty):,} time stamp{'s are' if len(empty) > 1 else ' is'} missing ({step.frequency}"
    )
    warn(
        f"{series.where}: {count}, the first is {stamps[empty[0]]}); filled in as rows without values"
    )
    return replace(series, times=tuple(stamps), values=values)


def _each_once(series: Series, numbers: Sequence[int]) -> tuple[Series, Sequence[int]]:
    """The series without rows that are there twice, and with the mean of those few that have the same time."""
    rows: dict[str, list[int]] = {}
    for place, time in enumerate(series.times):
        rows.setdefault(time, []).append(place)
    more = len(series) - len(rows)
    same = all(
        np.array_equal(series.values[p], series.values[one], equal_nan=True)
        for one, *rest in rows.values()
        for p in rest
    )
    if not more or not numbers or not (same or more <= _FEW * len(series)):
        return series, numbers
    time = next(time for time, places in rows.items() if len(places) > 1)
    what = "of equal rows one is kept" if same else "the mean of their values is taken"
    warn(
        f"{series.where}: {more} time stamp{'s are' if more > 1 else ' is'} there twice, as {time}; {what}"
    )
    values = np.stack([series.values[places].mean(axis=0) for places in rows.values()])
    return replace(series, times=tuple(rows), values=values), [
        numbers[places[0]] for places in rows.values()
    ]


def with_columns(series: Series, columns: Sequence[str]) -> Series:
    """Only the series of these names, in this order."""
    if not columns:
        return series
    places = [column_named(list(series.columns), name) for name in columns]
    return replace(
        series, columns=tuple(series.columns[p] for p in places), values=series.values[:, places]
    )


def _checked(series: Series) -> Series:
    for place, name in enumerate(series.columns):
        if np.isnan(series.values[:, place]).all():
            message = f"{series.where}: column '{name}' has no observation at all"
            raise DataError(message, hint="leave it out: data.columns names those to read.")
    return series
