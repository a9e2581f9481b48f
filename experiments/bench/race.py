"""A benchmark: several libraries do the same work in turn, for several rounds, in one process.

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
"""Largest relative difference of numbers that count as equal."""


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
    """The work, the name of one part of it, our implementation, and those of installed libraries."""

    title: str
    part: str
    ours: Side
    peers: Sequence[Side]
    missing: Sequence[str] = ()


@dataclass(frozen=True)
class Time:
    """Median wall-clock and CPU seconds of one part, and their ratios to ours."""

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
    """The result of a benchmark; `load` is the number of running processes at its beginning."""

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
        """Whether other processes were running, so that only ratios of CPU time are reliable."""
        return self.load + self.threads > self.processors + 0.5

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_markdown(self) -> str:
        """Return a row for each library: work, library, its time, ours, ratio, ratio of CPU time, required ratio."""
        ours, *peers = self.times
        return "\n".join(
            f"| {self.title} | {peer.name} {peer.version} | {seconds(peer.seconds)} | {seconds(ours.seconds)} "
            f"| {peer.ratio:.3g} | {peer.cpu_ratio:.3g} | {peer.goal} |"
            for peer in peers
        )


def race(case: Race, *, rounds: int) -> Result:
    """Run all libraries in turn, `rounds` times, after a warm-up round whose results are compared."""
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
    """Return the number of processors available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def installed(package: str) -> str | None:
    """Return the version of a library, or None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def seconds(value: float) -> str:
    """Return a time with three digits and a suitable unit."""
    scale, unit = next(((s, u) for s, u in ((1, "s"), (1e3, "ms")) if value * s >= 1), (1e6, "µs"))
    return f"{value * scale:.3g} {unit}"


def _check(found: Sequence[tuple[Side, np.ndarray]]) -> None:
    """Check that all libraries computed the same numbers, as far as they computed them."""
    (ours, expected), *others = found
    for side, numbers in others:
        wrong = float(np.max(np.abs(numbers / expected[: len(numbers)] - 1)))
        if not wrong <= SAME:
            raise RunError(
                f"{side.name} and {ours.name} do not agree: their results are {wrong:.1e} apart",
                hint="times of different results say nothing; look at the versions of both.",
            )
