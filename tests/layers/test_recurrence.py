from typing import get_args

import pytest
import torch
from torch import nn

from seqlab.equations import recurrent
from seqlab.layers.recurrence import Recurrence
from seqlab.layers.tap import listening
from seqlab.recipe import Cell

D, H, B, T = 3, 4, 2, 5
CELLS = get_args(Cell)
every_cell = pytest.mark.parametrize("kind", CELLS)
TORCHS = {
    "rnn": lambda: nn.RNN(D, H, batch_first=True),
    "relu-rnn": lambda: nn.RNN(D, H, batch_first=True, nonlinearity="relu"),
    "lstm": lambda: nn.LSTM(D, H, batch_first=True),
    "gru-torch": lambda: nn.GRU(D, H, batch_first=True),
}
TAPS = {
    "rnn": "h",
    "relu-rnn": "h",
    "lstm": "cfghio",
    "gru": "hnru",
    "gru-torch": "hnrz",
    "mgu": "fhn",
}


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer_of(kind):
    """A recurrence in double precision whose every weight and bias matters."""
    layer = Recurrence(kind, D, H, name="cell").double()
    for seed, parameter in enumerate(layer.parameters()):
        parameter.data = 0.5 * numbers(*parameter.shape, seed=seed)
    return layer


def state_of(layer):
    return tuple(0.5 * numbers(B, H, seed=10 + part) for part in range(layer.num_states))


def gradients(outputs, weights):
    """How a loss that every output takes part in depends on the weights."""
    loss = sum((output * numbers(*output.shape, seed=20)).sum() for output in outputs)
    return torch.autograd.grad(loss, weights)


@pytest.mark.parametrize("kind", TORCHS)
def test_a_recurrence_is_torchs_module_with_its_weights_copied(kind):
    layer, theirs, x = layer_of(kind), TORCHS[kind]().double(), numbers(B, T, D, seed=30)
    theirs.weight_ih_l0.data, theirs.weight_hh_l0.data = layer.U.data, layer.W.data
    theirs.bias_ih_l0.data, theirs.bias_hh_l0.data = layer.b.data, torch.zeros_like(layer.b)
    if kind == "gru-torch":
        theirs.bias_hh_l0.data[2 * H :] = layer.b_n.data
    state = state_of(layer)
    before = tuple(part[None] for part in state)

    expected, after = theirs(x, before if kind == "lstm" else before[0])
    expected_state = [part[0] for part in (after if kind == "lstm" else [after])]
    h, ours_after = layer(x, state)

    torch.testing.assert_close(h, expected)
    torch.testing.assert_close(list(ours_after), expected_state)
    ours = gradients([h, *ours_after], [layer.U, layer.W, layer.b])
    copied = gradients(
        [expected, *expected_state], [theirs.weight_ih_l0, theirs.weight_hh_l0, theirs.bias_ih_l0]
    )
    torch.testing.assert_close(ours, copied)


def test_the_lectures_gru_is_its_equation_repeated():
    """E25, which torch does not have: the reset gate acts before the product."""
    layer, x = layer_of("gru"), numbers(B, T, D, seed=30).requires_grad_()
    (h,) = state_of(layer)
    states = []
    for x_t in x.unbind(1):
        states.append(
            recurrent.gru_step(x_t, states[-1] if states else h, layer.W, layer.U, layer.b)
        )
    expected = torch.stack(states, dim=1)

    found, (last,) = layer(x, (h,))

    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(last, states[-1])
    weights = [x, layer.W, layer.U, layer.b]
    torch.testing.assert_close(
        gradients([found, last], weights), gradients([expected, states[-1]], weights)
    )


def test_a_minimal_gated_unit_learns_to_remember_the_first_number():
    """Its states after five steps follow what it read first, and more closely after training than before."""
    torch.manual_seed(0)
    layer, head = Recurrence("mgu", 1, 8, name="cell"), nn.Linear(8, 1)
    x = torch.randn(64, 5, 1)
    parameters = [*layer.parameters(), *head.parameters()]
    optimiser, losses = torch.optim.Adam(parameters, lr=0.02), []
    for _ in range(150):
        outputs, _ = layer(x, layer.start(len(x)))
        loss = (head(outputs[:, -1]) - x[:, 0]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]


