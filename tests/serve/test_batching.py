"""The line before the one thread that computes: together, bounded, and left by whoever goes."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from seqlab.errors import UsageError
from seqlab.serve.batching import Batcher, BusyError
from seqlab.serve.limits import ServerLimits

LIMITS = replace(ServerLimits(), gather=0.05, rows=8, line=20)


def in_a_batcher(job, limits=LIMITS):
    """What a coroutine function makes of a batcher that runs."""

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
    """Work that remembers which items it was given together."""

    def __init__(self):
        self.batches = []

    def __call__(self, items):
        self.batches.append(list(items))
        return [2 * item for item in items]


def test_what_arrives_together_is_answered_together():
    work = Doubling()

    async def job(batcher):
        asked = [batcher.together("same", item, 1, work) for item in range(6)]
        return await asyncio.gather(*asked, batcher.together("other", 10, 1, work)), batcher

    answers, batcher = in_a_batcher(job)
    assert answers == [0, 2, 4, 6, 8, 10, 20]
    assert work.batches == [[0, 1, 2, 3, 4, 5], [10]]
    assert (batcher.batches, batcher.rows) == (2, 7)


def test_no_batch_has_more_rows_than_it_may():
    work = Doubling()

    async def job(batcher):
        return await asyncio.gather(*(batcher.together("same", item, 3, work) for item in range(5)))

    assert in_a_batcher(job) == [0, 2, 4, 6, 8]
    assert work.batches == [[0, 1], [2, 3], [4]]


def test_a_request_alone_waits_no_longer_than_it_must():
    async def job(batcher):
        began = time.monotonic()
        await batcher.together("same", 1, 1, Doubling())
        return time.monotonic() - began

    assert in_a_batcher(job, replace(LIMITS, gather=0.2)) >= 0.19
    assert in_a_batcher(job, replace(LIMITS, gather=0.0)) < 0.19


def test_a_full_line_sends_away_and_a_place_is_free_again_after():
    async def job(batcher):
        with batcher.place(), batcher.place():
            with (
                pytest.raises(BusyError, match="2 requests are waiting already") as busy,
                batcher.place(),
            ):
                pass
            assert busy.value.hint == "try again in a second."
        with pytest.raises(ZeroDivisionError), batcher.place():
            raise ZeroDivisionError
        return batcher.taken

    assert in_a_batcher(job, replace(LIMITS, line=2)) == 0


def test_who_has_gone_is_not_computed_for():
    work, gate = Doubling(), threading.Event()

    async def job(batcher):
        first = asyncio.create_task(batcher.alone(gate.wait))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(batcher.together("same", 1, 1, work))
        stays = asyncio.create_task(batcher.together("same", 2, 1, work))
        await asyncio.sleep(0.05)
        gone.cancel()
        gate.set()
        await first
        return await stays

    assert in_a_batcher(job) == 4
    assert work.batches == [[2]]


def test_what_nobody_waits_for_any_more_is_stopped_in_the_middle(offline):
    """A model reads tokens until its only client leaves; then the next one is served."""
    model, steps = offline["lm"], []

    async def job(batcher):
        batcher.watch(model.bundle.model)

        def write_for_ever(items):
            while len(steps) < 10_000:
                steps.append(model.predict("the", max_length=1))

        endless = asyncio.create_task(batcher.together("same", 1, 1, write_for_ever))
        while not steps:
            await asyncio.sleep(0.01)
        endless.cancel()
        return await batcher.alone(lambda: "served")

    assert in_a_batcher(job) == "served"
    assert 1 <= len(steps) < 10_000
    model.predict("the", max_length=1)  # which still works where nobody can leave


def test_failures_go_to_whom_they_belong():
    def one_fails(items):
        return [UsageError("no", hint="do not.") if item == 1 else item for item in items]

    def all_fail(items):
        raise ZeroDivisionError

    async def job(batcher):
        kinds = [batcher.together("same", item, 1, one_fails) for item in range(3)]
        kinds += [batcher.together("worse", item, 1, all_fail) for item in range(2)]
        return await asyncio.gather(*kinds, return_exceptions=True)

    good, bad, better, *worse = in_a_batcher(job)
    assert (good, better) == (0, 2)
    assert isinstance(bad, UsageError)
    assert [type(each) for each in worse] == [ZeroDivisionError] * 2


def test_the_loop_is_free_while_something_is_computed():
    async def job(batcher):
        slow = asyncio.create_task(batcher.alone(lambda: time.sleep(0.5)))
        began, longest = time.monotonic(), 0.0
        while not slow.done():
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)
        return time.monotonic() - began, longest

    whole, longest = in_a_batcher(job)
    assert whole >= 0.5
    assert longest < 0.4
