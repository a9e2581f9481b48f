"""The loop by itself, with a learner that only counts; each learner has tests of its own."""

import json
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from seqlab import lab
from seqlab.errors import RunError
from seqlab.machine import StopNowError, finish_up, must_wait, state_lock
from seqlab.recipe import TrainConfig
from seqlab.training.checkpoint import Progress, read_checkpoint
from seqlab.training.log import SilentReporter, Step
from seqlab.training.run import Learner, NotFiniteError, Run

NUM_STEPS = 10


class Counter:
    """A learner whose only weight is the number of its steps; some steps have no finite gradient."""

    log_every, save_every, extended_by = 3, 4, "steps"

    def __init__(self, *, num_steps=NUM_STEPS, fails=()):
        self._num_steps, self.fails, self.progress = num_steps, set(fails), Progress()
        self.seconds, self.interrupted_at = lambda step: 0.0, 0
        self.weight, self.model = torch.zeros(1), nn.Module()
        self.model.weight = nn.Parameter(torch.zeros(1), requires_grad=False)

    @property
    def num_steps(self):
        return self.progress.length or self._num_steps or 1

    @property
    def finished(self):
        return self.progress.step >= self.num_steps

    def length_of(self, num_steps):
        return num_steps

    def step(self):
        if self.progress.step + 1 in self.fails:
            self.fails.remove(self.progress.step + 1)
            raise NotFiniteError([7])
        time.sleep(self.seconds(self.progress.step))
        if self.progress.step + 1 == self.interrupted_at:
            finish_up(save=True)
            raise KeyboardInterrupt
        with state_lock:
            self.progress.step += 1
            self.weight = self.weight + 1
        return Step(
            self.progress.step,
            self.num_steps,
            loss=1.0,
            tokens_per_second=1.0,
            seconds_left=0.0,
            num_tokens=1.0,
        )

    def state(self):
        return {"model": {"weight": self.weight}}

    def restore(self, parts, progress):
        self.weight, self.progress = parts["model"]["weight"], progress

    def validation_due(self, every):
        return self.progress.step % every == 0 or self.finished

    def weights(self):
        return {"weight": self.weight}

    def is_best(self, metrics):
        return self.progress.best_loss is None or metrics["loss"] < self.progress.best_loss

    def seconds_per_step(self):
        return 0.01

    def fit_facts(self):
        return {}


@pytest.fixture
def make(tmp_path):
    """A function that makes a run in one folder, whose validations have these losses."""

    def make(losses=(), *, fails=(), num_steps=NUM_STEPS, threads=(), **settings):
        scores = iter(losses)
        train = TrainConfig(**{"steps": num_steps, "validate_every": 5, **settings})
        learner = Counter(num_steps=num_steps, fails=fails)
        (tmp_path / "recipe.toml").write_text("old")
        validate = lambda: {"loss": next(scores, 1.0)}  # noqa: E731
        return Run(
            learner,
            train,
            validate=validate,
            folder=tmp_path,
            report=SilentReporter(),
            threads=threads,
        )

    return make


def log(run):
    return [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]


def test_logging_validating_and_saving(make):
    run = make([2.0, 1.0])
    assert isinstance(run.learner, Learner)
    steps = []

    def stop():
        path = run.folder / "last.safetensors"
        steps.append(read_checkpoint(path)[0].step if path.exists() else 0)
        return False

    outcome = run.fit(stop=stop)
    assert steps == [0, 0, 0, 4, 5, 5, 5, 8, 8, 10]
    assert [row["step"] for row in log(run) if "loss" in row] == [3, 6, 9, 10]
    assert [(row["step"], row["best"]) for row in log(run) if "validation" in row] == [
        (5, True),
        (10, True),
    ]
    assert (outcome.stopped, outcome.progress.finished, outcome.progress.best_step) == (
        False,
        True,
        10,
    )


def test_the_best_weights_are_the_final_ones(make):
    run = make([1.0, 2.0])
    run.fit()
    assert run.learner.model.weight.item() == 5


def test_without_a_validation_the_last_weights_are_the_final_ones(make):
    run = make()
    assert run.fit(stop=lambda: run.progress.step == 3).stopped
    assert run.learner.model.weight.item() == 3


def test_early_stopping(make):
    run = make([1.0, 2.0, 2.0, 0.5], validate_every=2, patience=2)
    assert run.fit().progress.step == 6


@pytest.mark.parametrize(("policy", "weight", "rate"), [("skip", 9, 1.0), ("rollback", 10, 0.5)])
def test_a_step_that_diverges_is_skipped_or_rolled_back(make, policy, weight, rate):
    run = make(fails=[7], divergence=policy)
    progress = run.fit().progress
    assert (progress.step, progress.rate, progress.diverged) == (10, rate, [7])
    assert run.learner.weight.item() == weight
    assert {"step": 7 if policy == "skip" else 5, "diverged": 7, "rows": [7], "rate": rate} in log(
        run
    )


def test_a_run_without_a_checkpoint_starts_again(make):
    make().metrics.append(3, loss=1.0)
    run = make()
    run.resume("new", None)
    assert log(run) == []
    assert run.progress.step == 0


def test_a_finished_run_is_refused_once_its_model_is_written(make):
    make().fit()
    with pytest.raises(RunError, match="this run has finished all 10 steps") as caught:
        make().resume("new", NUM_STEPS)
    assert "--set train.steps=N" in caught.value.hint


