import pytest
import torch

from seqlab.explain.saliency import COMPLETE, saliency
from seqlab.tasks import subject

from .conftest import TRANSFORMER

TEXTS = {
    "classify": "the cat",
    "tag": "the dog ran",
    "mask": "the [MASK] ran",
    "lm": "the c",
    "translate": "cat",
}


@pytest.mark.parametrize("task", TEXTS)
def test_integrated_gradients_sum_to_the_difference(task, bundle_of):
    settings = "" if task in ("classify", "tag") else {"translate": TRANSFORMER}.get(task, "")
    example = subject(bundle_of(task, settings), TEXTS[task])
    result = saliency(example)
    assert result.gap <= COMPLETE
    assert result.log_probability == pytest.approx(
        float(example.log_probabilities()[-1].detach()), abs=1e-4
    )
    assert len(result.source) == len(example.source)
    assert len(result.written) == len(example.written)


def test_later_tokens_do_not_contribute(bundle_of):
    example = subject(bundle_of("lm"), "the cat")
    for method in ("gradient", "integrated", "leave-one-out"):
        result = saliency(example, method=method, position=3)
        assert float(result.written[3:].abs().max()) == pytest.approx(0.0, abs=1e-6)
        assert float(result.written[:3].abs().min()) > 0


def test_leave_one_out_gives_a_finite_contribution_for_each_token(bundle_of):
    example = subject(bundle_of("tag"), "the dog ran")
    result = saliency(example, method="leave-one-out", position=1)
    assert result.source.shape == (3,)
    assert torch.isfinite(result.source).all()
