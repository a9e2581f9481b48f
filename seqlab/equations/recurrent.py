"""One step of each recurrent cell, and the ways to put cells beside and above each other.

Everywhere W multiplies the state and U the input. The gates of a cell are stacked in one matrix, in torch's order,
so that weights can be exchanged with `nn.RNN`, `nn.LSTM` and `nn.GRU`: U is `weight_ih`, W is `weight_hh`, b their
biases added up.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

Activation = Callable[[Tensor], Tensor]


def rnn_step(
    x: Float[Tensor, "B D"],
    h: Float[Tensor, "B H"],
    W: Float[Tensor, "H H"],
    U: Float[Tensor, "H D"],
    b: Float[Tensor, " H"],
    phi: Activation = torch.tanh,
) -> Float[Tensor, "B H"]:
    """E17: h_t = φ(W h_{t-1} + U x_t + b), with φ tanh or ReLU."""
    return phi(h @ W.mT + x @ U.mT + b)


def output(h: Float[Tensor, "... H"], V: Float[Tensor, "V H"], c: Float[Tensor, " V"]) -> Float[Tensor, "... V"]:
    """E18: o_t = V h_t + c: the logits of a softmax, or the mean of a Gaussian."""
    return h @ V.mT + c


def vec2seq_step(
    x: Float[Tensor, "B D"],
    y_prev: Float[Tensor, "B V"],
    h: Float[Tensor, "B H"],
    W_xh: Float[Tensor, "H D+V"],
    W_hh: Float[Tensor, "H H"],
    phi: Activation = torch.tanh,
) -> Float[Tensor, "B H"]:
    """E19: h_t = φ(W_xh [x; y_{t-1}] + W_hh h_{t-1}): the same x at every step, and what was said last."""
    return phi(torch.cat([x, y_prev], dim=-1) @ W_xh.mT + h @ W_hh.mT)


def stacked_step(
    x: Float[Tensor, "B D"],
    h: Sequence[Float[Tensor, "B H"]],
    W_xh: Sequence[Float[Tensor, "H _"]],
    W_hh: Sequence[Float[Tensor, "H H"]],
    phi: Activation = torch.tanh,
) -> tuple[Float[Tensor, "B H"], ...]:
    """E20: h_t^l = φ(W_xh^l h_t^{l-1} + W_hh^l h_{t-1}^l), from the lowest layer up, with h_t^0 = x_t."""
    states: list[Tensor] = []
    for h_prev, W_up, W_on in zip(h, W_xh, W_hh, strict=True):
        below = states[-1] if states else x
        states.append(phi(below @ W_up.mT + h_prev @ W_on.mT))
    return tuple(states)


def bidirectional(forward: Float[Tensor, "B T H"], backward: Float[Tensor, "B T H"]) -> Float[Tensor, "B T 2*H"]:
    """E21: [h_t→; h_t←], where `backward` at t has read the positions from the end down to t."""
    return torch.cat([forward, backward], dim=-1)


def lstm_gates(
    x: Float[Tensor, "B D"],
    h: Float[Tensor, "B H"],
    W: Float[Tensor, "4*H H"],
    U: Float[Tensor, "4*H D"],
    b: Float[Tensor, " 4*H"],
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"], Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """E24: i, f, o = σ(W h_{t-1} + U x_t + b) and g = tanh(.), the lectures' c̃; returned as i, f, g, o."""
    i, f, g, o = (h @ W.mT + x @ U.mT + b).chunk(4, dim=-1)
    return i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()


