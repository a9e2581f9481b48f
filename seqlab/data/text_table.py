"""A table with all its cells as text: the names of the columns, the rows, and the line number of each row."""

from collections.abc import Sequence
from dataclasses import dataclass

from seqlab.data.columns import is_number
from seqlab.data.dialect import has_header
from seqlab.data.panel import MIN_VALUES, is_one_a_row
from seqlab.data.tables import open_table, text_of
from seqlab.errors import DataError, UsageError, nearest, shorten, warn

NumberedRow = tuple[int, list[str]]  # a line number and the cells of the line


@dataclass(frozen=True)
class TextTable:
    """A table as text, with the line number of each row."""

    where: str
    names: list[str]
    numbers: list[int]
    rows: list[list[str]]
    delimiter: str = ""

    def column(self, index: int) -> list[str]:
        return [row[index].strip() for row in self.rows]


def column_index(names: Sequence[str], name: str) -> int:
    """Return the index of a column that the user chose by its name, or by its number from 1."""
    if name in names:
        return list(names).index(name)
    if name.isdecimal() and 1 <= int(name) <= len(names):
        return int(name) - 1
    raise UsageError(f"there is no column '{name}'", hint=nearest(name, names))


def read_text_table(path: str, encoding: str | None) -> TextTable:
    """Read all cells of a table. Columns without a header are named "1", "2" and so on."""
    table = open_table(path, encoding)
    lines = [(number, [text_of(cell) or "" for cell in cells]) for number, cells in table.rows]
    if not lines:
        raise DataError(
            f"{table.where}: there are no rows below the header", hint="give a file that has some."
        )
    names, lines = _without_empty_columns(*_split_header(table.names, lines))
    while len(lines) > 3 and len(names) > 1 and _is_remark(lines[-1][1]):
        number, (text,) = lines.pop()
        warn(f"{table.where}:{number}: {shorten(text)} is not a row of the table; it is left out")
    rows = [row for _, row in lines]
    malformed = next(((number, row) for number, row in lines if len(row) != len(names)), None)
    if malformed is not None and not is_one_a_row(names, rows):
        number, row = malformed
        raise DataError(
            f"{table.where}:{number}: {len(row)} cells where the header has {len(names)}",
            hint="correct the line.",
        )
    return TextTable(table.where, names, [number for number, _ in lines], rows, table.delimiter)


def _is_remark(row: Sequence[str]) -> bool:
    """Whether a row has one cell only, of several words."""
    return len(row) == 1 and len(row[0].split()) > 1


def _without_empty_columns(
    names: list[str], lines: list[NumberedRow]
) -> tuple[list[str], list[NumberedRow]]:
    """Drop the last columns if they have neither a name nor a value."""
    width = len(names)
    while width > 1 and not names[width - 1]:
        width -= 1
    if any("".join(row[width:]) for _, row in lines):
        return names, lines
    return names[:width], [(number, row[:width]) for number, row in lines]


def _split_header(
    names: list[str] | None, lines: list[NumberedRow]
) -> tuple[list[str], list[NumberedRow]]:
    """Return the names of the columns, and the rows below them; spaces may separate the columns."""
    header = [] if names is None else [(lines[0][0] - 1, names)]
    split = [(number, row[0].split()) for number, row in header + lines if len(row) == 1]
    width = len(lines[0][1])
    if len(split) >= len(lines) and {len(row) for _, row in split} == {len(split[0][1])} != {1}:
        names, lines = None, split
        width = len(split[0][1])
        cells = [row for _, row in split]
        if not all(map(is_number, cells[0])) and has_header(cells, usual=False):
            names = lines.pop(0)[1]
    if names is not None:
        return names, lines
    if len(lines) == 1 and width >= MIN_VALUES:  # one series on one line
        return ["value"], [(lines[0][0], [cell]) for cell in lines[0][1]]
    first = "\t".join(cell.strip() for cell in lines[0][1]).rstrip("\t").split("\t")
    if is_one_a_row(first, [row for _, row in lines[1:]]):  # the names are years
        return first, lines[1:]
    return ["value"] if width == 1 else [str(index + 1) for index in range(width)], lines
