"""Memory that a step frees is kept for the next one: giving it back each time costs a tenth of a training."""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc
KEPT = 1 << 30


@cache
def keep_memory() -> None:
    """Tell glibc's allocator not to map and unmap large blocks anew at each step; elsewhere this does nothing."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT)
        mallopt(M_TRIM_THRESHOLD, 2 * KEPT - 1)
