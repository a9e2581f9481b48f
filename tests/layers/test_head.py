import pytest
import torch

from seqlab.equations import decoding
from seqlab.layers import linear as module
from seqlab.layers.linear import Head, head_cross_entropy
from seqlab.layers.tap import listening


class TestWithItsHead:
    @pytest.fixture(autouse=True)
    def few_at_a_time(self, monkeypatch):
        monkeypatch.setattr(module, "LOGITS", 3 * 11)

    @pytest.fixture
    def parts(self):
        torch.manual_seed(0)
        return [
            torch.randn(*shape, dtype=torch.float64, requires_grad=True)
            for shape in ((7, 4), (11, 4), (11,))
        ]

    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    def test_it_equals_the_equations(self, parts, smoothing):
        gold = torch.randint(11, (7,))
        fast = head_cross_entropy(*parts, gold, smoothing)
        slow = decoding.cross_entropy(
            torch.nn.functional.linear(*parts), gold, label_smoothing=smoothing
        ).sum()
        torch.testing.assert_close(fast, slow)
        found = [torch.autograd.grad(loss * 0.3, parts) for loss in (fast, slow)]
        torch.testing.assert_close(found[0], found[1])

    def test_no_position_is_no_loss(self, parts):
        loss = head_cross_entropy(parts[0][:0], *parts[1:], torch.zeros(0, dtype=torch.long), 0.0)
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
