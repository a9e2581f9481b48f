"""A table of numbers as text, and many series in it: one in each row, or one below the other with a column that tells
them apart.

Both become columns side by side over the same moments, so that one model learns from all of them, and no window reaches
from one series into another.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from jaxtyping import Float

from seqlab.data.columns import Profile, find_numerals, is_number
from seqlab.data.dialect import has_header
from seqlab.data.tables import open_table, text_of
from seqlab.data.times import moment_of, read_times, step_of
from seqlab.errors import DataError, shorten, warn

Line = tuple[int, list[str]]  # its number, and its cells
_LOOKED_AT = 200  # rows
_MOST_NAMES = 10  # columns before the values of a series in a row
_LEAST = 8  # values of a series that stands in a row
_NAMES = (
    "unique_id",
    "series_id",
    "id",
    "series",
    "item",
    "item_id",
    "store",
    "symbol",
    "ticker",
    "country",
    "sensor",
)
Panel = tuple[tuple[str, ...], tuple[str, ...], Float[np.ndarray, "T K"]]  # names, times, values


@dataclass(frozen=True)
class Cells:
    """A table as text, with the number of each row's line."""

    where: str
    names: list[str]
    numbers: list[int]
    rows: list[list[str]]
    delimiter: str = ""

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
    names, lines = _without_empty_columns(*_named(table.names, lines))
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
    return Cells(table.where, names, [number for number, _ in lines], rows, table.delimiter)


def _without_empty_columns(names: list[str], lines: list[Line]) -> tuple[list[str], list[Line]]:
    """The table without the columns at its end that have neither a name nor a cell."""
    width = len(names)
    while width > 1 and not names[width - 1]:
        width -= 1
    if any("".join(row[width:]) for _, row in lines):
        return names, lines
    return names[:width], [(number, row[:width]) for number, row in lines]


def _named(names: list[str] | None, lines: list[Line]) -> tuple[list[str], list[Line]]:
    """The names of the columns and the rows below; numbers with blanks between are columns too."""
    header = [] if names is None else [(lines[0][0] - 1, names)]
    parts = [(number, row[0].split()) for number, row in header + lines if len(row) == 1]
    width = len(lines[0][1])
    if len(parts) >= len(lines) and {len(row) for _, row in parts} == {len(parts[0][1])} != {1}:
        names, lines, width = None, parts, len(parts[0][1])
        cells = [row for _, row in parts]
        if not all(map(is_number, cells[0])) and has_header(cells, usual=False):
            names = lines.pop(0)[1]
    if names is not None:
        return names, lines
    if len(lines) == 1 and width >= _LEAST:  # numbers of one series on one line
        return ["value"], [(lines[0][0], [cell]) for cell in lines[0][1]]
    first = "\t".join(cell.strip() for cell in lines[0][1]).rstrip("\t").split("\t")
    if is_one_a_row(first, [row for _, row in lines[1:]]):  # years name the columns
        return first, lines[1:]
    return ["value"] if width == 1 else [str(place + 1) for place in range(width)], lines


