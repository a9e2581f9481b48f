"""Time series from a table: a time column, and one or several columns of numbers.

Many series in one file, one in each row or identified by a column, become columns side by side. What is not a number,
or not finite, is refused with its row and column.
"""

import math
from collections.abc import Sequence

import numpy as np

from seqlab.data.columns import Profile
from seqlab.data.numeric_columns import find_numeric_columns, parse_numbers, read_column
from seqlab.data.panel import (
    find_id_columns,
    first_value_column,
    is_one_a_row,
    names_of_rows,
    side_by_side,
    times_of_columns,
)
from seqlab.data.text_table import TextTable, column_index, read_text_table
from seqlab.data.time_columns import (
    drop_totals,
    find_time_columns,
    stack_month_columns,
    times_of_rows,
)
from seqlab.data.time_series import Series, make_regular, with_columns
from seqlab.errors import DataError


def read_series(
    path: str,
    *,
    time: str | None = None,
    columns: Sequence[str] = (),
    ids: str | None = None,
    encoding: str | None = None,
) -> Series:
    """Read columns of a table as one series; without names, all columns of numbers but the time.

    `time` names the time column, or several with commas between (year,month,day,hour). Without it the column that holds
    times is used; if there is none, the rows are equally far apart. `ids` names the column that identifies several
    series. Each of them is a column of the result, and so is each row of a table that has a series in each row.
    """
    table = read_text_table(path, encoding)
    if ids is None and time is None and is_one_a_row(table.names, table.rows):
        return _checked(with_columns(_series_in_rows(table), columns))
    if time is None:
        table = stack_month_columns(table)
    time_columns = find_time_columns(table, time)
    table = drop_totals(table, time_columns)
    times = times_of_rows(table, time_columns)
    id_columns = _id_columns(table, ids, time_columns, times)
    # With ids, `columns` may name series rather than columns of the table.
    by_series = bool(id_columns) and not set(columns) <= set(table.names)
    value_columns = [] if by_series else [column_index(table.names, name) for name in columns]
    value_columns = value_columns or find_numeric_columns(table, [*time_columns, *id_columns])
    names = [table.names[index] for index in value_columns]
    values = np.asarray([read_column(table, index) for index in value_columns])
    values = values.T.reshape(-1, len(names))
    if id_columns:
        labels = ["/".join(row[index].strip() for index in id_columns) for row in table.rows]
        panel = side_by_side(labels, times, names, values, table.where, table.numbers)
        series = Series(table.where, *panel)
        numbers = []
    else:
        stamps = times or [str(row) for row in range(len(values))]
        series = Series(table.where, tuple(names), tuple(stamps), values)
        numbers = table.numbers
    if by_series:
        series = with_columns(series, columns)
    return _checked(make_regular(series, numbers) if times else series)


def _series_in_rows(table: TextTable) -> Series:
    """Make a series from each row; if the columns have no times, all series end in the last row."""
    first = first_value_column(table.names, table.rows)
    times = times_of_columns(table.names[first:])
    labels, stamps, values, lines = list[str](), list[str](), list[float](), list[int]()
    names = names_of_rows(table.rows, first)
    for number, row, name in zip(table.numbers, table.rows, names, strict=True):
        texts = [cell.strip() for cell in row[first:]]
        numbers = parse_numbers(texts, "", [f"{table.where}:{number}"] * len(texts), table.where)
        while not times and numbers and math.isnan(numbers[-1]):
            numbers.pop()
        labels += [name or str(number)] * len(numbers)
        stamps += times[: len(numbers)]
        values += numbers
        lines += [number] * len(numbers)
    column = np.asarray(values).reshape(-1, 1)
    return Series(table.where, *side_by_side(labels, stamps, ["value"], column, table.where, lines))


def _id_columns(
    table: TextTable, ids: str | None, time_columns: Sequence[int], times: Sequence[str]
) -> list[int]:
    """Return the columns that identify the series: those that the user named, else those that fit."""
    if ids is not None:
        return [column_index(table.names, name.strip()) for name in ids.split(",")]
    profiles = {
        index: Profile(name, tuple(table.column(index)))
        for index, name in enumerate(table.names)
        if index not in time_columns
    }
    return find_id_columns(profiles, times)


def _checked(series: Series) -> Series:
    """Refuse a series with a variable that was never observed."""
    for index, name in enumerate(series.columns):
        if np.isnan(series.values[:, index]).all():
            raise DataError(
                f"{series.where}: column '{name}' has no observation at all",
                hint="leave it out: data.columns names the columns to read.",
            )
    return series
