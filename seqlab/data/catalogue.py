"""Public data sets that can be downloaded: address, size, checksum and licence of each.

They are not part of Seqlab. A downloaded file is kept only if its checksum is right.
"""

import hashlib
import http.client
import os
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import urlsplit

from seqlab.errors import DataError, UsageError, nearest

TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Dataset:
    """One file on the network; `size` is in bytes."""

    name: str
    address: str
    sha256: str
    size: int
    licence: str
    note: str

    @property
    def file_name(self) -> str:
        """The name of the data set with the suffix of its address: "multi30k-train-en.gz"."""
        return self.name + PurePosixPath(urlsplit(self.address).path).suffix


@cache
def datasets() -> tuple[Dataset, ...]:
    """Return all data sets of the catalogue."""
    table = tomllib.loads((files("seqlab.data") / "catalogue.toml").read_text("utf-8"))
    return tuple(Dataset(**entry) for entry in table["dataset"])


def find(name: str) -> Dataset:
    """Return the data set of a name."""
    by_name = {dataset.name: dataset for dataset in datasets()}
    if name not in by_name:
        raise UsageError(f"there is no data set '{name}'", hint=nearest(name, by_name))
    return by_name[name]


def fetch(dataset: Dataset, directory: str | Path, *, address: str | None = None) -> Path:
    """Download a data set, check it, and only then give it its name; `address` is that of a mirror.

    A file that exists and is right is not downloaded again.
    """
    directory = Path(directory)
    path = directory / dataset.file_name
    if path.is_file() and _sha256(path) == dataset.sha256:
        return path
    address = address or dataset.address
    if urlsplit(address).scheme not in ("http", "https"):
        raise UsageError(
            f"'{address}' is not an address on the network",
            hint="it begins with http:// or https://.",
        )
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{dataset.file_name}.{os.getpid()}.tmp"
    try:
        with temporary.open("wb") as target:
            _download(address, target, limit=dataset.size)
        digest = _sha256(temporary)
        if digest != dataset.sha256:
            raise _not_the_file(address, f"its sha256 is {digest}, not {dataset.sha256}")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _download(address: str, target: BinaryIO, *, limit: int) -> None:
    request = urllib.request.Request(address, headers={"User-Agent": "seqlab"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            size = 0
            while chunk := response.read(_CHUNK):
                size += len(chunk)
                if size > limit:
                    raise _not_the_file(address, f"it is longer than {limit:,} bytes")
                target.write(chunk)
    except urllib.error.HTTPError as error:
        raise DataError(
            f"{address}: the server answers {error.code} {error.reason}",
            hint="the file may have moved; give the address of another copy, which is checked as well.",
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DataError(
            f"{address}: cannot be reached: {reason}",
            hint="check the network, or fetch the file by other means and give its path. Nothing was kept.",
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _not_the_file(address: str, reason: str) -> DataError:
    return DataError(
        f"{address}: this is not the file of the catalogue: {reason}",
        hint="the download was changed or cut short, or the address has a new version. Nothing was kept.",
    )
