"""Many series in one table: one in each row, or one below the other with a column that tells them apart.

Both become columns side by side over the same moments, so that one model learns from all of them, and no window reaches
from one series into another.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np
from jaxtyping import Float

from seqlab.data.columns import Profile
from seqlab.data.numerals import MISSING, find_numerals
from seqlab.data.times import moment_of, read_times, step_of
from seqlab.errors import DataError

_LEAST = 8  # values of a series that stands in a row
_NAMES = ("unique_id", "series_id", "id", "series", "item", "item_id", "store", "symbol", "ticker", "country", "sensor")
Panel = tuple[tuple[str, ...], tuple[str, ...], Float[np.ndarray, "T K"]]  # names, times, values


def is_one_a_row(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether each row is a series: a name, and then numbers under moments or under names that only count."""
    first = values_begin(names, rows)
    if first == 0 or len(names) - first < _LEAST:
        return False
    ids = [row[0].strip() for row in rows if row]
    return len(set(ids)) == len(ids) and _follow(names[first:])


def one_a_row(names: Sequence[str], rows: Sequence[Sequence[str]], where: str, numbers: Sequence[int]) -> Panel:
    """Series that stand in rows as columns; those without moments all end in the last row."""
    first = values_begin(names, rows)
    times = read_times(names[first:], numbers=False) or _years(names[first:])
    ids, columns = list[str](), list[list[float]]()
    for number, row in zip(numbers, rows, strict=True):
        cells = [cell.strip() for cell in row[first:]]
        numerals = find_numerals([cell for cell in cells if cell], "")
        values = [np.nan if cell.lower() in MISSING else numerals.number(cell) for cell in cells]
        if None in values:
            bad = cells[values.index(None)]
            raise DataError(
                f"{where}:{number}: '{bad}' is not a number", hint="leave the cell empty where none is known."
            )
        filled = [value for value in values if value is not None]
        while times is None and filled and np.isnan(filled[-1]):
            filled.pop()
        if filled:
            ids.append(row[0].strip() or str(number))
            columns.append(filled)
    longest = max(map(len, columns)) if times is None else len(times)
    table = np.full((longest, len(columns)), np.nan)
    for place, column in enumerate(columns):
        if times is None:
            table[longest - len(column) :, place] = column
        else:
            table[: len(column), place] = column
    stamps = tuple(str(row) for row in range(longest)) if times is None else tuple(times)
    return tuple(ids), stamps, table


def id_columns(profiles: Mapping[int, Profile], times: Sequence[str]) -> list[int]:
    """The column, or the two, with which no moment is there twice; nothing where each moment is there once."""
    named = [place for place, each in profiles.items() if each.name.lower() in _NAMES and each.is_label]
    if not times:
        return [place for place in named if profiles[place].name.lower() in _NAMES[:3] and len(profiles) > 1][:1]
    if len(set(times)) == len(times):
        return []
    repeated = [place for place, each in profiles.items() if each.is_label and each.num_distinct > 1]
    texts = [place for place in repeated if not profiles[place].is_numeric]
    whole = [place for place in repeated if all(cell.isdecimal() for cell in profiles[place].cells)]
    ordered = list(dict.fromkeys([*(place for place in named if place in repeated), *texts, *whole]))
    for count in (1, 2):
        for places in combinations(ordered, count):
            keys = zip(times, *(profiles[place].cells for place in places), strict=True)
            if len(set(keys)) == len(times):
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
    ids = list(dict.fromkeys(labels))
    if not times:
        counts = dict.fromkeys(ids, 0)
        stamps = []
        for label in labels:
            stamps.append(counts[label])
            counts[label] += 1
        longest = max(counts.values())
        places = [stamp + longest - counts[label] for stamp, label in zip(stamps, labels, strict=True)]
        moments = [str(row) for row in range(longest)]
    else:
        moments = sorted(set(times), key=moment_of)  # type: ignore[arg-type]
        row_of = {time: row for row, time in enumerate(moments)}
        places = [row_of[time] for time in times]
    column_of = {label: column for column, label in enumerate(ids)}
    table = np.full((len(moments), len(ids), len(names)), np.nan)
    lines: dict[tuple[int, int], int] = {}
    for place, label, row, number in zip(places, labels, values, numbers, strict=True):
        key = (place, column_of[label])
        if key in lines:
            raise DataError(
                f"{where}:{number}: {moments[place]} of '{label}' is there twice, on line {lines[key]} too",
                hint="keep one of the two, or name the columns that tell series apart: --set data.id=a,b",
            )
        lines[key] = number
        table[key] = row
    wide = [label if len(names) == 1 else f"{label} {name}" for label in ids for name in names]
    return tuple(wide), tuple(moments), table.reshape(len(moments), -1)


def values_begin(names: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """The first column after those with text; 0 where the first one holds numbers or times."""
    for place in range(len(names)):
        cells = [row[place].strip() for row in rows[:200] if place < len(row) and row[place].strip()]
        numeric = sum(find_numerals([cell], "").number(cell) is not None for cell in cells)
        if cells and 2 * numeric > len(cells):
            return 0 if place and read_times([row[0] for row in rows[:20]], numbers=False) else place
    return 0


def _follow(names: Sequence[str]) -> bool:
    """Whether names are moments or numbers that follow each other: 1990, 1991; V1, V2; d_1, d_2."""
    times = read_times(names, numbers=False)
    if times is not None:
        return step_of([moment_of(time) for time in times]) is not None
    digits = ["".join(c for c in name if c.isdigit()) for name in names]
    letters = {"".join(c for c in name if not c.isdigit()) for name in names}
    if len(letters) > 1 or not all(digits):
        return False
    return {int(b) - int(a) for a, b in pairwise(digits)} == {1}


def _years(names: Sequence[str]) -> list[str] | None:
    return (
        list(names) if all(len(name) == 4 and name.isdecimal() and "1500" < name < "2200" for name in names) else None
    )
