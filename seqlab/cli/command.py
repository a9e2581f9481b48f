"""What all commands share: how they start, their options, their results on stdout, and their errors on stderr.

rich is imported where a table is printed, because `seqlab --help` must answer at once.
"""

import json
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
from typer import Option

from seqlab.errors import SeqlabError, SeqlabWarning, UsageError, nearest
from seqlab.machine import limit_product_caches, sleep_while_waiting
from seqlab.recipes import default_recipes

P = ParamSpec("P")
R = TypeVar("R")
INTERRUPTED = 130  # exit code

MODEL = "directory of a trained model, or a shipped one's name"
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help=MODEL)]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Int8 = Annotated[
    bool, typer.Option("--int8", help="weights rounded to bytes: faster, and nearly as good")
]
Threads = Annotated[Optional[int], typer.Option(min=1, help="CPU threads to use")]  # noqa: UP045  (typer's own form)
Device = Annotated[str, typer.Option(help="where to compute: auto, cpu, cuda or mps")]
Conformal = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        min=0.5,
        max=0.99,
        help="classify: sets of labels that contain the true one with this probability, such as 0.9",
    ),
]
Workers = Annotated[
    int, typer.Option(min=1, help="processes that share the lines, and the threads")
]


def main() -> None:
    """Run the command that was typed."""
    sleep_while_waiting()
    limit_product_caches()
    warnings.simplefilter("default", SeqlabWarning)  # the same words once
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


def _version(asked: bool) -> bool:
    if asked:
        from seqlab import __version__

        print(__version__)
        raise typer.Exit
    return asked


