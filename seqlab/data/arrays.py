"""Arrays that NumPy saved, read with care: whatever a header promises is checked before anything is allocated.

Arrays of objects, which are pickles, are refused; so is a kilobyte that promises to become a terabyte.
"""

import io
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import IO, final

import numpy as np
from jaxtyping import Shaped

from seqlab.errors import DataError, SeqlabError

MOST_NUMBERS = 2**31  # in one array
MOST_BYTES = 4 * 2**30  # of one array in an .npz, unpacked
_HEADER_BYTES = 1 << 14  # NumPy trusts no header of more than 10,000 characters
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_KINDS = {"numbers": "biuf", "integers": "iu", "numbers or strings": "biufUS"}  # of dtype


@contextmanager
def readable(path: str, where: str) -> Iterator[None]:
    """What can go wrong with a file that is absent, damaged or something else, as one kind of error."""
    if not os.path.isfile(path):
        raise DataError(
            f"{where}: there is no such file",
            hint=f"it was looked for at '{path}'; a path in a table starts where the table lies.",
        )
    try:
        yield
    except SeqlabError:
        raise
    except Exception as error:  # a forged zip or header can make their readers raise nearly anything
        reason = str(error).partition("\n")[0]  # NumPy goes on to advise trusting the file, which this never does
        raise DataError(
            f"{where}: this cannot be read as NumPy writes it: {reason}",
            hint="np.save writes an .npy and np.savez an .npz; the file is damaged, or something else by that name.",
        ) from error


def member(archive: zipfile.ZipFile, path: str, name: str, kind: str) -> "SavedArray":
    """One array of an .npz; `kind` says what it must hold: numbers, integers, or numbers or strings."""
    if f"{name}.npy" not in archive.namelist():
        there = ", ".join(member.removesuffix(".npy") for member in archive.namelist())
        raise DataError(
            f"{path}: there is no array '{name}'",
            hint="np.savez(path, values=..., lengths=..., labels=...) gives frames end to end, the length of each "
            f"sequence and its label; there are: {there}.",
        )
    size = archive.getinfo(f"{name}.npy").file_size
    if size > MOST_BYTES:
        raise DataError(
            f"{path}: '{name}' unpacks to {size:,} bytes, more than {MOST_BYTES:,}",
            hint="split the data over several .npz files, or keep an .npy file for each sequence.",
        )
    return SavedArray(archive.open(f"{name}.npy"), size, f"{path}: '{name}'", kind)


@final
class SavedArray:
    """A saved array of which some entries of the first axis are read at a time; one by columns must be held whole."""

    def __init__(self, stream: IO[bytes] | io.BufferedIOBase, size: int, where: str, kind: str) -> None:
        head = io.BytesIO(stream.read(_HEADER_BYTES))
        self.shape, by_columns, self.dtype = _HEADERS[np.lib.format.read_magic(head)](head)
        self.stream = stream
        stream.seek(head.tell())
        promised = prod(self.shape) * self.dtype.itemsize
        if self.dtype.kind not in _KINDS[kind]:
            seen = f"an array of dtype {self.dtype} where {kind} are needed"
            hint = "convert it with .astype and save it again; arrays of objects are never read."
        elif min(self.shape, default=0) < 1:
            seen, hint = f"nothing in an array of shape {self.shape}", "a sequence has at least one frame; drop it."
        elif prod(self.shape) > MOST_NUMBERS:
            seen, hint = f"{prod(self.shape):,} numbers, more than {MOST_NUMBERS:,}", "split it into several."
        elif promised > size - head.tell():
            seen = f"{size - head.tell():,} bytes where its header promises {promised:,}"
            hint = "the file was cut short; fetch or save it again."
        else:
            if by_columns:
                whole = self.take(self.shape[0]).reshape(self.shape[::-1]).T
                self.stream = io.BytesIO(whole.tobytes())
            return
        raise DataError(f"{where}: {seen}", hint=hint)

    def take(self, count: int) -> Shaped[np.ndarray, "N *S"]:
        """The next entries."""
        shape = (count, *self.shape[1:])
        return np.frombuffer(self.stream.read(prod(shape) * self.dtype.itemsize), self.dtype).reshape(shape)