@pytest.mark.parametrize(
    ("recipe", "written", "finished"), [("old", None, True), ("old", 8, True), ("new", None, False)]
)
def test_a_finished_run_stays_finished_until_its_model_is_written_or_its_recipe_changes(
    make, recipe, written, finished
):
    make().fit()
    run = make(num_steps=12)
    run.resume(recipe, written)
    assert run.over == finished
    assert (run.folder / "recipe.toml").read_text() == recipe
    assert run.fit().progress.step == (10 if finished else 12)


@pytest.mark.parametrize("slower", [1, 8])
def test_a_time_limit_is_kept_when_steps_become_slower(make, slower):
    run = make(num_steps=None, steps=None, minutes=1.5 / 60, validate_every=None)
    run.learner.seconds = lambda step: 0.01 if step < 20 else 0.01 * slower
    run.validate = lambda: time.sleep(0.02) or {"loss": 1.0}
    began = time.perf_counter()
    outcome = run.fit()
    assert 0.8 < time.perf_counter() - began < 1.65
    place = outcome.progress
    assert (outcome.stopped, place.finished, place.pending) == (False, True, False)
    assert place.lengths[-1][1] == place.step == run.learner.num_steps
    validated = [row["step"] for row in log(run) if "validation" in row]
    assert validated[-1] == place.step
    assert (
        len(validated) * 0.02 < 0.25 * 1.5
    )  # a tenth, and the last one; sleeping takes longer than it should


def test_a_run_with_a_time_limit_can_be_resumed_and_extended(make):
    settings = {"num_steps": None, "steps": None, "validate_every": None}
    run = make(minutes=0.6 / 60, **settings)
    assert run.fit(stop=lambda: run.progress.seconds > 0.3).stopped
    again = make(minutes=0.6 / 60, **settings)
    again.resume("old", None)
    assert again.progress.lengths == run.progress.lengths
    assert again.learner.num_steps == run.learner.num_steps
    began = time.perf_counter()
    finished = again.fit().progress
    assert time.perf_counter() - began < 0.4
    with pytest.raises(RunError, match="finished all") as caught:
        make(minutes=0.6 / 60, **settings).resume("old", finished.step)
    assert "--set train.minutes=N" in caught.value.hint
    longer = make(minutes=1.0 / 60, **settings)
    longer.resume("new", finished.step)
    assert longer.fit().progress.step > finished.step


def test_an_interrupted_validation_is_made_on_resume(make):
    make([2.0, 1.0]).fit()
    whole, rows = read_checkpoint(make().folder / "last.safetensors"), log(make())
    for path in make().folder.glob("*.*"):
        path.unlink()
    run = make()

    def abandon():
        assert must_wait() is False
        raise StopNowError

    run.validate = abandon
    outcome = run.fit()
    assert (outcome.stopped, outcome.progress.step, outcome.progress.pending) == (True, 5, True)
    again = make([2.0, 1.0])
    again.resume("old", None)
    again.fit()
    resumed = read_checkpoint(again.folder / "last.safetensors")
    timings = {"seconds": 0.0}
    assert replace(resumed[0], **timings) == replace(whole[0], **timings)
    assert resumed[1] == whole[1]
    assert [row | timings for row in log(again)] == [row | timings for row in rows]


def test_a_process_that_must_end_during_a_step_saves_earlier_steps(make):
    run = make()
    run.learner.interrupted_at = 4
    with pytest.raises(KeyboardInterrupt):
        run.fit()
    assert not must_wait()
    assert read_checkpoint(run.folder / "last.safetensors")[0].step == 3


def test_the_number_of_threads_is_recorded_and_restored(make):
    before = torch.get_num_threads()
    try:
        run = make(num_steps=30, threads=(1, 2))
        run.learner.seconds = lambda step: 0.005 if torch.get_num_threads() == 1 else 0.1
        place = run.fit(stop=lambda: run.progress.step >= 20).progress
        assert place.threads[0] == [0, 1]
        assert place.threads[1] == [2, 2]
        assert place.threads[-1][1] == 1
        assert torch.get_num_threads() == 1
        torch.set_num_threads(2)
        again = make(num_steps=30, threads=(1, 2))
        again.resume("old", None)
        assert again.fit().progress.threads == place.threads
        other = make(num_steps=40, threads=(2,))
        other.resume("new", None)
        assert other.fit().progress.threads[-1] == [30, 2]
    finally:
        torch.set_num_threads(before)


def test_resuming_a_free_linear_dynamical_system(tmp_path):
    """The smallest variances come from where EM started, not from where it was resumed."""
    rows = [
        f"2020-01-{1 + i // 24:02} {i % 24:02}:00,{(7 * i) % 13 + (5 * i) % 7}" for i in range(240)
    ]
    (tmp_path / "series.csv").write_text("time,x\n" + "\n".join(rows) + "\n")
    settings = [
        "model.lds.states=3",
        "train.steps=5",
        "forecast.look_back=24",
        "forecast.horizon=4",
    ]
    for name, at in (("whole", 9), ("parts", 2)):
        steps = iter(range(1, 9))
        stop = lambda steps=steps, at=at: next(steps) == at  # noqa: E731
        lab.train(
            "forecast",
            tmp_path / "series.csv",
            recipe="lds-forecast",
            settings=settings,
            out=tmp_path / name,
            stop=stop,
        )
    lab.train(out=tmp_path / "parts", resume=True)
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert [name for name in whole if not whole[name].equal(parts[name])] == []
