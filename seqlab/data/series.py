"""Numbers over time: a table with a time column, one or several variables, and gaps where nothing was observed.

A gap is inside the series: time passes and nothing is seen. It is NaN here and a mask everywhere else; nothing is
filled in. What is not a number, not in order or not finite is refused, with its row and column.
"""

import csv
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from jaxtyping import Float

from seqlab.data.lines import display_name, extension, lines
from seqlab.data.parquet import open_parquet
from seqlab.errors import DataError, UsageError, nearest, shorten

MISSING = {"", "na", "nan", "n/a", "null", "none", "?", "-"}
TIMES = ("date", "time", "datetime", "timestamp", "month", "day", "ds", "year")  # names a time column may have
PARTS = ("year", "month", "day", "hour", "minute")
_MONTH = re.compile(r"(\d{4})-(\d{1,2})$")


@dataclass(frozen=True)
class Series:
    """Variables over time, NaN where nothing was observed; `times` as they were written."""

    where: str
    columns: tuple[str, ...]
    times: tuple[str, ...]
    values: Float[np.ndarray, "T C"]

    def __len__(self) -> int:
        return len(self.values)


def read_series(path: str, *, time: str | None = None, columns: Sequence[str] = ()) -> Series:
    """The columns of a table as one series; without names, all but the time.

    `time` names the column that says when, or several of them with commas between (year,month,day,hour); without it
    a column that is called like a time is taken, and where there is none the rows are equally far apart.
    """
    rows = _rows(path)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    if not header:
        raise DataError(f"{display_name(path)}: there is no header", hint="the first line names the columns.")
    when = _time_columns(header, time)
    chosen = [_column(header, name) for name in columns] or [i for i in range(len(header)) if i not in when]
    numbers, times, values = list[int](), list[str](), list[list[float]]()
    for number, cells in rows:
        where = f"{display_name(path)}:{number}"
        if len(cells) != len(header):
            raise DataError(f"{where}: {len(cells)} cells where the header has {len(header)}", hint="mend the line.")
        numbers.append(number)
        times.append(" ".join(cells[i].strip() for i in when) if when else str(len(times)))
        values.append([_number(cells[i], where, header[i]) for i in chosen])
    if not values:
        raise DataError(f"{display_name(path)}: there are no rows below the header", hint="give a file that has some.")
    series = Series(display_name(path), tuple(header[i] for i in chosen), tuple(times), np.asarray(values))
    if when:
        _check_order(series, numbers)
    for place, name in enumerate(series.columns):
        if np.isnan(series.values[:, place]).all():
            message = f"{series.where}: column '{name}' has no observation at all"
            raise DataError(message, hint="leave it out: data.columns names those to read.")
    return series


def future_times(series: Series, horizon: int) -> list[str]:
    """When the next moments are, written as the series writes them."""
    last, step = series.times[-1], _step(series.times)
    if step is None:
        return [f"+{i}" for i in range(1, horizon + 1)]
    if (month := _MONTH.match(last)) and isinstance(step, float):
        start = int(month[1]) * 12 + int(month[2]) - 1
        months = [start + int(step) * i for i in range(1, horizon + 1)]
        return [f"{m // 12:04d}-{m % 12 + 1:02d}" for m in months]
    moment = _moment(last)
    if isinstance(step, timedelta) and isinstance(moment, datetime):
        following = [moment + step * i for i in range(1, horizon + 1)]
        whole = step % timedelta(days=1) == timedelta(0) and ":" not in last
        return [t.date().isoformat() if whole else t.isoformat(sep=" ") for t in following]
    assert isinstance(moment, float)
    assert isinstance(step, float)
    return [f"{moment + step * i:g}" for i in range(1, horizon + 1)]


def usual_season(times: Sequence[str]) -> int:
    """How many steps a season has that suits the time stamps: a day, a week, a year; 1 where they tell of none."""
    step = _step(times)
    if isinstance(step, timedelta) and step > timedelta(0):
        cycles = (timedelta(days=1), timedelta(days=7), timedelta(days=364))
        return next((round(cycle / step) for cycle in cycles if cycle / step >= 2), 1)
    months = isinstance(step, float) and all(_MONTH.match(time) for time in times[-2:])
    return 12 // int(step) if months and step in (1, 2, 3, 4, 6) else 1  # type: ignore[arg-type]


