import pytest
import torch

from seqlab.equations import decoding
from seqlab.kernels import logits as module
from seqlab.kernels.logits import cross_entropy, head_cross_entropy
from seqlab.layers.linear import Head
from seqlab.layers.tap import listening


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_fast_twin_equals_the_equation(smoothing):
    logits = torch.randn(7, 11, dtype=torch.float64, requires_grad=True)
    gold, weight = torch.randint(11, (7,)), torch.rand(7, dtype=torch.float64)
    fast, slow = (f(logits, gold, label_smoothing=smoothing) for f in (cross_entropy, decoding.cross_entropy))
    torch.testing.assert_close(fast, slow)
    (one,) = torch.autograd.grad(fast @ weight, logits)
    (other,) = torch.autograd.grad(slow @ weight, logits)
    torch.testing.assert_close(one, other)


def test_its_gradient_is_right_by_finite_differences():
    logits = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    gold = torch.tensor([0, 4, 2])
    assert torch.autograd.gradcheck(lambda x: cross_entropy(x, gold, label_smoothing=0.2), (logits,))


def test_no_position_is_no_loss():
    assert cross_entropy(torch.zeros(0, 5, requires_grad=True), torch.zeros(0, dtype=torch.long)).shape == (0,)


class TestWithItsHead:
    @pytest.fixture(autouse=True)
    def few_at_a_time(self, monkeypatch):
        monkeypatch.setattr(module, "LOGITS", 3 * 11)

    @pytest.fixture
    def parts(self):
        torch.manual_seed(0)
        return [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((7, 4), (11, 4), (11,))]

    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    def test_it_equals_the_equations(self, parts, smoothing):
        gold = torch.randint(11, (7,))
        fast = head_cross_entropy(*parts, gold, label_smoothing=smoothing)
        slow = decoding.cross_entropy(torch.nn.functional.linear(*parts), gold, label_smoothing=smoothing).sum()
        torch.testing.assert_close(fast, slow)
        found = [torch.autograd.grad(loss * 0.3, parts) for loss in (fast, slow)]
        torch.testing.assert_close(found[0], found[1])

    def test_no_position_is_no_loss(self, parts):
        loss = head_cross_entropy(parts[0][:0], *parts[1:], torch.zeros(0, dtype=torch.long))
        loss.backward()
        assert float(loss.detach()) == 0.0
        assert not parts[1].grad.any()

    def test_a_head_that_is_listened_to_shows_its_logits_and_has_the_same_loss(self):
        torch.manual_seed(0)
        head, features, gold, seen = Head(4, 11), torch.randn(7, 4), torch.randint(11, (7,)), []
        with listening(lambda name, x: (seen.append(name), x)[1]):
            heard = head.loss(features, gold)
        torch.testing.assert_close(heard, head.loss(features, gold))
        assert seen == ["features", "logits"]
