import pytest
import torch
from torch import nn

from seqlab.recipe import TrainConfig
from seqlab.training.weights import (
    ExponentialAverage,
    LastAverage,
    NoAverage,
    average,
    load_weights,
    parameters_of,
    temporary_weights,
)


@pytest.fixture
def model():
    return nn.Linear(2, 2)


def at(model, value):
    """The model with this number in every weight."""
    load_weights(
        model,
        {name: torch.full_like(weight, value) for name, weight in parameters_of(model).items()},
    )
    return model


def number(weights):
    """The one number that all weights have."""
    values = torch.cat([weight.flatten() for weight in weights.values()])
    assert values.max() == values.min()
    return float(values[0])


@pytest.mark.parametrize(
    ("kind", "made"), [("none", NoAverage), ("ema", ExponentialAverage), ("last", LastAverage)]
)
def test_a_recipe_names_its_average(kind, made):
    found = average(TrainConfig(steps=1, average=kind, ema_decay=0.7, average_last=3))
    assert isinstance(found, made)
    assert getattr(found, "decay", 0.7) == 0.7
    assert getattr(found, "count", 3) == 3


def test_no_average_is_the_weights_of_the_moment(model):
    found = NoAverage()
    found.after_step(at(model, 1.0), 1)
    found.after_validation(model)
    assert number(found.weights(at(model, 5.0))) == 5
    assert found.tensors() == {}


def test_an_exponential_average_follows_its_formula(model):
    """a <- d a + (1 - d) w with d = min(decay, (1 + step) / (10 + step)); the first weights are taken as they are."""
    found = ExponentialAverage(0.5)
    assert number(found.weights(at(model, 7.0))) == 7
    expected = None
    for step, value in enumerate([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0, 5.0], start=1):
        found.after_step(at(model, value), step)
        decay = min(0.5, (1 + step) / (10 + step))
        expected = value if expected is None else decay * expected + (1 - decay) * value
        assert number(found.weights(model)) == pytest.approx(expected, rel=1e-5)
    assert number(parameters_of(model)) == 5


def test_a_last_average_is_the_mean_of_the_last_validations_and_this_one(model):
    found = LastAverage(3)
    seen = []
    for value in [10.0, 2.0, 7.0, 6.0, 2.0]:
        at(model, value)
        seen.append(value)
        assert number(found.weights(model)) == pytest.approx(sum(seen[-3:]) / len(seen[-3:]))
        found.after_validation(model)
    assert len(found.snapshots) == 3


def test_a_last_average_of_one_is_no_average(model):
    found = LastAverage(1)
    found.after_validation(at(model, 1.0))
    assert number(found.weights(at(model, 2.0))) == 2


@pytest.mark.parametrize(
    "make", [lambda: ExponentialAverage(0.9), lambda: LastAverage(12), NoAverage]
)
def test_a_restored_average_goes_on_as_if_nothing_had_been(model, make):
    one, other = make(), make()
    generator = torch.Generator().manual_seed(1)

    def go_on(averages, steps):
        for step in steps:
            load_weights(
                model,
                {
                    n: torch.randn(w.shape, generator=generator)
                    for n, w in parameters_of(model).items()
                },
            )
            for each in averages:
                each.after_step(model, step)
                each.after_validation(model)

    go_on([one], range(1, 13))
    other.restore(
        {name: one.tensors()[name].clone() for name in sorted(one.tensors())}
    )  # as a file has them
    go_on([one, other], range(13, 16))
    found, expected = other.weights(model), one.weights(model)
    assert all(found[name].equal(expected[name]) for name in expected)


def test_other_weights_are_worn_within_a_block(model):
    at(model, 1.0)
    other = {name: torch.full_like(weight, 2.0) for name, weight in parameters_of(model).items()}
    with temporary_weights(model, other):
        assert number(parameters_of(model)) == 2
    assert number(parameters_of(model)) == 1


def test_the_weights_come_back_even_when_the_block_raises(model):
    at(model, 1.0)
    other = {name: torch.full_like(weight, 2.0) for name, weight in parameters_of(model).items()}
    with pytest.raises(RuntimeError, match="in the middle"), temporary_weights(model, other):
        raise RuntimeError("in the middle")
    assert number(parameters_of(model)) == 1
    assert number(other) == 2


def test_wearing_ones_own_weights_copies_nothing(model):
    at(model, 1.0)
    with temporary_weights(model, parameters_of(model)):
        at(model, 3.0)
    assert number(parameters_of(model)) == 3


def test_a_tied_weight_appears_once():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    assert list(parameters_of(model)) == ["0.weight"]
