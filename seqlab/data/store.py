"""Sequences on disk, memory-mapped: a corpus larger than memory is read at the same speed as a small one.

A store is three files: the numbers of all rows end to end (`path`), the offset of each row (`path.offsets`, uint64),
and a header (`path.json`). The header is written last, so a store that has it is complete.

A position of a row is one id, several ids (a word and its characters), or a vector of features. Offsets, lengths and
`num_tokens` count positions, so batches are planned in the same way for all of them.
"""

import json
import math
from array import array
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Int, Num

from seqlab.errors import DataError

FORMAT = 1
VECTORS = "float32"
PIXELS = "uint8"
_IN_MEMORY = {
    "uint16": np.int64,
    "uint32": np.int64,
    "int32": np.int64,
    PIXELS: np.uint8,
    VECTORS: np.float32,
}
_FLUSH = 1 << 20  # numbers held in memory while writing

Places = Int[np.ndarray, " _"]
"""Indices of rows in a store, or their lengths."""
Values = Num[np.ndarray, "T *W"]
Row = Sequence[int] | Sequence[Sequence[int]] | Values


@final
class TokenStore:
    """Rows of ids or vectors on disk; `store[i]` copies one row, `store.flat` has all of them end to end.

    Rows have the shape (T,) if a position is one id, else (T, width), also for vectors of one feature. Copies are
    int64 for ids, float32 for vectors and uint8 for pixels, whatever type the file has.
    """

    def __init__(self, flat: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> None:
        self.flat, self.begins, self.ends = flat, begins, ends

    @classmethod
    def open(cls, path: str | Path) -> "TokenStore":
        """Open the store of a path; raise a DataError if it is missing or damaged."""
        path = Path(path)
        header = _read_header(path)
        num_tokens = header["num_tokens"]
        dtype = np.dtype(header["dtype"]).newbyteorder("<")
        features = _features(header["dtype"], header["width"])
        flat = _mapped(path, dtype, (num_tokens, *features))
        offsets_path = _with_suffix(path, ".offsets")
        offsets = _mapped(offsets_path, np.dtype("<u8"), (header["num_rows"] + 1,))
        if offsets[0] != 0 or offsets[-1] != num_tokens:
            raise _damaged(offsets_path, f"its rows end at {offsets[-1]}, not at {num_tokens}")
        return cls(flat, offsets[:-1], offsets[1:])

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, row: int) -> Values:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a store with {len(self)} rows")
        values = self.flat[int(self.begins[row]) : int(self.ends[row])]
        return values.astype(_IN_MEMORY[values.dtype.name])

    @property
    def num_tokens(self) -> int:
        """The number of positions in all rows."""
        return int(self.lengths.sum())

    @cached_property
    def lengths(self) -> Places:
        return self.ends.astype(np.int64) - self.begins.astype(np.int64)

    def rows_at(self, places: Places) -> "TokenStore":
        """Return the store of these rows, which may repeat, without a copy: several examples can share a row."""
        return TokenStore(self.flat, self.begins[places], self.ends[places])

    def gather(self, rows: Places) -> tuple[Num[np.ndarray, "B T *W"], Places]:
        """Return rows as one array, shorter ones filled with zeros on the right, and their lengths."""
        lengths = self.lengths[rows]
        position = np.arange(lengths.max(initial=0))
        real = position < lengths[:, None]
        values = np.zeros(
            (*real.shape, *self.flat.shape[1:]), dtype=_IN_MEMORY[self.flat.dtype.name]
        )
        values[real] = self.flat[(self.begins[rows].astype(np.int64)[:, None] + position)[real]]
        return values, lengths


@dataclass(frozen=True)
class Column:
    """The path of the store of the source or the target, and the type of a position: `width` numbers.

    Ids are 0 to vocabulary_size - 1, and with dtype "int32" also -1. Vectors are "float32" and pixels "uint8", with a
    vocabulary_size of 0.
    """

    path: Path
    vocabulary_size: int
    dtype: str | None = None
    width: int = 1
    gaps: bool = False  # whether vectors may have NaN for unknown numbers


def write_stores(columns: Sequence[Column], rows: Iterable[Sequence[Row]]) -> list[TokenStore]:
    """Stream rows to disk; a row has one sequence for each column.

    The files have temporary names until they are complete, so an existing store is kept if something fails.
    """
    with ExitStack() as stack:
        writers = [stack.enter_context(_Writer(column)) for column in columns]
        for row in rows:
            for writer, part in zip(writers, row, strict=True):
                writer.add(part)
        for writer in writers:
            writer.flush()  # before any file is renamed, so that a bad id leaves every store unchanged
        for writer in writers:
            writer.finish()
    return [TokenStore.open(column.path) for column in columns]


