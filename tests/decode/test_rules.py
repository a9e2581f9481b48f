import math

import pytest
import torch

from seqlab.decode.rules import Greedy, Rule, Sample
from seqlab.equations.decoding import greedy_choice
from seqlab.errors import UsageError

LOGITS = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
ROWS = torch.arange(20_000)


def shares(rule, step=0):
    """How often each token is drawn."""
    drawn = rule(LOGITS.expand(len(ROWS), -1), ROWS, step)
    return torch.bincount(drawn, minlength=4) / len(ROWS)


@pytest.mark.parametrize("rule", [Greedy(), Sample()])
def test_a_rule_chooses_one_token_a_row(rule):
    assert isinstance(rule, Rule)
    chosen = rule(LOGITS.expand(3, -1), ROWS[:3], 0)
    assert chosen.shape == (3,)
    assert chosen.dtype == torch.long


def test_greedy_takes_the_likeliest():
    """E58."""
    logits = torch.tensor([[0.0, 2.0, 1.0], [5.0, 5.0, -math.inf]])
    assert Greedy()(logits, ROWS[:2], 0).tolist() == greedy_choice(logits).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Sample(), [0.4, 0.3, 0.2, 0.1]),
        (Sample(temperature=0.5), [16 / 30, 9 / 30, 4 / 30, 1 / 30]),
        (Sample(top_k=2), [4 / 7, 3 / 7, 0, 0]),
        (Sample(top_p=0.75), [4 / 9, 3 / 9, 2 / 9, 0]),
        (Sample(top_k=3, top_p=0.75), [4 / 7, 3 / 7, 0, 0]),  # of the top 3, two have 7/9 of the mass
        (Sample(temperature=0.5, top_p=0.75), [16 / 25, 9 / 25, 0, 0]),
        (Sample(top_p=0.01), [1, 0, 0, 0]),
        (Sample(top_k=1), [1, 0, 0, 0]),
        (Sample(top_k=99, top_p=1.0), [0.4, 0.3, 0.2, 0.1]),
    ],
)
def test_a_rule_draws_from_what_it_says(rule, expected):
    """E59: tempered, then the top k, then the top p of what is left."""
    expected = torch.tensor(expected)
    found = shares(rule)
    assert found[expected == 0].eq(0).all()
    assert (found - expected).abs().max() < 0.015


NEVER = pytest.mark.parametrize("rule", [Greedy(), Sample(), Sample(top_k=1)])


@NEVER
def test_what_may_never_come_is_not_chosen(rule):
    chosen = rule(LOGITS.expand(200, -1), ROWS[:200], 0, (0, 3))
    assert set(chosen.tolist()) == ({1, 2} if rule == Sample() else {1})


@NEVER
def test_nor_is_it_by_the_native_kernels(kernels, rule):
    test_what_may_never_come_is_not_chosen(rule)


def test_a_draw_is_keyed_by_seed_row_and_step():
    logits = LOGITS.expand(1000, -1)
    drawn = Sample(seed=1)(logits, ROWS[:1000], 5)
    assert drawn.equal(Sample(seed=1)(logits, ROWS[:1000], 5))
    assert drawn[100:200].equal(Sample(seed=1)(logits[100:200], ROWS[100:200], 5))
    assert not drawn.equal(Sample(seed=2)(logits, ROWS[:1000], 5))
    assert not drawn.equal(Sample(seed=1)(logits, ROWS[:1000], 6))
    assert not drawn.equal(Sample(seed=1)(logits, ROWS[1000:2000], 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "a temperature must be above 0, not 0.0"),
        ({"temperature": -1.0}, "a temperature must be above 0, not -1.0"),
        ({"temperature": math.inf}, "a temperature must be above 0, not inf"),
        ({"temperature": math.nan}, "a temperature must be above 0, not nan"),
        ({"top_k": 0}, "top-k must keep at least 1 token, not 0"),
        ({"top_p": 0.0}, "top-p is a share above 0 and up to 1, not 0.0"),
        ({"top_p": 1.5}, "top-p is a share above 0 and up to 1, not 1.5"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_with_advice(options, message):
    with pytest.raises(UsageError) as caught:
        Sample(**options)
    assert str(caught.value) == message
    assert caught.value.hint.endswith("is a good first try.")
