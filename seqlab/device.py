"""Where tensors live, on the CPU or on an accelerator that somebody asks for, and the memory that they take."""

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqlab.errors import UsageError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc
KEPT = 1 << 30  # bytes


def use_device(name: str) -> None:
    """Whatever is made from now on is made there: "cpu", "cuda" or "mps"; "auto" is an accelerator if there is one.

    Of many processes on one machine, each takes a GPU of its own.
    """
    there = available()
    chosen = there[0] if name == "auto" else name
    if chosen not in there:
        raise UsageError(
            f"there is no device '{chosen}' here", hint=f"there is: {', '.join(there)}."
        )
    if chosen == "cuda":
        chosen = f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
        torch.cuda.set_device(chosen)
    if chosen != "cpu":
        torch.set_default_device(chosen)


def available() -> list[str]:
    """The devices that torch can use on this machine, the CPU last."""
    found = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    return [name for name, there in found.items() if there]


def tensor_of(array: np.ndarray) -> Tensor:
    """An array as a tensor where tensors live; on the CPU they share their memory."""
    return torch.from_numpy(array).to(torch.get_default_device())


@cache
def keep_memory() -> None:
    """Tell glibc's allocator to keep the memory that a step frees for the next one; elsewhere this does nothing.

    Mapping and unmapping large blocks anew at each step costs a tenth of a training.
    """
    if mallopt := _of_glibc("mallopt"):
        mallopt(M_MMAP_THRESHOLD, KEPT)
        mallopt(M_TRIM_THRESHOLD, 2 * KEPT - 1)


def tidy_memory() -> None:
    """Give back what no block uses: batches of many shapes leave holes, and what is kept would grow with them."""
    if trim := _of_glibc("malloc_trim"):
        trim(0)


@contextmanager
def same_threads() -> Iterator[None]:
    """After this block torch computes with as many threads as before."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def peak_memory() -> int:
    """The most memory that this process has held, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@cache
def _of_glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
