import pytest
import torch

from seqlab.equations import attention as equations
from seqlab.equations.attention import diversity_penalty
from seqlab.layers.pooling import Pooling
from seqlab.layers.tap import listening
from seqlab.padded import Padded
from seqlab.randomness import noise

B, T, D, F = 4, 5, 3, 2
KINDS = ["final", "mean", "max", "detectors", "theme", "attention"]
THEME = 2


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pool(kind, **options):
    return Pooling(kind, D, summary_size=F, theme=THEME, **options).double()


@pytest.fixture
def states():
    return Padded(numbers(B, T, D), torch.tensor([5, 0, 1, 3]))


SUMMARY = numbers(B, F, seed=1)


def test_each_kind_is_its_equation(states):
    """E22, E23 and a learned weighting."""
    attention = pool("attention")
    weighted, _ = equations.attention_pool(
        states.values, attention.score(states.values)[..., 0], states.real
    )
    assert pool("final")(states, SUMMARY)[0] is SUMMARY
    assert pool("mean")(states, SUMMARY)[0].equal(equations.mean_pool(states.values, states.real))
    assert pool("max")(states, SUMMARY)[0].equal(equations.max_pool(states.values, states.real))
    torch.testing.assert_close(attention(states, SUMMARY)[0], weighted)
    detectors = pool("detectors")
    heard = detectors.hidden(states.values).tanh()  # max and tanh may change places
    torch.testing.assert_close(
        detectors(states, SUMMARY)[0], equations.max_pool(heard, states.real)
    )
    theme, full = pool("theme"), states.rows_at(torch.tensor([0, 2, 3]))
    mixed = equations.mean_pool(
        theme.hidden(full.values), full.real
    )  # mixing and the mean may change places
    torch.testing.assert_close(theme(full, SUMMARY[[0, 2, 3]])[0], mixed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_has_the_size_that_was_announced(states, kind):
    layer = pool(kind)
    assert layer(states, SUMMARY)[0].shape == (B, layer.output_size)
    assert layer.output_size == {"final": F, "theme": THEME}.get(kind, D)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("junk", [0.0, 1e9, torch.inf, torch.nan])
def test_pads_change_nothing(states, kind, junk):
    layer = pool(kind)
    dirty = states.with_values(states.values.masked_fill(~states.real[..., None], junk))
    wide = Padded(
        torch.cat([dirty.values, torch.full((B, 2, D), junk).double()], dim=1), states.lengths
    )
    torch.testing.assert_close(layer(wide, SUMMARY)[0], layer(states.masked(), SUMMARY)[0])


@pytest.mark.parametrize("kind", ["mean", "max", "detectors", "attention"])
def test_an_empty_row_pools_to_zeros(states, kind):
    assert pool(kind)(states, SUMMARY)[0][1].eq(0).all()
    assert pool(kind)(Padded(numbers(2, 0, D), torch.tensor([0, 0])), SUMMARY[:2])[0].equal(
        torch.zeros(2, D).double()
    )


def test_a_row_of_one_state_pools_to_it(states):
    for kind in ("mean", "max", "attention"):
        torch.testing.assert_close(pool(kind)(states, SUMMARY)[0][2], states.values[2, 0])


def test_the_weights_of_attention_are_seen_and_can_be_replaced(states):
    layer, seen = pool("attention"), {}
    with listening(lambda name, value: seen.setdefault(name, value)):
        observed = layer(states, SUMMARY)[0]
    torch.testing.assert_close(observed, layer(states, SUMMARY)[0])
    torch.testing.assert_close(
        seen["pooling.weights"][:, 0].sum(1), torch.tensor([1.0, 0, 1, 1]).double()
    )

    first = torch.eye(T, dtype=torch.float64)[0].expand(B, 1, T)
    with listening(lambda name, value: first):
        replaced = layer(states, SUMMARY)[0]
    torch.testing.assert_close(replaced, states.masked().values[:, 0])


def test_hops_stand_side_by_side_and_cost_what_they_share(states):
    """S21: each hop has its own weights; E49 is summed over the rows."""
    layer, seen = pool("hops", hops=3, penalty=0.5), {}
    with listening(lambda name, value: seen.setdefault(name, value)):
        pooled, penalty = layer(states, SUMMARY)
    weights = seen["pooling.weights"]
    assert pooled.shape == (B, layer.output_size) == (B, 3 * D)
    torch.testing.assert_close(pooled.view(B, 3, D), weights @ states.masked().values)
    torch.testing.assert_close(penalty, 0.5 * diversity_penalty(weights).sum())
    assert pool("hops", hops=3)(states, SUMMARY)[1] is None


def test_normalised_over_the_texts_in_training_and_by_what_it_saw_afterwards(states):
    layer, plain = pool("mean", normalise=True), pool("mean")(states, SUMMARY)[0]
    with noise(0, 0, torch.arange(B)):
        seen = layer(states, SUMMARY)[0]
    torch.testing.assert_close(seen.mean(0), torch.zeros(D).double())
    torch.testing.assert_close(
        seen.var(0, unbiased=False), torch.ones(D).double(), rtol=1e-3, atol=0
    )
    one = Padded(
        states.values[:1], states.lengths[:1]
    )  # in use, a text is answered as if it were alone
    torch.testing.assert_close(layer(one, SUMMARY[:1])[0], layer(states, SUMMARY)[0][:1])
    torch.testing.assert_close(layer.norm.mean.data, 0.1 * plain.mean(0))
