"""Files as numbered lines of text, read as a stream: plain or gzip, a path or stdin, and every refusal says where."""

import gzip
import os
import shutil
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from seqlab.errors import DataError

STDIN = "-"
_BOM = b"\xef\xbb\xbf"


def lines(path: str) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file with their numbers from 1, without their ends.

    Only "\\n" (or "\\r\\n") ends a line: U+2028 and its kin are text, so that a line here is a line for `wc` too.
    """
    blank = True
    for number, text in numbered_lines(path):
        blank = blank and not text.strip()
        yield number, text
    if blank:
        raise DataError(f"{display_name(path)}: the file is empty", hint="it needs at least one line of text.")


def numbered_lines(path: str) -> Iterator[tuple[int, str]]:
    """The same from a file that may be empty: what is to be answered, rather than learnt from."""
    name = display_name(path)
    with _opened(path) as stream:
        for number, raw in enumerate(_raw_lines(stream, name), start=1):
            if number == 1:
                raw = raw.removeprefix(_BOM)
            yield number, _decoded(raw, name, number)


def read_text(paths: Sequence[str]) -> Iterator[str]:
    """The lines of plain text files, one file after the other, each line with its "\\n".

    A last line without one gets it, so that two files never run into each other.
    """
    for path in paths:
        for _, text in lines(path):
            yield text + "\n"


def spool(path: str, directory: str) -> str:
    """A path that can be read more than once: stdin is copied into `directory`, a file stays where it is."""
    if path != STDIN:
        return path
    Path(directory).mkdir(parents=True, exist_ok=True)
    copy = Path(directory) / "stdin.txt"
    with copy.open("wb") as target:
        shutil.copyfileobj(sys.stdin.buffer, target)
    return str(copy)


def display_name(path: str) -> str:
    """How messages call a file."""
    return "stdin" if path == STDIN else path


def extension(path: str) -> str:
    """What kind of file it is by its name, compression aside: "pairs.tsv.gz" is ".tsv"."""
    return Path(path.lower().removesuffix(".gz")).suffix


@contextmanager
def _opened(path: str) -> Iterator[Iterable[bytes]]:
    if path == STDIN:
        yield sys.stdin.buffer
        return
    if os.path.isdir(path):
        raise DataError(f"{path}: this is a directory, not a file", hint=_files_in(path))
    try:
        stream = gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb")  # noqa: SIM115
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file", hint=_nearest_file(path)) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be opened: {error.strerror}", hint="check its permissions.") from error
    with stream:
        yield stream


def _raw_lines(stream: Iterable[bytes], name: str) -> Iterator[bytes]:
    number = 0
    try:
        for raw in stream:
            number += 1
            yield raw.removesuffix(b"\n").removesuffix(b"\r")
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{name}: cannot be read past line {number}: {error}",
            hint="the file is cut short or damaged; `gzip -t` tests a .gz file. Fetch or compress it again.",
        ) from error


def _decoded(raw: bytes, name: str, number: int) -> str:
    where = f"{name}:{number}"
    if 0 in raw:
        raise DataError(
            f"{where}: a NUL byte at position {raw.index(0) + 1}",
            hint="this looks like a binary file; if it is UTF-16 text, convert it: "
            f"iconv -f UTF-16 -t UTF-8 {name} > converted.txt",
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        if number == 1 and raw.startswith(b"\x1f\x8b"):
            hint = "the file is compressed: give it a name that ends in .gz."
        else:
            hint = f"convert it first, for instance: iconv -f LATIN1 -t UTF-8 {name} > converted.txt"
        seen = f"byte 0x{raw[error.start]:02x} at position {error.start + 1}"
        raise DataError(f"{where}: not valid UTF-8: {seen}", hint=hint) from error


def _nearest_file(path: str) -> str:
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        return f"there is no directory '{directory}' either."
    near = get_close_matches(os.path.basename(path), os.listdir(directory), n=1)
    if near:
        return f"did you mean '{os.path.join(os.path.dirname(path), near[0])}'?"
    return _files_in(directory)


def _files_in(directory: str, limit: int = 5) -> str:
    files = sorted(entry.name for entry in os.scandir(directory) if entry.is_file())
    if not files:
        return f"'{directory}' holds no files."
    more = f" and {len(files) - limit} more" if len(files) > limit else ""
    return f"'{directory}' holds {', '.join(files[:limit])}{more}."
