"""The queue before the computing thread: batches, limits, and cancelled requests."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from seqlab.errors import UsageError
from seqlab.serve.batching import Batcher, BusyError
from seqlab.serve.limits import ServerLimits

LIMITS = replace(ServerLimits(), gather_seconds=0.05, rows=8, queue=20)


def in_a_batcher(job, limits=LIMITS):
    """Return the result of a coroutine function that gets a running batcher."""

    async def whole():
        batcher = Batcher(limits)
        running = asyncio.create_task(batcher.run())
        try:
            return await asyncio.wait_for(job(batcher), 30)
        finally:
            running.cancel()
            batcher.close()

    return asyncio.run(whole())


class Doubling:
    """Work that records its batches."""

    def __init__(self):
        self.batches = []

    def __call__(self, items):
        self.batches.append(list(items))
        return [2 * item for item in items]


def test_concurrent_requests_are_batched():
    work = Doubling()

    async def job(batcher):
        asked = [batcher.run_batched("same", item, 1, work) for item in range(6)]
        return await asyncio.gather(*asked, batcher.run_batched("other", 10, 1, work)), batcher

    answers, batcher = in_a_batcher(job)
    assert answers == [0, 2, 4, 6, 8, 10, 20]
    assert work.batches == [[0, 1, 2, 3, 4, 5], [10]]
    assert (batcher.batches, batcher.rows) == (2, 7)


def test_batches_respect_the_limit_of_rows():
    work = Doubling()

    async def job(batcher):
        return await asyncio.gather(
            *(batcher.run_batched("same", item, 3, work) for item in range(5))
        )

    assert in_a_batcher(job) == [0, 2, 4, 6, 8]
    assert work.batches == [[0, 1], [2, 3], [4]]


def test_a_single_request_waits_only_for_the_gathering_time():
    async def job(batcher):
        began = time.monotonic()
        await batcher.run_batched("same", 1, 1, Doubling())
        return time.monotonic() - began

    assert in_a_batcher(job, replace(LIMITS, gather_seconds=0.2)) >= 0.19
    assert in_a_batcher(job, replace(LIMITS, gather_seconds=0.0)) < 0.19


def test_a_full_queue_refuses_and_slots_are_freed():
    async def job(batcher):
        with batcher.slot(), batcher.slot():
            with (
                pytest.raises(BusyError, match="2 requests are waiting already") as busy,
                batcher.slot(),
            ):
                pass
            assert busy.value.hint == "try again in a second."
        with pytest.raises(ZeroDivisionError), batcher.slot():
            raise ZeroDivisionError
        return batcher.pending

    assert in_a_batcher(job, replace(LIMITS, queue=2)) == 0


def test_cancelled_requests_are_not_computed():
    work, gate = Doubling(), threading.Event()

    async def job(batcher):
        first = asyncio.create_task(batcher.run_alone(gate.wait))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(batcher.run_batched("same", 1, 1, work))
        stays = asyncio.create_task(batcher.run_batched("same", 2, 1, work))
        await asyncio.sleep(0.05)
        gone.cancel()
        gate.set()
        await first
        return await stays

    assert in_a_batcher(job) == 4
    assert work.batches == [[2]]


def test_an_abandoned_computation_is_aborted(offline):
    """A model generates until its only client leaves; then the next request is served."""
    model, steps = offline["lm"], []

    async def job(batcher):
        batcher.make_abortable(model.bundle.model)

        def generate_for_ever(items):
            while len(steps) < 10_000:
                steps.append(model.predict("the", max_length=1))

        endless = asyncio.create_task(batcher.run_batched("same", 1, 1, generate_for_ever))
        while not steps:
            await asyncio.sleep(0.01)
        endless.cancel()
        return await batcher.run_alone(lambda: "served")

    assert in_a_batcher(job) == "served"
    assert 1 <= len(steps) < 10_000
    model.predict("the", max_length=1)  # outside of the batcher it is not aborted


def test_errors_go_to_their_requests():
    def one_fails(items):
        return [UsageError("no", hint="do not.") if item == 1 else item for item in items]

    def all_fail(items):
        raise ZeroDivisionError

    async def job(batcher):
        kinds = [batcher.run_batched("same", item, 1, one_fails) for item in range(3)]
        kinds += [batcher.run_batched("worse", item, 1, all_fail) for item in range(2)]
        return await asyncio.gather(*kinds, return_exceptions=True)

    good, bad, better, *worse = in_a_batcher(job)
    assert (good, better) == (0, 2)
    assert isinstance(bad, UsageError)
    assert [type(each) for each in worse] == [ZeroDivisionError] * 2


def test_the_event_loop_is_free_during_a_computation():
    async def job(batcher):
        slow = asyncio.create_task(batcher.run_alone(lambda: time.sleep(0.5)))
        began, longest = time.monotonic(), 0.0
        while not slow.done():
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)
        return time.monotonic() - began, longest

    whole, longest = in_a_batcher(job)
    assert whole >= 0.5
    assert longest < 0.4
