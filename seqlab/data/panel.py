"""Many series in one table: one in each row, or one below the other with a column that tells them apart.

Both become columns side by side over the same moments, so that one model learns from all of them, and no window reaches
from one series into another.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np
from jaxtyping import Float

from seqlab.data.columns import Profile
from seqlab.data.numerals import find_numerals
from seqlab.data.times import moment_of, read_times, step_of
from seqlab.errors import DataError

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


def is_one_a_row(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether each row is a series: a name, and then numbers under moments or under names that only count."""
    first = values_begin(names, rows)
    if first == 0 or len(names) - first < _LEAST:
        return False
    ids = [row[0].strip() for row in rows if row]
    return len(set(ids)) == len(ids) and _follow(names[first:])


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
    """The first column after those with text; 0 where the first one holds numbers or times."""
    for place in range(len(names)):
        cells = [
            row[place].strip() for row in rows[:200] if place < len(row) and row[place].strip()
        ]
        numeric = sum(find_numerals([cell], "").number(cell) is not None for cell in cells)
        if cells and 2 * numeric > len(cells):
            return (
                0 if place and read_times([row[0] for row in rows[:20]], numbers=False) else place
            )
    return 0


def _follow(names: Sequence[str]) -> bool:
    """Whether names are moments or numbers that follow each other: 1990, 1991; V1, V2; d_1, d_2."""
    if times := read_times(names, numbers=False):
        return step_of([moment_of(time) for time in times]) is not None
    digits = ["".join(filter(str.isdigit, name)) for name in names]
    letters = {name.replace(number, "", 1) for name, number in zip(names, digits, strict=True)}
    return (
        len(letters) == 1 and all(digits) and {int(b) - int(a) for a, b in pairwise(digits)} == {1}
    )
