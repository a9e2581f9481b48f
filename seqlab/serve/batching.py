"""The one thread that computes, and the line before it.

Requests of the same kind that wait together are answered together. Whoever goes away, or has waited too long, leaves
the line; and when nobody waits for what is being computed any more, the computing stops too.
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


class BusyError(SeqlabError):
    """There is no place left in the line."""


class AbandonedError(Exception):
    """Nobody waits any more for what was being computed."""


@dataclass(eq=False)
class _Waiting:
    key: Hashable
    item: Any
    rows: int
    work: Callable[[list[Any]], Sequence[Any]]
    answer: asyncio.Future[Any]
    since: float = field(default_factory=monotonic)


class Batcher:
    """Computes one thing after the other, in a thread of its own, so that whoever asks for the time is answered."""

    def __init__(self, limits: ServerLimits) -> None:
        self.limits = limits
        self.taken = self.batches = self.rows = 0
        self._line: deque[_Waiting] = deque()
        self._now: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._hooked: set[int] = set()

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place in the line for as long as a request lasts."""
        if self.taken >= self.limits.line:
            raise BusyError(
                f"{self.taken} requests are waiting already", hint="try again in a second."
            )
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1

    async def alone(self, work: Callable[[], R]) -> R:
        """What `work` returns, when it has had its turn."""
        return await self.together(object(), None, 0, lambda _: [work()])

    async def together(
        self, key: Hashable, item: Any, rows: int, work: Callable[[list[Any]], Sequence[Any]]
    ) -> Any:
        """The part for `item` of what `work` returns for all items that have this key and wait at the same time."""
        answer = asyncio.get_running_loop().create_future()
        self._line.append(_Waiting(key, item, rows, work, answer))
        self._arrived.set()
        result = await answer
        if isinstance(result, SeqlabError):
            raise result
        return result

    async def run(self) -> None:
        """Serve the line until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._line:
                await self._company()
                batch = self._take()
                if batch:
                    self._deliver(
                        batch, await loop.run_in_executor(self._thread, self._compute, batch)
                    )

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def watch(self, model: nn.Module) -> None:
        """Let a model be stopped in the middle, wherever it reads a token."""
        if id(model) not in self._hooked:
            self._hooked.add(id(model))
            for module in model.modules():
                if isinstance(module, Embedding):
                    module.register_forward_pre_hook(self._stop_if_abandoned)

    def _stop_if_abandoned(self, module: nn.Module, inputs: Any) -> None:
        now = self._now
        if (
            threading.current_thread().name.startswith("compute")
            and now
            and all(w.answer.done() for w in now)
        ):
            raise AbandonedError

    async def _company(self) -> None:
        """Wait a moment for others of the same kind, if there is room for them."""
        first = self._line[0]
        alike = sum(waiting.rows for waiting in self._line if waiting.key == first.key)
        left = first.since + self.limits.gather - monotonic()
        if first.rows and alike < self.limits.rows and left > 0:
            await asyncio.sleep(left)

    def _take(self) -> list[_Waiting]:
        """The first in the line and, up to a bound, whoever is like it; the gone are forgotten."""
        waiting = [each for each in self._line if not each.answer.done()]
        self._line.clear()
        batch: list[_Waiting] = []
        rows = 0
        for each in waiting:
            if each.key == waiting[0].key and (not batch or rows + each.rows <= self.limits.rows):
                batch.append(each)
                rows += each.rows
            else:
                self._line.append(each)
        if rows:
            self.batches += 1
            self.rows += rows
        return batch

    def _compute(self, batch: list[_Waiting]) -> Sequence[Any] | Exception:
        self._now = batch
        try:
            return batch[0].work([each.item for each in batch])
        except Exception as error:
            return error
        finally:
            self._now = []

    def _deliver(self, batch: list[_Waiting], results: Sequence[Any] | Exception) -> None:
        for place, each in enumerate(batch):
            with suppress(asyncio.InvalidStateError):
                if isinstance(results, Exception):
                    each.answer.set_exception(results)
                else:
                    each.answer.set_result(results[place])
