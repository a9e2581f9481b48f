"""The columns of a table that hold its times, alone or together, and the time of each row."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from seqlab.data.columns import Numerals, is_missing
from seqlab.data.text_table import TextTable, column_index
from seqlab.data.time_formats import read_times
from seqlab.errors import DataError, shorten, warn

TIME_NAMES = (
    "date", "time", "datetime", "timestamp", "month", "day", "ds", "year", "quarter", "week",
    "period", "ts", "epoch", "unix", "unixtime",
)  # fmt: skip
_MIN_EVEN_STEPS = 8  # rows of a column with even steps, for it to be the time
_DATE_PARTS = ("year", "quarter", "month", "day", "hour", "minute")
_MAX_TOTALS = 2  # rows below a table that hold its sums
_SAMPLE_ROWS = 1000  # rows that are inspected
_CLOCK = re.compile(r"\d{1,2}([:.]\d{2}){1,2}$")


def find_time_columns(table: TextTable, time: str | None) -> list[int]:
    """Return the columns that hold the time, empty if none does; `time` names them, with commas between."""
    if time is not None:
        return [column_index(table.names, name.strip()) for name in time.split(",")]
    lower = [name.lower() for name in table.names]
    parts = [lower.index(part) for part in _DATE_PARTS if part in lower]
    if "year" in lower and len(parts) > 1 and _are_times(table, parts):
        return parts
    column = _best_time_column(table, lower)
    if column is None:
        return _unnamed_time_columns(table)
    if len(set(table.column(column))) < len(table.rows):
        for index in range(len(lower)):
            if index != column and _is_clock(table, index) and _are_times(table, [column, index]):
                return [column, index]
    return [column]


def _best_time_column(table: TextTable, lower: Sequence[str]) -> int | None:
    """Return the column with the name and the content of a time; without one, a column that has either."""
    named = [index for index, name in enumerate(lower) if name in TIME_NAMES]
    dates = [
        index
        for index in range(len(lower))
        if read_times(table.column(index)[:20], numbers=False) is not None
    ]
    for index in (*(each for each in named if each in dates), *named):
        return index
    for index in dates:
        if read_times(table.column(index), numbers=False):
            return index
    return None


def _are_times(table: TextTable, columns: Sequence[int]) -> bool:
    """Whether the cells of these columns together are times."""
    return read_times(_time_texts(table, columns)) is not None


def _is_clock(table: TextTable, index: int) -> bool:
    """Whether a column holds hours, or hours with minutes."""
    column = table.column(index)
    is_hour = "hour" in table.names[index].lower() and all(map(str.isdecimal, column))
    return is_hour or all(map(_CLOCK.match, column))


def _unnamed_time_columns(table: TextTable) -> list[int]:
    """Return the first columns if they are year, month and so on, or the first one if it has even steps."""
    width = len(table.names)
    for count in range(min(5, width - 1), 1, -1):
        parts = list(range(count))
        sample = table.column(0)[:_SAMPLE_ROWS]
        years = all("1500" < cell < "2200" and cell.isdecimal() for cell in sample)
        times = read_times(_time_texts(table, parts)) if years else None
        if times is not None and all(a < b for a, b in pairwise(times)):
            return parts
    column = [Numerals().number(cell) for cell in table.column(0)]
    if width < 2 or len(column) < _MIN_EVEN_STEPS or None in column:
        return []
    if table.names[0] == "1" and table.column(0) == read_times(table.column(0)):
        return []  # without a header, only seconds since 1970 are times
    steps = np.diff(np.asarray(column, dtype=np.float64))
    return [0] if steps[0] > 0 and np.allclose(steps, steps[0], rtol=1e-3) else []


def _time_texts(table: TextTable, columns: Sequence[int]) -> list[str]:
    """Return the text of each row's time: its parts with spaces between, hours from 0, quarters as Q1."""
    if not columns:
        return [""] * len(table.rows)
    parts = []
    for index in columns:
        part = [re.sub(r"\.0+$", "", cell) for cell in table.column(index)]
        if table.names[index].lower() == "quarter" and len(columns) > 1:
            part = [f"Q{cell.lstrip('qQ')}" for cell in part]
        if len(columns) > 1 and "24" in part and "0" not in part and _is_clock(table, index):
            part = [str(int(cell) - 1) for cell in part]  # from the end of each hour to its start
        parts.append(part)
    return [" ".join(row) for row in zip(*parts, strict=True)]


def stack_month_columns(table: TextTable) -> TextTable:
    """Turn a table with a year in each row and a column for each month or quarter into one with a row for each."""
    for first in range(1, len(table.names) - 3):
        for count in (12, 4):
            names = table.names[first : first + count]
            months = read_times([f"2000 {name}" for name in names], numbers=False)
            years = table.column(first - 1)
            if months is None or len(set(months)) < count or months[0][-2:] not in ("01", "Q1"):
                continue
            if all(len(year) == 4 and year.isdecimal() for year in years):
                return _stacked(table, first, years, [month[4:] for month in months])
    return table


def _stacked(
    table: TextTable, first: int, years: Sequence[str], months: Sequence[str]
) -> TextTable:
    rows = []
    numbers = []
    for number, year, row in zip(table.numbers, years, table.rows, strict=True):
        for index, month in enumerate(months):
            rows.append([year + month, row[first + index].strip()])
            numbers.append(number)
    while len(rows) > 1 and is_missing(rows[-1][1]):  # the last year is not complete
        rows.pop()
    return replace(table, names=["time", "value"], numbers=numbers[: len(rows)], rows=rows)


def drop_totals(table: TextTable, columns: Sequence[int]) -> TextTable:
    """Drop the last rows if they have no time, as a row "Total" has none, and all others have one."""
    texts = _time_texts(table, columns)
    if not columns or len(texts) <= _MAX_TOTALS + 1 or read_times(texts[-1:]) is not None:
        return table
    for count in range(1, _MAX_TOTALS + 1):
        if read_times(texts[:-count]) is not None:
            problem = f"{shorten(texts[-count])} is not a time, so the row is left out"
            warn(f"{table.where}:{table.numbers[-count]}: {problem}")
            return replace(table, numbers=table.numbers[:-count], rows=table.rows[:-count])
    return table


def times_of_rows(table: TextTable, columns: Sequence[int]) -> list[str]:
    """Return the time of each row; an empty list if no column holds times."""
    if not columns:
        return []
    texts = _time_texts(table, columns)
    times = read_times(texts)
    if times is not None:
        return times
    first_is_time = read_times(texts[:1]) is not None
    for number, text in zip(table.numbers, texts, strict=True):
        if read_times([texts[0], text] if first_is_time else [text]) is None:
            like = " like the others" if first_is_time else ""
            raise DataError(
                f"{table.where}:{number}: {shorten(text)} is not a time{like}",
                hint="write times as 2024-05-31, 2024-05-31 23:00 or 2024-05, or name their columns with data.time.",
            )
    raise DataError(
        f"{table.where}: column '{table.names[columns[0]]}' mixes several forms of time, such as {shorten(texts[0])}",
        hint="write all of them in one form, such as 2024-05-31.",
    )
