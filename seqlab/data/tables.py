"""Two columns of a table: TSV with or without a header, CSV with one, JSONL with keys, Parquet with named columns.

A column is asked for by its name or by its number from 1. Where nobody asks, a `Layout` says what is usual.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from seqlab.data.lines import display_name, extension, lines
from seqlab.data.parquet import open_parquet
from seqlab.errors import DataError, UsageError, nearest, shorten

TABLES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
Columns = tuple[str | None, str | None]  # by name or number from 1; None: the usual one
Cells = Sequence[str | None]  # None where JSON holds no text
Row = tuple[int, Cells, Sequence[str] | None]  # line number, cells, and their names where they have any


@dataclass(frozen=True)
class Layout:
    """What the two columns are called, where they stand in a table without names, and whether names may differ."""

    names: tuple[str, str]
    positions: tuple[int, int]
    names_may_differ: bool


def two_columns(path: str, wanted: Columns, layout: Layout) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each row's "file:line" and its two cells."""
    if extension(path) == ".parquet":
        yield from _parquet_columns(path, wanted, layout)
        return
    chosen: dict[tuple[str, ...] | None, tuple[int, int]] = {}  # JSON objects may differ in their keys
    separator = "comma" if extension(path) == ".csv" else "tab"
    for number, cells, header in _rows(path, wanted, layout):
        where = f"{display_name(path)}:{number}"
        key = None if header is None else tuple(header)
        if key not in chosen:
            chosen[key] = _without_names(wanted, layout) if header is None else _by_name(header, wanted, layout, where)
        first, second = chosen[key]
        needed = max(first, second) + 1
        if len(cells) < needed:
            raise _too_few(where, cells, needed, separator)
        yield where, (_text(cells, first, header, where), _text(cells, second, header, where))


def _text(cells: Cells, index: int, header: Sequence[str] | None, where: str) -> str:
    cell = cells[index]
    if cell is None:
        name = header[index] if header else index + 1
        raise DataError(f"{where}: '{name}' holds no text", hint="a text, a number or a truth value is needed there.")
    return cell


def _rows(path: str, wanted: Columns, layout: Layout) -> Iterator[Row]:
    match extension(path):
        case ".csv":
            return _csv_rows(path)
        case ".jsonl" | ".json":
            return _json_rows(path)
        case _:
            return _tsv_rows(path, wanted, layout)


def _tsv_rows(path: str, wanted: Columns, layout: Layout) -> Iterator[Row]:
    """No quoting: a tab always separates. The first line is a header if columns are asked for by name, or if it
    holds both usual names."""
    numbered = ((number, text.split("\t")) for number, text in lines(path) if text.strip())
    first = next(numbered, None)
    if first is None:
        return
    asked = any(name is not None and not name.isdecimal() for name in wanted)
    usual = set(layout.names) <= {cell.strip().lower() for cell in first[1]}
    header = [cell.strip() for cell in first[1]] if asked or usual else None
    for number, cells in numbered if header else chain([first], numbered):
        yield number, cells, header


def _csv_rows(path: str) -> Iterator[Row]:
    """A quoted cell may hold newlines, so a row is named by the line it starts on."""
    reader = csv.reader((text + "\n" for _, text in lines(path)), strict=True)
    header: list[str] | None = None
    start = 1
    try:
        for cells in reader:
            if header is None and cells:
                header = [cell.strip() for cell in cells]
            elif any(cell.strip() for cell in cells):
                yield start, cells, header
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{display_name(path)}:{start}: this is not CSV: {error}",
            hint='a cell with commas, newlines or quotation marks stands in "...", and its own marks are doubled; '
            "perhaps one is never closed. Very long cells are better kept as JSONL.",
        ) from error


def _json_rows(path: str) -> Iterator[Row]:
    for number, text in lines(path):
        if not text.strip():
            continue
        where = f"{display_name(path)}:{number}"
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{where}: this line is not JSON: {shorten(text)}",
                hint="each line is one object; jq -c '.[]' makes lines of an array.",
            ) from error
        if not isinstance(value, dict):
            raise DataError(
                f"{where}: a JSON {type(value).__name__} where an object is needed: {shorten(text)}",
                hint="each line is one object; jq -c '.[]' makes lines of an array.",
            )
        yield number, [_cell(cell) for cell in value.values()], list(value)


def _parquet_columns(path: str, wanted: Columns, layout: Layout) -> Iterator[tuple[str, tuple[str, str]]]:
    """The two columns, without reading the others. A list of words is written as words with spaces between."""
    with open_parquet(path) as table:
        columns = _by_name(table.names, wanted, layout, path)
        names = [table.names[column] for column in columns]
        for number, values in table.rows(columns):
            where = f"{path}:{number}"
            cells = [_words(value, where) if isinstance(value, list) else _cell(value) for value in values]
            yield where, (_text(cells, 0, names, where), _text(cells, 1, names, where))


def _words(values: list[object], where: str) -> str:
    words = [_cell(value) or "" for value in values]
    for word in words:
        if len(word.split()) != 1:
            raise DataError(
                f"{where}: {shorten(word)} is not one word",
                hint="each entry of a list is a word, a number or a truth value, without spaces.",
            )
    return " ".join(words)


def _cell(value: object) -> str | None:
    """JSON numbers and truth values serve as labels in the way JSON writes them; null and nested values as nothing."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else None


def _by_name(header: Sequence[str], wanted: Columns, layout: Layout, where: str) -> tuple[int, int]:
    lowered = [name.lower() for name in header]
    usual = [lowered.index(name) if name in lowered else None for name in layout.names]
    first, second = (
        _index(header, name, where) if name is not None else default
        for name, default in zip(wanted, usual, strict=True)
    )
    if first is not None and second is not None:
        return first, second
    if wanted == (None, None) and layout.names_may_differ and len(header) >= 2:
        return 0, 1
    if wanted != (None, None) and len(header) == 2:  # one is named, so the other is the other
        return (first, 1 - first) if first is not None else (1 - (second or 0), second or 0)
    missing = layout.names[0] if first is None else layout.names[1]
    raise DataError(
        f"{where}: there is no column '{missing}'",
        hint=f"say which column is the {missing}, by name or by number; there are: {', '.join(header)}.",
    )


def _index(header: Sequence[str], name: str, where: str) -> int:
    if name in header:
        return list(header).index(name)
    if name.isdecimal() and 1 <= int(name) <= len(header):
        return int(name) - 1
    raise DataError(f"{where}: there is no column '{name}'", hint=nearest(name, header))


def _without_names(wanted: Columns, layout: Layout) -> tuple[int, int]:
    if any(name is not None and int(name) == 0 for name in wanted):
        raise UsageError("there is no column 0", hint="columns are numbered from 1.")
    asked = [None if name is None else int(name) - 1 for name in wanted]
    first, second = (
        position if number is None else number for number, position in zip(asked, layout.positions, strict=True)
    )
    if first == second and None in asked:  # the usual place is taken: the other of the first two columns is free
        free = 1 if first == 0 else 0
        return (first, free) if asked[1] is None else (free, second)
    return first, second


def _too_few(where: str, cells: Cells, needed: int, separator: str) -> DataError:
    seen = len(cells)
    shown = shorten(("," if separator == "comma" else "\t").join(cell or "" for cell in cells))
    return DataError(
        f"{where}: {seen} column{'s' if seen != 1 else ''} where {needed} are needed: {shown}",
        hint=f"columns are separated by a {separator}; this line has {seen - 1 or 'none'}.",
    )
