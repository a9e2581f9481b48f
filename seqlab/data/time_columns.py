"""When the rows of a table are: the columns that hold times, alone or together, and the time of each row."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from seqlab.data.columns import Numerals, is_missing
from seqlab.data.panel import Cells
from seqlab.data.times import read_times
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
PARTS = ("year", "quarter", "month", "day", "hour", "minute")
_CLOCK = re.compile(r"\d{1,2}([:.]\d{2}){1,2}$")
EVEN_STEPS = 8  # rows of even steps that make a column the time


def time_columns(cells: Cells, time: str | None) -> list[int]:
    if time is not None:
        return [column_named(cells.names, name.strip()) for name in time.split(",")]
    lower = [name.lower() for name in cells.names]
    parts = [lower.index(part) for part in PARTS if part in lower]
    if "year" in lower and len(parts) > 1 and _are_parts(cells, parts):
        return parts  # each part of a date in a column of its own
    named = [place for place, name in enumerate(lower) if name in TIMES]
    dates = [
        place
        for place in range(len(lower))
        if read_times(cells.column(place)[:20], numbers=False) is not None
    ]
    both = [place for place in named if place in dates]
    when = (
        both
        or named
        or [place for place in dates if read_times(cells.column(place), numbers=False)]
    )[:1]
    if not when:
        return _first_columns_of_times(cells)
    if len(set(cells.column(when[0]))) < len(cells.rows):
        clocks = [
            place for place in range(len(lower)) if place != when[0] and _is_clock(cells, place)
        ]
        when += next(([place] for place in clocks if _are_parts(cells, [*when, place])), [])
    return when


def _are_parts(cells: Cells, places: Sequence[int]) -> bool:
    """Whether the cells of these columns are times together."""
    return read_times(_stamps(cells, places)) is not None


def _is_clock(cells: Cells, place: int) -> bool:
    """Whether a column holds hours, or hours with minutes."""
    column = cells.column(place)
    is_hour = "hour" in cells.names[place].lower() and all(map(str.isdecimal, column))
    return is_hour or all(map(_CLOCK.match, column))


def _first_columns_of_times(cells: Cells) -> list[int]:
    """The first columns of a table without names where they are year, month and so on, or one with even steps."""
    width = len(cells.names)
    for count in range(min(5, width - 1), 1, -1):
        parts = list(range(count))
        years = all(
            "1500" < cell < "2200" and cell.isdecimal() for cell in cells.column(0)[:_LOOKED_AT]
        )
        times = read_times(_stamps(cells, parts)) if years else None
        if times is not None and all(a < b for a, b in pairwise(times)):
            return parts
    column = [Numerals().number(cell) for cell in cells.column(0)]
    if width < 2 or len(column) < EVEN_STEPS or None in column:
        return []
    if cells.names[0] == "1" and cells.column(0) == read_times(cells.column(0)):
        return []  # without a name, only seconds since 1970 are times
    steps = np.diff(np.asarray(column, dtype=np.float64))
    return [0] if steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-3) else []


def _stamps(cells: Cells, when: Sequence[int]) -> list[str]:
    """The text of each row's time: its parts with blanks between, hours from 0, quarters as Q1."""
    columns = []
    for place in when:
        column = [re.sub(r"\.0+$", "", cell) for cell in cells.column(place)]
        if cells.names[place].lower() == "quarter" and len(when) > 1:
            column = [f"Q{cell.lstrip('qQ')}" for cell in column]
        if len(when) > 1 and "24" in column and "0" not in column and _is_clock(cells, place):
            column = [str(int(cell) - 1) for cell in column]  # the hour that ends then
        columns.append(column)
    return (
        [" ".join(parts) for parts in zip(*columns, strict=True)]
        if columns
        else [""] * len(cells.rows)
    )


def without_month_columns(cells: Cells) -> Cells:
    """The rows one below the other of a table that has a year in each row and a column for each month or quarter."""
    for first in range(1, len(cells.names) - 3):
        for count in (12, 4):
            months = read_times(
                [f"2000 {name}" for name in cells.names[first : first + count]], numbers=False
            )
            years = cells.column(first - 1)
            if months is None or len(set(months)) < count or months[0][-2:] not in ("01", "Q1"):
                continue
            if not all(len(year) == 4 and year.isdecimal() for year in years):
                continue
            rows = [
                [year + month[4:], row[first + place].strip()]
                for year, row in zip(years, cells.rows, strict=True)
                for place, month in enumerate(months)
            ]
            while len(rows) > 1 and is_missing(rows[-1][1]):  # the year has not ended
                rows.pop()
            numbers = [number for number in cells.numbers for _ in months][: len(rows)]
            return replace(cells, names=["time", "value"], numbers=numbers, rows=rows)
    return cells


def without_totals(cells: Cells, when: Sequence[int]) -> Cells:
    """The table without the last rows if they have no time, such as "Total", and all others have one."""
    texts = _stamps(cells, when)
    if not when or len(texts) <= _MOST_TOTALS + 1 or read_times(texts[-1:]) is not None:
        return cells
    for count in range(1, _MOST_TOTALS + 1):
        if read_times(texts[:-count]) is not None:
            what = f"{shorten(texts[-count])} is not a time, so the row is left out"
            warn(f"{cells.where}:{cells.numbers[-count]}: {what}")
            return replace(cells, numbers=cells.numbers[:-count], rows=cells.rows[:-count])
    return cells


def times_of_rows(cells: Cells, when: Sequence[int]) -> list[str]:
    """The time of each row; nothing where no column holds times."""
    if not when:
        return []
    texts = _stamps(cells, when)
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


def column_named(header: Sequence[str], name: str) -> int:
    if name in header:
        return list(header).index(name)
    if name.isdecimal() and 1 <= int(name) <= len(header):
        return int(name) - 1
    raise UsageError(f"there is no column '{name}'", hint=nearest(name, header))
