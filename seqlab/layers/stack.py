"""Recurrent layers on top of each other (E20), in one direction or in both (E21)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.recurrent import bidirectional
from seqlab.layers.connection import Connection
from seqlab.layers.dropout import Dropout
from seqlab.layers.recurrence import Recurrence
from seqlab.padded import Padded
from seqlab.recipe import Stack
from seqlab.types import State


class CausalStack(nn.Module):
    """Layers that read from left to right and can stop and go on: their state goes in and comes out."""

    def __init__(self, input_size: int, stack: Stack, *, dropout: float, name: str) -> None:
        super().__init__()
        self.layers, self.connections, self.dropouts = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for depth in range(stack.layers):
            here = f"{name}.{depth}"
            self.layers.append(Recurrence(stack.kind, input_size, stack.size, name=here))
            connection = Connection(stack.connection, input_size, stack.size, name=here)
            self.connections.append(connection)
            self.dropouts.append(Dropout(dropout, name=here))
            input_size = connection.output_size
        self.output_size = input_size

    def start(self, rows: int) -> State:
        """The state before the first step, layer by layer."""
        return tuple(part for layer in self.layers for part in layer.start(rows))

    def forward(self, x: Float[Tensor, "B T D"], state: State) -> tuple[Float[Tensor, "B T R"], State]:
        after: list[Tensor] = []
        for layer, connection, dropout in zip(self.layers, self.connections, self.dropouts, strict=True):
            before = state[len(after) : len(after) + layer.num_states]
            h, now = layer(x, before)
            x = dropout(connection(x, h))
            after.extend(now)
        return x, tuple(after)

    def encode(self, x: Padded) -> tuple[Padded, Float[Tensor, "B F"]]:
        """The states of whole sequences, and their last ones: what is left of each when it has been read."""
        states, _ = self(x.values, self.start(len(x)))
        states = x.with_values(states).masked()
        return states, states.last()

    @property
    def summary_size(self) -> int:
        return self.output_size


class BidirectionalStack(nn.Module):
    """Each layer reads the whole sequence from both ends; the next one reads both results."""

    def __init__(self, input_size: int, stack: Stack, *, dropout: float, name: str) -> None:
        super().__init__()
        self.forwards, self.backwards = nn.ModuleList(), nn.ModuleList()
        self.connections, self.dropouts = nn.ModuleList(), nn.ModuleList()
        for depth in range(stack.layers):
            here = f"{name}.{depth}"
            self.forwards.append(Recurrence(stack.kind, input_size, stack.size, name=f"{here}.forward"))
            self.backwards.append(Recurrence(stack.kind, input_size, stack.size, name=f"{here}.backward"))
            connection = Connection(stack.connection, input_size, 2 * stack.size, name=here)
            self.connections.append(connection)
            self.dropouts.append(Dropout(dropout, name=here))
            input_size = connection.output_size
        self.output_size = input_size
        self.summary_size = 2 * stack.size

    def encode(self, x: Padded) -> tuple[Padded, Float[Tensor, "B F"]]:
        """The states of whole sequences, and the last of each direction in the last layer."""
        parts = zip(self.forwards, self.backwards, self.connections, self.dropouts, strict=True)
        for forward, backward, connection, dropout in parts:
            ahead, back = _read(forward, x), _read(backward, x.reversed())
            both = bidirectional(ahead.values, back.reversed().values)
            summary = torch.cat([ahead.last(), back.last()], dim=-1)
            x = x.with_values(dropout(connection(x.values, both))).masked()
        return x, summary


def recurrent_stack(input_size: int, stack: Stack, *, dropout: float, name: str) -> CausalStack | BidirectionalStack:
    """The stack that a recipe describes."""
    kind = BidirectionalStack if stack.bidirectional else CausalStack
    return kind(input_size, stack, dropout=dropout, name=name)


def _read(layer: Recurrence, x: Padded) -> Padded:
    return x.with_values(layer(x.values, layer.start(len(x)))[0])
