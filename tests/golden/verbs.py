"""What the collector does with the package: only what a user can do, through Python and the command line.

Names are written as the tagged commit calls them. Where the present package calls something by another name, the table
`RENAMED_ARGUMENTS` of `compare.py` says so, and `as_now` translates what is asked for.
"""

import io
import json
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from compare import RENAMED_ARGUMENTS

import seqlab

VOLATILE = ("seconds", "tokens_per_second", "tokens per second", "peak_memory", "python")
_arguments: dict[str, str] = {}


class CommandError(Exception):
    """A command of the package ended with another exit code than 0."""


def use_present_names(present: bool) -> None:
    """Say whether the present package is measured, or the tagged commit."""
    _arguments.clear()
    _arguments.update(RENAMED_ARGUMENTS if present else {})


def as_now(word: str) -> str:
    """A setting, an option, a recipe or a view by the name that the measured package has for it."""
    name, equals, value = word.partition("=")
    return _arguments.get(name, name) + equals + _arguments.get(value, value)


def command(*words: object, stdin: str = "") -> str:
    """What a command prints; it runs in this process, because a new one would first have to import torch."""
    from seqlab.cli import main

    out, err = io.StringIO(), io.StringIO()
    before = sys.argv, sys.stdin
    sys.argv = ["seqlab", *(as_now(str(word)) for word in words)]
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    code: Any = 0
    with warnings.catch_warnings(), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.argv, sys.stdin = before
    if code != 0:
        raise CommandError(err.getvalue().strip())
    return out.getvalue()


def predict(model: str, *inputs: str, options: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The answers of a model with all their scores, one for each input."""
    return [
        json.loads(line)
        for line in command("predict", model, *inputs, "--json", *options).splitlines()
    ]


def train(
    recipe: str, task: str, data: Sequence[str], settings: Sequence[str], out: str, **options: Any
) -> list[dict[str, Any]]:
    """Train a recipe, and return the rows of its log."""
    trained(recipe, task, data, settings, out, **options)
    return log_of(out)


def trained(
    recipe: str, task: str, data: Sequence[str], settings: Sequence[str], out: str, **options: Any
) -> Any:
    """Train a recipe, and return what `seqlab.train` returns."""
    chosen = [as_now(setting) for setting in settings]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return seqlab.train(
            as_now(task), list(data), recipe=as_now(recipe), settings=chosen, out=out, **options
        )


def resume(out: str) -> list[dict[str, Any]]:
    """Go on with a run that was stopped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seqlab.train(out=out, resume=True)
    return log_of(out)


def log_of(run: str) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl, without what differs from run to run."""
    [path] = Path(run).rglob("metrics.jsonl")
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [{key: value for key, value in row.items() if key not in VOLATILE} for row in rows]
