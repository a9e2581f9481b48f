"""Recurrent layers on top of each other (E20), in one direction or in both (E21), and how they are connected (S6)."""

from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.attention import final_pool
from seqlab.equations.recurrent import bidirectional, dense, highway, residual
from seqlab.layers.recurrence import Recurrence
from seqlab.layers.tap import tap
from seqlab.padded import Padded
from seqlab.randomness import Dropout
from seqlab.recipe import Connection as Kind
from seqlab.recipe import StackConfig
from seqlab.types import HiddenStates, State, Summary, Vectors

Layer = TypeVar("Layer", "CausalLayer", "BidirectionalLayer")
Leaving = Float[Tensor, "B T R"]


class Connection(nn.Module):
    """Plain, residual (E27), highway (E26) or dense (E28) around a layer from `input_size` to `size` features.

    Residual and highway connections add the input to the output, so an input of another size is projected first.
    """

    def __init__(self, kind: Kind, input_size: int, size: int, *, name: str) -> None:
        super().__init__()
        self.kind, self.name = kind, name
        self.output_size = input_size + size if kind == "dense" else size
        adds = kind in ("residual", "highway")
        self.project = (
            nn.Linear(input_size, size, bias=False) if adds and input_size != size else None
        )
        self.transform = nn.Linear(size, size) if kind == "highway" else None
        if self.transform is not None:
            nn.init.constant_(
                self.transform.bias, -2.0
            )  # at first it carries (Srivastava et al. 2015)

    def forward(self, x: Vectors, hx: HiddenStates) -> Leaving:
        if self.kind == "plain":
            return hx
        if self.kind == "dense":
            return dense(x, hx)
        if self.project is not None:
            x = self.project(x)
        if self.transform is None:
            return residual(x, hx)
        return highway(x, hx, tap(f"{self.name}.transform", torch.sigmoid(self.transform(x))))


class CausalLayer(nn.Module):
    """A recurrence, how its output is joined with its input, and dropout."""

    def __init__(self, input_size: int, stack: StackConfig, *, dropout: float, name: str) -> None:
        super().__init__()
        self.recurrence = Recurrence(stack.kind, input_size, stack.size, name=name)
        self.connection = Connection(stack.connection, input_size, stack.size, name=name)
        self.dropout = Dropout(dropout, name=name)

    def forward(self, x: Vectors, state: State) -> tuple[Leaving, State]:
        h, state = self.recurrence(x, state)
        return self.dropout(self.connection(x, h)), state


class CausalStack(nn.Module):
    """Layers that read from left to right and can stop and go on: their state goes in and comes out."""

    def __init__(self, input_size: int, stack: StackConfig, *, dropout: float, name: str) -> None:
        super().__init__()
        layers = _on_top_of_each_other(CausalLayer, input_size, stack, dropout, name)
        self.layers = nn.ModuleList(layers)
        num_states = layers[-1].recurrence.num_states
        self.state_sizes = [stack.size] * (num_states * stack.layers)
        self.output_size = self.summary_size = layers[-1].connection.output_size
        self.top = -num_states  # where the last layer's h stands in the state

    def start(self, rows: int) -> State:
        """The state before the first step, layer by layer."""
        like = next(self.parameters())
        return tuple(like.new_zeros(rows, size) for size in self.state_sizes)

    def forward(self, x: Vectors, state: State) -> tuple[Leaving, State]:
        each, after = len(state) // len(self.layers), list[Tensor]()
        for depth, layer in enumerate(self.layers):
            x, now = layer(x, state[depth * each : (depth + 1) * each])
            after.extend(now)
        return x, tuple(after)

    def encode(self, x: Padded) -> tuple[Padded, Summary]:
        """The states of whole sequences, and their last ones: what is left of each when it has been read."""
        states, _ = self(x.values, self.start(len(x)))
        masked = x.with_values(states).masked()
        return masked, final_pool(masked.values, masked.lengths)


class BidirectionalLayer(nn.Module):
    """The same from both ends; gives also the last state of each direction."""

    def __init__(self, input_size: int, stack: StackConfig, *, dropout: float, name: str) -> None:
        super().__init__()
        self.ahead = Recurrence(stack.kind, input_size, stack.size, name=f"{name}.forward")
        self.back = Recurrence(stack.kind, input_size, stack.size, name=f"{name}.backward")
        self.connection = Connection(stack.connection, input_size, 2 * stack.size, name=name)
        self.dropout = Dropout(dropout, name=name)

    def forward(self, x: Padded) -> tuple[Padded, Summary]:
        ahead, back = _read(self.ahead, x), _read(self.back, x.reversed())
        both = bidirectional(ahead.values, back.reversed().values)
        joined = self.dropout(self.connection(x.values, both))
        return x.with_values(joined).masked(), torch.cat([ahead.last(), back.last()], dim=-1)


class BidirectionalStack(nn.Module):
    """Each layer reads the whole sequence from both ends; the next one reads both results."""

    def __init__(self, input_size: int, stack: StackConfig, *, dropout: float, name: str) -> None:
        super().__init__()
        layers = _on_top_of_each_other(BidirectionalLayer, input_size, stack, dropout, name)
        self.layers = nn.ModuleList(layers)
        self.output_size, self.summary_size = layers[-1].connection.output_size, 2 * stack.size

    def encode(self, x: Padded) -> tuple[Padded, Summary]:
        """The states of whole sequences, and the last of each direction in the last layer."""
        summary = x.values.new_zeros(len(x), 0)
        for layer in self.layers:
            x, summary = layer(x)
        return x, summary


def recurrent_stack(
    input_size: int, stack: StackConfig, *, dropout: float, name: str
) -> CausalStack | BidirectionalStack:
    """The stack that a recipe describes."""
    kind = BidirectionalStack if stack.bidirectional else CausalStack
    return kind(input_size, stack, dropout=dropout, name=name)


def _on_top_of_each_other(
    kind: type[Layer], input_size: int, stack: StackConfig, dropout: float, name: str
) -> list[Layer]:
    """As many layers as the stack has; each reads what the one below it gives."""
    layers = list[Layer]()
    for depth in range(stack.layers):
        layers.append(kind(input_size, stack, dropout=dropout, name=f"{name}.{depth}"))
        input_size = layers[-1].connection.output_size
    return layers


def _read(layer: Recurrence, x: Padded) -> Padded:
    return x.with_values(layer(x.values, layer.start(len(x)))[0])
