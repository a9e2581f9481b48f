"""A race: the same work done by several libraries in turn, round after round, in one process.

Machines differ, and differ from minute to minute; what is left of that in a ratio of neighbours is little, and in the
median of several ratios less. A time counts only if all sides came to the same numbers.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

import numpy as np
import torch

from seqlab.errors import RunError

SAME = 1e-6
"""By how much numbers may differ, as a share of themselves, and still be the same."""


@dataclass(frozen=True)
class Side:
    """One way to do the work. `run` is timed; `numbers` of what it returns are compared, a row for each part of it.
    A bound, which does less than the work, has none to compare.

    A slow side may do only the first `parts` of the work: times are given for one part.
    """

    name: str
    version: str
    run: Callable[[], Any]
    numbers: Callable[[Any], np.ndarray] | None
    parts: int = 1
    wanted: float | None = None


@dataclass(frozen=True)
class Race:
    """What is done, how one part of it is called, our side, and those peers that are installed."""

    title: str
    part: str
    ours: Side
    peers: Sequence[Side]
    missing: Sequence[str] = ()


@dataclass(frozen=True)
class Time:
    """The median seconds of one part, on the clock and of the processor, and how many times ours that is."""

    name: str
    version: str
    seconds: float
    cpu_seconds: float
    ratio: float
    cpu_ratio: float
    wanted: float | None

    @property
    def goal(self) -> str:
        return "" if self.wanted is None else f"{self.wanted:g}"


@dataclass(frozen=True)
class Result:
    """What a race measured; `load` says how many processes wanted a processor when it began."""

    title: str
    part: str
    times: list[Time]
    missing: list[str]
    rounds: int
    threads: int
    load: float
    processors: int

    @property
    def busy(self) -> bool:
        """Whether others were at work, so that only ratios of processor time can be trusted."""
        return self.load + self.threads > self.processors + 0.5

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_markdown(self) -> str:
        """A table row for each peer: what, who, their time, our time, ratio, ratio of processor time, wanted."""
        ours, *peers = self.times
        return "\n".join(
            f"| {self.title} | {peer.name} {peer.version} | {seconds(peer.seconds)} | {seconds(ours.seconds)} "
            f"| {peer.ratio:.3g} | {peer.cpu_ratio:.3g} | {peer.goal} |"
            for peer in peers
        )


def race(case: Race, *, rounds: int) -> Result:
    """All sides in turn, `rounds` times, after a round that only warms up and is checked."""
    sides, load = [case.ours, *case.peers], os.getloadavg()[0]
    done = [(side, side.run()) for side in sides]
    _check([(side, side.numbers(found)) for side, found in done if side.numbers is not None])
    clock, processor = np.empty((rounds, len(sides))), np.empty((rounds, len(sides)))
    for each in range(rounds):
        for place, side in enumerate(sides):
            began, cpu_began = time.perf_counter(), time.process_time()
            side.run()
            clock[each, place] = (time.perf_counter() - began) / side.parts
            processor[each, place] = (time.process_time() - cpu_began) / side.parts
    times = [
        Time(
            name=side.name,
            version=side.version,
            seconds=median(clock[:, place]),
            cpu_seconds=median(processor[:, place]),
            ratio=median(clock[:, place] / clock[:, 0]),
            cpu_ratio=median(processor[:, place] / processor[:, 0]),
            wanted=side.wanted,
        )
        for place, side in enumerate(sides)
    ]
    threads = torch.get_num_threads()
    return Result(
        case.title, case.part, times, list(case.missing), rounds, threads, load, processors()
    )


def processors() -> int:
    """How many there are for us."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def installed(package: str) -> str | None:
    """The version of a peer, if it is there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def seconds(value: float) -> str:
    """A time with three digits, in the unit that suits it."""
    scale, unit = next(((s, u) for s, u in ((1, "s"), (1e3, "ms")) if value * s >= 1), (1e6, "µs"))
    return f"{value * scale:.3g} {unit}"


def _check(found: Sequence[tuple[Side, np.ndarray]]) -> None:
    """All sides must have come to the same numbers, as far as they went."""
    (ours, expected), *others = found
    for side, numbers in others:
        wrong = float(np.max(np.abs(numbers / expected[: len(numbers)] - 1)))
        if not wrong <= SAME:
            raise RunError(
                f"{side.name} and {ours.name} do not agree: their results are {wrong:.1e} apart",
                hint="times of different results say nothing; look at the versions of both.",
            )
