"""How a table is written as text: its delimiter, its quotation marks, and whether its first row names the columns."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from seqlab.data.columns import FILE, KNOWN_NAMES, Profile, is_number, is_time

DELIMITERS = {
    "\t": "tab",
    " ||| ": "|||",
    ";": "semicolon",
    "|": "pipe",
    ",": "comma",
}  # where two fit as well, the first is meant
_LABEL = re.compile(  # at the beginning of a line: of fastText, a class of TREC, or a number
    r"__label__\S+|[A-Z]{2,}:\w+|[+-]?\d{1,2}"
)
_SOME = 10  # lines that show how a file is written
_LONGEST = 1 << 24  # characters of a cell


@dataclass(frozen=True)
class Dialect:
    """What separates the cells of a row, and whether a cell may stand in quotation marks."""

    delimiter: str
    quoted: bool
    escape: str | None = None  # what stands before a quotation mark within a cell, if not another
    blanks: bool = False  # whether a blank after each delimiter is no part of the cell

    def reader(self, lines: Iterable[str]) -> Any:
        """The rows of quoted cells in lines with their ends; a csv.Error where it is not written like this."""
        csv.field_size_limit(_LONGEST)
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            doublequote=self.escape is None,
            escapechar=self.escape,
            skipinitialspace=self.blanks,
            strict=True,
        )

    def split(self, line: str) -> list[str]:
        """The cells of a line without quotation; a blank is a delimiter only after the label of a line."""
        if self.delimiter == " ":
            return line.split(None, 1)
        return line.split(self.delimiter)


def find_dialect(lines: Sequence[str], ending: str) -> Dialect:
    """The dialect of a file by its first lines; a .csv has commas unless something fits better."""
    filled = [line for line in lines if line.strip()]
    own = "," if ending == ".csv" else "\t"
    fits = {each: _fit(filled, each) for each in DELIMITERS}
    if own == "\t" and fits["\t"] >= 0.5:
        return Dialect("\t", quoted=_is_quoted(filled, "\t"))
    if own == "\t" and _begin_with_labels(filled):
        return Dialect(" ", quoted=False)
    best = max(DELIMITERS, key=lambda each: fits[each])  # of equal ones the first
    if fits[best] < (0.98 if own == "\t" else max(0.9, fits[own])):
        best = own
    if best in ",;" and own == "\t" and len(filled) < 5 and any(map(str.isalpha, "".join(filled))):
        best = own  # a few lines of prose have as many commas each
    if best in ",;":
        return _quotation(filled, best)
    return Dialect(best, quoted=len(best) == 1 and _is_quoted(filled, best))


def _quotation(lines: Sequence[str], delimiter: str) -> Dialect:
    """How quotation marks are used: as in RFC 4180, after a blank, or escaped by a backslash.

    Where none of these reads the lines and no cell is enclosed, marks are part of the texts.
    """
    usual = Dialect(delimiter, quoted=True)
    text = "\n".join(lines)
    if text.count(f'{delimiter} "') > text.count(f'{delimiter}"'):
        usual = replace(usual, blanks=True)
    if _reads(usual, lines):
        return usual
    if '\\"' in text and _reads(escaped := replace(usual, escape="\\"), lines):
        return escaped
    enclosed = re.search(rf'(^|{delimiter})"[^"]*"({delimiter}|$)', text, re.MULTILINE)
    many = len(lines) >= _SOME and all(delimiter in line for line in lines)
    return usual if enclosed or not many else replace(usual, quoted=False)


def _reads(dialect: Dialect, lines: Sequence[str]) -> bool:
    try:
        return bool(list(dialect.reader(line + "\n" for line in lines)))
    except csv.Error:
        return False


def _begin_with_labels(lines: Sequence[str]) -> bool:
    """Whether each line is a label of a usual form, a blank, and a text."""
    parts = [line.split(None, 1) for line in lines]
    labels = Counter(part[0] for part in parts)
    texts = sum(any(map(str.isalpha, part[-1])) for part in parts if len(part) == 2)
    several = 1 < len(labels) <= max(2, len(parts) / 4)
    return several and texts > 0.9 * len(parts) and all(map(_LABEL.fullmatch, labels))


def has_header(rows: Sequence[Sequence[object]], *, usual: bool) -> bool:
    """Whether the first row names the columns: its cells are unlike those below. `usual` decides where nothing does."""
    if len(rows) < 2:
        return usual and bool(rows)
    first = [str(cell).strip().lower() for cell in rows[0]]
    known = sum(cell in KNOWN_NAMES for cell in first)  # one may be a label, as "pos" is
    if known >= 2 and 2 * known > len(first) == len({*first}):
        return True
    verdicts = list(names_like(rows))
    return False not in verdicts and (usual or True in verdicts or known > (len(rows) < 10))


def names_like(rows: Sequence[Sequence[object]]) -> Iterator[bool | None]:
    """Whether each cell of the first row is unlike those below it; None where that cannot be told."""
    first, *rest = [[str(cell).strip() for cell in row] for row in rows]
    columns = [
        [row[place] for row in rest if place < len(row) and row[place]]
        for place in range(len(first))
    ]
    return map(_is_name, first, columns)


def _is_name(cell: str, below: Sequence[str]) -> bool | None:
    """Whether a cell names its column; None where that cannot be told."""
    if not below:
        return None
    cells = Profile("", tuple(below))
    if cells.is_numeric:
        return not is_number(cell)
    if cells.is_time:
        return not is_time(cell)
    if cells.is_file:
        return not FILE.search(cell)
    if not cell:
        return True
    counts = Counter(below)
    if cell in counts or len(cell.split()) > 4:
        return False
    if len(below) < 10:
        return None
    if (
        len(counts) <= len(below) / 4 and min(counts.values()) > 1
    ):  # labels, each there more than once
        return True
    shorter = sum(len(each) <= len(cell) for each in below)
    texts = sum(len(each.split()) for each in below) / len(below) >= 4
    return (
        True
        if texts and len(cell.split()) <= 2 and cell[-1].isalnum() and 50 * shorter < len(below)
        else None
    )


def _fit(lines: Sequence[str], delimiter: str) -> float:
    """The share of rows that have the same number of cells, at least two."""
    rows = [line.split(delimiter) for line in lines]
    if len(delimiter) == 1:
        with suppress(csv.Error):
            rows = list(csv.reader((line + "\n" for line in lines), delimiter=delimiter))
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