def is_one_a_row(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether each row is a series: a name, and then numbers under moments or under names that only count."""
    first = values_begin(names, rows)
    labels = names_of_rows(rows, first)
    return first > 0 and len(set(labels)) == len(labels)


def names_of_rows(rows: Sequence[Sequence[str]], first: int) -> list[str]:
    """The first cell of each row if it tells the rows apart, else all texts before the values."""
    rows = [row for row in rows if row]
    labels = [row[0].strip() for row in rows]
    if len(set(labels)) == len(labels):
        return labels
    texts = [place for place in range(first) if not all(_is_value(row[place]) for row in rows)]
    return ["/".join(row[place].strip() for place in texts if row[place].strip()) for row in rows]


def times_of_columns(names: Sequence[str]) -> Sequence[str]:
    """The moments that names of columns are; nothing where they only count."""
    years = all(len(name) == 4 and name.isdecimal() and "1500" < name < "2200" for name in names)
    return names if years else read_times(names, numbers=False) or ()


def id_columns(profiles: Mapping[int, Profile], times: Sequence[str]) -> list[int]:
    """The column, or the two, with which no moment is there twice; nothing where each moment is there once."""
    named = [
        place for place, each in profiles.items() if each.name.lower() in _NAMES and each.is_label
    ]
    if not times:
        return [
            place
            for place in named
            if profiles[place].name.lower() in _NAMES[:3] and len(profiles) > 1
        ][:1]
    if len(set(times)) == len(times):
        return []
    repeated = [
        place for place, each in profiles.items() if each.is_label and each.num_distinct > 1
    ]
    texts = [place for place in repeated if not profiles[place].is_numeric]
    whole = [place for place in repeated if all(cell.isdecimal() for cell in profiles[place].cells)]
    ordered = dict.fromkeys([*(place for place in named if place in repeated), *texts, *whole])
    for places in (*combinations(ordered, 1), *combinations(ordered, 2)):
        keys = zip(times, *(profiles[place].cells for place in places), strict=True)
        values = [each for place, each in profiles.items() if place not in places]
        if len(set(keys)) == len(times) and any(each.is_numeric for each in values):
            return sorted(places)
    return []


def side_by_side(
    labels: Sequence[str],
    times: Sequence[str],
    names: Sequence[str],
    values: Float[np.ndarray, "N C"],
    where: str,
    numbers: Sequence[int],
) -> Panel:
    """Series that stand one below the other as columns over all moments; without times each ends in the last row."""
    if not times:
        left = Counter(labels)
        longest = max(left.values())
        times = []
        for label in labels:
            times.append(str(longest - left[label]))
            left[label] -= 1
    moments = sorted(set(times), key=moment_of)  # type: ignore[arg-type]
    row_of = {moment: row for row, moment in enumerate(moments)}
    ids = {label: column for column, label in enumerate(dict.fromkeys(labels))}
    table = np.full((len(moments), len(ids), len(names)), np.nan)
    lines: dict[tuple[str, str], int] = {}
    for time, label, row, number in zip(times, labels, values, numbers, strict=True):
        line = lines.setdefault((time, label), number)
        if line != number:
            raise DataError(
                f"{where}:{number}: {time} of '{label}' is there twice, on line {line} too",
                hint="keep one of the two, or name the columns that tell series apart: --set data.id=a,b",
            )
        table[row_of[time], ids[label]] = row
    wide = [label if len(names) == 1 else f"{label} {name}" for label in ids for name in names]
    return tuple(wide), tuple(moments), table.reshape(len(moments), -1)


def values_begin(names: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Where the columns of numbers begin whose names follow each other; 0 where the first holds numbers or times."""
    some = [row for row in rows[:_LOOKED_AT] if row]
    for place in range(1, min(_MOST_NAMES + 1, len(names) - _LEAST + 1)):
        if not _follow(names[place:]):
            continue
        cells = [cell.strip() for row in some for cell in row[place:] if cell.strip()]
        firsts = [row[0] for row in some if row[0].strip()]
        numeric = 2 * sum(map(_is_value, cells)) > len(cells)
        named = (
            2 * sum(map(_is_value, firsts)) <= len(firsts)
            and read_times(firsts[:20], numbers=False) is None
        )
        return place if numeric and named else 0
    return 0


def _is_value(cell: str) -> bool:
    return find_numerals([cell], "").number(cell.strip()) is not None


def _follow(names: Sequence[str]) -> bool:
    """Whether names are moments or numbers that follow each other: 1990, 1991; V1, V2; d_1, d_2."""
    if times := read_times(names, numbers=False):
        return step_of(sorted(moment_of(time) for time in times)) is not None  # type: ignore[type-var]
    digits = ["".join(filter(str.isdigit, name)) for name in names]
    letters = {name.replace(number, "", 1) for name, number in zip(names, digits, strict=True)}
    return (
        len(letters) == 1
        and all(digits)
        and {int(b) - int(a) for a, b in pairwise(digits)} in ({1}, {-1})
    )
