"""This process: the threads that it computes with, its memory, its device, and what is done before it ends.

Torch reads some of this when it loads, so nothing here imports it at the top.

Whoever handles signals asks `must_wait`. If so, somebody looks between two steps whether a stop was asked for;
otherwise nothing would be lost, and `StopNowError` may end the work. A long computation inside a library allows
neither. Then another thread can end the process with `finish_up`: weights change only while `state_lock` is held, so at
any other moment they can be saved.
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
from statistics import median
from typing import Any

from seqlab.errors import UsageError

SPIN = "GOMP_SPINCOUNT"
TURNS = 1000  # of a loop; long enough for the next product of a small model, far shorter than a turn of the scheduler
TRIED = 3  # steps with each number of threads
RECENT = 9  # steps whose median is the present speed
COLLAPSE = (
    3.0  # a speed that has fallen by this factor: the other numbers of threads are tried again
)
PREPARED = 128  # products of one shape each, more than a step of a model has
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt, in glibc
KEPT = 1 << 30  # bytes
state_lock = threading.RLock()  # held while the state of a learner changes, and while it is written

_saves: list[Callable[[], None]] = []
_cleanups: list[Callable[[], None]] = []
_abandonable: list[bool] = []


def sleep_while_waiting() -> None:
    """Let waiting threads go to sleep soon, unless the user has decided how they wait. To be called before torch loads.

    By default they spin for milliseconds. Beside other busy processes they then take the cores from the very threads
    that they wait for, and a step takes a hundred times as long.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPIN, str(TURNS))


def limit_product_caches() -> None:
    """Let torch keep few prepared products, unless the user has decided how many. To be called before torch loads.

    oneDNN prepares one for each shape, and batches have many shapes: a thousand take hundreds of megabytes.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, str(PREPARED))


def use_threads(count: int | None) -> None:
    """Compute with so many threads; None leaves the number as it is."""
    if count is not None:
        import torch

        torch.set_num_threads(count)


@contextmanager
def restore_threads() -> Iterator[None]:
    """After this block torch computes with as many threads as before."""
    import torch

    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ThreadChoice:
    """Chooses a number of threads by the speed of a few steps with each of them, in turns.

    `first` is the number that an earlier part of the run has chosen; then nothing is tried until the speed collapses.
    """

    def __init__(self, counts: Sequence[int], first: int | None = None) -> None:
        self.counts = counts
        self.count = counts[-1] if first is None else first
        self._trial: list[int] = []  # the numbers that are still to be tried, a step each
        self._speeds: dict[int, list[float]] = {}
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._usual = 0.0
        self._warm = False
        if first is None:
            self._try_all()

    def next(self) -> int:
        """The number of threads for the next step."""
        return self._trial[0] if self._trial else self.count

    def measured(self, speed: float) -> None:
        """Take note of the speed, in tokens per second, of the step that was made with `next` threads."""
        if not self._warm:  # the first step also loads and reserves what the others need
            self._warm = True
        elif self._trial:
            self._speeds[self._trial.pop(0)].append(speed)
            if not self._trial:
                self.count = max(self.counts, key=lambda count: median(self._speeds[count]))
                self._recent.clear()
                self._usual = 0.0
        else:
            self._watch(speed)

    def _watch(self, speed: float) -> None:
        self._recent.append(speed)
        if len(self._recent) < RECENT:
            return
        now = median(self._recent)
        self._usual = max(self._usual, now)
        if now * COLLAPSE < self._usual:
            self._try_all()

    def _try_all(self) -> None:
        if len(self.counts) > 1:
            self._trial = [*self.counts] * TRIED
            self._speeds = {count: [] for count in self.counts}


@cache
def keep_freed_memory() -> None:
    """Tell glibc's allocator to keep the memory that a step frees for the next one; elsewhere this does nothing.

    Mapping and unmapping large blocks anew at each step costs a tenth of a training.
    """
    if mallopt := _of_glibc("mallopt"):
        mallopt(M_MMAP_THRESHOLD, KEPT)
        mallopt(M_TRIM_THRESHOLD, 2 * KEPT - 1)


def release_memory() -> None:
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


def use_device(name: str) -> None:
    """Whatever is made from now on is made there: "cpu", "cuda" or "mps"; "auto" is an accelerator if there is one.

    Of many processes on one machine, each takes a GPU of its own.
    """
    if name == "cpu":
        return
    import torch

    there = available_devices()
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


def available_devices() -> list[str]:
    """The devices that torch can use on this machine, the CPU last."""
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    return ["cuda"] * cuda + ["mps"] * mps + ["cpu"]


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
