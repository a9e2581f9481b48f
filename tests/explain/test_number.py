"""One number and the equation that made it: every account is true, in every kind of model."""

import numpy as np
import pytest

from seqlab.errors import UsageError
from seqlab.explain.arithmetic import Tape
from seqlab.explain.number import account, number_view
from seqlab.tasks import subject

GIVEN = "the cat saw"
WITHOUT = (
    "embedding",
    "x",
    "memory",
    "enters",
    "features",
)  # stages that enter an equation, and come from none
ADDITIVE = "model.attention.score=additive model.attention.wiring=bahdanau"
BLOCKS = " ".join(
    f"model.{side}.{what}"
    for side in ("encoder", "decoder")
    for what in ("kind=transformer", "size=12", "heads=3")
)
CASES = {
    "lstm": ("lm", "", {"E24", "E18"}),
    "gru": ("lm", "model.decoder.kind=gru", {"E25"}),
    "gru-torch": ("lm", "model.decoder.kind=gru-torch", {"E25"}),
    "mgu": ("lm", "model.decoder.kind=mgu", {"MGU"}),
    "rnn": ("tag", "model.encoder.kind=rnn", {"E17"}),
    "relu": ("tag", "model.encoder.kind=relu-rnn", {"E17"}),
    "both ways": ("tag", "model.encoder.bidirectional=true", {"E24"}),
    "additive": ("translate", ADDITIVE, {"E43", "E38"}),
    "general": ("translate", "model.attention.score=general model.attention.wiring=luong", {"E42"}),
    "dot": ("translate", "model.attention.score=dot model.attention.wiring=concat", {"E41"}),
    "pre-norm": (
        "translate",
        f"{BLOCKS} model.encoder.norm=pre model.decoder.norm=pre",
        {"E44", "E45", "E53", "E54"},
    ),
    "post-norm": (
        "translate",
        f"{BLOCKS} model.encoder.norm=post model.decoder.norm=post",
        {"E39", "E50", "E52"},
    ),
    "learned": ("translate", f"{BLOCKS} model.encoder.positions=learned", {"E55"}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_account_ends_in_what_was_recorded(bundle_of, case):
    task, settings, equations = CASES[case]
    looked = subject(bundle_of(task, settings), GIVEN)
    tape, trace, found = Tape(looked), looked.trace(), set()
    assert tape.trace.names() == trace.names()
    for name in trace.names():
        values = trace[name][0].double().numpy()
        for cell in (
            (0,) * values.ndim,
            tuple(np.array(values.shape) // 2),
            tuple(np.array(values.shape) - 1),
        ):
            made = account(tape, name, tuple(map(int, cell)))
            assert made.value == pytest.approx(values[cell], rel=1e-3, abs=1e-3), (name, cell)
            untold = name.endswith(WITHOUT) or name in (
                "decoder.attention.q",
                "decoder.attention.k",
            )
            assert bool(made.equation) != untold, (name, cell)
            found.add(made.equation)
    assert found >= equations


def test_an_account_says_whatever_a_layer_does(bundle_of):
    """Rotary positions turn a query after its product: two products, each times a cosine or a sine."""
    turned = subject(bundle_of("translate", f"{BLOCKS} model.encoder.positions=rotary"), GIVEN)
    query = number_view(turned, layer="encoder.0.attention.q", cell="0,2,1").data
    assert len(query["products"]) == 2
    assert query["formula"].count("(W·x + b) ×") == 2
    assert query["value"] == pytest.approx(turned.trace()["encoder.0.attention.q"][0, 0, 2, 1])
    value = number_view(turned, layer="encoder.0.attention.v", cell="0,2,1").data
    assert (value["equation"], value["formula"]) == ("E45", "v = W·x + b")


def test_the_account_of_a_cell_is_its_equation(bundle_of):
    looked = subject(bundle_of("lm"), GIVEN)
    formulas = {
        gate: number_view(looked, layer=f"decoder.0.{gate}", cell="2,5").data["formula"]
        for gate in "ifgoch"
    }
    gate = "h·W + embedding·U + b"
    assert formulas == {
        "i": f"i = σ({gate})",
        "f": f"f = σ({gate})",
        "g": f"g = tanh({gate})",
        "o": f"o = σ({gate})",
        "c": "c = f × c + i × g",
        "h": "h = o × tanh(c)",
    }


def test_what_comes_later_is_masked(bundle_of):
    later = number_view(
        subject(bundle_of("translate", BLOCKS), GIVEN),
        layer="decoder.0.attention.weights",
        cell="0,0,1",
    ).data
    assert (later["equation"], later["value"]) == ("E48", 0.0)


def test_the_view_says_the_numbers(bundle_of):
    view = number_view(subject(bundle_of("lm"), GIVEN), layer="decoder.0.i", cell="2,5")
    (ux, wh), value = view.data["products"], view.data["value"]
    assert ux["sum"] == pytest.approx(float(np.dot(ux["a"], ux["b"])))
    assert 1 / (
        1 + np.exp(-(ux["sum"] + wh["sum"] + float(bundle_bias(bundle_of("lm"), 5))))
    ) == pytest.approx(value)
    assert view.to_text().endswith(f"i[2, 5] = {value:.3g}")


def bundle_bias(bundle, unit):
    return dict(bundle.model.named_parameters())["decoder.stack.layers.0.recurrence.b"][
        unit
    ].detach()


def test_without_a_cell_it_is_the_largest(bundle_of):
    looked = subject(bundle_of("lm"), GIVEN)
    largest = float(looked.trace()["decoder.0.h"].abs().max())
    assert abs(
        number_view(subject(bundle_of("lm"), GIVEN), layer="decoder.0.h").data["value"]
    ) == pytest.approx(largest, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "said", "hint"),
    [
        ({"layer": "decoder.0.hh"}, "there is no stage 'decoder.0.hh'", "decoder.0.h"),
        ({"layer": "decoder.0.h", "cell": "1"}, "there is no number at '1'", "cells are 0,0 to "),
        (
            {"layer": "decoder.0.h", "cell": "1,x"},
            "there is no number at '1,x'",
            "cells are 0,0 to ",
        ),
        (
            {"layer": "decoder.0.h", "cell": "1,99"},
            "there is no number at '1,99'",
            "cells are 0,0 to ",
        ),
    ],
)
def test_what_is_not_there_is_refused(bundle_of, options, said, hint):
    with pytest.raises(UsageError) as refused:
        number_view(subject(bundle_of("lm"), GIVEN), **options)
    assert str(refused.value) == said
    assert hint in refused.value.hint


def test_without_a_stage_it_is_of_the_last(bundle_of):
    assert number_view(subject(bundle_of("lm"), GIVEN)).data["stage"] == "logits"


def test_a_sequence_of_one_has_its_equations_too(bundle_of):
    single = subject(bundle_of("tag", "model.encoder.bidirectional=true"), "cat")
    one = number_view(single, layer="encoder.0.backward.i", cell="0,3")
    assert one.data["equation"] == "E24"
