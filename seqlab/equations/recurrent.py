"""One step of each recurrent cell, and the ways to stack cells and to combine two directions.

Everywhere W multiplies the state and U the input. The gates of a cell are stacked in one matrix, in torch's order,
so that weights can be exchanged with `nn.RNN`, `nn.LSTM` and `nn.GRU`: U is `weight_ih`, W is `weight_hh`, b their
biases added up.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.types import Features, HiddenStates, HiddenVector, Logits, Square, Vector

Activation = Callable[[Tensor], Tensor]
Tap = Callable[[str, Tensor], Tensor]
Hidden = Float[Tensor, "B H"]
StateWeights = Float[Tensor, "G H"]
InputWeights = Float[Tensor, "G D"]
Biases = Float[Tensor, " G"]


def untapped(name: str, x: Tensor) -> Tensor:
    """The tap of a step that nobody observes: the identity."""
    return x


def rnn_step(
    x: Vector,
    h: Hidden,
    W: Square,
    U: Float[Tensor, "H D"],
    b: HiddenVector,
    phi: Activation = torch.tanh,
    *,
    tap: Tap = untapped,
) -> Hidden:
    """E17: h_t = φ(W h_{t-1} + U x_t + b), with φ tanh or ReLU."""
    return tap("h", phi(h @ W.mT + x @ U.mT + b))


def output(
    h: Float[Tensor, "... H"], V: Float[Tensor, "V H"], c: Float[Tensor, " V"]
) -> Float[Tensor, "... V"]:
    """E18: o_t = V h_t + c: the logits of a softmax, or the mean of a Gaussian."""
    return h @ V.mT + c


def vec2seq_step(
    x: Vector,
    y_prev: Logits,
    h: Hidden,
    W_xh: Float[Tensor, "H D+V"],
    W_hh: Square,
    phi: Activation = torch.tanh,
) -> Hidden:
    """E19: h_t = φ(W_xh [x; y_{t-1}] + W_hh h_{t-1}): the same x at every step, and the previous output."""
    return phi(torch.cat([x, y_prev], dim=-1) @ W_xh.mT + h @ W_hh.mT)


def stacked_step(
    x: Vector,
    h: Sequence[Hidden],
    W_xh: Sequence[Float[Tensor, "H _"]],
    W_hh: Sequence[Square],
) -> tuple[Hidden, ...]:
    """E20: h_t^l = tanh(W_xh^l h_t^{l-1} + W_hh^l h_{t-1}^l), from the lowest layer up, with h_t^0 = x_t."""
    states: list[Tensor] = []
    for h_prev, W_up, W_on in zip(h, W_xh, W_hh, strict=True):
        below = states[-1] if states else x
        states.append((below @ W_up.mT + h_prev @ W_on.mT).tanh())
    return tuple(states)


def bidirectional(forward: HiddenStates, backward: HiddenStates) -> Float[Tensor, "B T 2*H"]:
    """E21: [h_t→; h_t←], where `backward` at t has read the positions from the end down to t."""
    return torch.cat([forward, backward], dim=-1)


def lstm_step(
    x: Vector,
    h: Hidden,
    c: Hidden,
    W: StateWeights,
    U: InputWeights,
    b: Biases,
    *,
    tap: Tap = untapped,
) -> tuple[Hidden, Hidden]:
    """E24: i, f, o = σ(W h_{t-1} + U x_t + b), g = tanh(.), c_t = f c_{t-1} + i g and h_t = o tanh(c_t).

    The lectures call g c̃. Return h_t and c_t.
    """
    i, f, g, o = (h @ W.mT + x @ U.mT + b).chunk(4, dim=-1)
    i = tap("i", i.sigmoid())
    f = tap("f", f.sigmoid())
    g = tap("g", g.tanh())
    o = tap("o", o.sigmoid())
    c = tap("c", f * c + i * g)
    return tap("h", o * c.tanh()), c


def gru_step(
    x: Vector, h: Hidden, W: StateWeights, U: InputWeights, b: Biases, *, tap: Tap = untapped
) -> Hidden:
    """E25: r, u = σ(W h_{t-1} + U x_t + b), h̃ = tanh(W (r h_{t-1}) + U x_t + b), and h_t = (1 - u) h_{t-1} + u h̃.

    The reset gate acts before the matrix product (Cho et al. 2014). The candidate h̃ is tapped as n, as torch calls it.
    """
    size = 2 * h.shape[-1]
    r, u = (h @ W[:size].mT + x @ U[:size].mT + b[:size]).sigmoid().chunk(2, dim=-1)
    r = tap("r", r)
    u = tap("u", u)
    n = tap("n", ((r * h) @ W[size:].mT + x @ U[size:].mT + b[size:]).tanh())
    return tap("h", (1 - u) * h + u * n)


def gru_torch_step(
    x: Vector,
    h: Hidden,
    W: StateWeights,
    U: InputWeights,
    b: Biases,
    b_n: HiddenVector,
    *,
    tap: Tap = untapped,
) -> Hidden:
    """E25 as torch has it: n = tanh(U x_t + b + r (W h_{t-1} + b_n)) and h_t = (1 - z) n + z h_{t-1}.

    The reset gate acts after the matrix product, so that one product gives all three parts; the candidate needs a bias
    b_n inside the reset. Its z is 1 - u of the lectures.
    """
    size = 2 * h.shape[-1]
    r, z = (h @ W[:size].mT + x @ U[:size].mT + b[:size]).sigmoid().chunk(2, dim=-1)
    r = tap("r", r)
    z = tap("z", z)
    n = tap("n", (x @ U[size:].mT + b[size:] + r * (h @ W[size:].mT + b_n)).tanh())
    return tap("h", (1 - z) * n + z * h)


def mgu_step(
    x: Vector,
    h: Hidden,
    W: StateWeights,
    U: InputWeights,
    b: Biases,
    *,
    tap: Tap = untapped,
) -> Hidden:
    """f = σ(W h_{t-1} + U x_t + b), h̃ = tanh(W (f h_{t-1}) + U x_t + b), and h_t = (1 - f) h_{t-1} + f h̃.

    The minimal gated unit (Zhou et al. 2016; not in the lectures): a GRU with one gate for reset and update.
    """
    size = h.shape[-1]
    f = tap("f", (h @ W[:size].mT + x @ U[:size].mT + b[:size]).sigmoid())
    n = tap("n", ((f * h) @ W[size:].mT + x @ U[size:].mT + b[size:]).tanh())
    return tap("h", (1 - f) * h + f * n)


def highway(
    x: Features,
    hx: Features,
    t: Features,
    g: Features | None = None,
) -> Features:
    """E26: g(x) x + t(x) h(x), where g = 1 - t unless it is given."""
    g = 1 - t if g is None else g
    return g * x + t * hx


def residual(x: Features, hx: Features) -> Features:
    """E27: x + h(x), a highway with both gates open."""
    return x + hx


def dense(x: Features, hx: Float[Tensor, "... H"]) -> Float[Tensor, "... D+H"]:
    """E28: [x; h(x)]: the layers above read both."""
    return torch.cat([x, hx], dim=-1)
