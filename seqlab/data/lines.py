"""Read text files as a stream of numbered lines: plain or gzip, a path or stdin."""

import gzip
import io
import os
import shutil
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from seqlab.data.encodings import SAMPLE, Guess, check_encoding, guess_encoding
from seqlab.errors import DataError, shorten, warn

STDIN = "-"
IN_MEMORY = "in-memory"  # the stem of the name of a file with data given in Python
_BOM = b"\xef\xbb\xbf"
# The first bytes of files that are not text, what they are, and what to do with them.
_SIGNATURES = {
    b"PK": "a zip archive, as Excel's .xlsx is too: unpack it, or save the sheet as CSV.",
    b"\xd0\xcf\x11\xe0": "a document of Excel or Word: save it as CSV or as plain text.",
    b"%PDF": "a PDF: save its text as plain text first.",
    b"\x93NUMPY": "an array of NumPy: np.savetxt(path, array) writes numbers as text, and np.savez(path, "
    "values=inputs, labels=labels) sequences of vectors with their labels.",
    b"\x80\x04": "a pickle, which is never read: write the data as CSV or JSON, with to_csv for instance.",
    b"\x80\x05": "a pickle, which is never read: write the data as CSV or JSON, with to_csv for instance.",
    b"PAR1": "a Parquet file: give it a name that ends in .parquet.",
    b"ARROW1": "an Arrow file: write it as Parquet, with to_parquet for instance.",
    b"SQLite": "a database: export the table as CSV.",
    b"RIFF": "sound or video: frames of measured features are needed, saved by NumPy.",
    b"BZh": "compressed by bzip2: unpack it with bunzip2.",
    b"\xfd7zXZ": "compressed by xz: unpack it with unxz.",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it with unzstd.",
}


def lines(path: str, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file with their numbers from 1, without their line ends.

    Only "\\n" (or "\\r\\n", and "\\r" in a file that has no other) ends a line, as for `wc`; U+2028 and similar
    characters are text. Without `encoding` the file is UTF-8; if its first bytes are certainly in another encoding,
    that is used, with a warning.
    """
    blank = True
    for number, text in numbered_lines(path, encoding):
        blank = blank and not text.strip()
        yield number, text
    if blank:
        raise DataError(
            f"{display_name(path)}: the file is empty", hint="it needs at least one line of text."
        )


def numbered_lines(path: str, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text file as `lines` does, but allow a file without text."""
    name = display_name(path)
    with _opened(path) as stream:
        head = b"" if path == STDIN else _head(stream)  # reading ahead would wait for more input
        _check_signature(head, name)
        plain = not head or _is_plain_utf8(head)
        guess = Guess("utf-8", certain=True) if plain else guess_encoding(head)
        if encoding is not None:
            chosen = check_encoding(encoding)
        else:
            chosen = guess.name if guess.certain else "utf-8"
            _warn_of_encoding(guess, name)
        source: Iterable[bytes] = stream
        if chosen.lower().replace("_", "-").startswith(("utf-16", "utf-32")):
            source = _recoded(stream, chosen)
            chosen = "utf-8"
        if b"\r" in head and b"\n" not in head:
            source = _split_at_returns(stream)
        for number, raw in enumerate(_raw_lines(source, name), start=1):
            if number == 1:
                raw = raw.removeprefix(_BOM)
            yield number, _decoded(raw, chosen, guess, f"{name}:{number}", name)


def read_text(paths: Sequence[str], encoding: str | None = None) -> Iterator[str]:
    """Yield the lines of text files, one file after the other, each line with "\\n", the last of a file too."""
    for path in paths:
        for _, text in lines(path, encoding):
            yield text + "\n"


def spool(path: str, directory: str) -> str:
    """Return a path that can be read more than once: stdin is copied into `directory`."""
    if path != STDIN:
        return path
    Path(directory).mkdir(parents=True, exist_ok=True)
    copy = Path(directory) / "stdin.txt"
    with copy.open("wb") as target:
        shutil.copyfileobj(sys.stdin.buffer, target)
    return str(copy)


def paths_of(data: Any) -> list[str] | None:
    """Return the paths if the data are paths, else None.

    Paths are one string or Path, or a list of them: up to two, or of files that exist. A longer list of strings is
    texts.
    """
    if isinstance(data, str | Path):
        return [str(data)]
    if not isinstance(data, list | tuple) or not all(isinstance(each, str | Path) for each in data):
        return None
    are_paths = (
        len(data) <= 2
        or any(isinstance(each, Path) for each in data)
        or all(map(os.path.exists, data))
    )
    return [str(path) for path in data] if are_paths else None


def names_of(data: Any) -> list[str]:
    """Return the paths if the data are paths, else a name for data in memory; an empty list for empty data."""
    if hasattr(data, "__len__") and len(data) == 0:
        return []
    paths = paths_of(data)
    return [IN_MEMORY] if paths is None else paths


def display_name(path: str) -> str:
    """Return the name of a file for messages."""
    if path == STDIN:
        return "stdin"
    return "the data" if Path(path).name.startswith(f"{IN_MEMORY}.") else path


def extension(path: str) -> str:
    """Return the suffix of a file without compression: ".tsv" for "pairs.tsv.gz"."""
    return Path(path.lower().removesuffix(".gz")).suffix


@contextmanager
def _opened(path: str) -> Iterator[io.BufferedIOBase]:
    if path == STDIN:
        yield cast(io.BufferedIOBase, sys.stdin.buffer)
        return
    if os.path.isdir(path):
        raise DataError(f"{path}: this is a directory, not a file", hint=_files_in(path))
    try:
        stream = gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb")  # noqa: SIM115
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file", hint=_nearest_file(path)) from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be opened: {error.strerror}", hint="check its permissions."
        ) from error
    with stream:
        yield stream


