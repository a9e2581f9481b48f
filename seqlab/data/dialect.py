"""The dialect of a text table: its delimiter, its quotation marks, and whether it has a header."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from seqlab.data.columns import FILE, KNOWN_NAMES, Profile, is_number, is_time

# If two fit equally well, the first is chosen.
DELIMITERS = {"\t": "tab", " ||| ": "|||", ";": "semicolon", "|": "pipe", ",": "comma"}
# A label at the beginning of a line: of fastText, a class of TREC, or a number.
_LABEL = re.compile(r"__label__\S+|[A-Z]{2,}:\w+|[+-]?\d{1,2}")
_MIN_LINES = 10  # lines that show how a file is written
_MAX_CELL = 1 << 24  # characters of a cell


@dataclass(frozen=True)
class Dialect:
    """The delimiter of the cells, and whether and how cells may be quoted."""

    delimiter: str
    quoted: bool
    escape: str | None = None  # precedes a quotation mark in a cell; None: the mark is doubled
    blanks: bool = False  # whether to drop the space after each delimiter

    def reader(self, lines: Iterable[str]) -> Any:
        """Iterate over the rows of cells; raise csv.Error if the lines are not in this dialect."""
        csv.field_size_limit(_MAX_CELL)
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            doublequote=self.escape is None,
            escapechar=self.escape,
            skipinitialspace=self.blanks,
            strict=True,
        )

    def split(self, line: str) -> list[str]:
        """Split a line without quotation marks; a space separates only the label from the text."""
        if self.delimiter == " ":
            return line.split(None, 1)
        return line.split(self.delimiter)


def find_dialect(lines: Sequence[str], ending: str) -> Dialect:
    """Detect the dialect from the first lines; a .csv has commas unless another delimiter fits better."""
    filled = [line for line in lines if line.strip()]
    default = "," if ending == ".csv" else "\t"
    fits = {each: _fit(filled, each) for each in DELIMITERS}
    if default == "\t":
        if fits["\t"] >= 0.5:
            return Dialect("\t", quoted=_is_quoted(filled, "\t"))
        if _begin_with_labels(filled):
            return Dialect(" ", quoted=False)
    best = max(DELIMITERS, key=lambda each: fits[each])  # the first of equal ones
    if fits[best] < (0.98 if default == "\t" else max(0.9, fits[default])):
        best = default
    few_lines = default == "\t" and len(filled) < 5
    if best in ",;" and few_lines and any(map(str.isalpha, "".join(filled))):
        best = default  # a few lines of prose may have equally many commas
    if best in ",;":
        return _quotation(filled, best)
    return Dialect(best, quoted=len(best) == 1 and _is_quoted(filled, best))


def _quotation(lines: Sequence[str], delimiter: str) -> Dialect:
    """Detect how quotation marks are used: as in RFC 4180, after a space, or escaped by a backslash.

    If none of these reads the lines and no cell is quoted, the marks are part of the texts.
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
    many = len(lines) >= _MIN_LINES and all(delimiter in line for line in lines)
    return usual if enclosed or not many else replace(usual, quoted=False)


def _reads(dialect: Dialect, lines: Sequence[str]) -> bool:
    try:
        return bool(list(dialect.reader(line + "\n" for line in lines)))
    except csv.Error:
        return False


def _begin_with_labels(lines: Sequence[str]) -> bool:
    """Whether each line is a label of a usual form, a space, and a text."""
    parts = [line.split(None, 1) for line in lines]
    labels = Counter(part[0] for part in parts)
    texts = sum(any(map(str.isalpha, part[-1])) for part in parts if len(part) == 2)
    several = 1 < len(labels) <= max(2, len(parts) / 4)
    return several and texts > 0.9 * len(parts) and all(map(_LABEL.fullmatch, labels))


def has_header(rows: Sequence[Sequence[object]], *, usual: bool) -> bool:
    """Whether the first row names the columns. If its cells do not show it, return `usual`."""
    if len(rows) < 2:
        return usual and bool(rows)
    first = [str(cell).strip().lower() for cell in rows[0]]
    num_known = sum(cell in KNOWN_NAMES for cell in first)  # one may be a label, such as "pos"
    if num_known >= 2 and 2 * num_known > len(first) == len({*first}):
        return True
    verdicts = list(are_names(rows))
    if False in verdicts:
        return False
    return usual or True in verdicts or num_known > (len(rows) < 10)


def are_names(rows: Sequence[Sequence[object]]) -> Iterator[bool | None]:
    """For each cell of the first row, whether it differs in kind from the cells below; None if undecided."""
    first, *rest = [[str(cell).strip() for cell in row] for row in rows]
    columns = [
        [row[index] for row in rest if index < len(row) and row[index]]
        for index in range(len(first))
    ]
    return map(_is_name, first, columns)


def _is_name(cell: str, below: Sequence[str]) -> bool | None:
    """Whether a cell names its column, rather than being one of its values; None if undecided."""
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
    are_labels = len(counts) <= len(below) / 4 and min(counts.values()) > 1
    if are_labels:
        return True
    are_texts = sum(len(each.split()) for each in below) / len(below) >= 4
    num_shorter = sum(len(each) <= len(cell) for each in below)
    like_a_name = len(cell.split()) <= 2 and cell[-1].isalnum() and 50 * num_shorter < len(below)
    return True if are_texts and like_a_name else None


def _fit(lines: Sequence[str], delimiter: str) -> float:
    """Return the share of rows that have the most common number of cells, if that is at least two."""
    rows = [line.split(delimiter) for line in lines]
    if len(delimiter) == 1:
        with suppress(csv.Error):
            rows = list(csv.reader((line + "\n" for line in lines), delimiter=delimiter))
    counts = Counter(len(row) for row in rows)
    usual, count = max(counts.items(), key=lambda item: item[1], default=(1, 0))
    return count / len(rows) if usual > 1 else 0.0


def _is_quoted(lines: Sequence[str], delimiter: str) -> bool:
    """Whether quotation marks enclose cells, rather than words in them.

    Every cell that begins with a mark must end with one; and some cell must need its marks, or a row have all its
    cells quoted.
    """
    mark = re.escape(delimiter)
    cell = rf'(?:"(?:[^"]|"")*"|[^"{mark}\n][^{mark}\n]*|)'
    row = re.compile(rf"{cell}(?:{mark}{cell})*\n")
    text = "\n".join(lines) + "\n"
    start = 0
    is_quoted = False
    while start < len(text):
        match = row.match(text, start)
        if match is None:  # the sample may end within a quoted cell
            return is_quoted and text.count('"', start) % 2 == 1 and len(lines) > 500
        cells = re.findall(rf"(?:^|{mark})({cell})", match[0][:-1])
        quoted = [each[1:-1] for each in cells if each[:1] == '"']
        needed = any(re.search(rf'""|\n|{mark}', each) for each in quoted)
        is_quoted |= needed or len(quoted) == len(cells) > 1
        start = match.end()
    return is_quoted
