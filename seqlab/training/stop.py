"""Stopping a run from outside: what must not be cut in two, and what is done before the process ends at once.

Whoever handles signals asks `must_wait`. If so, somebody looks between two steps whether a stop was asked for;
otherwise nothing would be lost, and `StopNowError` may end the work. A long computation inside a library allows
neither. Then another thread can end the process with `finish_up`: weights change only while `changing` is held, so at
any other moment they can be saved.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

changing = threading.RLock()  # held while the state of a learner changes, and while it is written

_saves: list[Callable[[], None]] = []
_cleanups: list[Callable[[], None]] = []
_abandonable: list[bool] = []


class StopNowError(KeyboardInterrupt):
    """The work is abandoned because a stop was asked for."""


def must_wait() -> bool:
    """Whether a request to stop is looked at between two steps, so that an exception would only do harm."""
    return bool(_saves) and not _abandonable


@contextmanager
def saving(save: Callable[[], None]) -> Iterator[None]:
    """Within this block a request to stop has to wait; `save` writes what would be lost with the process."""
    with _listed(save, _saves):
        yield


@contextmanager
def cleaning(clean: Callable[[], None]) -> Iterator[None]:
    """`clean` is done when this block ends, also when that is because the process ends at once."""
    try:
        with _listed(clean, _cleanups):
            yield
    finally:
        clean()


@contextmanager
def abandonable() -> Iterator[None]:
    """Within this block, inside a `saving` one, a stop may end the work all the same: it can be done again."""
    with _listed(True, _abandonable):
        yield


def finish_up(*, save: bool) -> None:
    """Do what must be done before the process ends at once: save, if there is something to save, and clean up."""
    for act in [*(_saves if save else ()), *reversed(_cleanups)]:
        with suppress(
            Exception
        ):  # the process ends in any case, and the next act may still succeed
            act()


@contextmanager
def _listed(entry: Any, entries: list[Any]) -> Iterator[None]:
    entries.append(entry)
    try:
        yield
    finally:
        entries.remove(entry)
