"""The columns of a table that hold measurements, and their numbers."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np

from seqlab.data.columns import IDS, MISSING, Numerals, find_numerals, is_missing
from seqlab.data.text_table import TextTable
from seqlab.errors import DataError, shorten, warn

_SAMPLE_CELLS = 1000  # cells that are inspected
_MIN_COUNTED = 8  # rows of 1, 2, 3 that make a column a row number
_NINES = re.compile(r"-?9{2,}(\.9+)?$")  # a common code for a missing value


def find_numeric_columns(table: TextTable, excluded: Sequence[int]) -> list[int]:
    """Return the columns of numbers; warn about columns of text and row numbers, which are left out."""
    chosen, skipped = list[int](), list[str]()
    several = len(table.names) > 1 + len(excluded)
    for index, name in enumerate(table.names):
        if index in excluded:
            continue
        cells = table.column(index)
        sample = [
            cell for cell in cells[:: max(1, len(cells) // _SAMPLE_CELLS)] if not is_missing(cell)
        ]
        numerals = find_numerals(sample, table.delimiter)
        num_numbers = sum(numerals.number(cell) is not None for cell in sample)
        is_unique = len(set(sample)) == len(sample)
        if sample and 2 * num_numbers < len(sample):
            skipped.append(f"'{name}' (text such as {shorten(sample[0], 20)})")
        elif several and (
            (name.lower() in ("", *IDS) and is_unique) or (index == 0 and _is_row_number(cells))
        ):
            skipped.append(f"'{name}' (row numbers)")
        else:
            chosen.append(index)
    if not chosen:
        raise DataError(
            f"{table.where}: no column holds numbers: {', '.join(skipped)}",
            hint="a series needs columns of numbers, and usually a column of times.",
        )
    if skipped:
        choice = "--set data.columns=a,b chooses the columns to read"
        warn(f"{table.where}: columns left out: {', '.join(skipped)} ({choice})")
    return chosen


def _is_row_number(column: Sequence[str]) -> bool:
    """Whether a column only numbers the rows, from 0 or 1."""
    if len(column) < _MIN_COUNTED or column[0] not in ("0", "1"):
        return False
    start = int(column[0])
    return column == [str(start + row) for row in range(len(column))]


def read_column(table: TextTable, index: int) -> list[float]:
    """Return the numbers of a column, NaN where a value is missing."""
    name = table.names[index]
    locations = (f"{table.where}:{number}, column '{name}'" for number in table.numbers)
    where = f"{table.where}, column '{name}'"
    values = parse_numbers(table.column(index), table.delimiter, locations, where)
    return _without_codes(values, where)


def parse_numbers(
    texts: Sequence[str], delimiter: str, locations: Iterable[str], where: str
) -> list[float]:
    """Parse numbers that all have the same decimal mark, NaN where a value is missing.

    `locations` name the cells in messages, and `where` names all of them.
    """
    with suppress(ValueError):  # the common case: plain numbers without gaps
        values = np.asarray(texts).astype(np.float64)
        if np.isfinite(values).all():
            return values.tolist()
    numerals = find_numerals(texts, delimiter)
    marks = _missing_marks(texts, numerals)
    for mark in sorted(marks):
        warn(f"{where}: {shorten(mark)} is read as a missing value")
    return [
        math.nan if text in marks else _parse_number(text, numerals, location)
        for text, location in zip(texts, locations, strict=True)
    ]


def _missing_marks(texts: Sequence[str], numerals: Numerals) -> set[str]:
    """Return the texts without digits that are repeated, and so rare that they must mean a missing value."""
    counts = Counter(
        text for text in texts if not is_missing(text) and numerals.number(text) is None
    )
    if 10 * sum(counts.values()) > len(texts):
        return set()
    return {text for text, count in counts.items() if count > 1 and not any(map(str.isdigit, text))}


def _without_codes(values: list[float], where: str) -> list[float]:
    """Replace repeated values such as 9999 or -99.9 by NaN, if they are far from all others."""
    counts = Counter(values)
    codes = [
        value for value, count in counts.items() if count > 1 and _NINES.match(f"{value:.10g}")
    ]
    for code in codes:
        sizes = [abs(value) for value in counts if not math.isnan(value)]
        sizes = [size for size in sizes if size != abs(code)]
        if sizes and 3 * max(sizes) < abs(code):
            warn(f"{where}: {code:g} is read as a missing value, {counts[code]} times")
            values = [math.nan if value == code else value for value in values]
    return values


def _parse_number(text: str, numerals: Numerals, location: str) -> float:
    if text.lower() in MISSING:
        return math.nan
    value = numerals.number(text)
    if value is None and is_missing(text):
        return math.nan
    if value is None:
        raise DataError(
            f"{location}: {shorten(text)} is not a number",
            hint="leave the column out (--set data.columns=a,b chooses the columns to read), or leave the cell empty.",
        )
    if math.isinf(value):
        raise DataError(
            f"{location}: infinity", hint="leave the cell empty if the value is unknown."
        )
    return value
