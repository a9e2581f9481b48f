"""One recurrent layer in one direction: the parameters around E17, E24 and E25, and their scan over time."""

from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.recurrent import gru_candidate, gru_torch_candidate, lstm_gates, reset_and_update, rnn_step
from seqlab.kernels import native, recurrent
from seqlab.layers.tap import listened_to, tap
from seqlab.recipe import Cell
from seqlab.types import State

WORTHWHILE = 8
"""Fewer steps do not pay for laying out the weights for the native kernels."""
_NATIVE = (torch.float32, torch.float64)
_GATES: dict[Cell, int] = {"rnn": 1, "relu-rnn": 1, "lstm": 4, "gru": 3, "gru-torch": 3}


def quicker(kind: Cell) -> bool:
    """Whether the native kernel is there, and beats torch's own: an LSTM's does not where vectors have 512 bits."""
    return native.ready() and (kind != "lstm" or torch.backends.cpu.get_cpu_capability() != "AVX512")


class Recurrence(nn.Module):
    """h_t from h_{t-1} and x_t, for each t. W meets the state, U the input, as the lectures write it.

    While somebody listens the equations run step by step; otherwise the native kernels where they are built and
    quicker, else torch's fused kernel where the mathematics is the same, and a scan with the input's product taken out
    of the loop for the lectures' GRU, which torch lacks.
    """

    def __init__(self, kind: Cell, input_size: int, size: int, *, name: str) -> None:
        super().__init__()
        if kind not in get_args(Cell):
            raise ValueError(f"there is no cell '{kind}'; there are {', '.join(get_args(Cell))}")
        self.kind, self.size, self.name = kind, size, name
        gates = _GATES[kind]
        self.W = nn.Parameter(torch.cat([nn.init.orthogonal_(torch.empty(size, size)) for _ in range(gates)]))
        self.U = nn.Parameter(nn.init.xavier_uniform_(torch.empty(gates * size, input_size)))
        self.W.num_blocks = self.U.num_blocks = gates  # type: ignore[attr-defined]  # for optimisers that see matrices
        self.b = nn.Parameter(torch.zeros(gates * size))
        if kind == "lstm":
            with torch.no_grad():
                self.b[size : 2 * size] = 1.0  # an open forget gate at the start (Jozefowicz et al. 2015)
        # torch's kernels add a second bias; only its GRU, which resets after the product, has a use for it
        self.b_n = nn.Parameter(torch.zeros(size)) if kind == "gru-torch" else None
        self.no_bias: Tensor
        self.register_buffer("no_bias", torch.zeros(gates * size), persistent=False)

    def start(self, rows: int) -> State:
        """The state before the first step: zeros, once for h and, in an LSTM, once for c."""
        return tuple(self.W.new_zeros(rows, self.size) for _ in range(self.num_states))

    @property
    def num_states(self) -> int:
        return 2 if self.kind == "lstm" else 1

    def forward(self, x: Float[Tensor, "B T D"], state: State) -> tuple[Float[Tensor, "B T H"], State]:
        if torch.is_autocast_enabled(x.device.type):  # what is added up over many steps is kept in all its bits
            with torch.autocast(x.device.type, enabled=False):
                return self(x.to(self.W.dtype), tuple(part.to(self.W.dtype) for part in state))
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.size), state
        if listened_to():
            return self._observed(x, state)
        if x.shape[1] >= WORTHWHILE and x.device.type == "cpu" and x.dtype in _NATIVE and quicker(self.kind):
            return self._native(x, state)
        if self.kind == "gru":
            return self._gru_scan(x, state)
        return self._fused(x, state)

    def _native(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, W, U, b = state[0], self.W, self.U, self.b
        if self.kind == "lstm":
            outputs, c = recurrent.lstm(x, h, state[1], W, U, b)
            return outputs, (outputs[:, -1], c)
        if self.kind == "gru":
            outputs = recurrent.gru(x, h, W, U, b)
        elif self.b_n is not None:
            outputs = recurrent.gru_torch(x, h, W, U, b, self.b_n)
        else:
            outputs = recurrent.rnn(x, h, W, U, b, relu=self.kind == "relu-rnn")
        return outputs, (outputs[:, -1],)

    def _fused(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        second = self.no_bias
        if self.b_n is not None:
            second = torch.cat([self.no_bias[: 2 * self.size], self.b_n])
        weights = (self.U, self.W, self.b, second)
        before = tuple(part[None] for part in state)
        if self.kind == "lstm":
            h, *after = torch.lstm(x, before, weights, True, 1, 0.0, False, False, True)
        else:
            kernel = {"rnn": torch.rnn_tanh, "relu-rnn": torch.rnn_relu, "gru-torch": torch.gru}[self.kind]
            h, *after = kernel(x, before[0], weights, True, 1, 0.0, False, False, True)
        return h, tuple(part[0] for part in after)

    def _gru_scan(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """E25 over time: U x + b for all steps in one product, then two small products a step."""
        size, h, outputs = self.size, state[0], []
        read, update = self.W[: 2 * size].T, self.W[2 * size :].T
        driven = nn.functional.linear(x, self.U, self.b)
        for step in driven.unbind(1):
            r, u = torch.addmm(step[:, : 2 * size], h, read).sigmoid().chunk(2, dim=-1)
            candidate = torch.addmm(step[:, 2 * size :], r * h, update).tanh()
            h = torch.lerp(h, candidate, u)
            outputs.append(h)
        return torch.stack(outputs, dim=1), (h,)

    def _observed(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The equations, one step at a time, every gate and state through its tap."""
        outputs = []
        for x_t in x.unbind(1):
            state = self._step(x_t, state)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1), state

    def _step(self, x: Tensor, state: State) -> State:
        tap(f"{self.name}.enters", torch.cat([x, *state], dim=-1))
        h, weights = state[0], (self.W, self.U, self.b)
        if self.kind == "lstm":
            i, f, g, o = self._seen("ifgo", lstm_gates(x, h, *weights))
            c = tap(f"{self.name}.c", f * state[1] + i * g)
            return tap(f"{self.name}.h", o * c.tanh()), c
        if self.kind == "gru":
            r, u = self._seen("ru", reset_and_update(x, h, *weights))
            candidate = tap(f"{self.name}.n", gru_candidate(x, h, r, *weights))
            h = (1 - u) * h + u * candidate
        elif self.b_n is not None:
            r, z = self._seen("rz", reset_and_update(x, h, *weights))
            candidate = tap(f"{self.name}.n", gru_torch_candidate(x, h, r, *weights, self.b_n))
            h = (1 - z) * candidate + z * h
        else:
            h = rnn_step(x, h, *weights, torch.tanh if self.kind == "rnn" else torch.relu)
        return (tap(f"{self.name}.h", h),)

    def _seen(self, names: str, gates: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tap(f"{self.name}.{name}", gate) for name, gate in zip(names, gates, strict=True))
