"""Passes between products: each against its equation, by the native kernels and without them, in both types."""

import pytest
import torch

from seqlab.equations.attention import attention_weights, context, scaled_score
from seqlab.equations.decoding import cross_entropy
from seqlab.kernels import native, passes
from seqlab.kernels.passes import MaskWindows
from seqlab.layers.transformer import AddNorm, FeedForward, MultiHeadAttention
from seqlab.randomness import noise
from seqlab.recipe import TransformerConfig

TYPES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
types = pytest.mark.parametrize("dtype", TYPES, ids=["float32", "bfloat16"])


@pytest.fixture(params=["native", "torch"])
def either(request):
    """The native kernels, or none."""
    if request.param == "native":
        request.getfixturevalue("kernels")
    assert native.ready() == (request.param == "native")


def close(found, expected, dtype):
    assert found.dtype == dtype
    size = max(1e-6, float(expected.detach().abs().max()))
    assert float((found.double() - expected).detach().abs().max()) <= TYPES[dtype] * size


class TestLossAndGradient:
    @types
    @pytest.mark.parametrize(
        ("rows", "size", "pads"), [(1, 1, 0), (5, 3, 3), (7, 33, 1), (40, 1000, 0)]
    )
    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    def test_they_equal_the_equation(self, either, dtype, rows, size, pads, smoothing):
        torch.manual_seed(1)
        logits, gold = (4 * torch.randn(rows + pads, size)).to(dtype), torch.randint(size, (rows,))
        wide = logits[:rows].double().requires_grad_()
        losses = cross_entropy(wide, gold, label_smoothing=smoothing)
        (expected,) = torch.autograd.grad(losses.sum(), wide)
        found, gradient = passes.loss_and_gradient(logits, gold, smoothing)
        close(found, losses, torch.float32)
        assert gradient.shape == logits[: len(gradient)].shape
        close(gradient[:rows], expected, dtype)

    def test_no_row_has_no_loss(self, either):
        losses, _ = passes.loss_and_gradient(
            torch.zeros(0, 5), torch.zeros(0, dtype=torch.long), 0.1
        )
        assert losses.shape == (0,)

    def test_what_is_no_number_stays_none(self, either):
        logits = torch.tensor([[1.0, float("nan"), 2.0], [1.0, 2.0, 3.0]])
        losses, gradient = passes.loss_and_gradient(logits, torch.tensor([0, 1]), 0.0)
        assert losses.isnan().tolist() == [True, False]
        assert gradient.isnan().any(1).tolist() == [True, False]

    def test_a_gold_that_is_no_class_is_refused(self, kernels):
        for gold in (3, -1):
            with pytest.raises(RuntimeError, match="gold is no class"):
                passes.loss_and_gradient(torch.zeros(1, 3), torch.tensor([gold]), 0.0)


class TestAttention:
    @types
    @pytest.mark.parametrize(
        ("shape", "mask"),
        [
            ((2, 3, 4, 5, 8), None),
            ((3, 2, 5, 7, 16), (3, 1)),
            ((2, 1, 6, 6, 4), (1, 6)),
            ((3, 2, 5, 33, 8), (3, 5)),
        ],
    )
    def test_it_equals_the_equations_forward_and_back(self, either, dtype, shape, mask):
        rows, heads, queries, keys, size = shape
        torch.manual_seed(1)
        parts = [torch.randn(rows, heads, n, size).to(dtype) for n in (queries, keys, keys)]
        gradient = torch.randn(rows, heads, queries, size).to(dtype)
        visible = None if mask is None else torch.rand(*mask, keys) < 0.7
        if visible is not None:
            visible[..., 0] = True
        found = passes.attention(*(part.requires_grad_() for part in parts), visible)
        of_each = torch.autograd.grad(found, parts, gradient)

        q, k, v = wide = [part.detach().double().requires_grad_() for part in parts]
        seen = torch.ones(1, 1, 1, keys, dtype=torch.bool) if visible is None else visible[:, None]
        expected = context(attention_weights(scaled_score(q, k), seen), v)
        close(found, expected, dtype)
        for one, other in zip(
            of_each, torch.autograd.grad(expected, wide, gradient.double()), strict=True
        ):
            close(one, other, dtype)

    def test_who_sees_nothing_gets_nothing_and_has_no_gradient(self, either):
        parts = [torch.randn(2, 1, 3, 4, requires_grad=True) for _ in range(3)]
        visible = torch.tensor([True, False])[:, None, None].expand(2, 1, 3)
        found = passes.attention(*parts, visible)
        found.sum().backward()
        assert not found[1].any()
        assert all(part.grad.isfinite().all() and not part.grad[1].any() for part in parts)