def seqlab(
    version: bool = Option(
        False, "--version", callback=_version, is_eager=True, help="print the version"
    ),
) -> None:
    """A laboratory for sequence models: train one on your own file, use it, look inside."""


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """The command, with every expected error printed as a sentence and a hint, and turned into an exit code."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = command(*args, **kwargs)
            sys.stdout.flush()  # here rather than at the exit, where a closed pipe could no longer be reported
            return result
        except SeqlabError as error:
            print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
            raise typer.Exit(2 if isinstance(error, UsageError) else 1) from None
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # whoever read our output has enough; stdout is replaced so that closing it fails no second time
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except OSError as error:
            place = f"{error.filename}: " if error.filename else ""
            print(
                f"error: {place}{error.strerror or error}\nhint: look at the path, its rights and the disk.",
                file=sys.stderr,
            )
            raise typer.Exit(1) from None

    return wrapped


def with_flags(
    command: Callable[..., None], *, options: type, ranges: bool = True
) -> Callable[..., None]:
    """The command with a flag for each of these options, which it takes by name, None where a flag is not set.

    Without `ranges` it is left to the command to refuse what is out of range.
    """
    own = signature(command)
    parameters = [
        each for each in own.parameters.values() if each.kind is not Parameter.VAR_KEYWORD
    ]
    kinds: dict[str, Any] = get_type_hints(options)
    for name, hint in get_type_hints(options, include_extras=True).items():
        _, bounds, text = get_args(hint)
        flag = Option(None, min=bounds.least if ranges else None, help=text)
        parameters.append(
            Parameter(name, Parameter.KEYWORD_ONLY, default=flag, annotation=kinds[name] | None)
        )
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def tasks_help() -> str:
    """The names of all tasks, for the help of a command."""
    *names, last = default_recipes()
    return f"{', '.join(names)} or {last}"


def check_task(task: str, *, resume: bool, files: Sequence[str] = ()) -> None:
    """Refuse a task that does not exist; for a file in its place, say which fits. A resumed run knows its own."""
    names = default_recipes()
    if task not in names and os.path.exists(task):
        from seqlab.data.proposal import propose

        proposal = propose([task, *files])
        command = f"{program()} {shlex.join(proposal.arguments)}"
        look = f"{program()} data look {proposal.task} {shlex.quote(task)}"
        raise UsageError(
            f"no task is named; '{proposal.task}' fits {proposal.reason}",
            hint=f"{command}\n      (`{look}` shows how the file is read)",
        )
    if task not in names and not (resume and not task):
        raise UsageError(
            f"there is no task '{task}'" if task else "which task?", hint=nearest(task, names)
        )


def program() -> str:
    """How this program was called, so that a printed command can be copied and run."""
    if sys.argv[0].endswith("__main__.py"):
        return "python -m seqlab"
    return "seqlab" if shutil.which("seqlab") else sys.argv[0]


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def print_text(text: str, *, style: str | None = None, wrapped: bool = False) -> None:
    """Text that a terminal may wrap and a file keeps as it is.

    Words without an address to copy can be `wrapped` on a terminal, between words.
    """
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    soft = not (wrapped and console.is_terminal)
    console.print(escape(text), soft_wrap=soft, style=style)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """A table; columns of numbers are aligned on the right."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(header_style="bold", show_header=any(header))
    for place, name in enumerate(header):
        numbers = place > 0 and _are_numbers([row[place] for row in rows if row[place]])
        table.add_column(escape(name), overflow="fold", justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    if title:  # not the table's own, which is broken where the table is narrow
        print_text(title, style="bold")
    Console(highlight=False).print(table)


def _are_numbers(cells: Sequence[str]) -> bool:
    return bool(cells) and all(cell[0].isdigit() or cell[0] == "-" for cell in cells)


def print_facts(facts: dict[str, Any]) -> None:
    """Names and values, a line each."""
    print_table(["", ""], [[name, _readable(value)] for name, value in facts.items()])


def _readable(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_readable(part)}" for name, part in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def print_scores(report: dict[str, Any], *, title: str) -> None:
    """Scores, each with its baselines beside it, and the one that judges the task with its 95 % interval."""
    from seqlab.metrics.scores import figure, figure_between

    baselines: dict[str, dict[str, float]] = report.get("baselines", {})
    intervals: dict[str, list[float]] = report.get("interval", {})
    repeated = (
        {"token_accuracy"} if "accuracy" in report else set()
    )  # where a label is the only token
    names = [
        name for name, value in report.items() if isinstance(value, float) and name not in repeated
    ]
    rows = [
        [name.replace("_", " "), figure_between(name, report[name], intervals.get(name))]
        + [
            figure(name, baseline[name]) if name in baseline else ""
            for baseline in baselines.values()
        ]
        for name in names
    ]
    print_table(["score", "this model", *baselines], rows, title=title)
    if own_units := report.get("mae_by_column"):
        print_text(
            f"mean absolute error in the file's own units: {_in_own_units(own_units)}", wrapped=True
        )
    for name, value in report.items():
        if name.endswith("_signature"):
            print_text(f"{name.replace('_', ' ')}: {value}")
    if report.get("baseline_note"):
        print_text(f"note: {report['baseline_note']}")


def _in_own_units(errors: dict[str, float], most: int = 8) -> str:
    columns = [f"{name} {value:.4g}" for name, value in errors.items()]
    more = [f"and {len(columns) - most} more (--json)"] if len(columns) > most else []
    return ", ".join(columns[:most] + more)


def print_fit(fit: dict[str, Any]) -> None:
    """How a model was fitted without gradient descent, and how far that can be trusted."""
    if "climbs" not in fit:
        labels = ": every label was known" if fit["by"] == "counting" else ""
        print_text(f"fitted by {fit['by']}{labels}")
    elif "best_climb" in fit:
        end = (
            "converged" if fit["converged"] else "not yet converged: train.steps would let it go on"
        )
        which = (
            f"climb {fit['best_climb']} of {fit['climbs']}, which got highest"
            if fit["climbs"] > 1
            else "one climb"
        )
        print_text(
            f"fitted by EM: {which}: {fit['objective']:.4f} nats a token after {fit['steps']} steps, {end}"
        )
        if "kept_step" in fit:
            print_text(f"kept: step {fit['kept_step']}, which labels the held-out part best")
