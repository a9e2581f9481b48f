"""Collections of named pictures: a directory, a .zip, arrays of an .npz, tensors of a .safetensors."""

import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from seqlab.data.arrays import is_outside, open_member, readable
from seqlab.errors import DataError

MAX_BYTES = 256 * 2**20  # of one file
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".npy")
CONTAINERS = (".zip", ".npz", ".safetensors")


@contextmanager
def open_archive(path: str) -> "Iterator[ImageArchive]":
    """Open a collection of pictures."""
    kind = Path(path).suffix.lower()
    if kind not in CONTAINERS or os.path.isdir(path):
        yield Files(path, None)
    elif not os.path.isfile(path):
        raise DataError(
            f"{path}: there is no such file",
            hint="give the file that holds the pictures, or features of them.",
        )
    elif kind == ".safetensors":
        from safetensors import safe_open

        with readable(path, "not a safetensors file", hint="save the features again."):
            file = safe_open(path, framework="np")
        yield Tensors(path, file)
    else:
        with readable(path, "cannot be read", hint="it is damaged, or not an archive."):
            archive = zipfile.ZipFile(path)
        with archive:
            yield Arrays(path, archive) if kind == ".npz" else Files(path, archive)


class Files:
    """Files of a directory or of a .zip, by their path or, if it is unique, by their name alone."""

    def __init__(self, path: str, archive: zipfile.ZipFile | None) -> None:
        self.path, self.archive = path, archive

    @cached_property
    def files(self) -> dict[str, str]:
        """All pictures by their path, and by their name alone."""
        if self.archive is not None:
            files = self.archive.namelist()
        else:
            paths = sorted(Path(self.path).rglob("*"))
            files = [path.relative_to(self.path).as_posix() for path in paths if path.is_file()]
        pictures = [
            file
            for file in files
            if file.lower().endswith(SUFFIXES) and not PurePosixPath(file).name.startswith(".")
        ]
        by_name = {PurePosixPath(file).name: file for file in reversed(pictures)}
        return by_name | {file: file for file in pictures}

    def others(self, names: Iterable[str]) -> set[str]:
        """Return the pictures that are not among these names."""
        return {*self.files.values()} - {self.files.get(name, name) for name in names}

    def get(self, name: str, where: str) -> bytes:
        """Read the file of a name; `where` is its location in messages."""
        if is_outside(name):
            raise DataError(
                f"{where}: this path is outside {self.path}",
                hint="names in a table are relative to the directory of the pictures, without '..'.",
            )
        path = name if self.size(name) is not None else self.files.get(name, name)
        size = self.size(path)
        if size is None:
            raise _missing(where, f"there is no '{name}' in {self.path or 'this directory'}.")
        if size > MAX_BYTES:
            raise DataError(
                f"{where}: a file of {size:,} bytes, more than {MAX_BYTES:,}",
                hint="make the picture smaller.",
            )
        if self.archive is None:
            return (Path(self.path) / path).read_bytes()
        with readable(where, "cannot be unpacked", hint="the .zip is damaged; make it again."):
            return self.archive.read(path)

    def size(self, name: str) -> int | None:
        """Return the number of bytes of a file, or None if there is no such file."""
        if self.archive is None:
            path = Path(self.path) / name
            return path.stat().st_size if path.is_file() else None
        return self.archive.getinfo(name).file_size if name in self.archive.NameToInfo else None


class Arrays:
    """Arrays of an .npz, each of many pictures: "images/0" is the first of them."""

    def __init__(self, path: str, archive: zipfile.ZipFile) -> None:
        self.path, self.archive = path, archive
        self._read: dict[str, np.ndarray] = {}

    def others(self, names: Iterable[str]) -> set[str]:
        return set()

    def has(self, name: str) -> bool:
        return f"{name}.npy" in self.archive.namelist()

    def whole(self, name: str, kind: str = "numbers") -> np.ndarray:
        if name not in self._read:
            with readable(f"{self.path}: '{name}'"):
                self._read[name] = open_member(self.archive, self.path, name, kind).all()
        return self._read[name]

    def get(self, name: str, where: str) -> np.ndarray:
        array, _, index = name.rpartition("/")
        pictures = self.whole(array or "images")
        if not index.isdecimal() or int(index) >= len(pictures):
            raise _missing(
                where,
                f"'{array or 'images'}' of {self.path} has the numbers 0 to {len(pictures) - 1}.",
            )
        return pictures[int(index)]


class Tensors:
    """Tensors of a .safetensors, one for each picture."""

    def __init__(self, path: str, file: Any) -> None:
        self.path, self.file, self.keys = path, file, set(file.keys())

    def others(self, names: Iterable[str]) -> set[str]:
        return self.keys - {*names}

    def get(self, name: str, where: str) -> np.ndarray:
        if name not in self.keys:
            raise _missing(where, f"{self.path} has no tensor '{name}'.")
        return self.file.get_tensor(name)


ImageArchive = Files | Arrays | Tensors


def _missing(where: str, hint: str) -> DataError:
    return DataError(f"{where}: there is no such picture", hint=hint)
