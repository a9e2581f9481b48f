"""A table in a file: TSV, CSV and their kin, JSON in any of its forms, Parquet with named columns.

What stands above the rows, as titles and comments do, is left out.
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
from seqlab.data.dialect import DELIMITERS, Dialect, find_dialect, has_header, names_like
from seqlab.data.json_objects import json_objects
from seqlab.data.lines import display_name, extension, lines
from seqlab.data.parquet import parquet_names, parquet_rows
from seqlab.errors import DataError, shorten, warn

TABLES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
_FORMATS = (  # how texts begin that are no tables, what they are, and what to do
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
_SOME = 10  # rows that show what is usual
_MOST_TITLES = 20  # lines above a table
_MOST_UNITS = 2  # rows below a header that are no data
_DECLARED_SEPARATOR = re.compile(r"sep=[;,|\t]$", re.IGNORECASE)  # Excel's first line
Cells = Sequence[object]  # texts, or whatever JSON and Parquet hold
Row = tuple[int, Cells]  # line number and cells


@dataclass(frozen=True)
class Table:
    """A table that is being read: the names of its columns, if it has any, its first rows, and all rows in one pass."""

    where: str
    names: list[str] | None
    head: list[Row]
    rows: Iterator[Row]
    delimiter: str = ""
    note: str = ""

    @property
    def location(self) -> str:
        """The file, and the line where its rows begin."""
        return f"{self.where}:{self.head[0][0]}" if self.head and self.head[0][0] else self.where

    @cached_property
    def profiles(self) -> list[Profile]:
        return profiles_of(
            self.names, [[text_of(cell) for cell in cells] for _, cells in self.head]
        )

    def name_of(self, place: int) -> str:
        """What a message calls a column."""
        return self.names[place] if self.names else str(place + 1)


def open_table(
    path: str, encoding: str | None = None, *, expected_names: Sequence[str] = ()
) -> Table:
    """The table in a file. `expected_names` are the usual names of two columns, and then the requested ones."""
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
    head = list(islice(rows, HEAD))
    head = _below_title(head, extension(path), dialect, where)
    names, note = None, ""
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
    return _of_one_width(table, dialect)


def _check_format(line: str, where: str) -> None:
    """Refuse a text that is no table by its first line, with what makes it one."""
    start = line.lstrip().lower()
    for begins, what, hint in _FORMATS:
        if start.startswith(begins):
            raise DataError(f"{where}: this is {what}, not a table", hint=hint)


def _below_comments(first: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The lines below those at the beginning that start with #; the last of these may name the columns."""
    count = next((place for place, (_, line) in enumerate(first) if line[:1] != "#"), 0)
    if not count or sum(line[:1] == "#" for _, line in first[count:]) * 10 > len(first):
        return first
    number, last = first[count - 1]
    marks = [mark for mark in DELIMITERS if mark in last]
    like = [m for m in marks if last.count(m) == first[count][1].count(m)]
    return ([(number, last.lstrip("# "))] if like else []) + first[count:]


def _below_title(head: list[Row], ending: str, dialect: Dialect, where: str) -> list[Row]:
    """The rows below a title, if a header of more columns follows it."""
    width = _usual_width(head)
    least = width - (width > 2)  # R names the columns and not the rows
    count = next((place for place, (_, row) in enumerate(head) if len(row) >= least), 0)
    names = sum(str(cell).strip().lower() in KNOWN_NAMES for cell in head[0][1]) if head else 0
    if not 0 < count <= _MOST_TITLES or names > 1:
        return head
    rows = [cells for _, cells in head[count:]]
    if width == 2 and not has_header(rows, usual=ending == ".csv"):  # a row that is damaged
        return head
    what = f"{count} line{'s' if count > 1 else ''} above the table"
    title = dialect.delimiter.join(map(str, head[0][1]))
    warn(f"{where}: {what} are left out, the first is {shorten(title)}")
    return head[count:]


def _below_units(head: list[Row], where: str) -> list[Row]:
    """The rows without those right below the header that are unlike all others: units, or types."""
    rows = [[str(cell) for cell in cells] for _, cells in head]
    for count in range(min(_MOST_UNITS, len(rows) - _SOME), 0, -1):
        if all(row and all(names_like([row, *rows[count:]])) for row in rows[:count]):
            what = f"left out, because it is unlike the rows below: {shorten(' '.join(rows[0]))}"
            warn(f"{where}:{head[0][0]}: {what}")
            return head[count:]
    return head


def _usual_width(head: Sequence[Row]) -> int:
    """How many cells most rows have."""
    widths = Counter(len(cells) for _, cells in head)
    return widths.most_common(1)[0][0] if widths else 0


def _with_row_names(names: list[str], head: Sequence[Row]) -> list[str]:
    """The names of the columns; R writes none above the names of the rows."""
    short = bool(head) and all(len(cells) == len(names) + 1 for _, cells in head)
    return ["", *names] if short and head[0][1][-1] != "" else names


def _of_one_width(table: Table, dialect: Dialect) -> Table:
    """The table with as many cells in each row: delimiters that are not quoted belong to the texts of one column.

    That is the column without which the other columns differ least from row to row.
    """
    counts = [len(cells) for _, cells in table.head]
    width = len(table.names) if table.names else min(counts, default=0)
    more = sum(count > width for count in counts)
    if (
        not more
        or width < 2
        or 5 * more < len(counts)
        or dialect.delimiter != ","
        or min(counts) < width
    ):
        return table

    def joined(row: Row, elastic: int) -> Row:
        number, cells = row
        if len(cells) <= width:
            return row
        end = len(cells) - (width - elastic - 1)
        text = ",".join(map(str, cells[elastic:end]))
        return number, [*cells[:elastic], text, *cells[end:]]

    def variety(elastic: int) -> int:
        rows = [joined(row, elastic)[1] for row in table.head]
        columns = [{row[place] for row in rows} for place in range(width) if place != elastic]
        return sum(map(len, columns))

    elastic = min(range(width), key=variety)
    warn(
        f"{table.where}: {more} of the first {len(counts)} rows have more commas than columns; they are read as part "
        f"of column {table.name_of(elastic)}"
    )
    return replace(
        table,
        head=[joined(row, elastic) for row in table.head],
        rows=(joined(row, elastic) for row in table.rows),
    )


def text_of(value: object) -> str | None:
    """Numbers and truth values serve as labels in the way JSON writes them, a list of words as words with spaces
    between; null and nested values as nothing."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(text_of(each) or "" for each in value)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return None if isinstance(value, dict | bytes) else str(value)  # a date


def _has_names(row: Cells, named: Sequence[str]) -> bool:
    """Whether a first row must be names: it holds the two usual ones, or a column is asked for by its name."""
    by_name = any(not name.isdecimal() for name in named[2:])
    return by_name or bool(named and set(named[:2]) <= {str(cell).strip().lower() for cell in row})


def _plain_rows(text: Iterator[tuple[int, str]], dialect: Dialect) -> Iterator[Row]:
    """No quoting: the delimiter always separates."""
    for number, line in text:
        if line.strip():
            yield number, dialect.split(line)


def _quoted_rows(path: str, text: Iterator[tuple[int, str]], dialect: Dialect) -> Iterator[Row]:
    """A quoted cell may hold newlines, so a row is named by the line it starts on."""
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
            hint=f'a cell with {mark}s, newlines or quotation marks stands in "...", and its own marks are doubled; '
            "perhaps one is never closed. Very long cells are better kept as JSONL.",
        ) from error


def _json_table(path: str, encoding: str | None) -> Table:
    """Objects, one a line, or all in one array."""
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