class TestDropout:
    """A step in which the native kernels drop is the step in which torch does."""

    SETTINGS = TransformerConfig(size=24, layers=1, heads=2, feed_forward=40)

    def both(self, kernels, monkeypatch, act):
        found = []
        for wanted in ("1", "0"):
            monkeypatch.setenv("SEQLAB_NATIVE", wanted)
            with noise(1, 2, torch.arange(3)):
                found.append(act())
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)

    def test_in_a_feed_forward_layer(self, kernels, monkeypatch):
        torch.manual_seed(1)
        layer = FeedForward(self.SETTINGS, dropout=0.3, name="f")
        x, gradient = torch.randn(3, 5, 24, requires_grad=True), torch.randn(3, 5, 24)

        def act():
            y = layer(x)
            return y, *torch.autograd.grad(y, [x, *layer.parameters()], gradient)

        self.both(kernels, monkeypatch, act)

    def test_before_a_sum(self, kernels, monkeypatch):
        torch.manual_seed(1)
        layer = AddNorm(self.SETTINGS, dropout=0.3, name="n")
        x, y, gradient = (torch.randn(3, 5, 24, requires_grad=i < 2) for i in range(3))

        def act():
            total = layer.leave(x, y)
            return total, *torch.autograd.grad(total, [x, y], gradient)

        self.both(kernels, monkeypatch, act)

    def test_what_is_no_number_is_not_dropped_by_the_relu(self, kernels):
        windows = MaskWindows(torch.full((10,), 2.0), torch.tensor([0]), 0.5)
        found = passes.relu_dropout(torch.tensor([[float("nan"), -1.0, 3.0]]), windows)
        assert found.isnan().tolist() == [[True, False, False]]
        assert found[0, 1:].tolist() == [0.0, 6.0]

    @pytest.mark.parametrize(
        ("pool", "offsets", "message"),
        [
            (torch.ones(5), torch.tensor([3]), "outside of the pool"),
            (torch.ones(5), torch.tensor([-1]), "outside of the pool"),
            (torch.ones(5), torch.tensor([0, 0]), "an offset for each row"),
            (torch.ones(5).double(), torch.tensor([0]), "expected scalar type Float"),
        ],
    )
    def test_a_window_that_does_not_fit_is_refused(self, kernels, pool, offsets, message):
        with pytest.raises(RuntimeError, match=message):
            torch.ops.seqlab.dropout(torch.ones(1, 3), pool, offsets, False)


def test_attention_in_bfloat16_is_that_of_the_layer_in_float32(monkeypatch):
    """Through projections and heads: the same up to the rounding of eight bits."""
    from seqlab.kernels import products

    monkeypatch.setattr(products, "SMALL", 0)
    torch.manual_seed(1)
    layer, x = MultiHeadAttention(32, num_heads=4, name="a"), torch.randn(2, 6, 32)
    visible = torch.ones(2, 1, 6, dtype=torch.bool)

    def attended():
        q, *heads = layer.project_all(x)
        return q.dtype, layer(q, heads, visible)

    before, expected = attended()
    with products.multiplying("bfloat16"):
        inside, found = attended()
    assert (before, inside, found.dtype) == (torch.float32, torch.bfloat16, torch.float32)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.02)
