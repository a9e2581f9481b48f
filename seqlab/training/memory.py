"""Memory that a step frees is kept for the next one: giving it back each time costs a tenth of a training."""

import ctypes
import resource
import sys
from functools import cache
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc
KEPT = 1 << 30


@cache
def keep_memory() -> None:
    """Tell glibc's allocator not to map and unmap large blocks anew at each step; elsewhere this does nothing."""
    if mallopt := _of_glibc("mallopt"):
        mallopt(M_MMAP_THRESHOLD, KEPT)
        mallopt(M_TRIM_THRESHOLD, 2 * KEPT - 1)


def tidy_memory() -> None:
    """Give back what no block uses: batches of many shapes leave holes, and what is kept would grow with them."""
    if trim := _of_glibc("malloc_trim"):
        trim(0)


def peak_memory() -> int:
    """The most memory that this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@cache
def _of_glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
