import math
from itertools import pairwise
from typing import get_args

import pytest
import torch
from torch import nn

from seqlab.equations.bptt import clip_by_norm
from seqlab.recipe import TrainConfig
from seqlab.training.weights import (
    clip_,
    learning_rate,
    optimizer_tensors,
    optimizers,
    restore_optimizers,
    set_rate,
)

KINDS = get_args(TrainConfig.model_fields["optimizer"].annotation)


def settings(**options):
    return TrainConfig(steps=100, **{"learning_rate": 0.1, "warmup": 10, **options})


def rates(**options):
    return [learning_rate(step, 100, settings(**options)) for step in range(100)]


@pytest.mark.parametrize("schedule", ["cosine", "inverse-sqrt", "constant"])
def test_every_schedule_warms_up_in_a_straight_line(schedule):
    assert rates(schedule=schedule)[:11] == pytest.approx(
        [0.01 * (step + 1) for step in range(10)] + [0.1], rel=0.05
    )
    assert rates(schedule=schedule)[9] == pytest.approx(0.1)


def test_a_cosine_ends_at_nothing():
    found = rates(schedule="cosine")
    assert found[10] == pytest.approx(0.1)
    assert found[55] == pytest.approx(0.05)
    assert found[77] == pytest.approx(0.05 * (1 + math.cos(math.pi * 67 / 90)))
    assert all(after < before for before, after in pairwise(found[10:]))
    assert learning_rate(100, 100, settings(schedule="cosine")) == pytest.approx(0)
    assert learning_rate(150, 100, settings(schedule="cosine")) == pytest.approx(0)


def test_the_inverse_square_root_halves_in_four_times_the_steps():
    found = rates(schedule="inverse-sqrt")
    assert found[9] == pytest.approx(0.1)
    assert found[39] == pytest.approx(0.05)
    assert found[89] == pytest.approx(0.1 / 3)


def test_a_constant_stays():
    assert set(rates(schedule="constant")[9:]) == {0.1}


@pytest.mark.parametrize("schedule", ["cosine", "inverse-sqrt", "constant"])
def test_no_warm_up_begins_at_the_full_rate(schedule):
    assert rates(schedule=schedule, warmup=0)[0] == pytest.approx(0.1)


def test_a_warm_up_longer_than_the_run_is_the_run():
    assert learning_rate(4, 5, settings(warmup=100)) == pytest.approx(0.1)
    assert learning_rate(0, 5, settings(warmup=100)) == pytest.approx(0.02)


@pytest.mark.parametrize("threshold", [0.5, 1e9])
def test_clipping_in_place_is_the_equation(threshold):
    """E37."""
    parameters = [
        nn.Parameter(torch.randn(3, 4)),
        nn.Parameter(torch.randn(5)),
        nn.Parameter(torch.randn(2)),
    ]
    for parameter in parameters[:2]:  # the third has no gradient
        parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    clipped, norm = clip_by_norm(
        [parameter.grad.clone() for parameter in parameters[:2]], threshold
    )

    assert clip_(parameters, threshold) == pytest.approx(float(norm))
    for parameter, expected in zip(parameters, clipped, strict=False):
        torch.testing.assert_close(parameter.grad, expected)
    assert parameters[2].grad is None


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_weights_decay_and_biases_do_not(kind):
    """With gradients of zero only the decay is left: w <- w (1 - rate decay)."""
    model = nn.Linear(3, 2)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    (made,) = optimizers(model, settings(optimizer=kind, weight_decay=0.5))
    assert isinstance(made, torch.optim.SGD if kind == "sgd" else torch.optim.AdamW)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    made.step()
    torch.testing.assert_close(model.weight.detach(), before["weight"] * (1 - 0.1 * 0.5))
    assert model.bias.equal(before["bias"])


def test_frozen_weights_are_left_alone():
    model = nn.Linear(3, 2)
    model.weight.requires_grad_(False)
    (made,) = optimizers(model, settings())
    assert [group["params"] for group in made.param_groups] == [[model.bias]]


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_learns_more_slowly_and_later_where_the_recipe_says_so(kind):
    model = nn.ModuleDict({"encoder": nn.Linear(3, 3), "head": nn.Linear(3, 2)})
    chosen = settings(optimizer=kind, encoder_rate=0.25, encoder_frozen=2)
    made = optimizers(model, chosen)
    for step, expected in ((0, 0.0), (1, 0.0), (2, 0.025)):
        set_rate(made, 0.1, step, chosen)
        rates = {
            id(p): group["lr"]
            for each in made
            for group in each.param_groups
            for p in group["params"]
        }
        assert {rates[id(p)] for p in model["encoder"].parameters()} == {expected}
        assert {rates[id(p)] for p in model["head"].parameters()} == {0.1}


@pytest.mark.parametrize("kind", KINDS)
def test_an_optimiser_remembers_across_a_checkpoint(kind):
    """One that is restored takes the very same steps."""
    model, twin = nn.Linear(3, 2), nn.Linear(3, 2)
    made = optimizers(model, settings(optimizer=kind))
    copied = optimizers(twin, settings(optimizer=kind))

    def step(of, by, seed):
        for parameter in of.parameters():
            parameter.grad = torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(seed)
            )
        for each in by:
            each.step()

    for seed in range(3):
        step(model, made, seed)
    twin.load_state_dict(model.state_dict())
    tensors = {name: tensor.clone() for name, tensor in optimizer_tensors(made).items()}
    assert tensors
    restore_optimizers(copied, tensors)
    for seed in range(3, 6):
        step(model, made, seed)
        step(twin, copied, seed)
    assert twin.weight.equal(model.weight)
    assert twin.bias.equal(model.bias)
