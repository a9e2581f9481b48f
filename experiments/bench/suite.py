"""All benchmarks by name."""

from collections.abc import Callable, Iterator

from experiments.bench.decode import decoding_results
from experiments.bench.hmm import baum_welch_race
from experiments.bench.kalman import kalman_race
from experiments.bench.race import Race, Result, race
from experiments.bench.recurrent import recurrent_race
from experiments.bench.training import epoch_race, step_race
from seqlab.errors import UsageError, nearest

SIZES = (128, 256, 512)


def _recurrent() -> Iterator[Race]:
    yield from (
        recurrent_race("gru-torch", size, wanted=1.5 if size < 512 else None) for size in SIZES
    )
    yield from (recurrent_race("gru", size) for size in SIZES)
    yield from (
        recurrent_race(kind, size, wanted=1.0) for kind in ("lstm", "rnn") for size in SIZES
    )


RACES: dict[str, Callable[[int], Iterator[Result]]] = {
    "hmm": lambda rounds: (race(case, rounds=rounds) for case in [baum_welch_race()]),
    "kalman": lambda rounds: (
        race(case, rounds=rounds) for case in [kalman_race(), kalman_race(num=1)]
    ),
    "recurrent": lambda rounds: (race(case, rounds=rounds) for case in _recurrent()),
    "train": lambda rounds: (
        race(case, rounds=rounds) for case in (step_race("small"), step_race("base"), epoch_race())
    ),
    "decode": lambda rounds: decoding_results(rounds=rounds),
}


def run_bench(name: str | None, *, rounds: int) -> Iterator[Result]:
    """Run the benchmarks of one name, or all."""
    if name is not None and name not in RACES:
        raise UsageError(f"there is no benchmark '{name}'", hint=nearest(name, RACES))
    for races in RACES.values() if name is None else [RACES[name]]:
        yield from races(rounds)
