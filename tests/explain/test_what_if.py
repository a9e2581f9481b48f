import pytest
import torch

from seqlab.errors import UsageError
from seqlab.explain.what_if import Ablation, ablated, replace_word
from seqlab.tasks import subject

from .conftest import TRANSFORMER


def test_ablating_all_heads_of_a_layer_changes_the_output(bundle_of):
    example = subject(bundle_of("translate", TRANSFORMER), "the cat")
    trace, before = example.trace(), example.logits().detach()
    for name in ("encoder.0.attention.heads", "decoder.1.cross.heads", "encoder.1.output"):
        with ablated([Ablation.parse(name, trace)]):
            assert float((example.logits().detach() - before).abs().max()) > 1e-3
    assert float((example.logits().detach() - before).abs().max()) == 0.0


def test_ablating_one_head_or_one_unit(bundle_of):
    example = subject(bundle_of("translate", TRANSFORMER), "the cat")
    one = Ablation.parse("encoder.0.attention.heads:2", example.trace())
    assert one.indices == (2,)
    value = torch.ones(1, 3, 5, 4)
    assert one("encoder.0.attention.heads", value)[:, 2].abs().max() == 0
    assert one("encoder.0.attention.heads", value)[:, :2].min() == 1
    unit = Ablation("decoder.0.h", (1,))
    assert unit("decoder.0.h", torch.ones(2, 3)).tolist() == [[1, 0, 1]] * 2


def test_unknown_stages_heads_and_units_are_refused(bundle_of):
    trace = subject(bundle_of("translate", TRANSFORMER), "the cat").trace()
    with pytest.raises(UsageError, match=r"no stage 'encoder\.9\.attention\.heads'"):
        Ablation.parse("encoder.9.attention.heads", trace)
    with pytest.raises(UsageError, match="no 3 in"):
        Ablation.parse("encoder.0.attention.heads:3", trace)
    with pytest.raises(UsageError, match="not a list of heads"):
        Ablation.parse("encoder.0.attention.heads:x", trace)


def test_a_word_is_replaced_by_its_position():
    assert replace_word(["a", "b", "c"], "2=x") == ["a", "x", "c"]
    for wrong in ("4=x", "x", "0=y", "b=c"):
        with pytest.raises(UsageError, match="PLACE=WORD"):
            replace_word(["a", "b", "c"], wrong)
