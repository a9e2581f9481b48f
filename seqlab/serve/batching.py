"""The queue of requests and the one thread that computes.

Requests of the same kind that wait at the same time are computed in one batch. A request whose client has gone or whose
time is over leaves the queue. A computation that no client waits for any more is aborted.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from torch import nn

from seqlab.errors import SeqlabError
from seqlab.layers.inputs import Embedding
from seqlab.serve.limits import ServerLimits

R = TypeVar("R")
THREAD_NAME = "compute"


class BusyError(SeqlabError):
    """The queue is full."""


class AbandonedError(Exception):
    """No client waits for the computation any more."""


@dataclass(eq=False)
class _QueuedRequest:
    key: Hashable
    item: Any
    rows: int
    work: Callable[[list[Any]], Sequence[Any]]
    answer: asyncio.Future[Any]
    since: float = field(default_factory=monotonic)


class Batcher:
    """Computes batches of requests one after the other in a thread, so that the event loop stays free."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.pending = 0  # requests that wait or are being computed
        self.batches = 0  # computed so far
        self.rows = 0  # in these batches
        self._queue: deque[_QueuedRequest] = deque()
        self._current: list[_QueuedRequest] = []
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=THREAD_NAME)
        self._hooked: set[int] = set()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Count a request as pending in this block; raise BusyError if there are too many."""
        if self.pending >= self.limits.queue:
            raise BusyError(
                f"{self.pending} requests are waiting already", hint="try again in a second."
            )
        self.pending += 1
        try:
            yield
        finally:
            self.pending -= 1

    async def run_alone(self, work: Callable[[], R]) -> R:
        """Run `work` in the computing thread and return its result."""
        return await self.run_batched(object(), None, 0, lambda _: [work()])

    async def run_batched(
        self, key: Hashable, item: Any, rows: int, work: Callable[[list[Any]], Sequence[Any]]
    ) -> Any:
        """Run `work` on the list of all items that wait with this key, and return the result of `item`."""
        answer = asyncio.get_running_loop().create_future()
        self._queue.append(_QueuedRequest(key, item, rows, work, answer))
        self._arrived.set()
        result = await answer
        if isinstance(result, SeqlabError):
            raise result
        return result

    async def run(self) -> None:
        """Process the queue until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                await self._wait_for_more()
                batch = self._next_batch()
                if batch:
                    results = await loop.run_in_executor(self._thread, self._compute, batch)
                    self._deliver(batch, results)

    def close(self) -> None:
        """Wait for the computing thread to end."""
        self._thread.shutdown(wait=True)

    def make_abortable(self, model: nn.Module) -> None:
        """Let computations of this model be aborted whenever it embeds a token."""
        if id(model) not in self._hooked:
            self._hooked.add(id(model))
            for module in model.modules():
                if isinstance(module, Embedding):
                    module.register_forward_pre_hook(self._abort_if_abandoned)

    def _abort_if_abandoned(self, module: nn.Module, inputs: Any) -> None:
        if not threading.current_thread().name.startswith(THREAD_NAME):
            return
        batch = self._current
        if batch and all(request.answer.done() for request in batch):
            raise AbandonedError

    async def _wait_for_more(self) -> None:
        """Wait a few milliseconds for requests with the key of the first one, if the batch is not full."""
        first = self._queue[0]
        rows = sum(request.rows for request in self._queue if request.key == first.key)
        seconds = first.since + self.limits.gather_seconds - monotonic()
        if first.rows and rows < self.limits.rows and seconds > 0:
            await asyncio.sleep(seconds)

    def _next_batch(self) -> list[_QueuedRequest]:
        """Remove the first request from the queue, and those with the same key up to the limit of rows."""
        waiting = [request for request in self._queue if not request.answer.done()]
        self._queue.clear()
        batch: list[_QueuedRequest] = []
        rows = 0
        for request in waiting:
            fits = not batch or rows + request.rows <= self.limits.rows
            if request.key == waiting[0].key and fits:
                batch.append(request)
                rows += request.rows
            else:
                self._queue.append(request)
        if rows:
            self.batches += 1
            self.rows += rows
        return batch

    def _compute(self, batch: list[_QueuedRequest]) -> Sequence[Any] | Exception:
        self._current = batch
        try:
            return batch[0].work([request.item for request in batch])
        except Exception as error:
            return error
        finally:
            self._current = []

    def _deliver(self, batch: list[_QueuedRequest], results: Sequence[Any] | Exception) -> None:
        for row, request in enumerate(batch):
            with suppress(asyncio.InvalidStateError):  # cancelled in the meantime
                if isinstance(results, Exception):
                    request.answer.set_exception(results)
                else:
                    request.answer.set_result(results[row])
