"""The native kernels in use: C++ operators in `torch.ops.seqlab`, compiled for this processor, and never needed."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch

from seqlab.errors import SeqlabError, warn
from seqlab.kernels import library

_off: ContextVar[bool] = ContextVar("off", default=False)


def ready() -> bool:
    """Whether `torch.ops.seqlab` can be called: the library is built for this torch, loads, and is wanted.

    Never builds, never raises.
    """
    return wanted() and loads() and not _off.get()


def wanted() -> bool:
    """Whether the user lets us use and build the kernels: SEQLAB_NATIVE=0 refuses them."""
    return os.environ.get("SEQLAB_NATIVE") != "0"


@contextmanager
def without_kernels() -> Iterator[None]:
    """Within this block all goes through torch, as on a machine without the kernels."""
    token = _off.set(True)
    try:
        yield
    finally:
        _off.reset(token)


@cache
def loads() -> bool:
    """Whether the library is there and could be loaded. One that is refused is a warning, once."""
    try:
        if not library.path().exists():
            return False
        library.check()
        if not hasattr(torch.ops.seqlab, "pack_int8"):  # a second library would end the process
            torch.ops.load_library(library.path())
    except SeqlabError as error:
        warn(f"{error}. {error.hint}")
        return False
    except (OSError, RuntimeError) as error:  # unreadable, or a library that is missing
        warn(f"the native kernels do not load: {error}. {library.WITHOUT}")
        return False
    return True


def describe() -> str:
    """Which path is in use, and what would give the other, in a few words."""
    if not wanted():
        return "turned off by SEQLAB_NATIVE=0"
    try:
        return _state()
    except (SeqlabError, OSError) as error:
        return f"not built: {error}"


def _state() -> str:
    again = "`seqlab kernels build` compiles them"
    if library.path().exists():
        if not ready():
            try:
                library.check()
            except SeqlabError as error:
                return f"{error}; {again}"
            return f"{library.path()} does not load; {again}"
        return f"built by {json.loads(library.manifest().read_text('utf-8'))['compiler']}"
    if library.compiler() is None:
        return "not built, and there is no C++ compiler"
    if library.failure().exists():
        return f"not built: {library.failure().read_text('utf-8').strip()}; {again}"
    return f"not built yet: the next training or prediction compiles them in the background; {again} now"