def test_the_two_grus_are_not_the_same_function():
    ours, theirs, x = layer_of("gru"), layer_of("gru-torch"), numbers(B, T, D, seed=30)
    theirs.b_n.data.zero_()
    assert (ours(x, state_of(ours))[0] - theirs(x, state_of(theirs))[0]).abs().max() > 0.01


@every_cell
def test_looking_does_not_change_the_result(kind):
    """Law: the fused path and the equations are one function, gradients included."""
    layer, x = layer_of(kind), numbers(B, T, D, seed=30).requires_grad_()
    state = state_of(layer)
    weights = [x, *layer.parameters()]

    fused, after = layer(x, state)
    with listening(lambda name, value: value):
        observed, observed_after = layer(x, state)

    torch.testing.assert_close(observed, fused)
    torch.testing.assert_close(observed_after, after)
    torch.testing.assert_close(
        gradients([observed, *observed_after], weights), gradients([fused, *after], weights)
    )


@every_cell
def test_every_gate_and_state_passes_a_tap_once_a_step(kind):
    layer, x, heard = layer_of(kind), numbers(B, T, D), []
    with listening(lambda name, value: heard.append((name, value)) or value):
        outputs, after = layer(x, state_of(layer))

    assert [name for name, _ in heard] == [name for name, _ in heard[: 1 + len(TAPS[kind])]] * T
    assert sorted({name for name, _ in heard}) == sorted(
        ["cell.enters", *(f"cell.{letter}" for letter in TAPS[kind])]
    )
    states = torch.stack([value for name, value in heard if name == "cell.h"], dim=1)
    assert states.equal(outputs)
    assert states[:, -1].equal(after[0])


@pytest.mark.parametrize(
    ("kind", "letter"), [(kind, letter) for kind in CELLS for letter in TAPS[kind]]
)
def test_whatever_is_seen_can_be_replaced(kind, letter):
    """Ablation is a listener too: half of what passes a tap is half of what goes on."""
    layer, x = layer_of(kind), numbers(B, T, D, seed=30)
    with listening(lambda name, value: value / 2 if name == f"cell.{letter}" else value):
        ablated, _ = layer(x, state_of(layer))
    whole, _ = layer(x, state_of(layer))
    assert (ablated[:, -1] - whole[:, -1]).abs().max() > 1e-3


def test_a_closed_output_gate_silences_an_lstm():
    layer, x = layer_of("lstm"), numbers(B, T, D)
    with listening(lambda name, value: torch.zeros_like(value) if name == "cell.o" else value):
        silenced, (h, c) = layer(x, state_of(layer))
    assert silenced.eq(0).all()
    assert h.eq(0).all()
    assert c.abs().min() > 0


@every_cell
def test_no_time_leaves_the_state_as_it_is(kind):
    layer = layer_of(kind)
    state = state_of(layer)
    outputs, after = layer(numbers(B, 0, D), state)
    assert outputs.shape == (B, 0, H)
    assert outputs.dtype == torch.float64
    assert all(one.equal(other) for one, other in zip(after, state, strict=True))


@every_cell
def test_a_recurrence_begins_at_zero(kind):
    layer = layer_of(kind)
    start = layer.start(B)
    assert len(start) == layer.num_states == (2 if kind == "lstm" else 1)
    assert all(part.equal(torch.zeros(B, H, dtype=torch.float64)) for part in start)


def test_an_lstm_begins_with_an_open_forget_gate():
    b = Recurrence("lstm", D, H, name="cell").b
    assert b.tolist() == [0] * H + [1] * H + [0] * 2 * H


@every_cell
def test_each_recurrent_matrix_begins_orthogonal(kind):
    """C1: neither shrinks nor stretches what it carries."""
    for W in Recurrence(kind, D, H, name="cell").W.detach().split(H):
        torch.testing.assert_close(W @ W.mT, torch.eye(H))
