"""Panel data: many series in one table, either one in each row, or one below the other with columns that identify them.

Both become columns over the same moments, so that one model learns from all of them, and no window reaches from one
series into another.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np
from jaxtyping import Float

from seqlab.data.columns import Profile, find_numerals
from seqlab.data.time_formats import parse_moment, read_times
from seqlab.data.time_steps import infer_step
from seqlab.errors import DataError

MIN_VALUES = 8  # values of a series that is written in one row
_SAMPLE_ROWS = 200  # rows that are inspected
_MAX_NAME_COLUMNS = 10  # columns before the values of a series that is written in one row
_ID_NAMES = (
    "unique_id", "series_id", "id", "series", "item", "item_id", "store", "symbol", "ticker",
    "country", "sensor",
)  # fmt: skip
Panel = tuple[tuple[str, ...], tuple[str, ...], Float[np.ndarray, "T K"]]  # names, times, values


def is_one_a_row(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether each row is a series: a name, then values in columns that are named by moments or numbered."""
    first = first_value_column(names, rows)
    labels = names_of_rows(rows, first)
    return first > 0 and len(set(labels)) == len(labels)


def names_of_rows(rows: Sequence[Sequence[str]], first: int) -> list[str]:
    """Return a name for each row: its first cell if that is unique, else all texts before column `first`."""
    rows = [row for row in rows if row]
    labels = [row[0].strip() for row in rows]
    if len(set(labels)) == len(labels):
        return labels
    texts = [index for index in range(first) if not all(_is_value(row[index]) for row in rows)]
    return ["/".join(row[index].strip() for index in texts if row[index].strip()) for row in rows]


def times_of_columns(names: Sequence[str]) -> Sequence[str]:
    """Return the moments that the names of the columns denote; an empty sequence if they are only numbered."""
    years = all(len(name) == 4 and name.isdecimal() and "1500" < name < "2200" for name in names)
    return names if years else read_times(names, numbers=False) or ()


def find_id_columns(profiles: Mapping[int, Profile], times: Sequence[str]) -> list[int]:
    """Return the column, or the two columns, that identify the series; none if there is only one series.

    Together with the time they must be unique in each row.
    """
    usual = [
        index
        for index, profile in profiles.items()
        if profile.name.lower() in _ID_NAMES and profile.is_label
    ]
    if not times:
        explicit = [index for index in usual if profiles[index].name.lower() in _ID_NAMES[:3]]
        return explicit[:1] if len(profiles) > 1 else []
    if len(set(times)) == len(times):
        return []
    repeated = [
        index
        for index, profile in profiles.items()
        if profile.is_label and profile.num_distinct > 1
    ]
    usual = [index for index in usual if index in repeated]
    texts = [index for index in repeated if not profiles[index].is_numeric]
    whole = [index for index in repeated if all(map(str.isdecimal, profiles[index].cells))]
    candidates = dict.fromkeys([*usual, *texts, *whole])
    for ids in (*combinations(candidates, 1), *combinations(candidates, 2)):
        keys = set(zip(times, *(profiles[index].cells for index in ids), strict=True))
        has_values = any(each.is_numeric for index, each in profiles.items() if index not in ids)
        if len(keys) == len(times) and has_values:
            return sorted(ids)
    return []


def side_by_side(
    labels: Sequence[str],
    times: Sequence[str],
    names: Sequence[str],
    values: Float[np.ndarray, "N C"],
    where: str,
    numbers: Sequence[int],
) -> Panel:
    """Make columns over all moments of series that are written one below the other.

    `labels` has the name of the series of each row. Without times, all series end in the last row.
    """
    times = times or _counted_times(labels)
    moments = sorted(set(times), key=parse_moment)  # type: ignore[arg-type]
    row_of = {moment: row for row, moment in enumerate(moments)}
    column_of = {label: column for column, label in enumerate(dict.fromkeys(labels))}
    table = np.full((len(moments), len(column_of), len(names)), np.nan)
    lines: dict[tuple[str, str], int] = {}
    for time, label, row, number in zip(times, labels, values, numbers, strict=True):
        line = lines.setdefault((time, label), number)
        if line != number:
            raise DataError(
                f"{where}:{number}: {time} of '{label}' is repeated (first on line {line})",
                hint="keep one of the two, or name the columns that identify a series: --set data.id=a,b",
            )
        table[row_of[time], column_of[label]] = row
    wide = [
        label if len(names) == 1 else f"{label} {name}" for label in column_of for name in names
    ]
    return tuple(wide), tuple(moments), table.reshape(len(moments), -1)


def _counted_times(labels: Sequence[str]) -> list[str]:
    """Number the rows of each series so that all end with the same number."""
    remaining = Counter(labels)
    longest = max(remaining.values())
    times = []
    for label in labels:
        times.append(str(longest - remaining[label]))
        remaining[label] -= 1
    return times


def first_value_column(names: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Return the index of the first of the columns with consecutive names and numbers in them.

    Return 0 if there are none, or if the first column of the table holds numbers or times.
    """
    sample = [row for row in rows[:_SAMPLE_ROWS] if row]
    for index in range(1, min(_MAX_NAME_COLUMNS + 1, len(names) - MIN_VALUES + 1)):
        if not _are_consecutive(names[index:]):
            continue
        cells = [cell.strip() for row in sample for cell in row[index:] if cell.strip()]
        if 2 * sum(map(_is_value, cells)) <= len(cells):
            return 0
        labels = [row[0] for row in sample if row[0].strip()]
        if 2 * sum(map(_is_value, labels)) > len(labels):
            return 0
        return index if read_times(labels[:20], numbers=False) is None else 0
    return 0


def _is_value(cell: str) -> bool:
    return find_numerals([cell], "").number(cell.strip()) is not None


def _are_consecutive(names: Sequence[str]) -> bool:
    """Whether names are moments or numbers that follow each other: 1990, 1991; V1, V2; d_1, d_2."""
    if times := read_times(names, numbers=False):
        moments = sorted(parse_moment(time) for time in times)  # type: ignore[type-var]
        return infer_step(moments) is not None
    digits = ["".join(filter(str.isdigit, name)) for name in names]
    letters = {name.replace(number, "", 1) for name, number in zip(names, digits, strict=True)}
    if len(letters) != 1 or not all(digits):
        return False
    return {int(b) - int(a) for a, b in pairwise(digits)} in ({1}, {-1})
