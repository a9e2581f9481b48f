"""What a run writes: its state, and its log.

The state is one safetensors file, written under another name, flushed, read back, then renamed. The log is
`metrics.jsonl`, and curves for TensorBoard where the recipe asks for them.
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
    """Where a run stands; with the tensors beside it, all that is needed to go on as if it had never stopped."""

    step: int = 0
    epoch: int = 0
    index: int = 0  # the next batch of this epoch
    seconds: float = 0.0
    best_loss: float | None = None
    best_accuracy: float = 0.0
    best_step: int = 0
    worse: int = 0  # validations since the best one
    finished: bool = False
    rate: float = (
        1.0  # what the learning rate is multiplied by, since a run that diverged was rolled back
    )
    diverged: list[int] = field(default_factory=list)  # the steps whose gradient was not finite
    recent: list[list[float]] = field(
        default_factory=list
    )  # what the last steps measured, for the averages in the log
    pending: bool = False  # a validation follows this step, and is not made yet
    # what was decided by the clock, so that a resumed run goes on with it: each from which step on
    threads: list[list[int]] = field(default_factory=list)  # step, number of threads
    # step, the precision that the recipe asked for, the way in which matrices are multiplied (`kernels/products.py`)
    products: list[list[Any]] = field(default_factory=list)
    lengths: list[list[int]] = field(
        default_factory=list
    )  # step, the learner's length, steps between validations
    sample: int | None = None  # batches that a validation reads, where time is limited
    native: bool | None = (
        None  # whether the run began with the native kernels, which round otherwise than torch
    )

    @property
    def length(self) -> int | None:
        """The length that a limited time allows, as it was measured last."""
        return self.lengths[-1][1] if self.lengths else None


def write_checkpoint(path: Path, progress: Progress, parts: dict[str, dict[str, Tensor]]) -> None:
    """Named groups of tensors and the progress, in one file; the old file stays until the new one is whole."""
    tensors = {
        f"{part}/{name}": t.contiguous()
        for part, group in parts.items()
        for name, t in group.items()
    }
    write_whole(path, save(tensors, metadata={"progress": json.dumps(asdict(progress))}))


def read_checkpoint(path: Path) -> tuple[Progress, dict[str, dict[str, Tensor]]]:
    """The inverse of `write_checkpoint`."""
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
            f"{path}: not a whole checkpoint: {error}", hint="train again with --overwrite."
        ) from None
    return progress, parts


def write_whole(path: Path, content: bytes) -> None:
    """A file that is either the old one or the new one, whatever happens in between."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not _holds(part, content):
            raise OSError(errno.EIO, "what was read back is not what was written", str(part))
        part.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise RunError(
            f"{path}: it could not be written: {error.strerror or error}",
            hint="what stood there before is untouched. Make room or mend the rights, then go on with --resume.",
        ) from error


def write_together(folder: Path, files: dict[str, bytes]) -> None:
    """Files that belong together: the old ones stay until all new ones are on the disk; the last makes them count."""
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
    """Whether a file holds this, read a piece at a time."""
    with path.open("rb") as file:
        same = all(
            file.read(piece) == content[start : start + piece]
            for start in range(0, len(content), piece)
        )
        return same and not file.read(1)


def _flush_folder(folder: Path) -> None:
    """A rename is safe from a power cut only when its folder is on the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within this block no other process trains into the folder. The system frees the lock of a process that died."""
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
    """A new folder that is gone after this block, with the parents that were made for it, if they are empty."""
    missing = [parent for parent in folder.parents if not parent.exists()]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with cleaning(partial(_remove, [folder], missing)):
        yield


def _remove(paths: list[Path], parents: list[Path]) -> None:
    """Remove files and folders, then those of their parents that are empty."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for parent in parents:
        with suppress(OSError):  # it holds the run
            parent.rmdir()


def _lock(path: Path, folder: Path) -> TextIO:
    """The lock's file, open: it stays locked until it is closed, or its process ends, however it ends."""
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file  # and not one that its last owner has just removed
            file.close()
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip()
            file.close()
            raise RunError(
                f"{folder}: process {owner or '(unknown)'} is training into this directory",
                hint="wait until it has finished or stop it, or give another directory with --out.",
            ) from None


class MetricsFile:
    """One JSON object a line: training steps and validations, in order. Of many processes, one writes it.

    With `tensorboard`, the same numbers go into event files beside it.
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

    def cut_back(self, step: int, *, validated: bool = True) -> None:
        """Forget what was logged after a checkpoint: those steps will be done again, and maybe a validation."""
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
            self.curves.cut_back(step)

    def rows(self) -> Iterator[dict[str, Any]]:
        """What was logged so far, up to a line that was cut off by a kill or is just being written."""
        for line in self.path.read_text("utf-8").splitlines() if self.path.exists() else ():
            try:
                row = json.loads(line)
                row["step"] + 0
            except (ValueError, KeyError, TypeError):
                return
            yield row


class Curves:
    """The numbers of a run as curves of TensorBoard: `tensorboard --logdir runs` draws them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer_class = _summary_writer()
        self._writer: Any = None
        self._purge_step: int | None = None

    def append(self, step: int, values: Mapping[str, object]) -> None:
        """`loss` is the curve train/loss; a group of numbers such as `validation` has curves of its own."""
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

    def cut_back(self, step: int) -> None:
        """TensorBoard is to forget what it has read after this step: those steps will be done again."""
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
            hint='pip install "seqlab[tensorboard]", or leave the setting out: metrics.jsonl has the same numbers.',
        ) from None
    return SummaryWriter
