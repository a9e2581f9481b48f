"""What the tokenizers share that run on the `tokenizers` library."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Protocol, runtime_checkable

from tokenizers import Tokenizer as Library

from seqlab.text.vocabulary import Normaliser, odd


@runtime_checkable
class HasLibrary(Protocol):
    normaliser: Normaliser
    _library: Library


def encode(self: HasLibrary, text: str) -> list[int]:
    """The ids of the normalised text."""
    return self._library.encode(self.normaliser(text), add_special_tokens=False).ids


def encode_all(self: HasLibrary, texts: Sequence[str]) -> list[list[int]]:
    """The same for many texts, in the library's threads."""
    rows = self._library.encode_batch_fast(
        [self.normaliser(text) for text in texts], add_special_tokens=False
    )
    return [row.ids for row in rows]


@contextmanager
def stored(what: str) -> Iterator[None]:
    """While the library reads something stored, what it refuses is an odd file."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic inside the library is no Exception
        raise odd(f"the tokenizers library refuses the stored {what}: {error}") from error


@cache
def survive_forks() -> None:
    """No threads after a fork: the library's pool is dead in the child, and would be waited for.

    Some versions of the library see to that themselves, but print a warning each time unless this variable is set.
    """
    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(before=lambda: os.environ.setdefault("TOKENIZERS_PARALLELISM", "false"))
