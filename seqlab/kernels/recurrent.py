"""E17, E24 and E25 over whole sequences with the gradients of E29-E34 written out, in native code.

U x of all steps is one product before the scan; the scan back gives the gradients of all steps, and each weight's
gradient is one product after it. Those gradients take the place of the gates, which are computed again should somebody
go back through the same graph a second time. Call only when `native.ready()`.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqlab.kernels import products


class _RNN(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, relu: bool, x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor
    ) -> Tensor:
        steps, states = _steps(x), _series(h, x)
        gates = _driven(steps, U, states)
        torch.ops.seqlab.rnn(gates, states, W, b, relu)
        ctx.save_for_backward(steps, states, W, U)
        ctx.room, ctx.relu, ctx.way = gates, relu, _way(steps, W)
        return states[1:].transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_out: Tensor) -> tuple[Tensor | None, ...]:
        steps, states, W, U = ctx.saved_tensors
        g, g_h = ctx.room, torch.zeros_like(states[0])
        torch.ops.seqlab.rnn_back(g, states, W, ctx.relu, _time_major(g_out), g_h)
        g_W, g_U = _sum(g, states[:-1], ctx.way), _sum(g, steps, ctx.way)
        return None, _g_x(g, U, ctx, 1), g_h, g_W, g_U, g.sum((0, 1))


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h: Tensor, c: Tensor, W: Tensor, U: Tensor, b: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps, states, cells = _steps(x), _series(h, x), _series(c, x)
        ctx.gates = _LSTM.scan(steps, states, cells, W, U, b)
        ctx.way = _way(steps, W)
        ctx.save_for_backward(steps, states, cells, W, U, b)
        return states[1:].transpose(0, 1), cells[-1].clone()

    @staticmethod
    def scan(
        steps: Tensor, states: Tensor, cells: Tensor, W: Tensor, U: Tensor, b: Tensor
    ) -> tuple[Tensor]:
        gates = _driven(steps, U, states)
        torch.ops.seqlab.lstm(gates, states, cells, W, b)
        return (gates,)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_out: Tensor, g_last: Tensor) -> tuple[Tensor | None, ...]:
        steps, states, cells, W, U, b = ctx.saved_tensors
        (g,), ctx.gates = ctx.gates or _LSTM.scan(steps, states, cells, W, U, b), None
        g_h, g_c = torch.zeros_like(states[0]), g_last.clone(memory_format=torch.contiguous_format)
        torch.ops.seqlab.lstm_back(g, cells, W, _time_major(g_out), g_h, g_c)
        g_W, g_U = _sum(g, states[:-1], ctx.way), _sum(g, steps, ctx.way)
        return _g_x(g, U, ctx), g_h, g_c, g_W, g_U, g.sum((0, 1))


class _GRU(torch.autograd.Function):
    """The lectures' GRU; with b_n it is torch's, which resets after the product."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor, b_n: Tensor | None = None
    ) -> Tensor:
        steps, states = _steps(x), _series(h, x)
        ctx.gates = _GRU.scan(steps, states, W, U, b, b_n)
        ctx.way = _way(steps, W)
        ctx.save_for_backward(steps, states, W, U, b, b_n)
        return states[1:].transpose(0, 1)

    @staticmethod
    def scan(
        steps: Tensor, states: Tensor, W: Tensor, U: Tensor, b: Tensor, b_n: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The gates of all steps, and what is inside the reset: r h, or with b_n W h + b_n."""
        gates, inner = _driven(steps, U, states), torch.empty_like(states[1:])
        if b_n is None:
            torch.ops.seqlab.gru(gates, states, inner, W, b)
        else:
            torch.ops.seqlab.gru_torch(gates, states, inner, W, b, b_n)
        return gates, inner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_out: Tensor) -> tuple[Tensor | None, ...]:
        steps, states, W, U, b, b_n = ctx.saved_tensors
        (g, inner), ctx.gates = ctx.gates or _GRU.scan(steps, states, W, U, b, b_n), None
        g_h, size = torch.zeros_like(states[0]), 2 * states.shape[-1]
        if b_n is None:
            torch.ops.seqlab.gru_back(g, states, W, _time_major(g_out), g_h)
            g_n, g_b_n = _sum(g[..., size:], inner, ctx.way), None
        else:
            torch.ops.seqlab.gru_torch_back(g, states, inner, W, _time_major(g_out), g_h)
            g_n, g_b_n = _sum(inner, states[:-1], ctx.way), inner.sum((0, 1))
        g_W = torch.cat([_sum(g[..., :size], states[:-1], ctx.way), g_n])
        g_U = _sum(g, steps, ctx.way)
        return _g_x(g, U, ctx), g_h, g_W, g_U, g.sum((0, 1)), g_b_n


# The twins of the steps in `equations.recurrent`, repeated. Each takes x [B T D], the state before the first step and
# the weights, and gives all h [B T H]; the LSTM gives its last c too.
rnn = partial(_RNN.apply, False)
relu_rnn = partial(_RNN.apply, True)
lstm = _LSTM.apply
gru = _GRU.apply


def _way(steps: Tensor, W: Tensor) -> products.Way:
    """How the gradient of W is multiplied."""
    return products.current_way(W, len(steps) * W.numel())


def _steps(x: Tensor) -> Tensor:
    """The inputs of all steps one below the other, [T*B, D]."""
    return x.transpose(0, 1).reshape(-1, x.shape[-1]).contiguous()


def _series(before: Tensor, x: Tensor) -> Tensor:
    """Room for the state before and after each step, [T+1, B, H]."""
    series = before.new_empty(x.shape[1] + 1, *before.shape)
    series[0] = before
    return series


def _driven(steps: Tensor, U: Tensor, states: Tensor) -> Tensor:
    """U x for all steps, [T, B, G*H]."""
    return torch.ops.seqlab.times(steps, U).view(len(states) - 1, states.shape[1], len(U))


def _time_major(g: Tensor) -> Tensor:
    g = g.transpose(0, 1)
    return g if g.stride(-1) == 1 else g.contiguous()


def _sum(g: Tensor, met: Tensor, way: products.Way) -> Tensor:
    """E33, E34: Σ_t g_t m_tᵀ, over rows too, as one product, which is computed in the way of the layers' products."""
    g, met = g.flatten(0, 1), met.flatten(0, -2)
    factors = products.rounded(g, way), products.rounded(met, way)
    return products.outer(*factors, way).to(g.dtype)


def _g_x(g: Tensor, U: Tensor, ctx: Any, place: int = 0) -> Tensor | None:
    """The gradient of x, which is argument number `place`, if anybody needs it."""
    if not ctx.needs_input_grad[place]:
        return None
    return (
        torch.ops.seqlab.times(g.flatten(0, 1), U.T).view(*g.shape[:2], U.shape[1]).transpose(0, 1)
    )
