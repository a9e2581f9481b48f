"""Packages that only some kinds of data need."""

from importlib import import_module
from typing import Any

from seqlab.errors import DataError


def package(name: str, use: str, *, hint: str) -> Any:
    """A module of a package that may be missing; `use` says what needs it, and which package it is."""
    try:
        import_module(name.partition(".")[0])
        return import_module(name)
    except ImportError:
        raise DataError(f"{use}, which is not installed", hint=hint) from None
