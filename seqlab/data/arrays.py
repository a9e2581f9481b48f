"""Arrays that NumPy saved, read with care: whatever a header promises is checked before anything is allocated.

Arrays of objects, which are pickles, are refused; so is a kilobyte that promises to become a terabyte.
"""

import io
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any, BinaryIO, final

import numpy as np
from jaxtyping import Shaped

from seqlab.errors import DataError, SeqlabError

MOST_NUMBERS = 2**31  # in one array
MOST_BYTES = 4 * 2**30  # of one array in an .npz, unpacked
_HEADER_BYTES = 1 << 14  # NumPy trusts no header of more than 10,000 characters
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_HINT = "np.save writes an .npy and np.savez an .npz; the file is damaged, or something else by that name."
_ALSO = {  # what people call the arrays of an .npz
    "values": ("x", "x_train", "train_x", "data", "train_data", "inputs", "features", "train_images", "arr_0"),
    "labels": ("y", "y_train", "train_y", "target", "targets", "label", "train_labels", "classes", "arr_1"),
}  # fmt: skip
_KINDS = {"numbers": "biuf", "integers": "iu", "numbers or strings": "biufUS"}  # of dtype


def texts_of(values: list[Any]) -> list[str]:
    """Strings and numbers of an array as texts."""
    return [
        (value.decode() if isinstance(value, bytes) else str(value)).strip() for value in values
    ]


def leads_out(name: str) -> bool:
    """Whether a path in a table is not below the table's directory."""
    return bool(Path(name).anchor) or ".." in Path(name).parts


@contextmanager
def open_saved(path: str, where: str) -> Iterator[BinaryIO]:
    """A file that NumPy has saved; whatever is wrong with it is one kind of error."""
    if not os.path.isfile(path):
        raise DataError(
            f"{where}: there is no such file",
            hint=f"it was looked for at '{path}'; a path in a table starts where the table lies.",
        )
    with readable(where), open(path, "rb") as file:
        yield file


@contextmanager
def readable(
    where: str, problem: str = "this cannot be read as NumPy writes it", *, hint: str = _HINT
) -> Iterator[None]:
    """Whatever goes wrong with bytes that are damaged or something else, as one kind of error."""
    try:
        yield
    except SeqlabError:
        raise
    except (
        Exception
    ) as error:  # a forged zip or header can make their readers raise nearly anything
        reason = str(error).partition("\n")[
            0
        ]  # NumPy goes on to advise trusting the file, which this never does
        raise DataError(f"{where}: {problem}: {reason}", hint=hint) from error


def stored_name(archive: zipfile.ZipFile, name: str) -> str:
    """The file of an array in an .npz: the one of this name, else of a name that people give to the same thing."""
    files = {file.lower().removesuffix(".npy"): file for file in archive.namelist()}
    return next((files[each] for each in (name, *_ALSO.get(name, ())) if each in files), "")


def member(archive: zipfile.ZipFile, path: str, name: str, kind: str) -> "SavedArray":
    """One array of an .npz; `kind` says what it must hold: numbers, integers, or numbers or strings."""
    file = stored_name(archive, name)
    if not file:
        there = ", ".join(member.removesuffix(".npy") for member in archive.namelist())
        raise DataError(
            f"{path}: there is no array '{name}'",
            hint="np.savez(path, values=..., lengths=..., labels=...) gives frames end to end, the length of each "
            f"sequence and its label; there are: {there}.",
        )
    size = archive.getinfo(file).file_size
    if size > MOST_BYTES:
        raise DataError(
            f"{path}: '{name}' unpacks to {size:,} bytes, more than {MOST_BYTES:,}",
            hint="split the data over several .npz files, or keep an .npy file for each sequence.",
        )
    return SavedArray(archive.open(file), size, f"{path}: '{name}'", kind)


@final
class SavedArray:
    """A saved array of which some entries of the first axis are read at a time; one by columns must be held whole."""

    def __init__(
        self, stream: IO[bytes] | io.BufferedIOBase, size: int, where: str, kind: str
    ) -> None:
        head = io.BytesIO(stream.read(_HEADER_BYTES))
        self.shape, by_columns, self.dtype = _HEADERS[np.lib.format.read_magic(head)](head)
        self.stream = stream
        stream.seek(head.tell())
        promised = prod(self.shape) * self.dtype.itemsize
        if self.dtype.kind not in _KINDS[kind]:
            problem = f"an array of dtype {self.dtype} where {kind} are needed"
            hint = "convert it with .astype and save it again; arrays of objects are never read."
        elif min(self.shape, default=0) < 1:
            problem, hint = (
                f"nothing in an array of shape {self.shape}",
                "a sequence has at least one frame; drop it.",
            )
        elif prod(self.shape) > MOST_NUMBERS:
            problem, hint = (
                f"{prod(self.shape):,} numbers, more than {MOST_NUMBERS:,}",
                "split it into several.",
            )
        elif promised > size - head.tell():
            problem = f"{size - head.tell():,} bytes where its header promises {promised:,}"
            hint = "the file was cut short; fetch or save it again."
        else:
            if by_columns:
                whole = self.all().reshape(self.shape[::-1]).T
                self.stream = io.BytesIO(whole.tobytes())
            return
        raise DataError(f"{where}: {problem}", hint=hint)

    def all(self) -> Shaped[np.ndarray, "N *S"]:
        """Every entry of the first axis."""
        return self.take(self.shape[0])

    def take(self, count: int) -> Shaped[np.ndarray, "N *S"]:
        """The next entries."""
        shape = (count, *self.shape[1:])
        return np.frombuffer(
            self.stream.read(prod(shape) * self.dtype.itemsize), self.dtype
        ).reshape(shape)
