"""Decoding compared with Hugging Face and CTranslate2: same weights, same sources, same number of tokens.

Each side runs in processes of its own, since libraries that share one disturb each other's threads. In a first round
every setting of every side is tried; then the best setting of each side runs again, in turn with the others.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import seqlab
from experiments.bench.race import Result, Time, installed, processors
from seqlab.errors import RunError
from seqlab.kernels import library, native

CELLS = [(1, 1), (1, 4), (32, 1), (32, 4)]  # rows, and width of the beam
WANTED = {"transformers": 3.0, "ctranslate2": 1.0}
NAMES = {"seqlab": "Seqlab", "transformers": "Hugging Face", "ctranslate2": "CTranslate2"}
ALIKE = 0.9  # the share of outputs in float32 that must be the same: sums in another order decide some near ties
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Setting:
    """A configuration of a library: number format, batches at a time, and threads of each."""

    side: str
    type: str
    batches: int = 1
    threads: int = 1

    @property
    def name(self) -> str:
        return f"{NAMES[self.side]} {self.type}, {self.batches} x {self.threads}"


SETTINGS = [
    *(
        Setting("seqlab", type, *at_once)
        for type in ("float32", "int8")
        for at_once in ((1, 1), (1, 2), (2, 1))
    ),
    *(Setting("transformers", "float32", 1, threads) for threads in (1, 2)),
    *(
        Setting("ctranslate2", type, *at_once)
        for type in ("float32", "int8")
        for at_once in ((1, 1), (1, 2), (2, 1))
    ),
]
Answers = dict[tuple[int, int], dict[str, Any]]  # of each cell: seconds, cpu, tokens


def decoding_results(
    *, rounds: int, shapes: tuple[str, ...] = ("small", "base")
) -> Iterator[Result]:
    """Yield a result for each shape, batch and beam: seconds per output token, each library at its best."""
    missing = [side for side in WANTED if not installed(side)]
    settings = [setting for setting in SETTINGS if setting.side not in missing]
    for shape in shapes:
        load = os.getloadavg()[0]
        tried = {setting: _run(setting, shape, CELLS) for setting in settings}
        _compare(tried)
        best = {cell: _best(tried, cell) for cell in CELLS}
        again: dict[Setting, list[Answers]] = {setting: [] for setting in settings}
        for _ in range(rounds):
            for setting in settings:
                cells = [cell for cell in CELLS if setting in best[cell]]
                if cells:
                    again[setting].append(_run(setting, shape, cells))
        for cell in CELLS:
            yield _result(shape, cell, best[cell], again, missing, rounds, load)


def _run(setting: Setting, shape: str, cells: list[tuple[int, int]]) -> Answers:
    """Measure each cell once in new processes; a library that runs two batches by itself needs only one process."""
    alone = setting.side == "ctranslate2"
    order = asdict(setting) | {"shape": shape, "batches": setting.batches if alone else 1}
    words = [sys.executable, "-m", "experiments.bench.translators", json.dumps(order)]
    threads = str(setting.threads)
    environment = os.environ | {
        f"{library}_NUM_THREADS": threads for library in ("OMP", "OPENBLAS", "MKL")
    }
    if native.ready():
        environment["SEQLAB_CACHE"] = str(library.folder())
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen(
            words,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        for _ in range(1 if alone else setting.batches)
    ]
    try:
        return {cell: _together([_ask(worker, cell) for worker in workers]) for cell in cells}
    finally:
        for worker in workers:
            worker.communicate()


def _ask(worker: "subprocess.Popen[str]", cell: tuple[int, int]) -> Callable[[], dict[str, Any]]:
    """Send an order to a worker; return a function that waits for its answer."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps(cell) + "\n")
    worker.stdin.flush()
    answers = worker.stdout

    def answer() -> dict[str, Any]:
        line = answers.readline()
        if not line:
            raise RunError("a side of the race gave up", hint="run its library alone to see why.")
        return json.loads(line)

    return answer


def _together(waiting: list[Callable[[], dict[str, Any]]]) -> dict[str, Any]:
    """Combine workers that ran at the same time: add their speeds, take the median CPU time per token."""
    answers = [answer() for answer in waiting]
    seconds = 1 / sum(1 / answer["seconds"] for answer in answers)
    return {
        "seconds": seconds,
        "cpu": median(answer["cpu"] for answer in answers),
        "tokens": answers[0]["tokens"],
    }


def _best(tried: dict[Setting, Answers], cell: tuple[int, int]) -> list[Setting]:
    """Return the fastest configurations of each library; a single batch cannot be split between workers."""
    fair = [setting for setting in tried if setting.batches == 1 or cell[0] > 1]
    sides = dict.fromkeys(setting.side for setting in fair)
    return [
        min((s for s in fair if s.side == side), key=lambda s: tried[s][cell]["seconds"])
        for side in sides
    ]


def _compare(tried: dict[Setting, Answers]) -> None:
    """Check that all libraries give the same output in float32, apart from near ties."""
    plain = {
        setting: answers
        for setting, answers in tried.items()
        if setting.type == "float32" and setting.batches == 1
    }
    ours = next(answers for setting, answers in plain.items() if setting.side == "seqlab")
    for setting, answers in plain.items():
        for cell, found in answers.items():
            expected = ours[cell]["tokens"]
            same = sum(
                one == other for one, other in zip(found["tokens"], expected, strict=True)
            ) / len(expected)
            if same < ALIKE:
                raise RunError(
                    f"{setting.name} and Seqlab do not agree: {same:.0%} of the outputs of {cell} are the same",
                    hint="times of different results say nothing; look at the versions of both.",
                )


def _result(
    shape: str,
    cell: tuple[int, int],
    best: list[Setting],
    again: dict[Setting, list[Answers]],
    missing: list[str],
    rounds: int,
    load: float,
) -> Result:
    ours = [answers[cell] for answers in again[best[0]]]
    times = []
    for setting in best:
        here = [answers[cell] for answers in again[setting]]
        pairs = list(zip(here, ours, strict=True))
        times.append(
            Time(
                name=setting.name,
                version=installed(setting.side) or seqlab.__version__,
                seconds=median(answer["seconds"] for answer in here),
                cpu_seconds=median(answer["cpu"] for answer in here),
                ratio=median(one["seconds"] / other["seconds"] for one, other in pairs),
                cpu_ratio=median(one["cpu"] / other["cpu"] for one, other in pairs),
                wanted=WANTED.get(setting.side),
            )
        )
    rows, width = cell
    how = "greedy" if width == 1 else f"beam {width}"
    title = f"Decoding, {shape}, batch {rows}, {how}"
    threads = max(setting.batches * setting.threads for setting in best)
    return Result(title, "one output token", times, missing, rounds, threads, load, processors())
