"""Read the rows of a Parquet file as a stream: memory holds one batch of rows, however long the file is."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from seqlab.data.arrays import readable
from seqlab.errors import DataError, nearest, package

BATCH_ROWS = 1024  # rows that are decoded at a time
BUFFER_BYTES = 1 << 20  # bytes of a column that are read from disk at a time
PROBLEM = "this cannot be read as Parquet"
HINT = "the file is cut short, damaged, or not Parquet. Fetch or write it again."


def parquet_names(path: str) -> list[str]:
    """Return the names of the columns."""
    with _opened(path) as file, readable(path, PROBLEM, hint=HINT):
        names: list[str] = file.schema_arrow.names
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise DataError(
            f"{path}: two columns are named '{repeated[0]}'", hint="rename one of them."
        )
    return names


def parquet_rows(path: str, names: Sequence[str]) -> Iterator[tuple[int, list[object]]]:
    """Yield each row's number from 1 and its values in the named columns, None for a missing value."""
    number = 0
    with _opened(path) as file:
        with readable(path, PROBLEM, hint=HINT):
            batches = file.iter_batches(BATCH_ROWS, columns=names, use_threads=False)
        while True:
            with readable(path, f"{PROBLEM} past row {number}", hint=HINT):
                batch = next(batches, None)
                if batch is None:
                    return
                values = [_python_values(batch.column(name)) for name in names]
            for cells in zip(*values, strict=True):
                number += 1
                yield number, list(cells)


@contextmanager
def _opened(path: str) -> Iterator[Any]:
    """Open the file with pyarrow; raise a DataError if it is missing, damaged or not Parquet."""
    if path.lower().endswith(".gz"):
        raise DataError(
            f"{path}: a compressed Parquet file cannot be read in parts",
            hint=f"unpack it first: gunzip {path}. Parquet compresses its columns itself.",
        )
    if not os.path.isfile(path):
        folder, name = os.path.split(path)
        files = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
        raise DataError(f"{path}: there is no such file", hint=nearest(name, files))
    parquet = package(
        "pyarrow.parquet",
        "reading Parquet needs the package pyarrow",
        hint='pip install "seqlab[parquet]"',
    )
    with readable(path, PROBLEM, hint=HINT):
        file = parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False)
    with file:
        yield file


def _python_values(column: Any) -> list[object]:
    """Return a column as Python values; nanoseconds, which datetime does not have, are cut to microseconds."""
    import pyarrow

    if pyarrow.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pyarrow.timestamp("us", column.type.tz), safe=False)
    return column.to_pylist()
