"""The files of a run: its checkpoint, its lock and its log.

A checkpoint is one safetensors file, written under another name, flushed, read back, then renamed. The log is
`metrics.jsonl`, and curves for TensorBoard if the recipe asks for them.
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seqlab.errors import RunError, UsageError
from seqlab.machine import cleaning


@dataclass
class Progress:
    """The state of a run apart from its tensors; both together are enough to continue as if it had never stopped."""

    step: int = 0
    epoch: int = 0
    index: int = 0  # the next batch of this epoch
    seconds: float = 0.0
    best_loss: float | None = None
    best_accuracy: float = 0.0
    best_step: int = 0
    worse: int = 0  # validations since the best one
    finished: bool = False
    rate: float = 1.0  # factor of the learning rate; halved by each rollback
    diverged: list[int] = field(default_factory=list)  # the steps whose gradient was not finite
    # measurements of the last steps, for the averages in the log
    recent: list[list[float]] = field(default_factory=list)
    pending: bool = False  # whether the validation after this step is still to be made
    # decisions that depended on the clock, each with its first step, so that a resumed run continues with them
    threads: list[list[int]] = field(default_factory=list)  # step, number of threads
    # step, the precision of the recipe, the way in which matrices are multiplied (`kernels/products.py`)
    products: list[list[Any]] = field(default_factory=list)
    # step, the learner's length, steps between validations
    lengths: list[list[int]] = field(default_factory=list)
    sample: int | None = None  # batches of a validation, if time is limited
    # whether the run began with the native kernels, which round differently from torch
    native: bool | None = None

    @property
    def length(self) -> int | None:
        """The length that the time limit allows, as planned last; None without a limit."""
        return self.lengths[-1][1] if self.lengths else None


def write_checkpoint(path: Path, progress: Progress, parts: dict[str, dict[str, Tensor]]) -> None:
    """Write named groups of tensors and the progress to one file; the old file stays until the new one is complete."""
    tensors = {
        f"{part}/{name}": t.contiguous()
        for part, group in parts.items()
        for name, t in group.items()
    }
    write_whole(path, save(tensors, metadata={"progress": json.dumps(asdict(progress))}))


def read_checkpoint(path: Path) -> tuple[Progress, dict[str, dict[str, Tensor]]]:
    """Read what `write_checkpoint` has written."""
    parts: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(path, framework="pt", device=str(torch.get_default_device())) as file:
            progress = Progress(**json.loads((file.metadata() or {})["progress"]))
            for key in file.keys():  # noqa: SIM118  (the handle is no mapping)
                part, name = key.split("/", 1)
                parts.setdefault(part, {})[name] = file.get_tensor(key)
    except FileNotFoundError:
        raise RunError(
            f"{path}: there is no checkpoint to resume from", hint="train without --resume."
        ) from None
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{path}: not a complete checkpoint: {error}", hint="train again with --overwrite."
        ) from None
    return progress, parts


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file so that, even after a crash, it is either the old one or the new one."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not _holds(part, content):
            raise OSError(errno.EIO, "the file read back differs from what was written", str(part))
        part.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise RunError(
            f"{path}: writing failed: {error.strerror or error}",
            hint="the old file is unchanged. Free some disk space or change the permissions, then use --resume.",
        ) from error


def write_together(folder: Path, files: dict[str, bytes]) -> None:
    """Replace files that belong together; the old ones stay until all new ones are on disk. The last is a marker."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / ".new"
    try:
        new.mkdir(exist_ok=True)
        for name, content in files.items():
            write_whole(new / name, content)
        (folder / [*files][-1]).unlink(missing_ok=True)
        for name in files:
            (new / name).replace(folder / name)
        _flush_folder(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _holds(path: Path, content: bytes, piece: int = 1 << 24) -> bool:
    """Return whether a file has this content, comparing piece by piece."""
    with path.open("rb") as file:
        same = all(
            file.read(piece) == content[start : start + piece]
            for start in range(0, len(content), piece)
        )
        return same and not file.read(1)


def _flush_folder(folder: Path) -> None:
    """Write a folder to disk; otherwise a rename in it could be lost by a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder of a run in this block. The system releases the lock of a process that died."""
    folder = folder.resolve()
    path = folder.with_name(f".{folder.name}.lock")
    missing = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with cleaning(partial(_remove, [], missing)), _lock(path, folder) as file:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        with cleaning(partial(_remove, [path], [])):
            yield


@contextmanager
def temporary(folder: Path) -> Iterator[None]:
    """Create a folder and remove it after this block, with those parents that were created and are empty."""
    missing = [parent for parent in folder.parents if not parent.exists()]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with cleaning(partial(_remove, [folder], missing)):
        yield


def _remove(paths: list[Path], parents: list[Path]) -> None:
    """Remove files and folders, then those parents that are empty."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for parent in parents:
        with suppress(OSError):  # not empty: it contains the run
            parent.rmdir()


def _lock(path: Path, folder: Path) -> TextIO:
    """Return the open, locked file; it stays locked until it is closed or the process ends."""
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file  # otherwise its last owner has just removed it
            file.close()
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise RunError(
                f"{folder}: process {owner or '(unknown)'} is training in this directory",
                hint="wait for it, stop it, or choose another directory with --out.",
            ) from None


class MetricsFile:
    """The log of a run: one JSON object a line for steps and validations. Of several processes, one writes it.

    With `tensorboard`, the same numbers are also written to event files.
    """

    def __init__(self, path: Path, *, writes: bool = True, tensorboard: bool = False) -> None:
        self.path, self.writes = path, writes
        self.curves = Curves(path.parent) if tensorboard and writes else None

    def append(self, step: int, **values: object) -> None:
        if not self.writes:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        if self.curves is not None:
            self.curves.append(step, values)

    def truncate(self, step: int, *, validated: bool = True) -> None:
        """Remove what was logged after a checkpoint: those steps, and maybe its validation, will be repeated."""
        if not self.writes or not self.path.exists():
            return
        rows = (row for row in self.rows() if row["step"] <= step)
        kept = [
            json.dumps(row) + "\n"
            for row in rows
            if validated or row["step"] < step or "validation" not in row
        ]
        write_whole(self.path, "".join(kept).encode())
        if self.curves is not None:
            self.curves.truncate(step)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the log, up to a line that is incomplete after a kill or while it is being written."""
        for line in self.path.read_text("utf-8").splitlines() if self.path.exists() else ():
            try:
                row = json.loads(line)
                row["step"] + 0
            except (ValueError, KeyError, TypeError):
                return
            yield row


class Curves:
    """The numbers of a run as event files of TensorBoard: `tensorboard --logdir runs` draws them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer_class = _summary_writer()
        self._writer: Any = None
        self._purge_step: int | None = None

    def append(self, step: int, values: Mapping[str, object]) -> None:
        """Add numbers: `loss` to the curve train/loss, a group such as `validation` to validation/..."""
        if self._writer is None:
            self._writer = self._writer_class(self.folder, purge_step=self._purge_step)
        groups = {"train": values} | {
            name: part for name, part in values.items() if isinstance(part, Mapping)
        }
        for group, part in groups.items():
            for name, value in part.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._writer.add_scalar(f"{group}/{name}", value, step)
        self._writer.flush()

    def truncate(self, step: int) -> None:
        """Make TensorBoard discard the points after this step, which will be repeated."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._purge_step = step + 1


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "train.tensorboard needs the package tensorboard, which is not installed",
            hint='pip install "seqlab[tensorboard]", or leave out this setting: metrics.jsonl has the same numbers.',
        ) from None
    return SummaryWriter
