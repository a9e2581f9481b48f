"""Numbers over time: a table with a time column, one or several variables, and gaps where nothing was observed.

A gap is inside the series: time passes and nothing is seen. It is NaN here and a mask everywhere else. A time stamp
that is missing becomes a row of gaps. Many series in one file, one a row or told apart by a
column, become columns side by side. What is not a number or not finite is refused, with its row and column.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from seqlab.data.columns import IDS, MISSING, Numerals, Profile, find_numerals
from seqlab.data.panel import (
    Cells,
    id_columns,
    is_one_a_row,
    read_cells,
    side_by_side,
    times_of_columns,
    values_begin,
)
from seqlab.data.times import TimeStep, grid, moment_of, read_times, step_of, written
from seqlab.errors import DataError, UsageError, nearest, shorten, warn

TIMES = (
    "date",
    "time",
    "datetime",
    "timestamp",
    "month",
    "day",
    "ds",
    "year",
    "quarter",
    "week",
    "period",
    "ts",
    "epoch",
    "unix",
    "unixtime",
)
_MOST_TOTALS = 2  # rows below a table that sum it up
_LOOKED_AT = 1000  # cells that show what a column holds
PARTS = ("year", "month", "day", "hour", "minute")


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
    when = _time_columns(cells, time)
    cells = _without_totals(cells, when)
    times = _read_times(cells, when)
    apart = _id_columns(cells, ids, when, times)
    chosen = (
        [] if apart and not set(columns) <= set(cells.names) else columns
    )  # else they are names of series
    places = [_column(cells.names, name) for name in chosen] or _numeric_columns(
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
    for number, row in zip(cells.numbers, cells.rows, strict=True):
        texts = [cell.strip() for cell in row[first:]]
        numbers = _numbers(texts, "", [f"{cells.where}:{number}"] * len(texts))
        while not times and numbers and math.isnan(numbers[-1]):
            numbers.pop()
        labels += [row[0].strip() or str(number)] * len(numbers)
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


def _time_columns(cells: Cells, time: str | None) -> list[int]:
    if time is not None:
        return [_column(cells.names, name.strip()) for name in time.split(",")]
    lower = [name.lower() for name in cells.names]
    if "year" in lower and "month" in lower:  # each part of a date in a column of its own
        parts = [lower.index(part) for part in PARTS if part in lower]
        if all(cell.isdecimal() for part in parts for cell in cells.column(part)[:20]):
            return parts
    named = [place for place, name in enumerate(lower) if name in TIMES]
    dates = [
        place
        for place in range(len(lower))
        if read_times(cells.column(place)[:20], numbers=False) is not None
    ]
    both = [place for place in named if place in dates]
    return (
        both
        or named
        or [place for place in dates if read_times(cells.column(place), numbers=False)]
    )[:1]


def _without_totals(cells: Cells, when: Sequence[int]) -> Cells:
    """The table without the last rows if they have no time, such as "Total", and all others have one."""
    texts = [" ".join(row[place].strip() for place in when) for row in cells.rows]
    if not when or len(texts) <= _MOST_TOTALS + 1 or read_times(texts[-1:]) is not None:
        return cells
    for count in range(1, _MOST_TOTALS + 1):
        if read_times(texts[:-count]) is not None:
            what = f"{shorten(texts[-count])} is not a time, so the row is left out"
            warn(f"{cells.where}:{cells.numbers[-count]}: {what}")
            return replace(cells, numbers=cells.numbers[:-count], rows=cells.rows[:-count])
    return cells


def _read_times(cells: Cells, when: Sequence[int]) -> list[str]:
    """The time of each row; nothing where no column holds times."""
    if not when:
        return []
    texts = [" ".join(row[place].strip() for place in when) for row in cells.rows]
    times = read_times(texts)
    if times is not None:
        return times
    first = read_times(texts[:1]) is not None
    for number, text in zip(cells.numbers, texts, strict=True):
        if read_times([texts[0], text] if first else [text]) is None:
            like = " like the others" if first else ""
            raise DataError(
                f"{cells.where}:{number}: {shorten(text)} is not a time{like}",
                hint="write times as 2024-05-31, 2024-05-31 23:00 or 2024-05, or name their columns with data.time.",
            )
    raise DataError(
        f"{cells.where}: column '{cells.names[when[0]]}' holds times in several forms, such as {shorten(texts[0])}",
        hint="write all of them in one form, such as 2024-05-31.",
    )


def _id_columns(
    cells: Cells, ids: str | None, when: Sequence[int], times: Sequence[str]
) -> list[int]:
    """The columns that tell series apart: those asked for, else those with which no moment is there twice."""
    if ids is not None:
        return [_column(cells.names, name.strip()) for name in ids.split(",")]
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
        column = [cell for cell in some if cell.lower() not in MISSING]
        numerals = find_numerals(column, cells.delimiter)
        numeric = sum(numerals.number(cell) is not None for cell in column)
        if column and 2 * numeric < len(column):
            aside.append(f"'{name}' (text such as {shorten(column[0], 20)})")
        elif (
            name.lower() in ("", *IDS)
            and len(set(column)) == len(column)
            and len(cells.names) > 1 + len(others)
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


def _column_numbers(cells: Cells, place: int) -> list[float]:
    places = (f"{cells.where}:{number}, column '{cells.names[place]}'" for number in cells.numbers)
    return _numbers(cells.column(place), cells.delimiter, places)


def _numbers(texts: Sequence[str], delimiter: str, places: Iterable[str]) -> list[float]:
    """Numbers as they are written all in one way, NaN where none is; `places` are what messages call the cells."""
    with suppress(ValueError):  # the usual form, and no gaps
        values = np.asarray(texts).astype(np.float64)
        if np.isfinite(values).all():
            return values.tolist()
    numerals = find_numerals(texts, delimiter)
    return [_number(text, numerals, place) for text, place in zip(texts, places, strict=True)]


def _number(text: str, numerals: Numerals, where: str) -> float:
    if text.lower() in MISSING:
        return math.nan
    value = numerals.number(text)
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


def with_columns(series: Series, columns: Sequence[str]) -> Series:
    """Only the series of these names, in this order."""
    if not columns:
        return series
    places = [_column(list(series.columns), name) for name in columns]
    return replace(
        series, columns=tuple(series.columns[p] for p in places), values=series.values[:, places]
    )


def _checked(series: Series) -> Series:
    for place, name in enumerate(series.columns):
        if np.isnan(series.values[:, place]).all():
            message = f"{series.where}: column '{name}' has no observation at all"
            raise DataError(message, hint="leave it out: data.columns names those to read.")
    return series


def _column(header: Sequence[str], name: str) -> int:
    if name in header:
        return list(header).index(name)
    if name.isdecimal() and 1 <= int(name) <= len(header):
        return int(name) - 1
    raise UsageError(f"there is no column '{name}'", hint=nearest(name, header))