def calendar(times: Sequence[str]) -> Float[np.ndarray, "T 6"]:
    """The hour of the day, the day of the week and of the year, each as a point on a circle."""
    turns = []
    for time in times:
        moment = datetime.fromisoformat(f"{time}-01") if _MONTH.fullmatch(time) else _moment(time)
        if not isinstance(moment, datetime):
            raise DataError(
                f"{shorten(time)} is no date, so it has no hour or weekday", hint="set data.calendar=false."
            )
        hours = moment.hour + moment.minute / 60
        turns.append((hours / 24, (moment.weekday() + hours / 24) / 7, moment.timetuple().tm_yday / 365.25))
    angles = 2 * np.pi * np.asarray(turns, dtype=np.float64).reshape(len(times), 3)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def uneven_steps(times: Sequence[str]) -> int:
    """How many moments are further from the one before than usual."""
    usual, moments = _step(times), [_moment(time) for time in times]
    if usual is None or None in moments:
        return 0
    return sum(b - a > 1.5 * usual for a, b in itertools.pairwise(moments))  # type: ignore[operator]


def _rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each row, the header first."""
    return _parquet_rows(path) if extension(path) == ".parquet" else _text_rows(path)


def _parquet_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    with open_parquet(path) as table:
        yield 0, table.names
        for number, values in table.rows(range(len(table.names))):
            yield number, ["" if value is None else str(value) for value in values]


def _text_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    delimiter = "\t" if extension(path) == ".tsv" else ","
    for number, line in lines(path):
        if line.strip():
            try:
                yield number, next(csv.reader([line], delimiter=delimiter))
            except csv.Error as error:
                raise DataError(f"{path}:{number}: this is no row of a table: {error}", hint=_ROW) from None


_ROW = "a row is one line of cells; a line may end with a newline, and nowhere else stands one."


def _time_columns(header: list[str], time: str | None) -> list[int]:
    if time is not None:
        return [_column(header, name.strip()) for name in time.split(",")]
    lower = [name.lower() for name in header]
    if "year" in lower and "month" in lower:  # each part of a date in a column of its own
        return [lower.index(part) for part in PARTS if part in lower]
    return [i for i, name in enumerate(lower) if name in TIMES][:1]


def _column(header: list[str], name: str) -> int:
    if name in header:
        return header.index(name)
    if name.isdecimal() and 1 <= int(name) <= len(header):
        return int(name) - 1
    raise UsageError(f"there is no column '{name}'", hint=nearest(name, header))


def _number(cell: str, where: str, column: str) -> float:
    text = cell.strip()
    if text.lower() in MISSING:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        raise DataError(
            f"{where}, column '{column}': {shorten(text)} is not a number",
            hint="leave the column out (--set data.columns=a,b names those to read), or leave the cell empty.",
        ) from None
    if math.isinf(value):
        raise DataError(f"{where}, column '{column}': infinity", hint="leave the cell empty where nothing is known.")
    return value


def _moment(text: str) -> datetime | float | None:
    """A time that can be compared: a date, a month, or a number; nothing for what is none of these."""
    if month := _MONTH.match(text):
        return float(int(month[1]) * 12 + int(month[2]) - 1)
    parts = text.split(" ")
    try:
        if len(parts) > 1 and all(part.isdecimal() for part in parts):  # year, month, day, hour in columns of their own
            return datetime(*map(int, [*parts, "1", "1"][: max(3, len(parts))]))  # type: ignore[arg-type]
        return float(text) if text.replace(".", "", 1).lstrip("-").isdecimal() else datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None


def _kind(moment: datetime | float | None) -> tuple[type, bool]:
    """What moments must share to be compared: a time with a zone is neither before nor after one without."""
    return type(moment), isinstance(moment, datetime) and moment.tzinfo is not None


def _check_order(series: Series, numbers: list[int]) -> None:
    """Every moment is a time, after the one before it."""
    before = _moment(series.times[0])
    for place, (number, text) in enumerate(zip(numbers, series.times, strict=True)):
        now = _moment(text)
        if now is None or _kind(now) != _kind(before):
            raise DataError(
                f"{series.where}:{number}: {shorten(text)} is not a time{' like the others' if place else ''}",
                hint="write times as 2024-05-31, 2024-05-31 23:00 or 2024-05, or name their columns with data.time.",
            )
        if place and now <= before:  # type: ignore[operator]
            relation = "the same time as" if now == before else "a time before"
            raise DataError(
                f"{series.where}:{number}: {text} is {relation} the line above",
                hint="sort the file by time, and let each moment be there once.",
            )
        before = now


def _step(times: Sequence[str]) -> timedelta | float | None:
    """How far apart the moments usually are; nothing where they cannot be told."""
    moments = [_moment(time) for time in times[-50:]]
    if len(moments) < 2 or None in moments:
        return None
    gaps = sorted(b - a for a, b in itertools.pairwise(moments))  # type: ignore[operator]
    return gaps[len(gaps) // 2]
