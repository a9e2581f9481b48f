import pytest
import torch

from seqlab.equations import recurrent
from seqlab.layers.stack import Connection
from seqlab.layers.tap import listening

B, T, D, H = 2, 5, 3, 4


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def connection(kind, input_size):
    return Connection(kind, input_size, H, name="layer").double()


@pytest.mark.parametrize(
    ("kind", "size"), [("plain", H), ("residual", H), ("highway", H), ("dense", D + H)]
)
@pytest.mark.parametrize("input_size", [D, H])
def test_a_connection_gives_what_it_says(kind, size, input_size):
    joined = connection(kind, input_size)
    out = joined(numbers(B, T, input_size), numbers(B, T, H, seed=1))
    assert out.shape == (B, T, joined.output_size)
    assert joined.output_size == size + (H - D if kind == "dense" and input_size == H else 0)


def test_a_plain_connection_forgets_its_input():
    hx = numbers(B, T, H, seed=1)
    assert connection("plain", D)(numbers(B, T, D), hx) is hx
    assert list(connection("plain", D).parameters()) == []


def test_a_residual_connection_adds():
    """E27."""
    x, hx = numbers(B, T, H), numbers(B, T, H, seed=1)
    assert connection("residual", H)(x, hx).equal(recurrent.residual(x, hx))


def test_a_highway_mixes_by_a_gate_of_its_input():
    """E26."""
    x, hx, joined = numbers(B, T, H), numbers(B, T, H, seed=1), connection("highway", H)
    t = (x @ joined.transform.weight.mT + joined.transform.bias).sigmoid()
    torch.testing.assert_close(joined(x, hx), recurrent.highway(x, hx, t))


def test_a_dense_connection_keeps_both():
    """E28."""
    x, hx = numbers(B, T, D), numbers(B, T, H, seed=1)
    assert connection("dense", D)(x, hx).equal(recurrent.dense(x, hx))


@pytest.mark.parametrize("kind", ["residual", "highway"])
def test_an_input_of_another_size_is_projected_first(kind):
    wide, same = connection(kind, D), connection(kind, H)
    x, hx = numbers(B, T, D), numbers(B, T, H, seed=1)
    same.load_state_dict(
        {name: value for name, value in wide.state_dict().items() if "project" not in name}
    )
    assert same.project is None
    torch.testing.assert_close(wide(x, hx), same(x @ wide.project.weight.mT, hx))


def test_a_highways_gate_can_be_closed_from_outside():
    x, hx, joined = numbers(B, T, H), numbers(B, T, H, seed=1), connection("highway", H)
    gates = {"layer.transform": torch.zeros_like(x)}
    with listening(lambda name, value: gates[name]):
        assert joined(x, hx).equal(x)
