"""Tables in which each row is a label and numbers: a series a row, as archives of series keep them, or measurements.

Where neighbouring columns change together, or no header names them, the numbers of a row follow each other in time and
become frames of one number. Otherwise they are the features of a single frame.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise

import numpy as np
from jaxtyping import Float, Float32

from seqlab.data.columns import Numerals, Profile, by_usual_name, find_numerals, is_missing
from seqlab.data.lines import extension
from seqlab.data.tables import Row, Table, open_table, text_of
from seqlab.data.time_columns import TIME_NAMES
from seqlab.errors import DataError, shorten

KINDS = (".tsv", ".csv", ".txt", ".data", "")  # endings of files with such rows
LEAST = 4  # numbers of a row
SERIES = (
    20  # numbers of a row that is a series where neither a header nor the numbers say what it is
)
TOGETHER = 0.7  # correlation of neighbouring columns from which on a row is a series
FEW_LABELS = 20  # whole numbers under the name of a label are labels, where they are no more
PIXEL = "pixel"  # what the columns of flattened pictures are called


@dataclass(frozen=True)
class LabelledRows:
    """Where a table has its label and its numbers, and whether the numbers of a row follow each other in time."""

    label: int
    numbers: tuple[int, ...]
    is_series: bool
    numerals: Numerals
    is_named: bool  # whether the label is a text, or its column is called as labels are


def find_labelled_rows(path: str, target: str | None = None) -> LabelledRows | None:
    """Where the label and the numbers of each row are; nothing where a row is anything else."""
    if extension(path) not in KINDS or not os.path.isfile(path):
        return None
    return _labelled_rows(open_rows(path), target)


def open_rows(path: str) -> Table:
    """The table in a file; columns between any number of blanks are columns too."""
    table = open_table(path)
    cells = [str(row[0]).split() for _, row in table.head if len(row) == 1]
    if table.names or len(cells) < len(table.head) or min(map(len, cells), default=0) <= LEAST:
        return table
    split: Iterator[Row] = ((line, str(row[0]).split()) for line, row in table.rows)
    head: list[Row] = list(islice(split, len(cells)))
    return replace(table, head=head, rows=chain(head, split))


def _labelled_rows(table: Table, target: str | None) -> LabelledRows | None:
    profiles = [profile for profile in table.profiles if profile.cells]
    if len(profiles) != len(table.profiles) or len(profiles) <= LEAST or _has_times(profiles):
        return None
    label = _label(table, profiles, target)
    if label is None:
        return None
    rest = [place for place in range(len(profiles)) if place != label]
    if _counts(profiles[rest[0]]):
        rest = rest[1:]
    if len(rest) < LEAST or not all(profiles[place].is_numeric for place in rest):
        return None
    cells = [cell for place in rest for cell in profiles[place].cells]
    numerals = find_numerals(cells, table.delimiter)
    values = _numbers([row for _, row in table.head], rest, numerals)
    is_series = _is_series(table, label, rest, values)
    is_named = not profiles[label].is_numeric or by_usual_name(profiles, "label", None) == label
    return LabelledRows(label, tuple(rest), is_series, numerals, is_named)


def read_labelled_rows(
    path: str, found: LabelledRows
) -> Iterator[tuple[str, Float32[np.ndarray, "T F"], tuple[str, ...]]]:
    """Where a row is, its numbers as frames, and its label; missing numbers at the end of a series are no frames."""
    table = open_rows(path)
    for line, cells in table.rows:
        where = f"{table.where}:{line}"
        if len(cells) <= max(found.label, *found.numbers):
            raise DataError(
                f"{where}: {len(cells)} cells where {1 + max(found.label, *found.numbers)} are needed",
                hint="fill the row, or delete it.",
            )
        values = _numbers([cells], found.numbers, found.numerals, where)[0]
        if found.is_series:
            values = values[: 1 + max(np.flatnonzero(~np.isnan(values)), default=-1)]
        missing = np.isnan(values)
        if missing.all():
            raise DataError(f"{where}: there are no numbers in this row", hint="delete it.")
        if missing.any():
            values = np.interp(np.arange(len(values)), np.flatnonzero(~missing), values[~missing])
        frames = values.reshape((-1, 1) if found.is_series else (1, -1)).astype(np.float32)
        yield where, frames, (_label_text(cells[found.label]),)


def numbers_of(text: str) -> Float32[np.ndarray, " T"] | None:
    """The numbers of a line, between commas, semicolons or blanks; nothing where one is none."""
    try:
        return np.asarray(text.replace(",", " ").replace(";", " ").split(), dtype=np.float32)
    except ValueError:
        return None


def _label(table: Table, profiles: Sequence[Profile], target: str | None) -> int | None:
    """The column of the label: the one asked for, the one with a usual name, the only texts, the first or the last."""
    if target is not None:
        return table.names.index(target) if table.names and target in table.names else None
    named = by_usual_name(profiles, "label", None)
    if named is not None and profiles[named].num_distinct <= max(
        FEW_LABELS, len(profiles[named].cells) / 10
    ):
        return named
    texts = [place for place, profile in enumerate(profiles) if not profile.is_numeric]
    if len(texts) > 1:
        return None
    ends = texts or [0, len(profiles) - 1]
    return next((place for place in ends if _are_labels(profiles[place], profiles)), None)


def _are_labels(profile: Profile, profiles: Sequence[Profile]) -> bool:
    """Whether a column has few values, all whole if they are numbers, and most others have far more."""
    if not profile.is_label or profile.is_time or profile.num_distinct < 2:
        return False
    if profile.is_numeric and not all(_is_whole(cell) for cell in profile.cells):
        return False
    others = sorted(each.num_distinct for each in profiles if each is not profile)
    return not profile.is_numeric or others[len(others) // 2] > 2 * profile.num_distinct


def _has_times(profiles: Sequence[Profile]) -> bool:
    return any(each.is_time or each.name.lower() in TIME_NAMES for each in profiles)


def _is_whole(cell: str) -> bool:
    try:
        return float(cell).is_integer()
    except ValueError:
        return False


def _counts(profile: Profile) -> bool:
    """Whether a column numbers the rows."""
    numbers = [int(cell) for cell in profile.cells if cell.isdecimal()]
    steps = {after - before for before, after in pairwise(numbers)}
    return len(numbers) == len(profile.cells) and steps == {1}


def _is_series(
    table: Table, label: int, places: Sequence[int], values: Float[np.ndarray, "N T"]
) -> bool:
    if len(places) < 2 * LEAST or (table.names and PIXEL in table.names[places[-1]].lower()):
        return False
    if not table.names and label == 0 and len(places) >= SERIES:
        return True
    scaled = (values - np.nanmean(values, 0)) / np.maximum(np.nanstd(values, 0), 1e-9)
    apart = scaled - np.nanmean(scaled, 1, keepdims=True)
    squares = np.nansum(apart**2)
    return bool(np.nansum(apart[:, 1:] * apart[:, :-1]) > TOGETHER * squares > 0)


def _numbers(
    rows: Sequence[Sequence[object]], places: Sequence[int], numerals: Numerals, where: str = ""
) -> Float[np.ndarray, "N T"]:
    """The numbers of some columns; what is missing is NaN. With `where`, what is no number is refused."""
    table = np.full((len(rows), len(places)), np.nan)
    for number, cells in enumerate(rows):
        for column, place in enumerate(places):
            text = (text_of(cells[place]) or "").strip() if place < len(cells) else ""
            value = None if is_missing(text) else numerals.number(text)
            if value is not None:
                table[number, column] = value
            elif where and not is_missing(text):
                raise DataError(
                    f"{where}: {shorten(text)} is no number, where its column has numbers",
                    hint="mend the cell, or leave it empty.",
                )
    return table


def _label_text(cell: object) -> str:
    """A label; whole numbers as people write them, for archives have 1.0000000e+00."""
    text = (text_of(cell) or "").strip()
    return f"{float(text):.0f}" if ("e" in text or "." in text) and _is_whole(text) else text
