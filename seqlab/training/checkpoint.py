"""A run's state on disk: one safetensors file, written under another name, flushed, then renamed."""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seqlab.errors import RunError


@dataclass
class Progress:
    """Where a run stands; with the tensors beside it, all that is needed to go on as if it had never stopped."""

    step: int = 0
    epoch: int = 0
    index: int = 0  # the next batch of this epoch
    seconds: float = 0.0
    best_loss: float | None = None
    best_step: int = 0
    worse: int = 0  # validations since the best one
    finished: bool = False
    recent: list[list[float]] = field(default_factory=list)  # what the last steps measured, for the averages in the log


def write_checkpoint(path: Path, progress: Progress, parts: dict[str, dict[str, Tensor]]) -> None:
    """Named groups of tensors and the progress, in one file; the old file stays until the new one is whole."""
    tensors = {f"{part}/{name}": t.contiguous() for part, group in parts.items() for name, t in group.items()}
    write_whole(path, save(tensors, metadata={"progress": json.dumps(asdict(progress))}))


def read_checkpoint(path: Path) -> tuple[Progress, dict[str, dict[str, Tensor]]]:
    """The inverse of `write_checkpoint`."""
    parts: dict[str, dict[str, Tensor]] = {}
    try:
        with safe_open(path, framework="pt") as file:
            progress = Progress(**json.loads((file.metadata() or {})["progress"]))
            for key in file.keys():  # noqa: SIM118  (the handle is no mapping)
                part, name = key.split("/", 1)
                parts.setdefault(part, {})[name] = file.get_tensor(key)
    except FileNotFoundError:
        raise RunError(f"{path}: there is no checkpoint to resume from", hint="train without --resume.") from None
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path}: not a whole checkpoint: {error}", hint="train again with --overwrite.") from None
    return progress, parts


def write_whole(path: Path, content: bytes) -> None:
    """A file that is either the old one or the new one, whatever happens in between."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
