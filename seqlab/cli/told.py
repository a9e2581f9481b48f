"""Errors, told to a person: one sentence, one hint, an exit code; never a traceback for what is expected."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import typer

from seqlab.errors import SeqlabError, UsageError

P = ParamSpec("P")
R = TypeVar("R")
INTERRUPTED = 130


def told(command: Callable[P, R]) -> Callable[P, R]:
    """The command, with every expected failure turned into words and an exit code."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = command(*args, **kwargs)
            sys.stdout.flush()  # here rather than at the exit, where a closed pipe could no longer be told of
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
