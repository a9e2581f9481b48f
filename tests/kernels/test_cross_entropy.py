import pytest
import torch

from seqlab.equations import similarity
from seqlab.kernels.cross_entropy import cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_fast_twin_equals_the_equation(smoothing):
    logits = torch.randn(7, 11, dtype=torch.float64, requires_grad=True)
    gold, weight = torch.randint(11, (7,)), torch.rand(7, dtype=torch.float64)
    fast, slow = (f(logits, gold, label_smoothing=smoothing) for f in (cross_entropy, similarity.cross_entropy))
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
