import math

import pytest
import torch
from torch import nn

from seqlab.equations import recurrent
from seqlab.padded import Padded

D, H, B, T = 3, 4, 2, 5


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def torchs(kind, **options):
    """One of torch's recurrent modules in double precision, with weights that a seed explains."""
    module = kind(D, H, batch_first=True, **options).double()
    for seed, parameter in enumerate(module.parameters()):
        parameter.data = 0.5 * numbers(*parameter.shape, seed=seed)
    return module.requires_grad_(False)


def unrolled(step, x, h):
    states = []
    for x_t in x.unbind(1):
        h = step(x_t, h)
        states.append(h)
    return torch.stack(states, dim=1)


def test_the_lectures_worked_example():
    """W1: h = ReLU((0,0,1) + (1,0,-1)) = (1,0,0), o = 1. The slide calls the recurrent matrix V, the output W."""
    U = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    W = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    x, h_prev = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])

    h = recurrent.rnn_step(x, h_prev, W, U, torch.zeros(3), torch.relu)
    o = recurrent.output(h, torch.tensor([[1.0, 0.0, -1.0]]), torch.zeros(1))

    assert (h_prev @ W.mT).tolist() == [[0.0, 0.0, 1.0]]
    assert h.tolist() == [[1.0, 0.0, 0.0]]
    assert o.tolist() == [[1.0]]


def test_the_output_is_a_linear_layer():
    layer = nn.Linear(H, 6).double()
    h = numbers(B, T, H)
    torch.testing.assert_close(recurrent.output(h, layer.weight, layer.bias), layer(h))


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_the_rnn_equals_torch(nonlinearity):
    module, x, h0 = (
        torchs(nn.RNN, nonlinearity=nonlinearity),
        numbers(B, T, D),
        numbers(B, H, seed=1),
    )
    b = module.bias_ih_l0 + module.bias_hh_l0

    def step(x_t, h):
        return recurrent.rnn_step(
            x_t, h, module.weight_hh_l0, module.weight_ih_l0, b, getattr(torch, nonlinearity)
        )

    torch.testing.assert_close(unrolled(step, x, h0), module(x, h0[None])[0])


def test_vec2seq_reads_its_vector_and_its_previous_output():
    x, y_prev, h = numbers(B, D), numbers(B, 2, seed=1), numbers(B, H, seed=2)
    of_x, of_y, W_hh = numbers(H, D, seed=3), numbers(H, 2, seed=4), numbers(H, H, seed=5)

    stepped = recurrent.vec2seq_step(x, y_prev, h, torch.cat([of_x, of_y], dim=1), W_hh, torch.relu)

    torch.testing.assert_close(stepped, (x @ of_x.mT + y_prev @ of_y.mT + h @ W_hh.mT).relu())


def test_a_stack_equals_torch():
    module, x = torchs(nn.RNN, num_layers=3, bias=False), numbers(B, T, D)
    up = [getattr(module, f"weight_ih_l{layer}") for layer in range(3)]
    on = [getattr(module, f"weight_hh_l{layer}") for layer in range(3)]
    expected, last = module(x)

    h = tuple(torch.zeros(3, B, H, dtype=torch.float64))
    tops = []
    for x_t in x.unbind(1):
        h = recurrent.stacked_step(x_t, h, up, on)
        tops.append(h[-1])

    torch.testing.assert_close(torch.stack(tops, dim=1), expected)
    torch.testing.assert_close(torch.stack(h), last)


def test_two_directions_equal_torch():
    module, x = (
        torchs(nn.RNN, bidirectional=True, bias=False),
        Padded(numbers(B, T, D), torch.tensor([T, T])),
    )
    h0 = torch.zeros(B, H, dtype=torch.float64)
    zero = torch.zeros(H, dtype=torch.float64)

    def forward(x_t, h):
        return recurrent.rnn_step(x_t, h, module.weight_hh_l0, module.weight_ih_l0, zero)

    def backward(x_t, h):
        return recurrent.rnn_step(
            x_t, h, module.weight_hh_l0_reverse, module.weight_ih_l0_reverse, zero
        )

    read_backwards = x.with_values(unrolled(backward, x.reversed().values, h0)).reversed().values
    both = recurrent.bidirectional(unrolled(forward, x.values, h0), read_backwards)
    torch.testing.assert_close(both, module(x.values)[0])


def test_the_lstm_equals_torch():
    module, x, h, c = (
        torchs(nn.LSTM),
        numbers(B, T, D),
        numbers(B, H, seed=1),
        numbers(B, H, seed=2),
    )
    expected, (last_h, last_c) = module(x, (h[None], c[None]))

    states = []
    for x_t in x.unbind(1):
        b = module.bias_ih_l0 + module.bias_hh_l0
        h, c = recurrent.lstm_step(x_t, h, c, module.weight_hh_l0, module.weight_ih_l0, b)
        states.append(h)

    torch.testing.assert_close(torch.stack(states, dim=1), expected)
    torch.testing.assert_close(torch.stack([h, c]), torch.cat([last_h, last_c]))


def test_an_lstm_with_open_forget_gate_and_closed_input_gate_keeps_its_cell():
    x, h, c = numbers(B, D), numbers(B, H, seed=1), numbers(B, H, seed=2)
    b = torch.tensor([-50.0, 50.0, 0.0, 50.0], dtype=torch.float64).repeat_interleave(
        H
    )  # i, f, g, o
    W, U = numbers(4 * H, H, seed=3), numbers(4 * H, D, seed=4)

    gates = {}
    new_h, new_c = recurrent.lstm_step(x, h, c, W, U, b, tap=gates.setdefault)
    i, f, g, o = (gates[name] for name in "ifgo")

    torch.testing.assert_close(
        torch.stack([i, f, o])[:, 0, 0], torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    )
    torch.testing.assert_close(g, (h @ W[2 * H : 3 * H].mT + x @ U[2 * H : 3 * H].mT).tanh())
    torch.testing.assert_close(new_c, c)
    torch.testing.assert_close(new_h, c.tanh())


