"""Files -> examples, one at a time: pairs and labelled texts, from two columns of a table or from two parallel files.

The format follows from the file's name (.tsv .csv .jsonl .parquet; text also .gz) and from what is in it. A column is
asked for by its name or by its number from 1. Where nobody asks, names and cells show which are meant, and a note says
so if there was a choice. Every reader is a generator that holds one example in memory, and every example knows where
it stands.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Shaped

from seqlab.data.columns import Profile, by_content, by_usual_name
from seqlab.data.dialect import DELIMITERS
from seqlab.data.lines import display_name, extension, lines
from seqlab.data.parquet import parquet_rows
from seqlab.data.tables import TABLES, Cells, Table, open_table, text_of
from seqlab.errors import DataError, UsageError, nearest, shorten, warn

TEXT_FILES = ("", ".txt", ".text")  # how names of files end that are texts of a folder
PARTS_OF_DATA = ("train", "test", "valid", "validation", "val", "dev", "unsup")
Text = str | tuple[str, ...]
Vectors = Float32[np.ndarray, "_ _"]
Columns = tuple[str | None, str | None]  # by name or number from 1; None: as the cells show


@dataclass(frozen=True)
class Layout:
    """What the two columns are called, where they stand in a table without names, and what they may hold."""

    names: tuple[str, str]
    positions: tuple[int, int]
    few_labels: bool = False  # whether the second one holds labels of examples, which must be few


_PAIRS = Layout(names=("source", "target"), positions=(0, 1))
_LABELLED = Layout(names=("text", "label"), positions=(1, 0), few_labels=True)


@dataclass(frozen=True)
class Picture:
    """A picture by its name: rows of pixel values, or vectors that another network made of it.

    `place` is its row in the store of all pictures, where it has one: several captions share a picture.
    """

    name: str
    values: Shaped[np.ndarray, "_ _"]
    place: int | None = None

    def __len__(self) -> int:
        return len(self.values)


Box = tuple[
    str, float, float, float, float
]  # a word, and where what it names lies: left, top, right, bottom, of 1


@dataclass(frozen=True)
class Example:
    """One source with its target, as strings, tuples of words, feature vectors or a picture, and the "file:line" it
    came from. `boxes` say where in a picture the things are that the target names, where that is known."""

    source: Any  # Text, Vectors or a Picture
    target: Any  # Text, or Vectors where a target is measured
    where: str
    boxes: tuple[Box, ...] = ()


def read_pairs(
    paths: Sequence[str],
    *,
    source: str | None = None,
    target: str | None = None,
    encoding: str | None = None,
) -> Iterator[Example]:
    """Pairs of texts from two columns of a table, or from two parallel files."""
    return at_least_one(two_texts(paths, (source, target), _PAIRS, encoding), paths)


def read_labelled(
    paths: Sequence[str],
    *,
    text: str | None = None,
    label: str | None = None,
    encoding: str | None = None,
) -> Iterator[Example]:
    """Texts with a label each, from two columns of a table, from a file of texts beside a file of labels, or from a
    folder: a file for each text in a folder for each label, or a file for each label with a text on each line."""
    if len(paths) == 1 and os.path.isdir(paths[0]):
        return at_least_one(_in_folder(paths[0], encoding), paths)
    return at_least_one(_with_labels(two_texts(paths, (text, label), _LABELLED, encoding)), paths)


def _in_folder(path: str, encoding: str | None) -> Iterator[Example]:
    files = [
        file
        for file in sorted(Path(path).rglob("[!.]*"))
        if file.is_file() and file.suffix.lower() in TEXT_FILES
    ]
    a_text_a_line = all(file.parent == Path(path) for file in files)
    for file in files:
        texts = lines(str(file), encoding)
        if a_text_a_line:
            for number, text in texts:
                if text.strip():
                    yield Example(text, file.stem, f"{file}:{number}")
        else:
            yield Example("\n".join(text for _, text in texts), file.parent.name, str(file))


def at_least_one(examples: Iterator[Example], paths: Sequence[str]) -> Iterator[Example]:
    """The examples; an error where there is none."""
    empty = True
    for example in examples:
        empty = False
        yield example
    if empty:
        names = " and ".join(display_name(path) for path in paths)
        raise DataError(
            f"{names}: no example was found",
            hint="there is no line after the header, or only comments.",
        )


def two_texts(
    paths: Sequence[str], choice: Columns, layout: Layout, encoding: str | None
) -> Iterator[Example]:
    """Two columns of a table, or two parallel files."""
    if len(paths) == 2:
        if (named := choice[0] or choice[1]) is not None:
            raise UsageError(
                f"the column '{named}' was asked for, but two parallel files have no columns",
                hint="give one table, or leave the columns out.",
            )
        yield from _parallel(paths[0], paths[1], encoding)
    else:
        for where, (one, other) in two_columns(only(paths), choice, layout, encoding):
            yield Example(one, other, where)


def _with_labels(examples: Iterator[Example]) -> Iterator[Example]:
    """The examples with a label. A few may have none; where many have none, another column was meant."""
    total, unlabelled = 0, list[Example]()
    for example in examples:
        total += 1
        if label := str(example.target).strip():
            yield Example(example.source, label, example.where)
        else:
            unlabelled.append(example)
    if not unlabelled:
        return
    first = unlabelled[0]
    if 10 * len(unlabelled) > total:
        raise DataError(
            f"{first.where}: the label is empty, beside {shorten(str(first.source))}",
            hint="each text needs a label; drop the line or fill it in.",
        )
    count = f"{len(unlabelled)} row{'s have' if len(unlabelled) > 1 else ' has'} no label"
    warn(
        f"{count} and {'are' if len(unlabelled) > 1 else 'is'} left out, the first is {first.where}"
    )


def only(paths: Sequence[str]) -> str:
    """The one path there is."""
    if len(paths) != 1:
        raise UsageError(
            f"{len(paths)} files where one, or two parallel ones, are needed",
            hint="join them with cat.",
        )
    return paths[0]


def _parallel(one: str, other: str, encoding: str | None) -> Iterator[Example]:
    """Line by line through two files; where both are blank there is no example. Blank lines at an end do not count."""
    for path in (one, other):
        if extension(path) in TABLES:
            raise UsageError(
                f"{path}: a table where a parallel file, one text a line, is needed",
                hint="give one table at a time; tables are joined with cat.",
            )
    for number, sides in enumerate(
        zip_longest(lines(one, encoding), lines(other, encoding)), start=1
    ):
        texts = ["" if side is None else side[1] for side in sides]
        if not any(text.strip() for text in texts):
            continue
        if None in sides:
            counts = [sum(1 for _ in lines(path, encoding)) for path in (one, other)]
            raise DataError(
                f"{display_name(one)} has {counts[0]:,} lines and {display_name(other)} has {counts[1]:,}",
                hint="line n of one belongs to line n of the other, so both need the same number of lines; files of "
                "texts with one label each go into a folder of their own: seqlab train classify FOLDER",
            )
        yield Example(texts[0], texts[1], f"{display_name(one)}:{number}")


def two_columns(
    path: str, choice: Columns, layout: Layout, encoding: str | None = None
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Each row's "file:line" and its two cells."""
    table = open_table(
        path, encoding, named=(*layout.names, *(name for name in choice if name is not None))
    )
    if not table.head:
        return
    columns = choose_columns(table, choice, layout)
    names = [table.name_of(place) for place in columns]
    rows = table.rows
    if extension(path) == ".parquet":  # the other columns are not decoded
        rows, columns = parquet_rows(path, names), (0, 1)
    needed = max(columns) + 1
    for number, cells in rows:
        where = f"{table.where}:{number}"
        if len(cells) < needed:
            raise _too_few(where, cells, needed, table.delimiter)
        first, second = (
            _text(cells[place], name, where) for place, name in zip(columns, names, strict=True)
        )
        yield where, (first, second)


