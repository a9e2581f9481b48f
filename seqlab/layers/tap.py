"""The tap: looking is not computing. A layer passes what is worth seeing through a name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

Listener = Callable[[str, Tensor], Tensor]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def tap(name: str, x: Tensor) -> Tensor:
    """The identity, unless somebody listens: a listener sees `x` under `name` and returns what goes on."""
    listener = _listener.get()
    return x if listener is None else listener(name, x)


def listened_to() -> bool:
    """Whether a layer must run its equation path, so that there is something to see."""
    return _listener.get() is not None


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within this block, in this thread, `listener` sees every tap."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