def test_the_gru_of_torch_equals_torch():
    module, x, h0 = torchs(nn.GRU), numbers(B, T, D), numbers(B, H, seed=1)
    b_n = module.bias_hh_l0[2 * H :]
    b = module.bias_ih_l0 + torch.cat([module.bias_hh_l0[: 2 * H], torch.zeros_like(b_n)])

    def step(x_t, h):
        return recurrent.gru_torch_step(x_t, h, module.weight_hh_l0, module.weight_ih_l0, b, b_n)

    torch.testing.assert_close(unrolled(step, x, h0), module(x, h0[None])[0])


def test_the_gru_of_the_lectures_resets_before_the_product():
    """r = (½, 1), u = (1, ½), and the candidate swaps the two units: h̃ = tanh(1·h₂, ½·h₁)."""
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    W = torch.cat([torch.zeros(4, 2), swap])
    b = torch.tensor([0.0, 50.0, 50.0, 0.0, 0.0, 0.0])
    h = torch.tensor([[0.8, -0.4]])

    gates = {}
    stepped = recurrent.gru_step(
        torch.zeros(1, 1), h, W, torch.zeros(6, 1), b, tap=gates.setdefault
    )
    r, u, candidate = (gates[name] for name in "run")

    expected = torch.tensor([[-0.4, 0.4]]).tanh()
    torch.testing.assert_close(r, torch.tensor([[0.5, 1.0]]))
    torch.testing.assert_close(u, torch.tensor([[1.0, 0.5]]))
    torch.testing.assert_close(candidate, expected)
    torch.testing.assert_close(
        stepped, torch.stack([expected[:, 0], (h[:, 1] + expected[:, 1]) / 2], dim=1)
    )


def test_the_minimal_gated_unit_by_hand():
    """f = (½, σ(1)) resets and updates: h̃ = tanh of the swapped f h, and h = (1 - f) h + f h̃."""
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    W, U, b = (
        torch.cat([torch.zeros(2, 2), swap]),
        torch.zeros(4, 1),
        torch.tensor([0.0, 1.0, 0.0, 0.5]),
    )
    h, gates = torch.tensor([[0.8, -0.4]]), {}

    stepped = recurrent.mgu_step(torch.zeros(1, 1), h, W, U, b, tap=gates.setdefault)

    f = 1 / (1 + math.exp(-1))
    candidate = [math.tanh(-0.4 * f), math.tanh(0.5 * 0.8 + 0.5)]
    expected = [[0.5 * 0.8 + 0.5 * candidate[0], (1 - f) * -0.4 + f * candidate[1]]]
    torch.testing.assert_close(gates["f"], torch.tensor([[0.5, f]]))
    torch.testing.assert_close(gates["n"], torch.tensor([candidate]))
    torch.testing.assert_close(stepped, torch.tensor(expected))


def test_a_minimal_gated_unit_is_a_gru_with_shared_gates():
    x, h = numbers(B, D), numbers(B, H, seed=1)
    W, U, b = numbers(2 * H, H, seed=2), numbers(2 * H, D, seed=3), numbers(2 * H, seed=4)
    doubled = (torch.cat([part[:H], part]) for part in (W, U, b))
    torch.testing.assert_close(
        recurrent.mgu_step(x, h, W, U, b), recurrent.gru_step(x, h, *doubled)
    )


def test_z_of_torch_is_one_minus_u_and_both_grus_agree_without_reset():
    x, h = numbers(B, D), numbers(B, H, seed=1)
    W, U, b = numbers(3 * H, H, seed=2), numbers(3 * H, D, seed=3), numbers(3 * H, seed=4)
    b[:H] = 200.0  # r = 1
    opposite = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64).repeat_interleave(H)
    no_bias = torch.zeros(H, dtype=torch.float64)

    theirs = recurrent.gru_torch_step(
        x, h, W * opposite[:, None], U * opposite[:, None], b * opposite, no_bias
    )

    torch.testing.assert_close(recurrent.gru_step(x, h, W, U, b), theirs)


def test_a_highway_carries_its_input_with_weight_one_minus_t():
    x, hx, t, g = numbers(4, B, H).unbind()
    torch.testing.assert_close(recurrent.highway(x, hx, torch.zeros_like(t)), x)
    torch.testing.assert_close(recurrent.highway(x, hx, torch.ones_like(t)), hx)
    torch.testing.assert_close(recurrent.highway(x, hx, t), x + t * (hx - x))
    torch.testing.assert_close(recurrent.highway(x, hx, t, g) - t * hx, g * x)


def test_a_residual_connection_is_a_highway_with_both_gates_open():
    """C22. With the identity as h, it doubles."""
    x, hx = numbers(2, B, H).unbind()
    ones = torch.ones_like(x)
    torch.testing.assert_close(recurrent.residual(x, hx), recurrent.highway(x, hx, ones, ones))
    torch.testing.assert_close(recurrent.residual(x, x), 2 * x)


def test_a_dense_connection_keeps_both():
    x, hx = numbers(B, T, D), numbers(B, T, H)
    kept, added = recurrent.dense(x, hx).split([D, H], dim=-1)
    assert kept.equal(x)
    assert added.equal(hx)
