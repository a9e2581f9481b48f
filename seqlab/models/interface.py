"""What models are to the rest of the house: to training a reading with its gold, to the search a decoder."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from seqlab.padded import Batch, Padded
from seqlab.types import State


@dataclass(frozen=True)
class Memory:
    """What an encoder leaves for a decoder: how many rows, the states of each, and one summary of each."""

    rows: int
    states: Padded | None = None
    summary: Float[Tensor, "B F"] | None = None


@dataclass(frozen=True)
class Reading:
    """What a model saw in a batch: features at each position where something is to be predicted, and what.

    The model's `head` turns features into logits; it is applied by whoever needs them, at the positions that count.
    `carried` is the state in which the next chunk of the same streams begins.
    """

    features: Float[Tensor, "B T D"]
    gold: Padded
    carried: State = ()


@runtime_checkable
class Model(Protocol):
    """What training and evaluation need of a model."""

    def read_batch(self, batch: Batch, carried: State) -> Reading: ...

    def head(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]: ...


@runtime_checkable
class Encoder(Protocol):
    summary_size: int
    output_size: int

    def __call__(self, source: Padded) -> Memory: ...


@runtime_checkable
class Decoder(Protocol):
    """What the search needs: something that starts, reads, steps, and whose state can be put in another order.

    The context is what is computed once per source row; the state is what changes from token to token.
    Law: `read` equals `step` repeated.
    """

    def start(self, memory: Memory) -> tuple[State, State]: ...

    def read(
        self, tokens: Int[Tensor, "B T"], context: State, state: State
    ) -> tuple[Float[Tensor, "B T V"], State]: ...

    def step(self, token: Int[Tensor, " B"], context: State, state: State) -> tuple[Float[Tensor, "B V"], State]: ...


def reorder(state: State, rows: Int[Tensor, " K"]) -> State:
    """The state of the rows that survived, in their new places."""
    return tuple(part.index_select(0, rows) for part in state)