def choose_columns(table: Table, choice: Columns, layout: Layout) -> tuple[int, int]:
    """The places of the two columns: those asked for, else those of the usual names, else those whose cells fit."""
    profiles = table.profiles
    places = [None if name is None else _index(table, name) for name in choice]
    if places[0] is not None and places[1] is not None:
        return places[0], places[1]
    if choice != (None, None):
        return _with_other(table, places, layout)
    if table.names is not None:
        second = by_usual_name(profiles, layout.names[1], None)
        first = by_usual_name(profiles, layout.names[0], second)
        if first is not None and second is not None:
            _note(replace(table, note=""), (first, second), layout, exact=True)
            return first, second
    if len(profiles) < 2 and table.delimiter:
        raise _too_few(table.place, table.head[0][1], 2, table.delimiter)
    chosen = by_content(profiles, layout.names, layout.positions)
    if chosen is None and not (layout.names[0] == "text" and table.names and len(profiles) > 2):
        chosen = layout.positions
    if chosen is None or max(chosen) >= len(profiles):
        raise _no_column(table, layout.names[0])
    _check_labels(table, profiles[chosen[1]], layout)
    _note(table, chosen, layout, exact=chosen == layout.positions)
    return chosen


def _with_other(table: Table, places: Sequence[int | None], layout: Layout) -> tuple[int, int]:
    """The column that is asked for, and the other one, which is to be found."""
    missing = places.index(None)
    other = places[1 - missing]
    assert other is not None
    role = layout.names[missing]
    place = (
        layout.positions[missing]
        if table.names is None
        else by_usual_name(table.profiles, role, other)
    )
    if place == other:  # the usual place is taken: the other of the first two columns is free
        place = 1 if other == 0 else 0
    if place is None:
        rest = [
            p
            for p, each in enumerate(table.profiles)
            if p != other and not each.is_id and each.cells
        ]
        if len(rest) != 1:
            raise _no_column(table, role)
        place = rest[0]
    return (place, other) if missing == 0 else (other, place)


