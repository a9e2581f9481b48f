"""All cells of a table of numbers, as text: the names of its columns and its rows, each with the number of its line."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from seqlab.data.columns import is_number
from seqlab.data.lines import display_name, extension
from seqlab.data.panel import is_one_a_row, values_begin
from seqlab.data.parquet import open_parquet
from seqlab.data.tables import Table, open_table
from seqlab.data.times import moment_of, read_times, step_of
from seqlab.errors import DataError, SeqlabWarning, shorten


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
    if extension(path) == ".parquet":
        with open_parquet(path) as parquet:
            names = parquet.names
            read = list(parquet.rows(range(len(names))))
        rows = [["" if value is None else str(value) for value in values] for _, values in read]
        return Cells(display_name(path), names, [number for number, _ in read], rows)
    table = open_table(path, encoding)
    lines = list(table.rows)
    if not lines:
        raise DataError(f"{table.where}: there are no rows below the header", hint="give a file that has some.")
    names, rows = _named(table, [["" if cell is None else cell for cell in cells] for _, cells in lines])
    numbers = [number for number, _ in lines][-len(rows) :]
    numbers = [*range(numbers[0] - len(rows) + len(numbers), numbers[0]), *numbers] if numbers else []
    cells = Cells(table.where, names, numbers, rows, table.separator)
    return _rectangular(cells)


def _named(table: Table, rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The names of the columns and the rows below; numbers with blanks between are columns too."""
    parts = [row[0].split() for row in ([table.names] if table.names else []) + rows if len(row) == 1]
    if len(parts) > len(rows) - 1 and {len(row) for row in parts} == {len(parts[0])} != {1}:
        first_row = all(map(is_number, parts[0]))
        return ([str(place + 1) for place in range(len(parts[0]))], parts) if first_row else (parts[0], parts[1:])
    if table.names is not None:
        return table.names, rows
    width = len(rows[0]) if rows else 0
    if width > 8 and len(rows) > 1 and _counts(rows[0][values_begin(rows[0], rows[1:]) :]):  # years name the columns
        return [cell.strip() for cell in rows[0]], rows[1:]
    return ["value"] if width == 1 else [str(place + 1) for place in range(width)], rows


def _counts(cells: Sequence[str]) -> bool:
    """Whether cells are moments that follow each other, as the header of a table with a series in each row."""
    times = read_times(cells)
    step = None if times is None else step_of([moment_of(time) for time in times])
    return step is not None and bool(
        np.all(np.abs(np.diff(step.places([moment_of(t) or 0.0 for t in times or ()])) - 1) < 0.01)
    )


def _rectangular(cells: Cells) -> Cells:
    """The table, without lines of text below it; any other row that is too short or too long is refused."""
    width, rows = len(cells.names), list(cells.rows)
    while len(rows) > 3 and width > 1 and len(rows[-1]) == 1 and len(rows[-1][0].split()) > 1:
        warn(f"{cells.where}:{cells.numbers[len(rows) - 1]}: {shorten(rows.pop()[0])} is no row and is left out")
    odd = next((place for place, row in enumerate(rows) if len(row) != width), None)
    if odd is not None and not is_one_a_row(cells.names, rows):
        raise DataError(
            f"{cells.where}:{cells.numbers[odd]}: {len(rows[odd])} cells where the header has {width}",
            hint="mend the line.",
        )
    return replace(cells, rows=rows, numbers=cells.numbers[: len(rows)])


def warn(message: str) -> None:
    """Tell the user of something in the file."""
    warnings.warn(message, SeqlabWarning, stacklevel=3)
