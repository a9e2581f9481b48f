"""All cells of a table of numbers, as text: the names of its columns and its rows, each with the number of its line."""

from dataclasses import dataclass

from seqlab.data.columns import is_number
from seqlab.data.panel import is_one_a_row
from seqlab.data.tables import open_table, text_of
from seqlab.errors import DataError, shorten, warn

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
        raise DataError(
            f"{table.where}: there are no rows below the header", hint="give a file that has some."
        )
    names, lines = _named(table.names, lines)
    while (
        len(lines) > 3
        and len(names) > 1
        and len(lines[-1][1]) == 1
        and len(lines[-1][1][0].split()) > 1
    ):
        number, (text,) = lines.pop()
        warn(f"{table.where}:{number}: {shorten(text)} is no row and is left out")
    rows = [row for _, row in lines]
    odd = next(((number, row) for number, row in lines if len(row) != len(names)), None)
    if odd is not None and not is_one_a_row(names, rows):
        raise DataError(
            f"{table.where}:{odd[0]}: {len(odd[1])} cells where the header has {len(names)}",
            hint="mend the line.",
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
    first = [cell.strip() for cell in lines[0][1]]
    if is_one_a_row(first, [row for _, row in lines[1:]]):  # years name the columns
        return first, lines[1:]
    return ["value"] if width == 1 else [str(place + 1) for place in range(width)], lines
