"""Weights in bytes: what rounding costs, and that a row's answer is its own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqlab import laws
from seqlab.kernels.search import largest, log_total
from seqlab.layers.inputs import Embedding, Entrance, TokenInputs
from seqlab.layers.linear import Head, Linear, dequantise, quantise, round_to_bytes
from seqlab.models.seq2seq import Seq2Seq
from seqlab.models.transformer import TransformerDecoder, TransformerEncoder
from seqlab.padded import Batch, Padded
from seqlab.recipe import TransformerConfig


@given(seed=st.integers(0, 1000), size=st.sampled_from([(1, 1), (3, 7), (17, 5), (4, 2, 3)]))
def test_rounding_is_to_the_nearest_and_done_once(seed, size):
    weight = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 10.0 ** (
        seed % 7 - 3
    )
    q, scale = quantise(weight)
    rounded = dequantise(q, scale)
    steps = scale.view(-1, *[1] * (weight.dim() - 1))
    assert ((weight - rounded).abs() <= 0.501 * steps).all()
    assert q.abs().flatten(1).amax(1).eq(127).all()
    again = quantise(rounded)
    assert torch.equal(again[0], q)
    assert torch.equal(again[1], scale)


def test_a_row_of_zeros_stays_one():
    q, scale = quantise(torch.tensor([[0.0, 0.0], [1.0, -0.5]]))
    assert dequantise(q, scale)[0].eq(0).all()


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [(1, 1, 1), (3, 31, 17), (7, 64, 16), (200, 33, 50), (2, 9000, 5)],
)
@torch.inference_mode()
def test_the_int8_product_is_the_rounded_weights_product(kernels, rows, inputs, outputs):
    torch.manual_seed(rows)
    layer, x = (
        Linear(inputs, outputs),
        torch.randn(2, rows, inputs) * torch.logspace(-3, 3, rows)[:, None],
    )
    round_to_bytes(layer)
    exact = torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
    size = x.abs().amax(-1, keepdim=True) * layer.weight.abs().sum(1)
    assert ((layer(x) - exact).abs() <= 1e-3 * size + 1e-6).all()
    assert (layer(x) - exact).square().mean().sqrt() <= (
        1e-4 if inputs < 2000 else 2e-3
    ) * exact.square().mean().sqrt()


@pytest.mark.parametrize("coarse", [False, True])
@torch.inference_mode()
def test_a_rows_answer_is_its_own_bit_by_bit(kernels, coarse):
    torch.manual_seed(1)
    layer, x = Linear(70, 40), torch.randn(33, 70)
    round_to_bytes(layer)
    product = layer.part(0, 40, coarse=coarse)
    alone = torch.cat([product(row[None]) for row in x])
    assert torch.equal(product(x), alone)


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"),
    [(1, 1, 1), (3, 31, 17), (7, 64, 16), (200, 33, 50), (2, 9000, 5)],
)
@torch.inference_mode()
def test_the_coarse_product_is_that_of_rows_in_8_bits(kernels, rows, inputs, outputs):
    torch.manual_seed(rows)
    layer, x = Linear(inputs, outputs), torch.randn(rows, inputs)
    round_to_bytes(layer)
    if layer.part(0, outputs, coarse=True).weight.shape[-1] == 2:
        pytest.skip("this processor has no products of 8 bits, so they are taken in 16")
    step = x.abs().amax(1, keepdim=True) / 127
    rounded = ((x / step).abs() + 0.5).floor() * x.sign() * step
    expected = torch.nn.functional.linear(
        rounded.double(), layer.weight.double(), layer.bias.double()
    )
    found = layer.part(0, outputs, coarse=True)(x)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_gradient_flows_through_the_floats(kernels):
    layer = Linear(6, 3)
    round_to_bytes(layer)
    x = torch.randn(2, 6, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, layer.weight.sum(0).expand(2, -1))


def test_every_law_holds_in_bytes(kernels):
    torch.manual_seed(4)
    settings = TransformerConfig(size=16, layers=2, heads=4)
    entrances = [
        Entrance(16, settings, most=30, dropout=0.0, name=name) for name in ("encoder", "decoder")
    ]
    inputs, table = (
        TokenInputs(Embedding(30, 16, name="encoder")),
        Embedding(30, 16, name="decoder"),
    )
    encoder = TransformerEncoder(inputs, entrances[0], settings, dropout=0.0)
    head = Head(16, 30, tied=table.weight)
    model = Seq2Seq(
        encoder,
        TransformerDecoder(table, entrances[1], settings, head, memory_size=16, dropout=0.0),
    )
    round_to_bytes(model)
    texts = [torch.randint(6, 30, (n,)).tolist() for n in (5, 1, 8, 3)]
    batch = Batch(
        torch.arange(4),
        Padded.from_rows(texts),
        Padded.from_rows([[2, *text, 3] for text in texts]),
    )
    checks = list(laws.check(model, batch))
    assert len(checks) == 9
    assert not [check for check in checks if not check.kept]


@pytest.mark.parametrize("size", [1, 7, 8, 1003])
def test_the_search_asks_the_kernels_what_it_would_ask_torch(kernels, size):
    torch.manual_seed(size)
    logits = torch.randn(5, size) * 20
    torch.testing.assert_close(log_total(logits), logits.logsumexp(-1))
    values, places = largest(logits, min(4, size))
    expected = logits.topk(min(4, size))
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)
    assert log_total(torch.full((1, size), -torch.inf)).item() == -torch.inf


def test_of_equals_the_first_is_the_largest_and_the_forbidden_come_last(kernels):
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0]])
    assert largest(logits, 2)[1].tolist() == [[1, 2]]
    values, places = largest(logits, 5, never=(1, 2))
    assert places.tolist()[0][:3] == [4, 3, 0]
    assert values[0, 3:].eq(-torch.inf).all()
    assert logits[0, 1] == 3.0
