"""Two columns of a table: TSV, CSV and their kin, JSON with keys, Parquet with named columns.

A column is asked for by its name or by its number from 1. Where nobody asks, names and cells show which are meant,
and a note says so if there was a choice.
"""

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

from seqlab.data.columns import Profile, by_content, by_usual_name, profiles_of
from seqlab.data.dialect import DELIMITERS, Dialect, find_dialect, has_header
from seqlab.data.json_objects import json_objects
from seqlab.data.lines import display_name, extension, lines
from seqlab.data.parquet import open_parquet
from seqlab.errors import DataError, UsageError, nearest, shorten, warn

TABLES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
_DECLARED_SEPARATOR = re.compile(r"sep=[;,|\t]$", re.IGNORECASE)  # Excel's first line
HEAD = 1000  # rows that show what the columns hold
Columns = tuple[str | None, str | None]  # by name or number from 1; None: as the cells show
Cells = Sequence[object]  # texts, or whatever JSON and Parquet hold
Row = tuple[int, Cells]  # line number and cells


@dataclass(frozen=True)
class Layout:
    """What the two columns are called, where they stand in a table without names, and what they may hold."""

    names: tuple[str, str]
    positions: tuple[int, int]
    few_labels: bool = False  # whether the second one holds labels of examples, which must be few


@dataclass(frozen=True)
class Table:
    """A table that is being read: the names of its columns, if it has any, its first rows, and all rows in one pass."""

    where: str
    names: list[str] | None
    head: list[Row]
    rows: Iterator[Row]
    separator: str = ""
    note: str = ""

    @property
    def place(self) -> str:
        """The file, and the line where its rows begin."""
        return f"{self.where}:{self.head[0][0]}" if self.head and self.head[0][0] else self.where

    @cached_property
    def profiles(self) -> list[Profile]:
        return profiles_of(
            self.names, [[text_of(cell) for cell in cells] for _, cells in self.head]
        )

    def shown(self, place: int) -> str:
        """What a message calls a column."""
        return self.names[place] if self.names else str(place + 1)


