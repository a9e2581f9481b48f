"""The view `number`: the equation of a number gives that number, in every kind of model."""

import numpy as np
import pytest

from seqlab.errors import UsageError
from seqlab.explain.arithmetic import Tape
from seqlab.explain.number import account, number_view
from seqlab.tasks import subject

TEXT = "the cat saw"
# stages that are inputs of an equation, and results of none
WITHOUT = ("embedding", "x", "memory", "enters", "features")
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
def test_every_account_gives_the_recorded_value(bundle_of, case):
    task, settings, equations = CASES[case]
    example = subject(bundle_of(task, settings), TEXT)
    tape = Tape(example)
    trace = example.trace()
    seen_equations = set()
    assert tape.trace.names() == trace.names()
    for name in trace.names():
        values = trace[name][0].double().numpy()
        for cell in (
            (0,) * values.ndim,
            tuple(np.array(values.shape) // 2),
            tuple(np.array(values.shape) - 1),
        ):
            computed = account(tape, name, tuple(map(int, cell)))
            assert computed.value == pytest.approx(values[cell], rel=1e-3, abs=1e-3), (name, cell)
            has_none = name.endswith(WITHOUT) or name in (
                "decoder.attention.q",
                "decoder.attention.k",
            )
            assert bool(computed.equation) != has_none, (name, cell)
            seen_equations.add(computed.equation)
    assert seen_equations >= equations


def test_rotary_positions_appear_in_the_account_of_a_query(bundle_of):
    """A rotated query is made of two products, one times a cosine and one times a sine."""
    example = subject(bundle_of("translate", f"{BLOCKS} model.encoder.positions=rotary"), TEXT)
    query = number_view(example, layer="encoder.0.attention.q", cell="0,2,1").data
    assert len(query["products"]) == 2
    assert query["formula"].count("(W·x + b) ×") == 2
    assert query["value"] == pytest.approx(example.trace()["encoder.0.attention.q"][0, 0, 2, 1])
    value = number_view(example, layer="encoder.0.attention.v", cell="0,2,1").data
    assert (value["equation"], value["formula"]) == ("E45", "v = W·x + b")


def test_the_account_of_a_cell_is_its_equation(bundle_of):
    example = subject(bundle_of("lm"), TEXT)
    formulas = {
        gate: number_view(example, layer=f"decoder.0.{gate}", cell="2,5").data["formula"]
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


def test_later_positions_are_masked(bundle_of):
    later = number_view(
        subject(bundle_of("translate", BLOCKS), TEXT),
        layer="decoder.0.attention.weights",
        cell="0,0,1",
    ).data
    assert (later["equation"], later["value"]) == ("E48", 0.0)


def test_the_view_shows_the_numbers(bundle_of):
    view = number_view(subject(bundle_of("lm"), TEXT), layer="decoder.0.i", cell="2,5")
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


def test_the_default_cell_is_the_largest(bundle_of):
    example = subject(bundle_of("lm"), TEXT)
    largest = float(example.trace()["decoder.0.h"].abs().max())
    assert abs(number_view(example, layer="decoder.0.h").data["value"]) == pytest.approx(
        largest, rel=1e-3
    )


@pytest.mark.parametrize(
    ("options", "message", "hint"),
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
def test_unknown_stages_and_cells_are_refused(bundle_of, options, message, hint):
    with pytest.raises(UsageError) as error:
        number_view(subject(bundle_of("lm"), TEXT), **options)
    assert str(error.value) == message
    assert hint in error.value.hint


def test_the_default_stage_is_the_last(bundle_of):
    assert number_view(subject(bundle_of("lm"), TEXT)).data["stage"] == "logits"


def test_a_sequence_of_one_token_has_equations(bundle_of):
    single = subject(bundle_of("tag", "model.encoder.bidirectional=true"), "cat")
    one = number_view(single, layer="encoder.0.backward.i", cell="0,3")
    assert one.data["equation"] == "E24"
