"""What all commands share: the entry point, common options, and errors printed as a message with an exit code."""

import inspect
import os
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Optional, ParamSpec, TypeVar, get_args, get_type_hints

import typer
from typer import Argument, Option

from seqlab.errors import SeqlabError, SeqlabWarning, UsageError, nearest
from seqlab.machine import limit_product_caches, sleep_while_waiting
from seqlab.recipes import default_recipes

P = ParamSpec("P")
R = TypeVar("R")
INTERRUPTED = 130  # exit code

# typer reads these annotations at run time and needs Optional here
MODEL = "directory of a trained model, or name of a shipped one"
ModelPath = Annotated[Path, Argument(metavar="MODEL", help=MODEL)]
Json = Annotated[bool, Option("--json", help="print the result as JSON")]
Int8 = Annotated[bool, Option("--int8", help="8-bit weights: faster, slightly less accurate")]
Threads = Annotated[
    Optional[int],  # noqa: UP045
    Option(min=1, help="number of CPU threads", show_default="chosen automatically"),
]
Device = Annotated[str, Option(help="where to compute: auto, cpu, cuda or mps")]
Conformal = Annotated[
    Optional[float],  # noqa: UP045
    Option(
        min=0.5,
        max=0.99,
        help="classify: print the set of labels that contains the correct one with this probability, "
        "for example 0.9",
    ),
]
Workers = Annotated[
    int, Option(min=1, help="number of processes that divide the lines and the threads")
]


def main() -> None:
    """Run the command line."""
    sleep_while_waiting()
    limit_product_caches()
    warnings.simplefilter("default", SeqlabWarning)  # print each warning once
    warnings.showwarning = _show_warning
    try:
        from seqlab.cli.app import app

        app()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def _show_warning(
    message: Warning | str, category: type[Warning], *place: object, **more: object
) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _print_version(requested: bool) -> bool:
    if requested:
        from seqlab import __version__

        print(__version__)
        raise typer.Exit
    return requested


def seqlab(
    version: bool = Option(
        False, "--version", callback=_print_version, is_eager=True, help="print the version"
    ),
) -> None:
    """A laboratory for sequence models: train one on your own file, use it, look inside."""


def add_command(app: typer.Typer, name: str, function: Callable[..., None]) -> None:
    """Register a command; the part of its docstring from "Examples:" on is printed last, after its options."""
    text, mark, examples = inspect.getdoc(function).partition("Examples:\n")  # type: ignore[union-attr]
    # \b keeps the line breaks of a paragraph
    epilog = "\b\n" + mark + examples.replace("\n\n", "\n\n\b\n")
    app.command(name, help=text, epilog=epilog)(reports_errors(function))


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command so that an expected error is printed as a message and a hint, and sets the exit code."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = command(*args, **kwargs)
            sys.stdout.flush()  # at exit, a closed pipe could no longer be reported
            return result
        except SeqlabError as error:
            print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader, such as `head`, has closed the pipe. Replace stdout so that closing it does not fail too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except OSError as error:
            file = f"{error.filename}: " if error.filename else ""
            print(
                f"error: {file}{error.strerror or error}\n"
                "hint: check the path, its permissions and the free disk space.",
                file=sys.stderr,
            )
            raise typer.Exit(1) from None

    return wrapped


def with_flags(
    options: type, *, check_ranges: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one flag for each attribute of `options`; a flag that is not set is passed as None.

    Without `check_ranges` the command itself must check the values.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command)
        parameters = [p for p in own.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        types: dict[str, Any] = get_type_hints(options)
        for name, hint in get_type_hints(options, include_extras=True).items():
            _, bounds, text = get_args(hint)
            flag = Option(None, min=bounds.least if check_ranges else None, help=text)
            parameters.append(
                Parameter(name, Parameter.KEYWORD_ONLY, default=flag, annotation=types[name] | None)
            )
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorate


def tasks_help() -> str:
    """Return the names of all tasks, as help of an argument."""
    *names, last = default_recipes()
    return f"{', '.join(names)} or {last}"


def check_task(task: str, *, resume: bool, files: Sequence[str] = ()) -> None:
    """Raise a UsageError unless the task exists; a resumed run needs none.

    If a file is given in place of the task, propose the task that fits its content.
    """
    names = default_recipes()
    if task in names or (resume and not task):
        return
    if os.path.exists(task):
        from seqlab.data.proposal import propose

        proposal = propose([task, *files])
        command = f"{program()} {shlex.join(proposal.arguments)}"
        look = f"{program()} data look {proposal.task} {shlex.quote(task)}"
        raise UsageError(
            f"no task is named; '{proposal.task}' fits {proposal.reason}",
            hint=f"{command}\n      (`{look}` shows how the file is read)",
        )
    message = f"there is no task '{task}'" if task else "no task is named"
    raise UsageError(message, hint=nearest(task, names))


def program() -> str:
    """Return the name by which this program was called, so that a printed command can be copied and run."""
    if sys.argv[0].endswith("__main__.py"):
        return "python -m seqlab"
    return "seqlab" if shutil.which("seqlab") else sys.argv[0]
