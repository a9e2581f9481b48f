import pytest
import torch

from seqlab.errors import UsageError
from seqlab.explain.cells import followers, marks, states, unit_of
from seqlab.tasks import subject

TEXT = list('say "yes it is" (or so) then\nno more "at all" end')


def test_marks_are_what_a_person_sees():
    marked = marks(TEXT, "yes|all")
    quoted = "".join(t for t, m in zip(TEXT, marked["quotes"].tolist(), strict=True) if m)
    assert (
        quoted == '"yes it is"at all'
    )  # a quote is inside once it has been opened, and outside once it is closed
    assert (
        "".join(t for t, m in zip(TEXT, marked["brackets"].tolist(), strict=True) if m) == "(or so"
    )
    assert (
        "".join(t for t, m in zip(TEXT, marked["/yes|all/"].tolist(), strict=True) if m) == "yesall"
    )
    assert marked["place in line"][TEXT.index("\n") + 1] == 1


def test_a_planted_unit_is_found():
    marked = marks(TEXT, None)
    values = torch.randn(len(TEXT), 20, generator=torch.Generator().manual_seed(0)).double()
    values[:, 7] = marked["quotes"].double() + 0.1 * values[:, 7]
    values[:, 3] = -marked["place in line"] + values[:, 3]
    found = followers({"decoder.0.h": values}, marked)
    best = {}
    for follower in found:
        best.setdefault(follower.what, follower)
    assert (best["quotes"].unit, best["quotes"].score) == (7, 1.0)
    assert best["place in line"].unit == 3
    assert best["place in line"].score < -0.9


def test_the_states_stand_beside_the_tokens(bundle_of):
    looked = subject(bundle_of("lm"), "the cat")
    layers = states(looked.trace(), list(looked.written))
    assert set(layers) == {"decoder.0.c", "decoder.0.h", "decoder.1.c", "decoder.1.h"}
    assert unit_of(layers, None, 11).shape == (len(looked.written),)
    with pytest.raises(UsageError, match=r"no unit 12 in decoder\.1\.h"):
        unit_of(layers, None, 12)
    with pytest.raises(UsageError, match=r"no layer 'decoder\.7\.h'"):
        unit_of(layers, "decoder.7.h", 0)
    with pytest.raises(UsageError, match="not a regular expression"):
        marks(TEXT, "(")


def test_every_cell_has_states_to_look_at(bundle_of):
    looked = subject(bundle_of("lm", "model.decoder.kind=mgu"), "the cat")
    assert set(states(looked.trace(), list(looked.written))) == {"decoder.0.h", "decoder.1.h"}
