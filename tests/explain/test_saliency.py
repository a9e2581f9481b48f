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
    looked = subject(bundle_of(task, settings), TEXTS[task])
    found = saliency(looked)
    assert found.gap <= COMPLETE
    assert found.log_probability == pytest.approx(
        float(looked.log_probabilities()[-1].detach()), abs=1e-4
    )
    assert len(found.source) == len(looked.source)
    assert len(found.written) == len(looked.written)


def test_what_a_position_cannot_see_has_no_share(bundle_of):
    looked = subject(bundle_of("lm"), "the cat")
    for method in ("gradient", "integrated", "leave-one-out"):
        found = saliency(looked, method=method, position=3)
        assert float(found.written[3:].abs().max()) == pytest.approx(0.0, abs=1e-6)
        assert float(found.written[:3].abs().min()) > 0


def test_leaving_out_equals_reading_without(bundle_of):
    looked = subject(bundle_of("tag"), "the dog ran")
    found = saliency(looked, method="leave-one-out", position=1)
    assert found.source.shape == (3,)
    assert torch.isfinite(found.source).all()
