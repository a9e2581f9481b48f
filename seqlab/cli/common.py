"""What several commands share: options, and small things said the same way everywhere."""

import shutil
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

MODEL = "directory of a trained model, or a shipped one's name"
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL)]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Threads = Annotated[Optional[int], typer.Option(min=1, help="CPU threads to use")]  # noqa: UP045  (typer's own form)
Device = Annotated[str, typer.Option(help="where to compute: auto, cpu, cuda or mps")]
Workers = Annotated[int, typer.Option(min=1, help="processes that share the lines, and the threads")]


def tasks_help() -> str:
    """The names of all tasks, for the help of a command."""
    from seqlab.recipes import default_recipes

    *names, last = default_recipes()
    return f"{', '.join(names)} or {last}"


def program() -> str:
    """How this program was called, so that what we say can be copied and run."""
    if sys.argv[0].endswith("__main__.py"):
        return "python -m seqlab"
    return "seqlab" if shutil.which("seqlab") else sys.argv[0]


def check_task(task: str, *, resume: bool) -> None:
    from seqlab.errors import UsageError, nearest
    from seqlab.recipes import default_recipes

    names = default_recipes()
    if task not in names and not (resume and not task):
        raise UsageError(f"there is no task '{task}'" if task else "which task?", hint=nearest(task, names))


def use_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def use_device(device: str) -> None:
    if device != "cpu":
        from seqlab.device import use_device

        use_device(device)


def readable(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {readable(part)}" for name, part in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
