"""Settings of this process: threads, memory, device, and what is done before it ends.

Torch reads some of them when it is imported, so it is not imported at the top.

A signal handler calls `must_wait`. If it is true, the training checks between two steps whether it should stop, and
saves. If it is false, nothing would be lost, and the handler may raise `StopNowError`. A long computation inside a
library allows neither. Then another thread can end the process with `finish_up`: weights change only while
`state_lock` is held, so they can be saved at any other moment.
"""

import ctypes
import os
import resource
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from seqlab.errors import UsageError

SPIN_VARIABLE = "GOMP_SPINCOUNT"
# iterations of a waiting loop: enough for the next product of a small model, far less than a time slice
SPIN_COUNT = 1000
# steps with each number of threads in a trial
TRIAL_STEPS = 3
# the median over this many steps is the current speed
RECENT_STEPS = 9
# if the speed falls by this factor, the other numbers of threads are tried again
COLLAPSE_FACTOR = 3.0
# oneDNN keeps prepared products for at most this many shapes, more than a step of a model has
PREPARED_PRODUCTS = 128
# parameters of mallopt in glibc
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# freed memory up to this size is kept
KEPT_BYTES = 1 << 30
# held while the state of a learner changes, and while it is written
state_lock = threading.RLock()

_saves: list[Callable[[], None]] = []
_cleanups: list[Callable[[], None]] = []
_abandonable: list[bool] = []


def sleep_while_waiting() -> None:
    """Let waiting threads sleep soon, unless the user has set OMP_WAIT_POLICY. Must be called before torch is imported.

    By default they spin for milliseconds. If other processes are busy, they then occupy the cores that the threads
    they wait for need, and a step takes a hundred times as long.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPIN_VARIABLE, str(SPIN_COUNT))


def limit_product_caches() -> None:
    """Limit the products that torch keeps prepared, unless the user has. Must be called before torch is imported.

    oneDNN prepares a product for each shape, and batches have many shapes: a thousand take hundreds of megabytes.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(PREPARED_PRODUCTS))


def use_threads(count: int | None) -> None:
    """Compute with this many threads; None leaves the number unchanged."""
    if count is not None:
        import torch

        torch.set_num_threads(count)


@contextmanager
def restore_threads() -> Iterator[None]:
    """Restore torch's number of threads at the end of this block."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ThreadChoice:
    """Chooses a number of threads by the speed of a few steps with each number, in alternation.

    `first` is the number that an earlier part of the run has chosen; then there is no trial until the speed collapses.
    """

    def __init__(self, counts: Sequence[int], first: int | None = None) -> None:
        self.counts = counts
        self.count = counts[-1] if first is None else first
        # the numbers of threads of the remaining steps of a trial
        self._trial: list[int] = []
        self._speeds: dict[int, list[float]] = {}
        self._recent: deque[float] = deque(maxlen=RECENT_STEPS)
        self._best_speed = 0.0
        self._warm = False
        if first is None:
            self._start_trial()

    def next(self) -> int:
        """Return the number of threads for the next step."""
        return self._trial[0] if self._trial else self.count

    def measured(self, speed: float) -> None:
        """Record the speed, in tokens per second, of the step with `next` threads."""
        if not self._warm:
            # the first step is slower: it loads libraries and allocates memory
            self._warm = True
        elif self._trial:
            self._speeds[self._trial.pop(0)].append(speed)
            if not self._trial:
                self.count = max(self.counts, key=lambda count: _median(self._speeds[count]))
                self._recent.clear()
                self._best_speed = 0.0
        else:
            self._watch(speed)

    def _watch(self, speed: float) -> None:
        """Start another trial if the speed has collapsed."""
        self._recent.append(speed)
        if len(self._recent) < RECENT_STEPS:
            return
        now = _median(self._recent)
        self._best_speed = max(self._best_speed, now)
        if now * COLLAPSE_FACTOR < self._best_speed:
            self._start_trial()

    def _start_trial(self) -> None:
        if len(self.counts) > 1:
            self._trial = [*self.counts] * TRIAL_STEPS
            self._speeds = {count: [] for count in self.counts}


@cache
def keep_freed_memory() -> None:
    """Let glibc's allocator keep freed memory for the next step; on other systems this does nothing.

    Otherwise mapping and unmapping large blocks at each step takes a tenth of the training time.
    """
    if mallopt := _glibc_function("mallopt"):
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, 2 * KEPT_BYTES - 1)


def release_memory() -> None:
    """Return unused memory to the system, because batches of many shapes fragment the memory that is kept."""
    if trim := _glibc_function("malloc_trim"):
        trim(0)


def peak_memory() -> int:
    """Return the peak memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@cache
def _glibc_function(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def use_device(name: str) -> None:
    """Set the default device: "cpu", "cuda" or "mps"; "auto" is an accelerator if there is one.

    If several processes run on one machine, each uses a GPU of its own.
    """
    if name == "cpu":
        return
    import torch

    available = available_devices()
    chosen = available[0] if name == "auto" else name
    if chosen not in available:
        raise UsageError(
            f"there is no device '{chosen}' here", hint=f"available: {', '.join(available)}."
        )
    if chosen == "cuda":
        chosen = f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
        torch.cuda.set_device(chosen)
    if chosen != "cpu":
        torch.set_default_device(chosen)


def available_devices() -> list[str]:
    """Return the devices that torch can use on this machine, the CPU last."""
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    return ["cuda"] * cuda + ["mps"] * mps + ["cpu"]


class StopNowError(KeyboardInterrupt):
    """Work is abandoned because the user asked to stop."""


def must_wait() -> bool:
    """Whether a request to stop must wait for the end of a step, and must not raise an exception."""
    return bool(_saves) and not _abandonable


@contextmanager
def saving(save: Callable[[], None]) -> Iterator[None]:
    """In this block, requests to stop must wait; `save` stores what would be lost if the process ended."""
    with _listed(save, _saves):
        yield


@contextmanager
def cleaning(clean: Callable[[], None]) -> Iterator[None]:
    """Call `clean` at the end of this block, or before the process ends inside it."""
    try:
        with _listed(clean, _cleanups):
            yield
    finally:
        clean()


@contextmanager
def abandonable() -> Iterator[None]:
    """Allow requests to stop in this block inside a `saving` one, because its work can be repeated."""
    with _listed(True, _abandonable):
        yield


def finish_up(*, save: bool) -> None:
    """Save, if `save` is set, and clean up before the process ends."""
    for action in [*(_saves if save else ()), *reversed(_cleanups)]:
        # the process ends in any case, and the next action may still succeed
        with suppress(Exception):
            action()


@contextmanager
def _listed(entry: Any, entries: list[Any]) -> Iterator[None]:
    entries.append(entry)
    try:
        yield
    finally:
        entries.remove(entry)


def _median(values: Sequence[float]) -> float:
    """The median; its module is imported here, so that a signal rarely arrives while the package is being imported."""
    from statistics import median

    return median(values)