def _no_column(table: Table, name: str) -> DataError:
    there = ", ".join(table.names) if table.names else "1 to " + str(len(table.profiles))
    return DataError(
        f"{table.place}: there is no column '{name}'",
        hint=f"say which column is the {name}, by name or by number; there are: {there}.",
    )


def _check_labels(table: Table, labels: Profile, layout: Layout) -> None:
    """Refuse labels that are texts or measurements, which no classifier can learn."""
    if (
        not layout.few_labels
        or len(labels.cells) < 20
        or labels.num_distinct <= 0.7 * len(labels.cells)
    ):
        return
    share = f"{labels.num_distinct:,} of the first {len(labels.cells):,} labels are different"
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
        "another column holds the labels: --set data.target=COLUMN",
    )


def _note(table: Table, chosen: tuple[int, int], layout: Layout, *, exact: bool) -> None:
    """Say which columns are read where that is not plain to see."""
    unused = [
        table.name_of(place) or "''" for place in range(len(table.profiles)) if place not in chosen
    ]
    if exact and not unused and not table.note:
        return
    first, second = (
        repr(table.names[place]) if table.names else f"column {place + 1}" for place in chosen
    )
    message = f"{table.note}; " if table.note else ""
    message += f"reading the {layout.names[0]} from {first} and the {layout.names[1]} from {second}"
    if unused:
        message += "; not used: " + ", ".join(unused)
    choice = "(--set data.source=... and data.target=... choose others)"
    warn(f"{table.where}: {message} {choice}")


def _text(value: object, name: str, where: str) -> str:
    text = text_of(value)
    if text is None:
        raise DataError(
            f"{where}: '{name}' holds no text",
            hint="a text, a number or a truth value is needed there.",
        )
    if isinstance(value, list) and any(isinstance(each, list | dict) for each in value):
        raise DataError(
            f"{where}: '{name}' holds spans or nested lists, such as {shorten(str(value[0]))}",
            hint="to tag words, write a list of words and a list with a tag for each, such as B-LOC, I-LOC and O.",
        )
    if isinstance(value, list) and len(text.split()) != len(value):
        odd = next(word for word in map(text_of, value) if len((word or "").split()) != 1)
        raise DataError(
            f"{where}: {shorten(odd or '')} is not one word",
            hint="each entry of a list is a word, a number or a truth value, without spaces.",
        )
    return text


def _index(table: Table, name: str) -> int:
    names = table.names or []
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) == 0:
        raise UsageError("there is no column 0", hint="columns are numbered from 1.")
    if name.isdecimal() and (table.names is None or int(name) <= len(names)):
        return int(name) - 1
    raise DataError(f"{table.place}: there is no column '{name}'", hint=nearest(name, names))


def _too_few(where: str, cells: Cells, needed: int, delimiter: str) -> DataError:
    count = len(cells)
    row = shorten(delimiter.join(map(str, cells)))
    return DataError(
        f"{where}: {count} column{'s' if count != 1 else ''} where {needed} are needed: {row}",
        hint=f"columns are separated by a {DELIMITERS.get(delimiter, 'blank')}; this line has {count - 1 or 'none'}.",
    )