def _head(stream: io.BufferedIOBase) -> bytes:
    """Read the beginning of a file, and rewind the stream."""
    try:
        head = stream.read(SAMPLE)
        stream.seek(0)
    except (EOFError, OSError, zlib.error):
        return (
            b""  # a damaged .gz, or a pipe: reading the lines raises an error that names the line
        )
    return head


def _is_plain_utf8(head: bytes) -> bool:
    """Whether the lines at the beginning of a file are UTF-8 without NUL bytes; the last one may be cut."""
    try:
        head[: head.rfind(b"\n") + 1 or None].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return 0 not in head


def _check_signature(head: bytes, name: str) -> None:
    """Refuse a file whose first bytes show that it is not text."""
    hint = next((hint for start, hint in _SIGNATURES.items() if head.startswith(start)), None)
    if hint is not None and (b"\0" in head or not head.isascii()):
        raise DataError(f"{name}: this is not text", hint=f"it looks like {hint}")


def _split_at_returns(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Split a file at carriage returns, with which old Macs ended lines."""
    rest = b""
    while block := stream.read(SAMPLE):
        *whole, rest = (rest + block).split(b"\r")
        yield from whole
    if rest:
        yield rest


def _warn_of_encoding(guess: Guess, name: str) -> None:
    if guess.certain and guess.sample:
        message = f"{name}: read as {guess.name}, for instance {shorten(guess.sample, 30)}"
        warn(f"{message} (--set data.encoding=NAME chooses another)")


def _recoded(stream: io.BufferedIOBase, encoding: str) -> Iterator[bytes]:
    """Convert UTF-16 or UTF-32 to lines of UTF-8, in which a newline is one byte."""
    with io.TextIOWrapper(cast(Any, stream), encoding, newline="\n") as text:
        for line in text:
            yield line.encode("utf-8", "surrogatepass")


def _raw_lines(stream: Iterable[bytes], name: str) -> Iterator[bytes]:
    number = 0
    try:
        for raw in stream:
            number += 1
            yield raw.removesuffix(b"\n").removesuffix(b"\r")
    except (EOFError, OSError, UnicodeError, zlib.error) as error:
        raise DataError(
            f"{name}: cannot be read past line {number}: {error}",
            hint="the file is cut short or damaged; `gzip -t` tests a .gz file. Fetch or compress it again.",
        ) from error


def _decoded(raw: bytes, encoding: str, guess: Guess, where: str, name: str) -> str:
    if 0 in raw:
        raise DataError(
            f"{where}: a NUL byte at position {raw.index(0) + 1}",
            hint="this looks like a binary file; if it is text, set its encoding: --set data.encoding=utf-16-le",
        )
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        position = f"byte 0x{raw[error.start]:02x} at position {error.start + 1}"
        hint = _encoding_hint(raw, guess if guess.sample else guess_encoding(raw), name)
        raise DataError(f"{where}: not valid {encoding.upper()}: {position}", hint=hint) from error


def _encoding_hint(raw: bytes, guess: Guess, name: str) -> str:
    if raw.startswith(b"\x1f\x8b"):
        return "the file is compressed: give it a name that ends in .gz."
    if guess.sample:
        sample = f"as {guess.name} it contains {shorten(guess.sample, 30)}; if that is right"
        return f"{sample}: --set data.encoding={guess.name}"
    return f"a few bytes are damaged, or the encoding is another: iconv -c -t UTF-8 {name} > clean.txt drops them."


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
        return f"'{directory}' contains no files."
    more = f" and {len(files) - limit} more" if len(files) > limit else ""
    return f"'{directory}' contains {', '.join(files[:limit])}{more}."
