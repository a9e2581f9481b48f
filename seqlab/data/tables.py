"""A table in a file: TSV, CSV and their kin, JSON with keys, Parquet with named columns.

What separates the cells, whether they stand in quotation marks, and whether the first row names the columns follows
from the first rows.
"""

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any

from seqlab.data.columns import FILE, KNOWN_NAMES, Profile, is_number, is_time, profiles_of
from seqlab.data.lines import display_name, extension, lines
from seqlab.data.parquet import parquet_names, parquet_rows
from seqlab.errors import DataError, shorten

TABLES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")
HEAD = 1000  # rows that show what the columns hold
DELIMITERS = {
    "\t": "tab",
    ";": "semicolon",
    "|": "pipe",
    ",": "comma",
}  # where two fit as well, the first is meant
_LABEL = "__label__"  # how fastText marks the label at the beginning of a line
_DECLARED_SEPARATOR = re.compile(r"sep=[;,|\t]$", re.IGNORECASE)  # Excel's first line
_OBJECTS = "each line is one object, or the whole file is one array of objects."
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
    def place(self) -> str:
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
    is_csv = extension(path) == ".csv"
    delimiter, quoted = find_dialect([line for _, line in first], is_csv=is_csv)
    text = chain(first, text)
    rows = _quoted_rows(path, text, delimiter) if quoted else _plain_rows(text, delimiter)
    head = list(islice(rows, HEAD))
    names, note = None, ""
    has_names = bool(head) and _has_names(head[0][1], named)
    if has_names or has_header([cells for _, cells in head], usual=is_csv and delimiter == ","):
        names = [str(cell).strip() for cell in head.pop(0)[1]]
        if not has_names and not is_csv:
            note = f"the first line names the columns: {', '.join(names)}"
    return Table(display_name(path), names, head, chain(head, rows), delimiter, note)


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


def find_dialect(lines: Sequence[str], *, is_csv: bool) -> tuple[str, bool]:
    """What separates the cells of a row, and whether a cell may stand in quotation marks, by a file's first lines.

    A .csv has commas unless something fits better.
    """
    filled = [line for line in lines if line.strip()]
    if filled and all(line.startswith(_LABEL) for line in filled):
        return " ", False
    own = "," if is_csv else "\t"
    fits = {each: _fit(filled, each) for each in DELIMITERS}
    if own == "\t" and fits["\t"] >= 0.5:
        return "\t", _is_quoted(filled, "\t")
    best = max(DELIMITERS, key=lambda each: fits[each])  # of equal ones the first
    if fits[best] < (0.98 if own == "\t" else max(0.9, fits[own])):
        best = own
    if best == "," and own == "\t" and len(filled) < 5:
        best = own  # a few lines of prose have as many commas each
    return best, best in ",;" or _is_quoted(filled, best)


def _fit(lines: Sequence[str], delimiter: str) -> float:
    """The share of rows that have the same number of cells, at least two."""
    try:
        rows = list(csv.reader((line + "\n" for line in lines), delimiter=delimiter))
    except csv.Error:
        rows = [line.split(delimiter) for line in lines]
    counts = Counter(len(row) for row in rows)
    usual, count = max(counts.items(), key=lambda item: item[1], default=(1, 0))
    return count / len(rows) if usual > 1 else 0.0


def _is_quoted(lines: Sequence[str], delimiter: str) -> bool:
    """Whether quotation marks enclose cells, rather than words in them: every cell that begins with one ends with one,
    and they are needed somewhere, or stand around all cells of a row."""
    mark = re.escape(delimiter)
    cell = rf'(?:"(?:[^"]|"")*"|[^"{mark}\n][^{mark}\n]*|)'
    row = re.compile(rf"{cell}(?:{mark}{cell})*\n")
    text = "\n".join(lines) + "\n"
    place, is_quoted = 0, False
    while place < len(text):
        match = row.match(text, place)
        if match is None:
            return (
                is_quoted and text.count('"', place) % 2 == 1 and len(lines) > 500
            )  # cut in a cell
        cells = re.findall(rf"(?:^|{mark})({cell})", match[0][:-1])
        quoted = [each[1:-1] for each in cells if each[:1] == '"']
        needed = any(re.search(rf'""|\n|{mark}', each) for each in quoted)
        is_quoted |= needed or len(quoted) == len(cells) > 1
        place = match.end()
    return is_quoted


