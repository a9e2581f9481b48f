"""A training step beside its bound, and an epoch beside a plain loop: no time is bought by doing less."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from experiments.bench.race import race
from experiments.bench.training import epoch_race, step_race


def flops(run):
    with FlopCounterMode(display=False) as counted:
        run()
    return counted.get_total_flops()


def test_the_bound_does_the_products_of_a_step():
    case = step_race("small", rows=3, length=7)
    bound = next(side for side in case.peers if side.name == "the products alone")
    assert flops(bound.run) == pytest.approx(flops(case.ours.run), rel=0.02)


def test_a_step_is_raced_against_its_bound():
    ours, bound, *_ = race(step_race("small", rows=2, length=4), rounds=1).times
    assert (ours.name, bound.name, bound.wanted) == ("Seqlab", "the products alone", 0.8)
    assert bound.ratio > 0


def test_an_epoch_beside_hugging_face_begins_at_the_same_loss():
    pytest.importorskip("transformers", reason="needs the peer: make bench installs it")
    case = epoch_race()
    assert case.peers[0].numbers(None) == pytest.approx(case.ours.numbers(None), rel=1e-5)
