"""Arrays saved by NumPy, read safely: the header is checked before anything is allocated.

Arrays of objects, which are pickles, are refused, and so is a small file whose header declares a huge array.
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

MAX_NUMBERS = 2**31  # in one array
MAX_ARRAY_BYTES = 4 * 2**30  # of one array in an .npz, unpacked
_HEADER_BYTES = 1 << 14  # NumPy trusts no header of more than 10,000 characters
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_HINT = "np.save writes an .npy and np.savez an .npz; the file is damaged, or not one of these."
# Other usual names of the arrays of an .npz.
_ALIASES = {
    "values": ("x", "x_train", "train_x", "data", "train_data", "inputs", "features", "train_images", "arr_0"),
    "labels": ("y", "y_train", "train_y", "target", "targets", "label", "train_labels", "classes", "arr_1"),
}  # fmt: skip
_KINDS = {"numbers": "biuf", "integers": "iu", "numbers or strings": "biufUS"}  # of dtype


def texts_of(values: list[Any]) -> list[str]:
    """Return strings and numbers of an array as texts."""
    return [
        (value.decode() if isinstance(value, bytes) else str(value)).strip() for value in values
    ]


def is_outside(name: str) -> bool:
    """Whether a path in a table is outside the table's directory."""
    return bool(Path(name).anchor) or ".." in Path(name).parts


@contextmanager
def open_saved(path: str, where: str) -> Iterator[BinaryIO]:
    """Open a file that NumPy has saved; errors while reading it become a DataError."""
    if not os.path.isfile(path):
        raise DataError(
            f"{where}: there is no such file",
            hint=f"the path is '{path}'; paths in a table are relative to the table.",
        )
    with readable(where), open(path, "rb") as file:
        yield file


@contextmanager
def readable(
    where: str, problem: str = "this cannot be read as NumPy writes it", *, hint: str = _HINT
) -> Iterator[None]:
    """Turn any error while reading damaged bytes into a DataError."""
    try:
        yield
    except SeqlabError:
        raise
    except Exception as error:  # a forged zip or header can make the readers raise nearly anything
        # The rest of NumPy's message advises to allow pickles.
        reason = str(error).partition("\n")[0]
        raise DataError(f"{where}: {problem}: {reason}", hint=hint) from error


def stored_name(archive: zipfile.ZipFile, name: str) -> str:
    """Return the file of an array in an .npz, by this name or another usual one; empty if there is none."""
    files = {file.lower().removesuffix(".npy"): file for file in archive.namelist()}
    names = (name, *_ALIASES.get(name, ()))
    return next((files[each] for each in names if each in files), "")


def open_member(archive: zipfile.ZipFile, path: str, name: str, kind: str) -> "SavedArray":
    """Open one array of an .npz; `kind` is its required content: numbers, integers, or numbers or strings."""
    file = stored_name(archive, name)
    if not file:
        names = ", ".join(each.removesuffix(".npy") for each in archive.namelist())
        raise DataError(
            f"{path}: there is no array '{name}'",
            hint="np.savez(path, values=..., lengths=..., labels=...) saves frames end to end, the length of each "
            f"sequence and its label; there are: {names}.",
        )
    size = archive.getinfo(file).file_size
    if size > MAX_ARRAY_BYTES:
        raise DataError(
            f"{path}: '{name}' unpacks to {size:,} bytes, more than {MAX_ARRAY_BYTES:,}",
            hint="split the data over several .npz files, or keep an .npy file for each sequence.",
        )
    return SavedArray(archive.open(file), size, f"{path}: '{name}'", kind)


@final
class SavedArray:
    """A saved array that is read a few entries of the first axis at a time; one in Fortran order is read as a whole."""

    def __init__(
        self, stream: IO[bytes] | io.BufferedIOBase, size: int, where: str, kind: str
    ) -> None:
        head = io.BytesIO(stream.read(_HEADER_BYTES))
        self.shape, is_fortran, self.dtype = _HEADERS[np.lib.format.read_magic(head)](head)
        self.stream = stream
        stream.seek(head.tell())
        self._check(size - head.tell(), where, kind)
        if is_fortran:
            array = self.all().reshape(self.shape[::-1]).T
            self.stream = io.BytesIO(array.tobytes())

    def _check(self, num_bytes: int, where: str, kind: str) -> None:
        """Refuse an array of another kind, without entries, too large, or longer than the file."""
        needed = prod(self.shape) * self.dtype.itemsize
        if self.dtype.kind not in _KINDS[kind]:
            problem = f"an array of dtype {self.dtype} where {kind} are needed"
            hint = "convert it with .astype and save it again; arrays of objects are never read."
        elif min(self.shape, default=0) < 1:
            problem = f"nothing in an array of shape {self.shape}"
            hint = "a sequence has at least one frame; drop it."
        elif prod(self.shape) > MAX_NUMBERS:
            problem = f"{prod(self.shape):,} numbers, more than {MAX_NUMBERS:,}"
            hint = "split it into several."
        elif needed > num_bytes:
            problem = f"{num_bytes:,} bytes where its header declares {needed:,}"
            hint = "the file was cut short; fetch or save it again."
        else:
            return
        raise DataError(f"{where}: {problem}", hint=hint)

    def all(self) -> Shaped[np.ndarray, "N *S"]:
        """Read all entries of the first axis."""
        return self.take(self.shape[0])

    def take(self, count: int) -> Shaped[np.ndarray, "N *S"]:
        """Read the next `count` entries of the first axis."""
        shape = (count, *self.shape[1:])
        content = self.stream.read(prod(shape) * self.dtype.itemsize)
        return np.frombuffer(content, self.dtype).reshape(shape)
