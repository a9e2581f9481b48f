import pytest
import torch

from seqlab.errors import UsageError
from seqlab.explain.cells import best_units, marks, states, unit_of
from seqlab.tasks import subject

TEXT = list('say "yes it is" (or so) then\nno more "at all" end')


def test_marks_of_quotes_brackets_patterns_and_columns():
    properties = marks(TEXT, "yes|all")

    def marked(name):
        return "".join(t for t, m in zip(TEXT, properties[name].tolist(), strict=True) if m)

    # an opening quotation mark is inside the quote, a closing one is not
    assert marked("quotes") == '"yes it is"at all'
    assert marked("brackets") == "(or so"
    assert marked("/yes|all/") == "yesall"
    assert properties["place in line"][TEXT.index("\n") + 1] == 1


def test_a_unit_that_predicts_a_property_is_found():
    properties = marks(TEXT, None)
    values = torch.randn(len(TEXT), 20, generator=torch.Generator().manual_seed(0)).double()
    values[:, 7] = properties["quotes"].double() + 0.1 * values[:, 7]
    values[:, 3] = -properties["place in line"] + values[:, 3]
    best = {}
    for unit in best_units({"decoder.0.h": values}, properties):
        best.setdefault(unit.what, unit)
    assert (best["quotes"].unit, best["quotes"].score) == (7, 1.0)
    assert best["place in line"].unit == 3
    assert best["place in line"].score < -0.9


def test_there_is_one_state_for_each_token(bundle_of):
    example = subject(bundle_of("lm"), "the cat")
    layers = states(example.trace(), list(example.written))
    assert set(layers) == {"decoder.0.c", "decoder.0.h", "decoder.1.c", "decoder.1.h"}
    assert unit_of(layers, None, 11).shape == (len(example.written),)
    with pytest.raises(UsageError, match=r"no unit 12 in decoder\.1\.h"):
        unit_of(layers, None, 12)
    with pytest.raises(UsageError, match=r"no layer 'decoder\.7\.h'"):
        unit_of(layers, "decoder.7.h", 0)
    with pytest.raises(UsageError, match="not a regular expression"):
        marks(TEXT, "(")


def test_a_minimal_gated_unit_has_states(bundle_of):
    example = subject(bundle_of("lm", "model.decoder.kind=mgu"), "the cat")
    assert set(states(example.trace(), list(example.written))) == {"decoder.0.h", "decoder.1.h"}
