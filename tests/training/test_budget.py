"""Threads and steps by measuring, with speeds that are made up."""

import pytest

from seqlab.machine import RECENT_STEPS, TRIAL_STEPS, ThreadChoice
from seqlab.training.budget import SHARE, Budget


def used(choice, speeds, steps):
    """The numbers of threads of the next steps, where each number has a speed."""
    counts = []
    for _ in range(steps):
        counts.append(choice.next())
        choice.measured(speeds[counts[-1]])
    return counts


class TestThreadChoice:
    def test_each_number_is_tried_after_a_warm_up_and_the_fastest_is_kept(self):
        choice = ThreadChoice((1, 2, 4))
        counts = used(choice, {1: 10.0, 2: 30.0, 4: 20.0}, 30)
        assert counts[: 1 + 3 * TRIAL_STEPS] == [1, *[1, 2, 4] * TRIAL_STEPS]
        assert set(counts[1 + 3 * TRIAL_STEPS :]) == {2}

    def test_a_single_slow_step_does_not_decide(self):
        choice = ThreadChoice((1, 2))
        for place in range(1 + 2 * TRIAL_STEPS):
            choice.measured(1.0 if place == 2 else {1: 10.0, 2: 20.0}[choice.next()])
        assert choice.next() == 2

    def test_all_numbers_are_tried_again_after_a_collapse_of_the_speed(self):
        choice = ThreadChoice((1, 2))
        assert used(choice, {1: 10.0, 2: 20.0}, 40)[-1] == 2
        counts = used(choice, {1: 5.0, 2: 0.1}, 40)
        assert counts[-1] == 1
        assert counts.count(2) <= RECENT_STEPS + TRIAL_STEPS

    def test_small_variations_of_the_speed_change_nothing(self):
        choice = ThreadChoice((1, 2))
        used(choice, {1: 10.0, 2: 20.0}, 40)
        assert set(used(choice, {1: 10.0, 2: 8.0}, 40)) == {2}

    def test_a_resumed_run_keeps_its_number_of_threads(self):
        assert set(used(ThreadChoice((1, 2), first=1), {1: 1.0, 2: 9.0}, 30)) == {1}
        alone = ThreadChoice((3,))
        assert set(used(alone, {3: 9.0}, 30) + used(alone, {3: 0.1}, 30)) == {3}


def simulate(budget, speed, validation, validations=20):
    """Seconds and steps of a run whose steps take `speed(step)` seconds, and how long it validated."""
    step, elapsed, validated = 0, 0.0, 0.0
    budget.measured(speed(0))
    num_steps, every = budget.plan(0, 0.0, None, validations)
    while step < num_steps and not (step and budget.is_over(elapsed)):
        elapsed += speed(step)
        budget.measured(speed(step))
        step += 1
        if step % every == 0:
            elapsed, validated = elapsed + validation, validated + validation
            budget.validation = validation
        if budget.may_change(elapsed):
            num_steps, every = budget.plan(step, elapsed, None, validations)
    return elapsed + validation, step, validated


class TestBudget:
    @pytest.mark.parametrize("validation", [0.0, 0.01, 0.1, 1.0])
    @pytest.mark.parametrize("slower", [0.2, 1.0, 10.0])
    def test_the_time_limit_is_kept_when_the_speed_changes(self, validation, slower):
        budget = Budget(60.0)
        seconds, steps, validated = simulate(
            budget, lambda step: 0.1 if step < 100 else 0.1 * slower, validation
        )
        assert 0.85 * budget.training <= seconds <= budget.training + 0.1 * slower + validation
        assert validated <= 1.5 * SHARE * 60.0
        assert steps > 100

    def test_at_least_one_step_is_made(self):
        budget = Budget(1.0)
        budget.measured(5.0)
        assert budget.plan(0, 0.0, None, 20)[0] == 1

    def test_time_for_the_scores_is_a_tenth_and_at_most_30_seconds(self):
        assert Budget(60.0).training == 54.0
        assert Budget(3600.0).training == 3570.0