@final
class _Writer:
    """Writes one store; without `finish`, its temporary files are deleted."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.dtype = column.dtype or ("uint16" if column.vocabulary_size <= 1 << 16 else "uint32")
        if self.dtype not in _IN_MEMORY:
            raise ValueError(f"a store holds {', '.join(_IN_MEMORY)}, not {self.dtype}")
        if column.width < 1:
            raise ValueError(f"a position holds at least one number, not {column.width}")
        self.features = _features(self.dtype, column.width)
        self.in_memory = np.dtype(_IN_MEMORY[self.dtype])
        column.path.parent.mkdir(parents=True, exist_ok=True)
        self.parts = [
            column.path,
            _with_suffix(column.path, ".offsets"),
            _with_suffix(column.path, ".json"),
        ]
        self.temporary = [_with_suffix(part, ".tmp") for part in self.parts]
        self.num_rows = self.num_tokens = 0
        self._numbers, self._ends = self._empty(), array("q", [0])

    def __enter__(self) -> "_Writer":
        self.tokens, self.offsets = self.temporary[0].open("wb"), self.temporary[1].open("wb")
        return self

    def __exit__(self, *raised: object) -> None:
        self.tokens.close()
        self.offsets.close()
        for name in self.temporary:
            name.unlink(missing_ok=True)

    def add(self, row: Row) -> None:
        if self.features or isinstance(row, np.ndarray):
            self._numbers.frombytes(self._checked(row).tobytes())
        else:
            self._numbers.extend(row)  # for a list of ids this is faster than NumPy
        self.num_rows += 1
        self.num_tokens += len(row)
        self._ends.append(self.num_tokens)
        if len(self._numbers) + len(self._ends) >= _FLUSH:
            self.flush()

    def flush(self) -> None:
        numbers = np.asarray(self._numbers, dtype=self.in_memory)
        if self.dtype not in (VECTORS, PIXELS):
            self._refuse_unknown(numbers)
        self.tokens.write(numbers.astype(np.dtype(self.dtype).newbyteorder("<")).tobytes())
        self.offsets.write(np.asarray(self._ends).astype("<u8").tobytes())
        self._numbers, self._ends = self._empty(), array("q")

    def _empty(self) -> array:
        return array(self.in_memory.char)

    def _checked(self, row: Row) -> Values:
        """Convert a row to an array of the column's type; refuse wrong shapes and values that are not finite."""
        if len(row) == 0:  # an empty list does not show its width
            return np.empty((0, *self.features), dtype=self.in_memory)
        with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite
            values = np.asarray(row).astype(self.in_memory, casting="same_kind")
        if values.shape[1:] != self.features:
            expected = ", ".join(map(str, ("T", *self.features)))
            raise ValueError(
                f"{self.column.path}: row {self.num_rows} has the shape {values.shape}, not ({expected})"
            )
        wrong = ~np.isfinite(values) & ~(self.column.gaps & np.isnan(values))
        if wrong.any():
            position, feature = np.argwhere(wrong)[0]
            raise DataError(
                f"{self.column.path}: row {self.num_rows}, position {position} holds {values[position, feature]}",
                hint="features are finite numbers; correct or drop that sequence. Nothing was written.",
            )
        return values

    def _refuse_unknown(self, ids: Places) -> None:
        lowest = -1 if self.dtype == "int32" else 0
        outside = ids[(ids < lowest) | (ids >= self.column.vocabulary_size)]
        if len(outside):
            raise DataError(
                f"{self.column.path}: the id {outside[0]} is outside a vocabulary of {self.column.vocabulary_size}",
                hint="the ids were made with another vocabulary. Nothing was written.",
            )

    def finish(self) -> None:
        """Rename the temporary files, the header last."""
        self.tokens.close()
        self.offsets.close()
        header = {
            "format": FORMAT,
            "dtype": self.dtype,
            "vocabulary_size": self.column.vocabulary_size,
            "width": self.column.width,
            "num_rows": self.num_rows,
            "num_tokens": self.num_tokens,
        }
        self.temporary[2].write_text(json.dumps(header) + "\n", encoding="utf-8")
        self.parts[2].unlink(missing_ok=True)  # an old header must never describe new ids
        for name, part in zip(self.temporary, self.parts, strict=True):
            name.replace(part)


def _features(dtype: str, width: int) -> tuple[int, ...]:
    """The shape of one position; `()` for a single id."""
    return (width,) if width > 1 or dtype in (VECTORS, PIXELS) else ()


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _read_header(path: Path) -> dict:
    name = _with_suffix(path, ".json")
    try:
        header = json.loads(name.read_text(encoding="utf-8"))
        header.setdefault("width", 1)  # in older stores each position was one id
        sizes = [header[key] for key in ("num_rows", "num_tokens", "vocabulary_size", "width")]
        are_counts = all(isinstance(size, int) and size >= 0 for size in sizes)
        valid = header["dtype"] in _IN_MEMORY and are_counts and header["width"] > 0
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: there is no token store here", hint="prepare the data first."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise _damaged(name, "it cannot be read") from error
    if header.get("format") != FORMAT:
        raise _damaged(
            name, f"its format is {header.get('format')}, and this version reads {FORMAT}"
        )
    if not valid:
        raise _damaged(name, f"its values are invalid: {json.dumps(header)}")
    return header


def _mapped(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Map a file into memory as an array."""
    size = path.stat().st_size if path.exists() else 0
    needed = math.prod(shape) * dtype.itemsize
    if size != needed:
        raise _damaged(path, f"{size} bytes where {needed} are needed")
    if not needed:  # an empty file cannot be mapped
        return np.empty(shape, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=shape)


def _damaged(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path}: the token store is damaged: {reason}",
        hint="delete it and prepare the data again; nothing was changed.",
    )
