"""Read the table in a file: TSV, CSV and similar text, JSON in any of its usual forms, Parquet.

Titles and comments above the rows are left out.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

from seqlab.data.columns import KNOWN_NAMES, Profile, profiles_of
from seqlab.data.dialect import DELIMITERS, Dialect, are_names, find_dialect, has_header
from seqlab.data.json_objects import json_objects
from seqlab.data.lines import display_name, extension, lines
from seqlab.data.parquet import parquet_names, parquet_rows
from seqlab.errors import DataError, shorten, warn

TABLES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
# How a text begins that is not a table, what it is, and what to do.
_FORMATS = (
    (
        ("<?xml", "<!doctype", "<html", "<tmx"),
        "XML or HTML",
        "write its texts into a table, such as CSV, or as JSONL.",
    ),
    (("@relation",), "ARFF", "delete the lines down to @data, and name it .csv."),
    (
        ("@problemname", "#problemname"),
        "a .ts file of series",
        "write arrays of the series, steps and channels, and the labels: "
        "np.savez('series.npz', values=..., labels=...); then: seqlab train classify series.npz",
    ),
    ((">",), "FASTA or a quotation", "write a table with a sequence and its label on each line."),
    (
        ("msgid", "#: "),
        "a catalogue of messages",
        "write a table with a message and its translation on each line.",
    ),
)
HEAD = 1000  # rows that show what the columns hold
_MIN_ROWS = 10  # rows that must be alike, for another to be unlike them
_MAX_TITLES = 20  # lines above a table
_MAX_UNITS = 2  # rows of units or types below a header
_DECLARED_SEPARATOR = re.compile(r"sep=[;,|\t]$", re.IGNORECASE)  # Excel's first line
Cells = Sequence[object]  # texts, or any values of JSON and Parquet
Row = tuple[int, Cells]  # line number and cells


@dataclass(frozen=True)
class Table:
    """An open table: the names of its columns, if it has any, its first rows, and an iterator over all rows."""

    where: str
    names: list[str] | None
    head: list[Row]
    rows: Iterator[Row]
    delimiter: str = ""
    note: str = ""

    @property
    def location(self) -> str:
        """The file, and the line of the first row."""
        return f"{self.where}:{self.head[0][0]}" if self.head and self.head[0][0] else self.where

    @cached_property
    def profiles(self) -> list[Profile]:
        return profiles_of(
            self.names, [[text_of(cell) for cell in cells] for _, cells in self.head]
        )

    def name_of(self, index: int) -> str:
        """Return the name of a column, or its number from 1."""
        return self.names[index] if self.names else str(index + 1)


def open_table(
    path: str, encoding: str | None = None, *, expected_names: Sequence[str] = ()
) -> Table:
    """Open the table in a file. `expected_names` are the usual names of two columns, then the requested ones."""
    if extension(path) == ".parquet":
        return _parquet_table(path)
    if extension(path) in (".jsonl", ".json"):
        return _json_table(path, encoding)
    where = display_name(path)
    text = lines(path, encoding)
    first = list(islice(text, HEAD))
    _check_format(first[0][1], where)
    if _DECLARED_SEPARATOR.match(first[0][1]):
        first = first[1:]
    first = _below_comments(first)
    dialect = find_dialect([line for _, line in first], extension(path))
    text = chain(first, text)
    rows = _quoted_rows(path, text, dialect) if dialect.quoted else _plain_rows(text, dialect)
    head = _below_title(list(islice(rows, HEAD)), extension(path), dialect, where)
    names = None
    note = ""
    is_csv = extension(path) == ".csv"
    has_names = bool(head) and _has_names(head[0][1], expected_names)
    usual = is_csv and dialect.delimiter == ","
    if has_names or has_header([cells for _, cells in head], usual=usual):
        names = [str(cell).strip() for cell in head.pop(0)[1]]
        if not has_names and not is_csv:
            note = f"the first line names the columns: {', '.join(names)}"
        names = _with_row_names(names, head)
        head = _below_units(head, where)
    table = Table(where, names, head, chain(head, rows), dialect.delimiter, note)
    return _with_joined_cells(table, dialect)


def _check_format(line: str, where: str) -> None:
    """Refuse a text whose first line shows that it is not a table."""
    start = line.lstrip().lower()
    for prefixes, kind, hint in _FORMATS:
        if start.startswith(prefixes):
            raise DataError(f"{where}: this is {kind}, not a table", hint=hint)


def _below_comments(first: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Drop the lines at the beginning that start with #, but keep the last of them if it names the columns."""
    count = next((index for index, (_, line) in enumerate(first) if line[:1] != "#"), 0)
    rows = first[count:]
    if not count or sum(line[:1] == "#" for _, line in rows) * 10 > len(first):
        return first
    number, last = first[count - 1]
    is_header = any(
        mark in last and last.count(mark) == rows[0][1].count(mark) for mark in DELIMITERS
    )
    return [(number, last.lstrip("# ")), *rows] if is_header else rows


