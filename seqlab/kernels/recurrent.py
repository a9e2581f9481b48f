"""E17, E24 and E25 over whole sequences with the gradients of E29-E34 written out, in native code.

U x of all steps is one product before the scan; the scan back gives the gradients of all steps, and each weight's
gradient is one product after it. Those gradients take the place of the gates, which are computed again should somebody
go back through the same graph a second time. Call only when `native.ready()`.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def rnn(
    x: Float[Tensor, "B T D"],
    h: Float[Tensor, "B H"],
    W: Float[Tensor, "H H"],
    U: Float[Tensor, "H D"],
    b: Float[Tensor, " H"],
    *,
    relu: bool = False,
) -> Float[Tensor, "B T H"]:
    """The twin of `equations.recurrent.rnn_step`, repeated: all states."""
    states: Tensor = _RNN.apply(x, h, W, U, b, relu)
    return states


def lstm(
    x: Float[Tensor, "B T D"],
    h: Float[Tensor, "B H"],
    c: Float[Tensor, "B H"],
    W: Float[Tensor, "4*H H"],
    U: Float[Tensor, "4*H D"],
    b: Float[Tensor, " 4*H"],
) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B H"]]:
    """The twin of `equations.recurrent.lstm_step`, repeated: all h, and the last c."""
    both: tuple[Tensor, Tensor] = _LSTM.apply(x, h, c, W, U, b)
    return both


def gru(
    x: Float[Tensor, "B T D"],
    h: Float[Tensor, "B H"],
    W: Float[Tensor, "3*H H"],
    U: Float[Tensor, "3*H D"],
    b: Float[Tensor, " 3*H"],
) -> Float[Tensor, "B T H"]:
    """The twin of `equations.recurrent.gru_step`, repeated: all states."""
    states: Tensor = _GRU.apply(x, h, W, U, b)
    return states


def gru_torch(
    x: Float[Tensor, "B T D"],
    h: Float[Tensor, "B H"],
    W: Float[Tensor, "3*H H"],
    U: Float[Tensor, "3*H D"],
    b: Float[Tensor, " 3*H"],
    b_n: Float[Tensor, " H"],
) -> Float[Tensor, "B T H"]:
    """The twin of `equations.recurrent.gru_torch_step`, repeated: all states."""
    states: Tensor = _TorchGRU.apply(x, h, W, U, b, b_n)
    return states


class _RNN(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor, relu: bool) -> Tensor:
        steps, states = _steps(x), _series(h, x)
        gates = _driven(steps, U, states)
        torch.ops.seqlab.rnn(gates, states, W, b, relu)
        ctx.save_for_backward(steps, states, W, U)
        ctx.room, ctx.relu = gates, relu
        return states[1:].transpose(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_out: Tensor) -> tuple[Tensor | None, ...]:
        steps, states, W, U = ctx.saved_tensors
        g, g_h = ctx.room, torch.zeros_like(states[0])
        torch.ops.seqlab.rnn_back(g, states, W, ctx.relu, _time_major(g_out), g_h)
        return _g_x(g, U, ctx), g_h, _sum(g, states[:-1]), _sum(g, steps), g.sum((0, 1)), None


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        steps, states, cells = _steps(x), _series(h, x), _series(c, x)
        ctx.gates = _LSTM.scan(steps, states, cells, W, U, b)
        ctx.save_for_backward(steps, states, cells, W, U, b)
        return states[1:].transpose(0, 1), cells[-1].clone()

    @staticmethod
    def scan(steps: Tensor, states: Tensor, cells: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor]:
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
        return _g_x(g, U, ctx), g_h, g_c, _sum(g, states[:-1]), _sum(g, steps), g.sum((0, 1))


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor) -> Tensor:
        steps, states = _steps(x), _series(h, x)
        ctx.gates = _GRU.scan(steps, states, W, U, b)
        ctx.save_for_backward(steps, states, W, U, b)
        return states[1:].transpose(0, 1)

    @staticmethod
    def scan(steps: Tensor, states: Tensor, W: Tensor, U: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        gates, reset = _driven(steps, U, states), torch.empty_like(states[1:])
        torch.ops.seqlab.gru(gates, states, reset, W, b)
        return gates, reset

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_out: Tensor) -> tuple[Tensor | None, ...]:
        steps, states, W, U, b = ctx.saved_tensors
        (g, reset), ctx.gates = ctx.gates or _GRU.scan(steps, states, W, U, b), None
        g_h, size = torch.zeros_like(states[0]), 2 * states.shape[-1]
        torch.ops.seqlab.gru_back(g, states, W, _time_major(g_out), g_h)
        g_W = torch.cat([_sum(g[..., :size], states[:-1]), _sum(g[..., size:], reset)])
        return _g_x(g, U, ctx), g_h, g_W, _sum(g, steps), g.sum((0, 1))


class _TorchGRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor, b_n: Tensor) -> Tensor:
        steps, states = _steps(x), _series(h, x)
        ctx.gates = _TorchGRU.scan(steps, states, W, U, b, b_n)
        ctx.save_for_backward(steps, states, W, U, b, b_n)
        return states[1:].transpose(0, 1)

    @staticmethod
    def scan(steps: Tensor, states: Tensor, W: Tensor, U: Tensor, b: Tensor, b_n: Tensor) -> tuple[Tensor, Tensor]:
        gates, inner = _driven(steps, U, states), torch.empty_like(states[1:])
        torch.ops.seqlab.gru_torch(gates, states, inner, W, b, b_n)
        return gates, inner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_out: Tensor) -> tuple[Tensor | None, ...]:
        steps, states, W, U, b, b_n = ctx.saved_tensors
        (g, inner), ctx.gates = ctx.gates or _TorchGRU.scan(steps, states, W, U, b, b_n), None
        g_h, size = torch.zeros_like(states[0]), 2 * states.shape[-1]
        torch.ops.seqlab.gru_torch_back(g, states, inner, W, _time_major(g_out), g_h)
        g_W = torch.cat([_sum(g[..., :size], states[:-1]), _sum(inner, states[:-1])])
        return _g_x(g, U, ctx), g_h, g_W, _sum(g, steps), g.sum((0, 1)), inner.sum((0, 1))


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


def _sum(g: Tensor, met: Tensor) -> Tensor:
    """E33, E34: Σ_t g_t m_tᵀ, over rows too, as one product."""
    return g.flatten(0, 1).T @ met.flatten(0, -2)


def _g_x(g: Tensor, U: Tensor, ctx: Any) -> Tensor | None:
    if not ctx.needs_input_grad[0]:
        return None
    return torch.ops.seqlab.times(g.flatten(0, 1), U.T).view(*g.shape[:2], U.shape[1]).transpose(0, 1)
