"""The errors and warnings of Seqlab. A message says what was wrong, where, and the value; a hint says what to do.

SeqlabError
├── UsageError     an invalid option or argument (exit code 2; the others 1)
├── DataError      a file, a line or a value of the user's data
├── RecipeError    a key or a value in a recipe
├── BundleError    a trained model on disk
└── RunError       a training run: its directory, its checkpoints

pairs.tsv:1042: 1 column where 2 are needed: 'Bonjour tout le monde'
hint: columns are separated by a tab; this line has none. Nothing was written.
"""

import warnings
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any


class SeqlabError(Exception):
    """The base of the errors that Seqlab raises; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(SeqlabError):
    """An invalid option or argument."""


class DataError(SeqlabError):
    """An invalid file, line or value in the user's data."""


class RecipeError(SeqlabError):
    """An invalid key or value in a recipe."""


class BundleError(SeqlabError):
    """A trained model on disk is incomplete or was changed."""


class RunError(SeqlabError):
    """A training run cannot start or continue in its directory."""


class SeqlabWarning(UserWarning):
    """Something that the user should know but that is no error, such as a row that was cut."""


def warn(message: str) -> None:
    """Warn the user."""
    warnings.warn(message, SeqlabWarning, stacklevel=3)


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return a hint for an unknown name: similar names, or all names if none is similar."""
    names = sorted(choices)
    parts = [each for each in names if name in each.split("-")] if len(name) > 1 else []
    similar = parts or get_close_matches(name, names, n=1)
    if similar:
        return f"did you mean {' or '.join(map(repr, similar))}?"
    return f"there are: {', '.join(names)}."


def one_of(what: str, name: str, choices: Collection[str]) -> str:
    """Return the name if it is one of the choices, else raise an error."""
    if name not in choices:
        raise UsageError(f"there is no {what} '{name}'", hint=nearest(name, choices))
    return name


def shorten(text: str, limit: int = 60) -> str:
    """Quote a value for a message, on one line and not longer than the limit."""
    quoted = repr(text)
    return quoted if len(quoted) <= limit else quoted[: limit - 4] + "...'"


def package(name: str, use: str, *, hint: str) -> Any:
    """Import a module of an optional package; the error message begins with `use`, which names the package."""
    try:
        import_module(name.partition(".")[0])
        return import_module(name)
    except ImportError:
        raise DataError(f"{use}, which is not installed", hint=hint) from None
