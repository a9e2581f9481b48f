import json
from itertools import pairwise

import numpy as np
import pytest

from experiments.bench.hmm import baum_welch_race
from experiments.bench.kalman import kalman_race
from experiments.bench.race import Race, Side, race, seconds
from experiments.bench.recurrent import NAMES, recurrent_race
from seqlab.errors import RunError


def work(amount):
    """Something that takes about `amount` milliseconds of the processor."""
    return sum(i * i for i in range(15_000 * amount))


def side(name, amount=1, *, done=None, numbers=(2.0, 3.0), **more):
    def run():
        work(amount)
        if done is not None:
            done.append(name)

    return Side(name, "1.0", run, lambda _: np.array(numbers), **more)


def test_sides_take_turns_and_a_time_is_a_ratio():
    done = []
    ours = side("ours", 1, done=done, parts=2)
    peers = [
        side("slow", 20, done=done, parts=2, wanted=3.0),
        side("some", 10, done=done, numbers=(2.0,)),
    ]
    result = race(Race("A race", "one part", ours, peers), rounds=5)
    assert done == ["ours", "slow", "some"] * 6  # one round to warm up
    assert [time.name for time in result.times] == ["ours", "slow", "some"]
    first, slow, some = result.times
    assert first.ratio == first.cpu_ratio == 1
    assert 8 < slow.cpu_ratio < 50
    assert 8 < some.cpu_ratio < 50  # half the work of `slow`, of one part instead of two
    assert slow.cpu_seconds == pytest.approx(slow.cpu_ratio * first.cpu_seconds, rel=0.6)
    assert result.to_markdown().splitlines()[0].startswith("| A race | slow 1.0 | ")
    assert [row.split(" | ")[-1] for row in result.to_markdown().splitlines()] == ["3 |", " |"]
    assert json.loads(json.dumps(result.to_json()))["rounds"] == 5


@pytest.mark.parametrize(
    ("numbers", "apart"), [((2.0, 3.1), "3.3e-02"), ((2.00001, 3.0), "5.0e-06"), ((np.nan,), "nan")]
)
def test_a_race_of_different_results_is_none(numbers, apart):
    with pytest.raises(
        RunError, match=f"peer and ours do not agree: their results are {apart} apart"
    ) as caught:
        race(Race("", "", side("ours"), [side("peer", numbers=numbers)]), rounds=1)
    assert "times of different results say nothing" in caught.value.hint


def test_rounding_is_no_difference():
    race(Race("", "", side("ours"), [side("peer", numbers=(2.0, 3.0 + 1e-9))]), rounds=1)


@pytest.mark.parametrize(
    ("case", "peers"),
    [
        (
            lambda: baum_welch_race(num=3, length=5, num_states=2, num_symbols=4, iterations=2),
            ["hmmlearn"],
        ),
        (lambda: kalman_race(num=3, length=20), ["pykalman", "statsmodels"]),
    ],
)
def test_our_side_runs_with_those_peers_that_are_there(case, peers):
    result = race(case(), rounds=1)
    assert result.times[0].name == "Seqlab"
    there = {time.name.split()[0] for time in result.times[1:]}
    assert sorted([*there, *result.missing]) == peers
    assert all(time.seconds > 0 for time in result.times)


@pytest.mark.parametrize("kind", NAMES)
def test_recurrent_layers_are_raced_to_the_same_gradients(kind):
    result = race(recurrent_race(kind, 8, rows=3, steps=9, wanted=1.0), rounds=1)
    assert NAMES[kind] in result.title
    assert len(result.times) == 2
    assert result.missing == ["Seqlab's native kernels"]  # which are turned off while tests run


def test_baum_welch_is_raced_to_the_end():
    """The log-likelihood after n iterations, which hmmlearn must reach too, rises with n."""
    reached = []
    for iterations in (1, 5, 20):
        ours = baum_welch_race(
            num=5, length=20, num_states=3, num_symbols=4, iterations=iterations
        ).ours
        reached.append(float(ours.numbers(ours.run())[0]))
    assert all(before < after for before, after in pairwise(reached))


def test_times_have_three_digits_and_a_unit():
    assert [seconds(x) for x in (12.345, 0.12345, 0.00012345)] == ["12.3 s", "123 ms", "123 µs"]
