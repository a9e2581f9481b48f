"""How a table is written as text: its delimiter, its quotation marks, and whether its first row names the columns."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seqlab.data.columns import FILE, KNOWN_NAMES, Profile, is_number, is_time

DELIMITERS = {
    "\t": "tab",
    ";": "semicolon",
    "|": "pipe",
    ",": "comma",
}  # where two fit as well, the first is meant
_LABEL = "__label__"  # how fastText marks the label at the beginning of a line


@dataclass(frozen=True)
class Dialect:
    """What separates the cells of a row, and whether a cell may stand in quotation marks."""

    delimiter: str
    quoted: bool

    @property
    def separator(self) -> str:
        return DELIMITERS.get(self.delimiter, "blank")


def find_dialect(lines: Sequence[str], ending: str) -> Dialect:
    """The dialect of a file by its first lines; a .csv has commas unless something fits better."""
    filled = [line for line in lines if line.strip()]
    if filled and all(line.startswith(_LABEL) for line in filled):
        return Dialect(" ", quoted=False)
    own = "," if ending == ".csv" else "\t"
    fits = {each: _fit(filled, each) for each in DELIMITERS}
    if own == "\t" and fits["\t"] >= 0.5:
        return Dialect("\t", quoted=_is_quoted(filled, "\t"))
    best = max(DELIMITERS, key=lambda each: fits[each])  # of equal ones the first
    if fits[best] < (0.98 if own == "\t" else max(0.9, fits[own])):
        best = own
    if best == "," and own == "\t" and len(filled) < 5:
        best = own  # a few lines of prose have as many commas each
    return Dialect(best, quoted=best in ",;" or _is_quoted(filled, best))


def has_header(rows: Sequence[Sequence[str]], *, usual: bool) -> bool:
    """Whether the first row names the columns: its cells are unlike those below. `usual` decides where nothing does."""
    if len(rows) < 2:
        return usual
    verdicts = []
    for place, cell in enumerate(rows[0]):
        below = [row[place].strip() for row in rows[1:] if place < len(row) and row[place].strip()]
        verdicts.append(_is_name(cell.strip(), below))
    known = sum(
        cell.strip().lower() in KNOWN_NAMES for cell in rows[0]
    )  # one may be a label, as "pos" is
    return False not in verdicts and (usual or True in verdicts or known > (len(rows) < 10))


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
