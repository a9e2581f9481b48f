"""One recurrent layer in one direction: the parameters around E17, E24 and E25, and their scan over time."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.equations.recurrent import gru_step, gru_torch_step, lstm_step, mgu_step, rnn_step
from seqlab.kernels import native, recurrent
from seqlab.layers.tap import listened_to, tap
from seqlab.recipe import Cell
from seqlab.types import HiddenStates, State, Vectors

WORTHWHILE = 8
"""Fewer steps do not pay for laying out the weights for the native kernels."""
_NATIVE = (torch.float32, torch.float64)


@dataclass(frozen=True)
class CellKind:
    """What makes one cell differ from another.

    `gates` names the blocks of its weights in their order. `step` is its equation. `native` and `fused` are our kernel
    and torch's for whole sequences, where there are any.
    """

    gates: str
    step: Callable[..., Any]
    native: Callable[..., Any] | None = None
    fused: Callable[..., Any] | None = None
    equation: str = "E25"


CELLS: dict[Cell, CellKind] = {
    "rnn": CellKind("h", rnn_step, recurrent.rnn, torch.rnn_tanh, "E17"),
    "relu-rnn": CellKind(
        "h", partial(rnn_step, phi=torch.relu), recurrent.relu_rnn, torch.rnn_relu, "E17"
    ),
    "lstm": CellKind("ifgo", lstm_step, recurrent.lstm, torch.lstm, "E24"),
    "gru": CellKind("run", gru_step, recurrent.gru),
    "gru-torch": CellKind("rzn", gru_torch_step, recurrent.gru, torch.gru),
    "mgu": CellKind("fn", mgu_step, equation="MGU"),
}


def quicker(kind: Cell) -> bool:
    """Whether the native kernel is there, and beats torch's own: an LSTM's does not where vectors have 512 bits."""
    return native.ready() and (
        kind != "lstm" or torch.backends.cpu.get_cpu_capability() != "AVX512"
    )


class Recurrence(nn.Module):
    """h_t from h_{t-1} and x_t, for each t. W meets the state, U the input, as the lectures write it.

    While somebody listens the equations run step by step; otherwise the native kernels where they are built and
    quicker, else torch's fused kernel where the mathematics is the same, and a scan with the input's product taken out
    of the loop for the cells that torch lacks.
    """

    def __init__(self, kind: Cell, input_size: int, size: int, *, name: str) -> None:
        super().__init__()
        self.kind, self.size, self.name = kind, size, name
        self.cell = CELLS[kind]
        self.num_states = 2 if kind == "lstm" else 1
        gates = len(self.cell.gates)
        self.W = nn.Parameter(
            torch.cat([nn.init.orthogonal_(torch.empty(size, size)) for _ in range(gates)])
        )
        self.U = nn.Parameter(nn.init.xavier_uniform_(torch.empty(gates * size, input_size)))
        self.W.num_blocks = self.U.num_blocks = gates  # type: ignore[attr-defined]  # for optimisers that see matrices
        self.b = nn.Parameter(torch.zeros(gates * size))
        if kind == "lstm":
            with torch.no_grad():
                self.b[size : 2 * size] = (
                    1.0  # an open forget gate at the start (Jozefowicz et al. 2015)
                )
        # torch's kernels add a second bias; only its GRU, which resets after the product, has a use for it
        self.b_n = nn.Parameter(torch.zeros(size)) if kind == "gru-torch" else None

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """What the equation is given beside the input and the state."""
        shared = (self.W, self.U, self.b)
        return shared if self.b_n is None else (*shared, self.b_n)

    def start(self, rows: int) -> State:
        """The state before the first step: zeros, once for h and, in an LSTM, once for c."""
        return tuple(self.W.new_zeros(rows, self.size) for _ in range(self.num_states))

    def forward(self, x: Vectors, state: State) -> tuple[HiddenStates, State]:
        if torch.is_autocast_enabled(
            x.device.type
        ):  # what is added up over many steps is kept in all its bits
            with torch.autocast(x.device.type, enabled=False):
                return self(x.to(self.W.dtype), tuple(part.to(self.W.dtype) for part in state))
        if x.shape[1] == 0:
            return x.new_zeros(len(x), 0, self.size), state
        if listened_to():
            return self._observed(x, state)
        kernel = self.cell.native
        worthwhile = x.shape[1] >= WORTHWHILE and x.device.type == "cpu" and x.dtype in _NATIVE
        if kernel is not None and worthwhile and quicker(self.kind):
            return self._native(kernel, x, state)
        if self.cell.fused is not None:
            return self._fused(self.cell.fused, x, state)
        return self._reset_scan(x, state)

    def _native(self, kernel: Callable[..., Any], x: Tensor, state: State) -> tuple[Tensor, State]:
        outputs = kernel(x, *state, *self.weights)
        if self.kind == "lstm":
            h, c = outputs
            return h, (h[:, -1], c)
        return outputs, (outputs[:, -1],)

    def _fused(self, kernel: Callable[..., Any], x: Tensor, state: State) -> tuple[Tensor, State]:
        second = torch.zeros_like(self.b)
        if self.b_n is not None:
            second = nn.functional.pad(self.b_n, (2 * self.size, 0))
        before = tuple(part[None] for part in state)
        weights = (self.U, self.W, self.b, second)
        first = before if self.kind == "lstm" else before[0]
        h, *after = kernel(x, first, weights, True, 1, 0.0, False, False, True)
        return h, tuple(part[0] for part in after)

    def _reset_scan(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """E25 or the MGU over time: U x + b for all steps in one product, then two small products a step."""
        size = len(self.W) - self.size  # of the gates; the candidate's weights come last
        read, update = self.W[:size].T, self.W[size:].T
        driven = nn.functional.linear(x, self.U, self.b)
        h, outputs = state[0], []
        for step in driven.unbind(1):
            gates = torch.addmm(step[:, :size], h, read).sigmoid().split(self.size, dim=-1)
            candidate = torch.addmm(step[:, size:], gates[0] * h, update).tanh()
            h = torch.lerp(h, candidate, gates[-1])
            outputs.append(h)
        return torch.stack(outputs, dim=1), (h,)

    def _observed(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """The equations, one step at a time, every gate and state through its tap."""
        outputs = []
        for x_t in x.unbind(1):
            tap(f"{self.name}.enters", torch.cat([x_t, *state], dim=-1))
            after = self.cell.step(x_t, *state, *self.weights, tap=self._tap)
            state = after if isinstance(after, tuple) else (after,)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1), state

    def _tap(self, name: str, x: Tensor) -> Tensor:
        return tap(f"{self.name}.{name}", x)
