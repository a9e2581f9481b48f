"""Errors that a person can act on: what was wrong, where, what was seen, what stayed untouched, what to do.

SeqlabError
├── UsageError     an option that makes no sense (exit code 2; the others 1)
├── DataError      a file, a line, a value of the user's
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
    """Base of everything that Seqlab raises on purpose; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(SeqlabError):
    """An option or an argument that makes no sense."""


class DataError(SeqlabError):
    """A file, a line or a value of the user's is not what it must be."""


class RecipeError(SeqlabError):
    """A key or a value in a recipe is not what it must be."""


class BundleError(SeqlabError):
    """A trained model on disk is missing a part, or a part was changed."""


class RunError(SeqlabError):
    """A training run cannot start or go on in its directory."""


class SeqlabWarning(UserWarning):
    """Something the user should know that is not an error: a row that was cut, a label never seen."""


def warn(message: str) -> None:
    """Tell the user of something that is not an error."""
    warnings.warn(message, SeqlabWarning, stacklevel=3)


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint for a name that does not exist: the one that was probably meant, else all there are."""
    names = sorted(choices)
    partly = [each for each in names if name in each.split("-")] if len(name) > 1 else []
    near = partly or get_close_matches(name, names, n=1)
    return (
        f"did you mean {' or '.join(map(repr, near))}?"
        if near
        else f"there are: {', '.join(names)}."
    )


def one_of(what: str, name: str, choices: Collection[str]) -> str:
    """The name, if it is one of the choices."""
    if name not in choices:
        raise UsageError(f"there is no {what} '{name}'", hint=nearest(name, choices))
    return name


def shorten(text: str, limit: int = 60) -> str:
    """A value as it is quoted in a message: on one line, and not too long."""
    quoted = repr(text)
    return quoted if len(quoted) <= limit else quoted[: limit - 4] + "...'"


def package(name: str, use: str, *, hint: str) -> Any:
    """A module of a package that may be missing; `use` says what needs it, and which package it is."""
    try:
        import_module(name.partition(".")[0])
        return import_module(name)
    except ImportError:
        raise DataError(f"{use}, which is not installed", hint=hint) from None
