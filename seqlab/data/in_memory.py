"""Data that is in Python already, where a path may stand: lists, dicts of columns, NumPy arrays, frames of pandas or
polars. It is written to a file of a temporary directory, so that everything reads it in one way.

Frames are known by their methods, so neither library is imported.
"""

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from seqlab.data.columns import by_usual_name, profiles_of
from seqlab.data.lines import IN_MEMORY, paths_of
from seqlab.errors import DataError, UsageError

_FORMS = (
    "a path, a list of texts, of (text, label) pairs or of dicts, a dict of columns, a NumPy array, a data frame, or a "
    "tuple of inputs and labels."
)
Columns = dict[str, list[Any]]


@contextmanager
def as_files(*data: Any) -> Iterator[list[list[str]]]:
    """The paths of each of the data; what is no path is written to a file that is there for as long as this lasts."""
    with tempfile.TemporaryDirectory() as folder:
        yield [
            _in_file(each, os.path.join(folder, str(number))) for number, each in enumerate(data)
        ]


def inputs_of(data: Any, column: str | None) -> Any:
    """What a model of texts is to answer, as a list where it is a column of something; `column` is its name."""
    table = _columns(data)
    if table is not None:
        return table[_text_column(table, column)]
    if isinstance(data, np.ndarray) and data.dtype.kind not in "OUS":
        return data
    return _values(data) if isinstance(data, np.ndarray) or hasattr(data, "to_list") else data


def is_table(data: Any) -> bool:
    """Whether this is a table of columns: a dict, or a frame."""
    return isinstance(data, Mapping) or _is_frame(data)


def _in_file(data: Any, folder: str) -> list[str]:
    if isinstance(data, Iterator):
        data = list(data)
    paths = paths_of(data)
    if paths is None:
        os.makedirs(folder)
        paths = [_written(data, os.path.join(folder, IN_MEMORY))]
    return paths


def _written(data: Any, path: str) -> str:
    """The file to which data was written, with the ending that fits."""
    table = _columns(data) or _numbers(data)
    if table is not None:
        return _write_rows(table, path)
    if isinstance(data, tuple) and len(data) == 2 and _are_inputs_and_labels(*data):
        return _write_pairs(_values(data[0]), _values(data[1]), path)
    rows = _values(data) if hasattr(data, "__len__") else []
    if rows and all(isinstance(each, str) for each in rows):
        Path(f"{path}.txt").write_text("".join(text.rstrip("\n") + "\n" for text in rows), "utf-8")
        return f"{path}.txt"
    if rows and all(isinstance(each, list | tuple) and len(each) == 2 for each in rows):
        return _write_pairs([each[0] for each in rows], [each[1] for each in rows], path)
    raise UsageError(
        f"data of type '{type(data).__name__}' cannot be read like this", hint=f"give {_FORMS}"
    )


def _are_inputs_and_labels(inputs: Any, labels: Any) -> bool:
    sized = all(hasattr(each, "__len__") and not isinstance(each, str) for each in (inputs, labels))
    return (
        sized and len(inputs) == len(labels) and (len(inputs) != 2 or not isinstance(inputs, tuple))
    )


def _values(column: Any) -> list[Any]:
    """A column as a list of Python values; of an array of sequences, a list of arrays."""
    if getattr(column, "ndim", 1) == 1:
        for name in ("to_list", "tolist"):
            if hasattr(column, name):
                return list(getattr(column, name)())
    return list(column)


def _numbers(data: Any) -> Columns | None:
    """Columns of numbers, of an array or of a list; None for anything else."""
    if isinstance(data, list | tuple) and not (
        data and all(isinstance(each, int | float | np.number) for each in data)
    ):
        return None
    if not isinstance(data, list | tuple | np.ndarray) and not _is_column(data):
        return None
    values = np.asarray(data)
    if values.dtype.kind not in "biuf" or values.ndim not in (1, 2):
        return None
    columns = values.reshape(len(values), -1).T.tolist()
    return {
        "value" if len(columns) == 1 else str(place): column
        for place, column in enumerate(columns, start=1)
    }


def _columns(data: Any) -> Columns | None:
    """Columns by name, of a dict of columns, of dicts as rows, or of a frame; None for anything else."""
    index = type(getattr(data, "index", None)).__name__
    if _is_column(data) and index == "DatetimeIndex":
        data = data.to_frame("value")
    if _is_frame(data):
        if index not in ("NoneType", "RangeIndex"):
            data = data.reset_index()  # pandas: the index may be the time
        return {str(name): _values(data[name]) for name in data.columns}
    if isinstance(data, list | tuple) and data and all(isinstance(each, Mapping) for each in data):
        names = dict.fromkeys(str(name) for row in data for name in row)
        return {name: [row.get(name) for row in data] for name in names}
    if not isinstance(data, Mapping):
        return None
    table = {str(name): _values(column) for name, column in data.items()}
    if len({len(column) for column in table.values()}) > 1:
        sizes = ", ".join(f"'{name}' {len(column)}" for name, column in table.items())
        raise DataError(
            f"the columns differ in length: {sizes}", hint="each row needs a value in each column."
        )
    return table


def _is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and (hasattr(data, "iterrows") or hasattr(data, "iter_rows"))


def _is_column(data: Any) -> bool:
    return hasattr(data, "to_frame") and not _is_frame(data)


def _text_column(table: Columns, column: str | None) -> str:
    if column is not None and column in table:
        return column
    rows = [
        [value if isinstance(value, str) else None for value in row]
        for row in zip(*table.values(), strict=True)
    ]
    profiles = profiles_of(list(table), rows)
    texts = [place for place, profile in enumerate(profiles) if profile.cells]
    named = [by_usual_name(profiles, role, None) for role in ("text", "source")]
    place = next(
        (place for place in named if place is not None), texts[0] if len(texts) == 1 else None
    )
    if place is None:
        raise UsageError(
            f"which column holds the inputs? There are: {', '.join(table)}",
            hint="give it alone: model.predict(data['name']).",
        )
    return list(table)[place]


def _write_rows(table: Columns, path: str) -> str:
    rows = (
        {name: _plain(value) for name, value in zip(table, row, strict=True)}
        for row in zip(*table.values(), strict=True)
    )
    Path(f"{path}.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8"
    )
    return f"{path}.jsonl"


def _write_pairs(sources: list[Any], targets: list[Any], path: str) -> str:
    if sources and isinstance(sources[0], np.ndarray):
        frames = [np.asarray(source) for source in sources]
        lengths = [len(each) for each in frames]
        np.savez(
            f"{path}.npz",
            values=np.concatenate(frames),
            lengths=lengths,
            labels=[str(_plain(t)) for t in targets],
        )
        return f"{path}.npz"
    return _write_rows({"source": sources, "target": targets}, path)


def _plain(value: Any) -> Any:
    """A value as JSON has it: what is not a number, NaN and NaT, is nothing; a time is text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return None if str(value) in ("NaT", "<NA>") else str(value)
