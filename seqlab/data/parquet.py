"""Rows of a Parquet file, read as a stream: memory holds a batch of rows, however long the file is."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

from seqlab.data.arrays import readable
from seqlab.data.packages import package
from seqlab.errors import DataError, nearest

BATCH_ROWS = 1024  # rows that are decoded at a time
BUFFER_BYTES = 1 << 20  # bytes of a column that are read from disk at a time
PROBLEM = "this cannot be read as Parquet"
HINT = "the file is cut short, damaged, or something else by that name. Fetch or write it again."


@contextmanager
def open_parquet(path: str) -> Iterator["ParquetTable"]:
    """The table in a file. A file that is absent, damaged or not Parquet raises a DataError."""
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
        yield ParquetTable(path, file)


@final
class ParquetTable:
    """The names of an open file's columns, and its rows, numbered from 1."""

    def __init__(self, path: str, file: Any) -> None:
        self.path = path
        self.file = file
        with readable(path, PROBLEM, hint=HINT):
            self.names: list[str] = file.schema_arrow.names
        repeated = [name for name in self.names if self.names.count(name) > 1]
        if repeated:
            raise DataError(
                f"{path}: two columns are called '{repeated[0]}'", hint="rename one of them."
            )

    def rows(self, columns: Sequence[int]) -> Iterator[tuple[int, list[object]]]:
        """Each row's number and its values in those columns, as Python values; None where there is none."""
        names = [self.names[column] for column in columns]
        number = 0
        with readable(self.path, PROBLEM, hint=HINT):
            batches = self.file.iter_batches(BATCH_ROWS, columns=names, use_threads=False)
        while True:
            with readable(self.path, f"{PROBLEM} past row {number}", hint=HINT):
                batch = next(batches, None)
                if batch is None:
                    return
                values = [_python_values(batch.column(name)) for name in names]
            for cells in zip(*values, strict=True):
                number += 1
                yield number, list(cells)


def _python_values(column: Any) -> list[object]:
    """A column as Python values. Nanoseconds, which Python's times do not have, are cut to microseconds."""
    import pyarrow

    if pyarrow.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pyarrow.timestamp("us", column.type.tz), safe=False)
    return column.to_pylist()
