import json
from functools import partial

import pytest
import torch

from experiments.hmm_fit import HMMSettings, HMMShape, baum_welch, draw_hmm
from seqlab.models.hmm import Probabilities
from seqlab.padded import Padded
from seqlab.recipe import TrainConfig
from seqlab.training.baum_welch import EMSteps, HMMData, PseudoCounts
from seqlab.training.counting import CountingLearner
from seqlab.training.hmm_em import HMMLearner
from seqlab.training.log import SilentReporter
from seqlab.training.run import Run
from tests.hmm_samples import sample

FAMILY = HMMShape(3)


@pytest.fixture
def evidence():
    _, rows = sample(draw_hmm(FAMILY, 4, seed=5), 20, 12, seed=6)
    return HMMData(Padded(rows.values, torch.arange(20) % 12 + 1))


@pytest.fixture
def climbing(evidence, tmp_path):
    """A function that makes a run in a folder of that name, anew or as it was left."""

    def climbing(name="run", *, counted=False, by_validation=False, losses=None, **settings):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        model = Probabilities(draw_hmm(FAMILY, 4, seed=0))
        search = {
            "pseudo": PseudoCounts(0.1, 0.1, 0.1),
            "tolerance": settings.get("tolerance", 1e-4),
        }
        train = TrainConfig(**{"steps": 6, "restarts": 3, **settings})
        if counted:
            learner = CountingLearner(model, draw_hmm(FAMILY, 4, seed=1).tensors())
        else:
            em = EMSteps([evidence], model.model, **search)
            start = partial(draw_hmm, FAMILY, 4, seed=1)
            learner = HMMLearner(
                model, lambda r: start(restart=r), em, train, by_validation=by_validation
            )
        scores = iter(losses or ())
        return Run(
            learner,
            train,
            validate=lambda: {"loss": next(scores, 1.0)},
            folder=folder,
            report=SilentReporter(),
        )

    return climbing


def weights(run):
    return torch.cat([p.flatten() for p in run.learner.model.parameters()])


def logged(run):
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "second" not in key} for line in lines]


def test_the_best_of_several_climbs_is_kept(climbing, evidence):
    run = climbing()
    outcome = run.fit()
    search = HMMSettings(iterations=5, pseudo=0.1, pseudo_emissions=0.1, tolerance=1e-4)
    ends = [
        baum_welch(draw_hmm(FAMILY, 4, seed=1, restart=r), evidence, settings=search)
        for r in range(3)
    ]
    best = max(range(3), key=lambda r: ends[r].objectives[-1])
    assert outcome.progress.step == sum(len(end.objectives) for end in ends)
    assert len({end.objectives[-1] for end in ends}) == 3
    expected = torch.cat([x.flatten() for x in ends[best].model.tensors().values()])
    torch.testing.assert_close(weights(run), expected)
    verdict = run.learner.fit_facts()
    assert (verdict["climbs"], verdict["best_climb"], verdict["converged"]) == (
        3,
        best + 1,
        ends[best].converged,
    )
    assert verdict["objective"] == pytest.approx(
        ends[best].objectives[-1] / int(evidence.observations.lengths.sum())
    )
    assert max(verdict["objectives"]) == verdict["objective"]


@pytest.mark.parametrize("after", [1, 4, 6, 7, 13])
def test_resuming_equals_never_having_stopped(climbing, after):
    whole = climbing("whole")
    whole.fit()
    first = climbing("parts")
    assert first.fit(stop=lambda: first.progress.step >= after).stopped
    assert first.progress.step == after
    second = climbing("parts")
    second.restore()
    assert not second.fit().stopped
    assert weights(second).equal(weights(whole))
    assert second.learner.fit_facts() == whole.learner.fit_facts()
    steps = [[line for line in logged(run) if "loss" in line] for run in (second, whole)]
    assert steps[0] == steps[1]


def test_a_climb_ends_when_it_has_converged(climbing):
    run = climbing(steps=500, restarts=1, tolerance=1e-3)
    assert run.learner.num_steps == 500
    outcome = run.fit()
    assert run.learner.fit_facts()["converged"]
    assert outcome.progress.step == run.learner.num_steps < 500
    assert outcome.progress.finished


def test_a_finished_run_can_be_extended_by_climbs(climbing):
    first = climbing("more", restarts=2)
    (first.folder / "recipe.toml").write_text("restarts = 2")
    step = first.fit().progress.step
    more = climbing("more", restarts=3)
    more.resume("restarts = 3", step)
    more.fit()
    whole = climbing("whole")
    whole.fit()
    assert weights(more).equal(weights(whole))


def test_by_validation_the_best_step_is_kept(climbing):
    run = climbing(
        restarts=1, by_validation=True, validate_every=1, losses=[3.0, 1.0, 2.0, 2.5, 2.6, 2.7]
    )
    progress = run.fit().progress
    assert (progress.best_step, progress.best_loss) == (2, 1.0)
    assert run.learner.fit_facts()["kept_step"] == 2
    short = climbing("short", restarts=1, steps=2)
    short.fit()
    assert weights(run).equal(weights(short))


def test_counting_is_one_step(climbing):
    run = climbing(counted=True)
    assert run.learner.num_steps == 1
    assert run.fit().progress.step == 1
    expected = torch.cat([x.flatten() for x in draw_hmm(FAMILY, 4, seed=1).tensors().values()])
    assert weights(run).equal(expected)
    assert run.learner.fit_facts() == {"by": "counting"}
