"""Memory in large pages: what is read here and there costs a search for its page, which large ones spare."""

import math
import mmap
from contextlib import suppress

import torch
from torch import Tensor

LARGE = 1 << 25  # bytes from which on the C library asks the system for new pages each time


def empty(*shape: int, like: Tensor) -> Tensor:
    """Numbers of the kind of `like` that are not set yet, in large pages where they are many.

    What is never written to takes no memory, as with any.
    """
    size, advice = math.prod(shape) * like.element_size(), getattr(mmap, "MADV_HUGEPAGE", None)
    if size < LARGE or advice is None or like.device.type != "cpu":
        return like.new_empty(shape)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without large pages: these are memory all the same
        pages.madvise(advice)
    return torch.frombuffer(pages, dtype=like.dtype).view(shape)