def lstm_step(
    x: Float[Tensor, "B D"],
    h: Float[Tensor, "B H"],
    c: Float[Tensor, "B H"],
    W: Float[Tensor, "4*H H"],
    U: Float[Tensor, "4*H D"],
    b: Float[Tensor, " 4*H"],
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """E24: c_t = f c_{t-1} + i c̃ and h_t = o tanh(c_t); returned as h_t, c_t."""
    i, f, g, o = lstm_gates(x, h, W, U, b)
    c = f * c + i * g
    return o * c.tanh(), c


def reset_and_update(
    x: Float[Tensor, "B D"],
    h: Float[Tensor, "B H"],
    W: Float[Tensor, "3*H H"],
    U: Float[Tensor, "3*H D"],
    b: Float[Tensor, " 3*H"],
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """E25: r, u = σ(W h_{t-1} + U x_t + b), from the first two thirds of the weights; torch calls them r, z."""
    size = 2 * h.shape[-1]
    r, u = (h @ W[:size].mT + x @ U[:size].mT + b[:size]).sigmoid().chunk(2, dim=-1)
    return r, u


def gru_candidate(
    x: Float[Tensor, "B D"],
    h: Float[Tensor, "B H"],
    r: Float[Tensor, "B H"],
    W: Float[Tensor, "3*H H"],
    U: Float[Tensor, "3*H D"],
    b: Float[Tensor, " 3*H"],
) -> Float[Tensor, "B H"]:
    """E25: h̃ = tanh(W (r h_{t-1}) + U x_t + b), from the last third of the weights."""
    size = 2 * h.shape[-1]
    return ((r * h) @ W[size:].mT + x @ U[size:].mT + b[size:]).tanh()


def gru_gates(
    x: Float[Tensor, "B D"],
    h: Float[Tensor, "B H"],
    W: Float[Tensor, "3*H H"],
    U: Float[Tensor, "3*H D"],
    b: Float[Tensor, " 3*H"],
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """E25: r, u = σ(W h_{t-1} + U x_t + b) and h̃ = tanh(W (r h_{t-1}) + U x_t + b); returned as r, u, h̃."""
    r, u = reset_and_update(x, h, W, U, b)
    return r, u, gru_candidate(x, h, r, W, U, b)


def gru_step(
    x: Float[Tensor, "B D"],
    h: Float[Tensor, "B H"],
    W: Float[Tensor, "3*H H"],
    U: Float[Tensor, "3*H D"],
    b: Float[Tensor, " 3*H"],
) -> Float[Tensor, "B H"]:
    """E25: h_t = (1 - u) h_{t-1} + u h̃ (Cho et al. 2014: the reset gate acts before the matrix product)."""
    _, u, candidate = gru_gates(x, h, W, U, b)
    return (1 - u) * h + u * candidate


def gru_torch_candidate(
    x: Float[Tensor, "B D"],
    h: Float[Tensor, "B H"],
    r: Float[Tensor, "B H"],
    W: Float[Tensor, "3*H H"],
    U: Float[Tensor, "3*H D"],
    b: Float[Tensor, " 3*H"],
    b_n: Float[Tensor, " H"],
) -> Float[Tensor, "B H"]:
    """E25 as torch has it: n = tanh(U x_t + b + r (W h_{t-1} + b_n)).

    Resetting after the product lets one product serve all three, and needs a bias b_n of its own inside the reset.
    """
    size = 2 * h.shape[-1]
    return (x @ U[size:].mT + b[size:] + r * (h @ W[size:].mT + b_n)).tanh()


def gru_torch_gates(
    x: Float[Tensor, "B D"],
    h: Float[Tensor, "B H"],
    W: Float[Tensor, "3*H H"],
    U: Float[Tensor, "3*H D"],
    b: Float[Tensor, " 3*H"],
    b_n: Float[Tensor, " H"],
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H"], Float[Tensor, "B H"]]:
    """E25 as torch has it: r, z = σ(W h_{t-1} + U x_t + b) and n = tanh(U x_t + b + r (W h_{t-1} + b_n))."""
    r, z = reset_and_update(x, h, W, U, b)
    return r, z, gru_torch_candidate(x, h, r, W, U, b, b_n)


def gru_torch_step(
    x: Float[Tensor, "B D"],
    h: Float[Tensor, "B H"],
    W: Float[Tensor, "3*H H"],
    U: Float[Tensor, "3*H D"],
    b: Float[Tensor, " 3*H"],
    b_n: Float[Tensor, " H"],
) -> Float[Tensor, "B H"]:
    """E25 as torch has it: h_t = (1 - z) n + z h_{t-1}; its z is the lectures' 1 - u."""
    _, z, n = gru_torch_gates(x, h, W, U, b, b_n)
    return (1 - z) * n + z * h


def highway(
    x: Float[Tensor, "... D"],
    hx: Float[Tensor, "... D"],
    t: Float[Tensor, "... D"],
    g: Float[Tensor, "... D"] | None = None,
) -> Float[Tensor, "... D"]:
    """E26: g(x) x + t(x) h(x), where g = 1 - t unless it has a gate of its own."""
    g = 1 - t if g is None else g
    return g * x + t * hx


def residual(x: Float[Tensor, "... D"], hx: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
    """E27: x + h(x), a highway with both gates open."""
    return x + hx


def dense(x: Float[Tensor, "... D"], hx: Float[Tensor, "... H"]) -> Float[Tensor, "... D+H"]:
    """E28: [x; h(x)]: the layers above see both."""
    return torch.cat([x, hx], dim=-1)
