"""Backpropagation through time, written out for the tanh RNN h_t = tanh(W h_{t-1} + U x_t + b), o_t = V h_t + c.

The loss is L = Σ_t L_t, and enters only as g_o(t) = ∂L/∂o_t; in the same way g_h(t) stands for ∂L/∂h_t.
One sequence, no batch: the tests compare autograd with it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import matrix_norm, vector_norm

from seqlab.equations.recurrent import output, rnn_step
from seqlab.types import HiddenVector, Scalar, Square

Readout = Float[Tensor, "V H"]
States = Float[Tensor, "T H"]
InputSteps = Float[Tensor, "T D"]
OutputGradients = Float[Tensor, "T V"]


class Gradients(NamedTuple):
    """∂L/∂ each parameter."""

    c: Float[Tensor, " V"]
    V: Readout
    b: HiddenVector
    W: Square
    U: Float[Tensor, "H D"]


def forward(
    x: InputSteps,
    h0: HiddenVector,
    W: Square,
    U: Float[Tensor, "H D"],
    b: HiddenVector,
    V: Readout,
    c: Float[Tensor, " V"],
) -> tuple[States, OutputGradients]:
    """E17, E18: all states h_t and outputs o_t."""
    states = [h0[None]]
    for x_t in x:
        states.append(rnn_step(x_t[None], states[-1], W, U, b))
    h = torch.cat(states)[1:]
    return h, output(h, V, c)


def state_gradients(h: States, W: Square, V: Readout, g_o: OutputGradients) -> States:
    """E31: g_h(T) = Vᵀ g_o(T); g_h(t) = Wᵀ diag(1 - h_{t+1}²) g_h(t+1) + Vᵀ g_o(t)."""
    g_h = g_o @ V
    for t in reversed(range(len(h) - 1)):
        g_h[t] += ((1 - h[t + 1] ** 2) * g_h[t + 1]) @ W
    return g_h


def gradients(
    x: InputSteps,
    h0: HiddenVector,
    h: States,
    W: Square,
    V: Readout,
    g_o: OutputGradients,
) -> Gradients:
    """E29, E30, E32, E33, E34: the gradient of every parameter, from the states `h` of `forward`.

    ∇c = Σ_t g_o(t)                         ∇V = Σ_t g_o(t) h_tᵀ
    ∇b = Σ_t diag(1 - h_t²) g_h(t)          ∇W = Σ_t diag(1 - h_t²) g_h(t) h_{t-1}ᵀ
    ∇U = Σ_t diag(1 - h_t²) g_h(t) x_tᵀ
    """
    g_a = (1 - h**2) * state_gradients(h, W, V, g_o)  # the gradient before the tanh
    h_prev = torch.cat([h0[None], h])[:-1]
    return Gradients(c=g_o.sum(0), V=g_o.mT @ h, b=g_a.sum(0), W=g_a.mT @ h_prev, U=g_a.mT @ x)


def truncated(
    x: InputSteps,
    h0: HiddenVector,
    h: States,
    W: Square,
    V: Readout,
    g_o: OutputGradients,
    *,
    chunk: int,
) -> Gradients:
    """E35: the sum of `gradients` over chunks of `chunk` steps.

    The state is carried from chunk to chunk, so `h` is that of one long `forward`; but each chunk treats its initial
    state as a constant, so no gradient crosses a boundary.
    """
    initial = torch.cat([h0[None], h])[:-1:chunk]
    chunks = zip(x.split(chunk), initial, h.split(chunk), g_o.split(chunk), strict=True)
    by_chunk = [gradients(x_c, h0_c, h_c, W, V, g_c) for x_c, h0_c, h_c, g_c in chunks]
    return Gradients(*(torch.stack(same).sum(0) for same in zip(*by_chunk, strict=True)))


def bound(W: Square, max_slope: float, distance: int) -> Scalar:
    """E36: ‖∂e(t-m)/∂e(t)‖ ≤ (‖W‖₂ max‖F'‖)^m: an upper bound of the gradient norm after m steps back."""
    return (matrix_norm(W, ord=2) * max_slope) ** distance


def clip_by_norm(gradients: Sequence[Tensor], threshold: float) -> tuple[list[Tensor], Scalar]:
    """E37: g ← g · threshold / ‖g‖ if ‖g‖ > threshold, where ‖g‖ is the norm of all gradients as one vector.

    Return the clipped gradients and the norm before clipping. If that is not finite, neither are the gradients.
    """
    norm = (
        vector_norm(torch.stack([vector_norm(g) for g in gradients]))
        if gradients
        else torch.tensor(0.0)
    )
    scale = torch.where(norm > threshold, threshold / norm, 1.0)
    return [g * scale for g in gradients], norm


def linear_rnn_gradient(W_hh: Square, read: InputSteps) -> Float[Tensor, "T H H D"]:
    """W9: ∂h_t/∂w = ∂f_t/∂w + Σ_{i<t} (Π_{j=i+1..t} ∂f_j/∂h_{j-1}) ∂f_i/∂w for h_t = f_t = W_hx x_t + W_hh h_{t-1}.

    `read` is what w multiplies at each step: x_t when w is W_hx, h_{t-1} when w is W_hh. The entry [t, a, b, d] is
    ∂h_t[a]/∂w[b, d]. The sum is computed as on the slide, at quadratic cost; E31 reuses its terms.
    """
    identity = torch.eye(len(W_hh), dtype=W_hh.dtype, device=W_hh.device)
    local = torch.einsum("ab,td->tabd", identity, read)  # ∂f_t/∂w
    total = local.clone()
    for t in range(len(read)):
        product = identity
        for i in reversed(range(t)):
            product = product @ W_hh  # ∂f_j/∂h_{j-1} is the same W_hh at every j
            total[t] += torch.einsum("ac,cbd->abd", product, local[i])
    return total