def _has_names(row: Cells, named: Sequence[str]) -> bool:
    """Whether a first row must be names: it holds the two usual ones, or a column is asked for by its name."""
    by_name = any(not name.isdecimal() for name in named[2:])
    return by_name or bool(named and set(named[:2]) <= {str(cell).strip().lower() for cell in row})


def has_header(rows: Sequence[Cells], *, usual: bool) -> bool:
    """Whether the first row names the columns: its cells are unlike those below. `usual` decides where nothing does."""
    if len(rows) < 2:
        return usual and bool(rows)
    texts = [[str(cell).strip() for cell in row] for row in rows]
    verdicts = []
    for place, cell in enumerate(texts[0]):
        below = [row[place] for row in texts[1:] if place < len(row) and row[place]]
        verdicts.append(_is_name(cell, below))
    usual_names = sum(cell.lower() in KNOWN_NAMES for cell in texts[0])
    # one of a few may be a label, as "pos" is
    return False not in verdicts and (usual or True in verdicts or usual_names > (len(rows) < 10))


def _is_name(cell: str, below: Sequence[str]) -> bool | None:
    """Whether a cell names its column; None where that cannot be told."""
    if not below:
        return None
    cells = Profile("", tuple(below))
    kinds = ((cells.is_numeric, is_number), (cells.is_time, is_time), (cells.is_file, FILE.search))
    for is_kind, like in kinds:
        if is_kind:
            return not like(cell)
    if not cell:
        return True
    counts = Counter(below)
    if cell in counts or len(cell.split()) > 4:
        return False
    if len(below) < 10:
        return None
    if len(counts) <= len(below) / 4 and min(counts.values()) > 1:
        return True  # above labels, each there more than once
    if len(cell.split()) > 2 or not cell[-1].isalnum():
        return None
    shorter = sum(len(each) <= len(cell) for each in below)
    are_texts = sum(len(each.split()) for each in below) >= 4 * len(below)
    return True if are_texts and 50 * shorter < len(below) else None


def _plain_rows(text: Iterator[tuple[int, str]], delimiter: str) -> Iterator[Row]:
    """No quoting: the delimiter always separates; of blanks only the first."""
    for number, line in text:
        if line.strip():
            yield number, line.split(delimiter, 1 if delimiter == " " else -1)


def _quoted_rows(path: str, text: Iterator[tuple[int, str]], delimiter: str) -> Iterator[Row]:
    """A quoted cell may hold newlines, so a row is named by the line it starts on."""
    reader = csv.reader((line + "\n" for _, line in text), delimiter=delimiter, strict=True)
    start = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{display_name(path)}:{start}: this is not CSV: {error}",
            hint=f'a cell with {DELIMITERS[delimiter]}s, newlines or quotation marks stands in "...", and its own '
            "marks are doubled; perhaps one is never closed. Very long cells are better kept as JSONL.",
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


def json_objects(path: str, encoding: str | None) -> Iterator[tuple[int, dict[str, object]]]:
    """The objects of a file, one a line or all in one array, each with its number."""
    name = display_name(path)
    filled = ((number, line) for number, line in lines(path, encoding) if line.strip())
    first = next(filled)
    text = chain([first], filled)
    values: Iterator[tuple[int, object]]
    if first[1].lstrip().startswith("["):
        whole = "\n".join(line for _, line in text)
        values = enumerate(_parsed(whole, f"{name}: this is not JSON"), start=1)
    else:
        values = ((n, _parsed(line, f"{name}:{n}: this line is not JSON")) for n, line in text)
    for number, value in values:
        if not isinstance(value, dict):
            problem = f"{name}:{number}: a JSON {type(value).__name__} where an object is needed"
            raise DataError(f"{problem}: {shorten(str(value))}", hint=_OBJECTS)
        yield number, value


def _parsed(text: str, problem: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{problem}: {shorten(text)}", hint=f"{_OBJECTS} Python's parser says: {error}"
        ) from error


def _parquet_table(path: str) -> Table:
    names = parquet_names(path)
    rows = islice(parquet_rows(path, names), HEAD)
    head: list[Row] = [(0, cells) for _, cells in rows]  # rows have no lines
    return Table(path, names, head, parquet_rows(path, names))