def _below_title(head: list[Row], ending: str, dialect: Dialect, where: str) -> list[Row]:
    """Drop the lines of a title, if a header with more columns follows."""
    width = _most_common_width(head)
    header_width = width - (width > 2)  # R writes no name above the names of the rows
    count = next((index for index, (_, row) in enumerate(head) if len(row) >= header_width), 0)
    num_names = sum(str(cell).strip().lower() in KNOWN_NAMES for cell in head[0][1]) if head else 0
    if not 0 < count <= _MAX_TITLES or num_names > 1:
        return head
    rows = [cells for _, cells in head[count:]]
    if width == 2 and not has_header(rows, usual=ending == ".csv"):
        return head  # the short line is a damaged row
    title = dialect.delimiter.join(map(str, head[0][1]))
    subject = "1 line above the table is" if count == 1 else f"{count} lines above the table are"
    warn(f"{where}: {subject} left out, the first is {shorten(title)}")
    return head[count:]


def _below_units(head: list[Row], where: str) -> list[Row]:
    """Drop rows of units or types right below the header: all their cells differ in kind from those below."""
    rows = [[str(cell) for cell in cells] for _, cells in head]
    for count in range(min(_MAX_UNITS, len(rows) - _MIN_ROWS), 0, -1):
        if all(row and all(are_names([row, *rows[count:]])) for row in rows[:count]):
            reason = f"left out, because it is unlike the rows below: {shorten(' '.join(rows[0]))}"
            warn(f"{where}:{head[0][0]}: {reason}")
            return head[count:]
    return head


def _most_common_width(head: Sequence[Row]) -> int:
    widths = Counter(len(cells) for _, cells in head)
    return widths.most_common(1)[0][0] if widths else 0


def _with_row_names(names: list[str], head: Sequence[Row]) -> list[str]:
    """Add an empty name for a first column of row names, above which R writes nothing."""
    short = bool(head) and all(len(cells) == len(names) + 1 for _, cells in head)
    return ["", *names] if short and head[0][1][-1] != "" else names


def _with_joined_cells(table: Table, dialect: Dialect) -> Table:
    """If many rows have too many cells, join some: the commas are part of a text that should have been quoted.

    The text column is the one for which the other columns then have the fewest different values.
    """
    counts = [len(cells) for _, cells in table.head]
    width = len(table.names) if table.names else min(counts, default=0)
    num_long = sum(count > width for count in counts)
    if dialect.delimiter != "," or width < 2 or not num_long:
        return table
    if 5 * num_long < len(counts) or min(counts) < width:
        return table

    def joined(row: Row, text: int) -> Row:
        number, cells = row
        if len(cells) <= width:
            return row
        end = len(cells) - (width - text - 1)
        return number, [*cells[:text], ",".join(map(str, cells[text:end])), *cells[end:]]

    def num_other_values(text: int) -> int:
        rows = [joined(row, text)[1] for row in table.head]
        others = [index for index in range(width) if index != text]
        return sum(len({row[index] for row in rows}) for index in others)

    text = min(range(width), key=num_other_values)
    warn(
        f"{table.where}: {num_long} of the first {len(counts)} rows have more commas than columns; they are read as "
        f"part of column {table.name_of(text)}"
    )
    return replace(
        table,
        head=[joined(row, text) for row in table.head],
        rows=(joined(row, text) for row in table.rows),
    )


def text_of(value: object) -> str | None:
    """Return a value of a cell as text: numbers and truth values as in JSON, a list as words; None for other values."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(text_of(each) or "" for each in value)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return None if isinstance(value, dict | bytes) else str(value)  # a date


def _has_names(row: Cells, expected_names: Sequence[str]) -> bool:
    """Whether the first row must be a header: it holds both usual names, or the user named a column."""
    if any(not name.isdecimal() for name in expected_names[2:]):
        return True
    cells = {str(cell).strip().lower() for cell in row}
    return bool(expected_names) and set(expected_names[:2]) <= cells


def _plain_rows(text: Iterator[tuple[int, str]], dialect: Dialect) -> Iterator[Row]:
    """Split rows without quotation marks."""
    for number, line in text:
        if line.strip():
            yield number, dialect.split(line)


def _quoted_rows(path: str, text: Iterator[tuple[int, str]], dialect: Dialect) -> Iterator[Row]:
    """Split rows with quoted cells, which may hold newlines; a row is numbered by its first line."""
    reader = dialect.reader(line + "\n" for _, line in text)
    start = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        mark = DELIMITERS[dialect.delimiter]
        raise DataError(
            f"{display_name(path)}:{start}: this is not CSV: {error}",
            hint=f'put a cell with {mark}s, newlines or quotation marks in "...", and double the marks inside it; '
            "perhaps one is never closed. For very long cells use JSONL.",
        ) from error


def _json_table(path: str, encoding: str | None) -> Table:
    """Open the objects of a JSON file as a table of all their keys."""
    objects = json_objects(path, encoding)
    first = list(islice(objects, HEAD))
    names = list(dict.fromkeys(name for _, value in first for name in value))
    rows = (
        (number, [value.get(name) for name in names]) for number, value in chain(first, objects)
    )
    head: list[Row] = list(islice(rows, len(first)))
    return Table(display_name(path), names, head, chain(head, rows))


def _parquet_table(path: str) -> Table:
    names = parquet_names(path)
    rows = islice(parquet_rows(path, names), HEAD)
    head: list[Row] = [(0, cells) for _, cells in rows]  # rows have no lines
    return Table(path, names, head, parquet_rows(path, names))
