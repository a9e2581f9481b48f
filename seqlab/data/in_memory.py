"""Data given in Python instead of a path: lists, dicts of columns, NumPy arrays, frames of pandas or polars.

They are written to a temporary file, so that the readers of files read them too. Frames are recognised by their
methods, so neither library is imported.
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
    """Yield the paths of each data set; data that are not paths are written to files for the duration of the block."""
    with tempfile.TemporaryDirectory() as folder:
        yield [
            _to_paths(each, os.path.join(folder, str(number))) for number, each in enumerate(data)
        ]


def inputs_of(data: Any, column: str | None) -> Any:
    """Return the inputs of a model of texts; of a table or a frame, `column` or the only column of texts as a list."""
    table = _columns(data)
    if table is not None:
        return table[_text_column(table, column)]
    if isinstance(data, np.ndarray) and data.dtype.kind not in "OUS":
        return data
    return _values(data) if isinstance(data, np.ndarray) or hasattr(data, "to_list") else data


def is_table(data: Any) -> bool:
    """Whether the data are a table of columns: a dict, or a frame."""
    return isinstance(data, Mapping) or _is_frame(data)


def _to_paths(data: Any, folder: str) -> list[str]:
    if isinstance(data, Iterator):
        data = list(data)
    paths = paths_of(data)
    if paths is None:
        os.makedirs(folder)
        paths = [_write(data, os.path.join(folder, IN_MEMORY))]
    return paths


def _write(data: Any, path: str) -> str:
    """Write data to a file; return its path with the suffix that fits."""
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
    """Return a column as a list of Python values; an array of sequences as a list of arrays."""
    if getattr(column, "ndim", 1) == 1:
        for name in ("to_list", "tolist"):
            if hasattr(column, name):
                return list(getattr(column, name)())
    return list(column)


def _numbers(data: Any) -> Columns | None:
    """Return the columns of an array or a list of numbers; None for anything else."""
    if isinstance(data, list | tuple):
        if not data or not all(isinstance(each, int | float | np.number) for each in data):
            return None
    elif not isinstance(data, np.ndarray) and not _is_column(data):
        return None
    values = np.asarray(data)
    if values.dtype.kind not in "biuf" or values.ndim not in (1, 2):
        return None
    columns = values.reshape(len(values), -1).T.tolist()
    return {
        "value" if len(columns) == 1 else str(number): column
        for number, column in enumerate(columns, start=1)
    }


def _columns(data: Any) -> Columns | None:
    """Return columns by name, from a dict of columns, a list of dicts, or a frame; None for anything else."""
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
    for role in ("text", "source"):
        index = by_usual_name(profiles, role, None)
        if index is not None:
            return profiles[index].name
    texts = [profile.name for profile in profiles if profile.cells]
    if len(texts) != 1:
        raise UsageError(
            f"which column holds the inputs? There are: {', '.join(table)}",
            hint="give it alone: model.predict(data['name']).",
        )
    return texts[0]


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
    """Return a value that JSON can hold: None for NaN and NaT, a text for a time."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return None if str(value) in ("NaT", "<NA>") else str(value)
