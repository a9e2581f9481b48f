"""The two columns of a table that a task reads, and their texts.

The user names a column, or gives its number from 1. Otherwise names and cells show which columns are meant, and a
warning names them if there was a choice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from seqlab.data.columns import Profile, by_content, by_usual_name
from seqlab.data.dialect import DELIMITERS
from seqlab.data.lines import extension
from seqlab.data.parquet import parquet_rows
from seqlab.data.tables import Cells, Table, open_table, text_of
from seqlab.errors import DataError, UsageError, nearest, shorten, warn

RequestedColumns = tuple[str | None, str | None]  # by name or number from 1; None: to be found
_MIN_LABELS = 20  # rows that show whether a column holds labels


@dataclass(frozen=True)
class Layout:
    """The roles of the two columns, and their positions in a table without names."""

    names: tuple[str, str]
    positions: tuple[int, int]
    few_labels: bool = False  # whether the second holds labels, which must be few


def read_two_columns(
    path: str, requested: RequestedColumns, layout: Layout, encoding: str | None = None
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each row's "file:line" and its two texts."""
    names = [*layout.names, *(name for name in requested if name is not None)]
    table = open_table(path, encoding, expected_names=names)
    if not table.head:
        return
    columns = choose_columns(table, requested, layout)
    names = [table.name_of(index) for index in columns]
    rows = table.rows
    if extension(path) == ".parquet":  # the other columns need not be decoded
        rows = parquet_rows(path, names)
        columns = (0, 1)
    needed = max(columns) + 1
    for number, cells in rows:
        where = f"{table.where}:{number}"
        if len(cells) < needed:
            raise _too_few_cells(where, cells, needed, table.delimiter)
        first, second = (
            _text(cells[index], name, where) for index, name in zip(columns, names, strict=True)
        )
        yield where, (first, second)


def choose_columns(table: Table, requested: RequestedColumns, layout: Layout) -> tuple[int, int]:
    """Return the indices of the two columns: as requested, else by their usual names, else by their content."""
    profiles = table.profiles
    first, second = (None if name is None else _index(table, name) for name in requested)
    if first is not None and second is not None:
        return first, second
    if first is not None:
        return first, _other_column(table, first, layout, role=1)
    if second is not None:
        return _other_column(table, second, layout, role=0), second
    if table.names is not None:
        second = by_usual_name(profiles, layout.names[1], None)
        first = by_usual_name(profiles, layout.names[0], second)
        if first is not None and second is not None:
            _warn_of_choice(replace(table, note=""), (first, second), layout, is_usual=True)
            return first, second
    if len(profiles) < 2 and table.delimiter:
        raise _too_few_cells(table.location, table.head[0][1], 2, table.delimiter)
    chosen = by_content(profiles, layout.names, layout.positions)
    if chosen is None and not (layout.names[0] == "text" and table.names and len(profiles) > 2):
        chosen = layout.positions
    if chosen is None or max(chosen) >= len(profiles):
        raise _no_column(table, layout.names[0])
    _check_labels(table, profiles[chosen[1]], layout)
    _warn_of_choice(table, chosen, layout, is_usual=chosen == layout.positions)
    return chosen


def _other_column(table: Table, requested: int, layout: Layout, *, role: int) -> int:
    """Return the column of a role, given the column that the user named for the other role."""
    name = layout.names[role]
    if table.names is None:
        index: int | None = layout.positions[role]
    else:
        index = by_usual_name(table.profiles, name, requested)
    if index == requested:  # use the other one of the first two columns
        return 1 if requested == 0 else 0
    if index is not None:
        return index
    rest = [
        index
        for index, profile in enumerate(table.profiles)
        if index != requested and not profile.is_id and profile.cells
    ]
    if len(rest) != 1:
        raise _no_column(table, name)
    return rest[0]


def _no_column(table: Table, role: str) -> DataError:
    names = ", ".join(table.names) if table.names else f"1 to {len(table.profiles)}"
    return DataError(
        f"{table.location}: there is no column '{role}'",
        hint=f"choose the column of the {role} by name or by number; there are: {names}.",
    )


def _check_labels(table: Table, labels: Profile, layout: Layout) -> None:
    """Refuse labels that are texts or measurements, which no classifier can learn."""
    count = len(labels.cells)
    if not layout.few_labels or count < _MIN_LABELS or labels.num_distinct <= 0.7 * count:
        return
    share = f"{labels.num_distinct:,} of the first {count:,} labels are different"
    example = shorten(labels.cells[0], 40)
    if labels.is_numeric:
        raise DataError(
            f"{table.where}: {share} numbers, for instance {example}: this is regression, not classification",
            hint="write a few ranges, such as low and high, into a column of their own and choose it: "
            "--set data.target=COLUMN; numbers over time are forecast: seqlab train forecast FILE",
        )
    raise DataError(
        f"{table.where}: {share}, for instance {example}: these are texts, not labels",
        hint=f"to learn one text from the other: seqlab train translate {table.where}; "
        "if another column holds the labels: --set data.target=COLUMN",
    )


def _warn_of_choice(
    table: Table, chosen: tuple[int, int], layout: Layout, *, is_usual: bool
) -> None:
    """Name the columns that are read, unless they are the usual ones and the table has no others."""
    count = len(table.profiles)
    unused = [table.name_of(index) or "''" for index in range(count) if index not in chosen]
    if is_usual and not unused and not table.note:
        return
    first, second = (
        repr(table.names[index]) if table.names else f"column {index + 1}" for index in chosen
    )
    message = f"{table.note}; " if table.note else ""
    message += f"reading the {layout.names[0]} from {first} and the {layout.names[1]} from {second}"
    if unused:
        message += "; not used: " + ", ".join(unused)
    choice = "(--set data.source=... and data.target=... choose others)"
    warn(f"{table.where}: {message} {choice}")


def _text(value: object, name: str, where: str) -> str:
    """Return the text of a cell; refuse what is not one."""
    text = text_of(value)
    if text is None:
        raise DataError(
            f"{where}: '{name}' holds no text",
            hint="a text, a number or a truth value is needed.",
        )
    if not isinstance(value, list):
        return text
    if any(isinstance(each, list | dict) for each in value):
        raise DataError(
            f"{where}: '{name}' holds spans or nested lists, such as {shorten(str(value[0]))}",
            hint="to tag words, write a list of words and a list with a tag for each, such as B-LOC, I-LOC and O.",
        )
    if len(text.split()) != len(value):
        words = [text_of(each) or "" for each in value]
        malformed = next(word for word in words if len(word.split()) != 1)
        raise DataError(
            f"{where}: {shorten(malformed)} is not one word",
            hint="each entry of a list is a word, a number or a truth value, without spaces.",
        )
    return text


def _index(table: Table, name: str) -> int:
    """Return the index of a column that the user chose by its name, or by its number from 1."""
    names: Sequence[str] = table.names or []
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) == 0:
        raise UsageError("there is no column 0", hint="columns are numbered from 1.")
    if name.isdecimal() and (table.names is None or int(name) <= len(names)):
        return int(name) - 1
    raise DataError(f"{table.location}: there is no column '{name}'", hint=nearest(name, names))


def _too_few_cells(where: str, cells: Cells, needed: int, delimiter: str) -> DataError:
    count = len(cells)
    row = shorten(delimiter.join(map(str, cells)))
    return DataError(
        f"{where}: {count} column{'s' if count != 1 else ''} where {needed} are needed: {row}",
        hint=f"columns are separated by a {DELIMITERS.get(delimiter, 'blank')}; this line has {count - 1 or 'none'}.",
    )