def two_columns(
    path: str, wanted: Columns, layout: Layout, encoding: str | None = None
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each row's "file:line" and its two cells."""
    table = open_table(
        path, encoding, named=(*layout.names, *(name for name in wanted if name is not None))
    )
    if not table.head:
        return
    columns = choose_columns(table, wanted, layout)
    names = [table.shown(place) for place in columns]
    rows = table.rows
    if extension(path) == ".parquet":  # the other columns are not decoded
        rows, columns = _parquet_rows(path, columns), (0, 1)
    needed = max(columns) + 1
    for number, cells in rows:
        where = f"{table.where}:{number}"
        if len(cells) < needed:
            raise _too_few(where, cells, needed, table.separator)
        first, second = (
            _text(cells[place], name, where) for place, name in zip(columns, names, strict=True)
        )
        yield where, (first, second)


def open_table(path: str, encoding: str | None = None, *, named: Sequence[str] = ()) -> Table:
    """The table in a file. `named` are the usual names of two columns, and then those that are asked for."""
    if extension(path) == ".parquet":
        return _parquet_table(path)
    if extension(path) in (".jsonl", ".json"):
        return _json_table(path, encoding)
    text = lines(path, encoding)
    first = list(islice(text, HEAD))
    if first and _DECLARED_SEPARATOR.match(first[0][1]):
        first = first[1:]
    dialect = find_dialect([line for _, line in first], extension(path))
    text = chain(first, text)
    rows = _quoted_rows(path, text, dialect) if dialect.quoted else _plain_rows(text, dialect)
    head = list(islice(rows, HEAD))
    names, note = None, ""
    if head and (by := _header([cells for _, cells in head], named, extension(path), dialect)):
        names = [str(cell).strip() for cell in head.pop(0)[1]]
        note = f"the first line names the columns: {', '.join(names)}" if by == "content" else ""
    return Table(display_name(path), names, head, chain(head, rows), dialect.separator, note)


def choose_columns(table: Table, wanted: Columns, layout: Layout) -> tuple[int, int]:
    """The places of the two columns: those asked for, else those of the usual names, else those whose cells fit."""
    profiles = table.profiles
    asked = [None if name is None else _index(table, name) for name in wanted]
    if asked[0] is not None and asked[1] is not None:
        return asked[0], asked[1]
    if wanted != (None, None):
        return _with_other(table, asked, layout)
    if table.names is not None:
        second = by_usual_name(profiles, layout.names[1], None)
        first = by_usual_name(profiles, layout.names[0], second)
        if first is not None and second is not None:
            _note(replace(table, note=""), (first, second), layout, exact=True)
            return first, second
    if len(profiles) < 2 and table.separator:
        raise _too_few(table.place, table.head[0][1], 2, table.separator)
    chosen = by_content(profiles, layout.names, layout.positions)
    if chosen is None and not (layout.names[0] == "text" and table.names and len(profiles) > 2):
        chosen = layout.positions
    if chosen is None or max(chosen) >= len(profiles):
        raise _no_column(table, layout.names[0])
    _check_labels(table, profiles[chosen[1]], layout)
    _note(table, chosen, layout, exact=chosen == layout.positions)
    return chosen


def _with_other(table: Table, asked: Sequence[int | None], layout: Layout) -> tuple[int, int]:
    """The column that is asked for, and the other one, which is to be found."""
    missing = asked.index(None)
    known = asked[1 - missing]
    assert known is not None
    role = layout.names[missing]
    place = (
        layout.positions[missing]
        if table.names is None
        else by_usual_name(table.profiles, role, known)
    )
    if place == known:  # the usual place is taken: the other of the first two columns is free
        place = 1 if known == 0 else 0
    if place is None:
        rest = [
            p
            for p, each in enumerate(table.profiles)
            if p != known and not each.is_id and each.cells
        ]
        if len(rest) != 1:
            raise _no_column(table, role)
        place = rest[0]
    return (place, known) if missing == 0 else (known, place)


def _no_column(table: Table, name: str) -> DataError:
    there = ", ".join(table.names) if table.names else "1 to " + str(len(table.profiles))
    return DataError(
        f"{table.place}: there is no column '{name}'",
        hint=f"say which column is the {name}, by name or by number; there are: {there}.",
    )


def _check_labels(table: Table, labels: Profile, layout: Layout) -> None:
    """Refuse labels that are texts or measurements, which no classifier can learn."""
    if (
        not layout.few_labels
        or len(labels.cells) < 20
        or labels.num_distinct <= 0.7 * len(labels.cells)
    ):
        return
    share = f"{labels.num_distinct:,} of the first {len(labels.cells):,} labels are different"
    example = shorten(labels.cells[0], 40)
    if labels.is_numeric:
        raise DataError(
            f"{table.where}: {share} numbers, for instance {example}: this is regression, not classification",
            hint="write a few ranges, such as low and high, into a column of their own and choose it: "
            "--set data.target=COLUMN; numbers over time are forecast: seqlab train forecast FILE",
        )
    raise DataError(
        f"{table.where}: {share}, for instance {example}: these are texts, not labels",
        hint=f"to learn one text from the other: seqlab train translate {table.where}; "
        "another column holds the labels: --set data.target=COLUMN",
    )


def _note(table: Table, chosen: tuple[int, int], layout: Layout, *, exact: bool) -> None:
    """Say which columns are read where that is not plain to see."""
    unused = [
        table.shown(place) or "''" for place in range(len(table.profiles)) if place not in chosen
    ]
    if exact and not unused and not table.note:
        return
    first, second = (
        repr(table.names[place]) if table.names else f"column {place + 1}" for place in chosen
    )
    message = f"{table.note}; " if table.note else ""
    message += f"reading the {layout.names[0]} from {first} and the {layout.names[1]} from {second}"
    if unused:
        message += "; not used: " + ", ".join(unused)
    choice = "(--set data.source=... and data.target=... choose others)"
    warn(f"{table.where}: {message} {choice}")


def _text(value: object, name: str, where: str) -> str:
    text = text_of(value)
    if text is None:
        raise DataError(
            f"{where}: '{name}' holds no text",
            hint="a text, a number or a truth value is needed there.",
        )
    if isinstance(value, list) and len(text.split()) != len(value):
        odd = next(word for word in map(text_of, value) if len((word or "").split()) != 1)
        raise DataError(
            f"{where}: {shorten(odd or '')} is not one word",
            hint="each entry of a list is a word, a number or a truth value, without spaces.",
        )
    return text


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


def _header(rows: Sequence[Cells], named: Sequence[str], ending: str, dialect: Dialect) -> str:
    """Whether the first row is names because a name in it is asked for, or by what it holds; "" if it is a row."""
    first = {str(cell).strip().lower() for cell in rows[0]}
    asked = [name for name in named[2:] if not name.isdecimal()]
    if asked or (named and set(named[:2]) <= first):
        return "name"
    texts = [[str(cell) for cell in cells] for cells in rows]
    if not has_header(texts, usual=ending == ".csv" and dialect.delimiter == ","):
        return ""
    return "name" if ending == ".csv" else "content"


def _plain_rows(text: Iterator[tuple[int, str]], dialect: Dialect) -> Iterator[Row]:
    """No quoting: the delimiter always separates."""
    for number, line in text:
        if line.strip():
            yield number, line.split(dialect.delimiter, -1 if dialect.delimiter != " " else 1)


def _quoted_rows(path: str, text: Iterator[tuple[int, str]], dialect: Dialect) -> Iterator[Row]:
    """A quoted cell may hold newlines, so a row is named by the line it starts on."""
    reader = csv.reader((line + "\n" for _, line in text), delimiter=dialect.delimiter, strict=True)
    start = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{display_name(path)}:{start}: this is not CSV: {error}",
            hint=f'a cell with {dialect.separator}s, newlines or quotation marks stands in "...", and its own marks '
            "are doubled; perhaps one is never closed. Very long cells are better kept as JSONL.",
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
    with open_parquet(path) as parquet:
        names = parquet.names
    head: list[Row] = [
        (0, cells) for _, cells in islice(_parquet_rows(path), HEAD)
    ]  # rows have no lines
    return Table(path, names, head, _parquet_rows(path))


def _parquet_rows(path: str, columns: Sequence[int] | None = None) -> Iterator[Row]:
    with open_parquet(path) as parquet:
        yield from parquet.rows(range(len(parquet.names)) if columns is None else columns)


def _index(table: Table, name: str) -> int:
    names = table.names or []
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) == 0:
        raise UsageError("there is no column 0", hint="columns are numbered from 1.")
    if name.isdecimal() and (table.names is None or int(name) <= len(names)):
        return int(name) - 1
    raise DataError(f"{table.place}: there is no column '{name}'", hint=nearest(name, names))


def _too_few(where: str, cells: Cells, needed: int, separator: str) -> DataError:
    count = len(cells)
    mark = next((mark for mark, name in DELIMITERS.items() if name == separator), " ")
    shown = shorten(mark.join(map(str, cells)))
    return DataError(
        f"{where}: {count} column{'s' if count != 1 else ''} where {needed} are needed: {shown}",
        hint=f"columns are separated by a {separator}; this line has {count - 1 or 'none'}.",
    )
