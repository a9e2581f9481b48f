"""All cells of a table of numbers, as text: the names of its columns and its rows, each with the number of its line."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqlab.data.columns import is_number
from seqlab.data.panel import is_one_a_row, values_begin
from seqlab.data.tables import open_table, text_of
from seqlab.data.times import moment_of, read_times, step_of
from seqlab.errors import DataError, SeqlabWarning, shorten

Line = tuple[int, list[str]]  # its number, and its cells


@dataclass(frozen=True)
class Cells:
    """A table as text, with the number of each row's line."""

    where: str
    names: list[str]
    numbers: list[int]
    rows: list[list[str]]
    separator: str = ""

    def column(self, place: int) -> list[str]:
        return [row[place].strip() for row in self.rows]


def read_cells(path: str, encoding: str | None) -> Cells:
    """All cells of a table, its header first; names are made up where there is none."""
    table = open_table(path, encoding)
    lines = [(number, [text_of(cell) or "" for cell in cells]) for number, cells in table.rows]
    if not lines:
        raise DataError(f"{table.where}: there are no rows below the header", hint="give a file that has some.")
    names, lines = _named(table.names, lines)
    while len(lines) > 3 and len(names) > 1 and len(lines[-1][1]) == 1 and len(lines[-1][1][0].split()) > 1:
        number, (text,) = lines.pop()
        warn(f"{table.where}:{number}: {shorten(text)} is no row and is left out")
    rows = [row for _, row in lines]
    odd = next(((number, row) for number, row in lines if len(row) != len(names)), None)
    if odd is not None and not is_one_a_row(names, rows):
        raise DataError(
            f"{table.where}:{odd[0]}: {len(odd[1])} cells where the header has {len(names)}", hint="mend the line."
        )
    return Cells(table.where, names, [number for number, _ in lines], rows, table.separator)


def _named(names: list[str] | None, lines: list[Line]) -> tuple[list[str], list[Line]]:
    """The names of the columns and the rows below; numbers with blanks between are columns too."""
    header = [] if names is None else [(lines[0][0] - 1, names)]
    parts = [(number, row[0].split()) for number, row in header + lines if len(row) == 1]
    width = len(lines[0][1])
    if len(parts) >= len(lines) and {len(row) for _, row in parts} == {len(parts[0][1])} != {1}:
        names, lines, width = None, parts, len(parts[0][1])
        if not all(map(is_number, parts[0][1])):
            names = lines.pop(0)[1]
    if names is not None:
        return names, lines
    first, below = lines[0][1], [row for _, row in lines[1:]]
    if width > 8 and below and _count(first[values_begin(first, below) :]):  # years name the columns
        return [cell.strip() for cell in first], lines[1:]
    return ["value"] if width == 1 else [str(place + 1) for place in range(width)], lines


def _count(cells: Sequence[str]) -> bool:
    """Whether cells are moments that follow each other, as the header of a table with a series in each row."""
    moments = [moment_of(time) or 0.0 for time in read_times(cells) or ()]
    step = step_of(moments)
    return step is not None and bool(np.all(np.abs(np.diff(step.places(moments)) - 1) < 0.01))


def warn(message: str) -> None:
    """Tell the user of something in the file."""
    warnings.warn(message, SeqlabWarning, stacklevel=3)
