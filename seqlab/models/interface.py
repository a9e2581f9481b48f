"""The interfaces of models: `SequenceModel` for training, `Encoder`, and `Decoder` for the search."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from seqlab.models.outputs import Output
from seqlab.padded import Batch, Padded
from seqlab.types import (
    Logits,
    PositionIds,
    PositionLogits,
    RowIds,
    Scalar,
    State,
    Summary,
    Vectors,
)

Scorer = Callable[[Tensor], Tensor]  # features (..., D) to logits (..., V)


@dataclass(frozen=True)
class Memory:
    """The output of an encoder: the number of rows, and the states and a summary of each.

    `penalty` is added to the loss, such as the ponder cost of a Universal Transformer. `grid` is the number of rows and
    columns of the states in a picture. `tokens` are those of the source, if it consists of tokens.
    """

    rows: int
    states: Padded | None = None
    summary: Summary | None = None
    penalty: Scalar | None = None
    grid: tuple[int, int] | None = None
    tokens: PositionIds | None = None

    def require_states(self) -> Padded:
        """Return the states; raise an error if there are none."""
        if self.states is None:
            raise ValueError("this memory has no states: no source was encoded")
        return self.states

    def require_summary(self) -> Summary:
        """Return the summary; raise an error if there is none."""
        if self.summary is None:
            raise ValueError("this memory has no summary: no source was encoded")
        return self.summary

    def require_tokens(self) -> PositionIds:
        """Return the tokens of the source; raise an error if there are none."""
        if self.tokens is None:
            raise ValueError("this memory has no tokens: its source consists of vectors")
        return self.tokens


class Read(NamedTuple):
    """The output of a decoder for the tokens it read: features for its head, its state, and an optional penalty."""

    features: Vectors
    state: State
    penalty: Scalar | None = None


@dataclass(frozen=True)
class Reading:
    """The output of a model for a batch: features at each position, and the gold values to predict there.

    The model's `head` turns features into logits; the caller applies it only at the positions that count. If the gold
    values are real numbers, `output` has their loss; else the logits are those of classes. `carried` is the initial
    state of the next chunk of the same streams; `penalty` is added to the summed loss.
    """

    features: Vectors
    gold: Padded
    carried: State = ()
    penalty: Scalar | None = None
    output: Output | None = None


def one_label(batch: Batch) -> Padded:
    """Return the label of each row as a sequence of length one."""
    target = batch.require("target")
    return Padded(target.values[:, :1], target.lengths)


def frozen(values: Tensor) -> nn.Parameter:
    """Return a parameter without gradient, which is set by counting, EM or calibration, and saved with the model."""
    return nn.Parameter(values, requires_grad=False)


@runtime_checkable
class SequenceModel(Protocol):
    """The interface of a model for training and evaluation."""

    def read_batch(self, batch: Batch, carried: State) -> Reading: ...

    @property
    def head(self) -> Scorer: ...


@runtime_checkable
class Encoder(Protocol):
    summary_size: int
    output_size: int

    def __call__(self, source: Padded) -> Memory: ...


@runtime_checkable
class Decoder(Protocol):
    """The interface of a decoder for the search.

    The context is computed once per source row; the state changes from token to token, and its rows can be reordered.
    Law: `read` equals repeated `step`.
    """

    def start(self, memory: Memory) -> tuple[State, State]: ...

    def read(
        self, tokens: PositionIds, context: State, state: State
    ) -> tuple[PositionLogits, State]: ...

    def step(self, token: RowIds, context: State, state: State) -> tuple[Logits, State]: ...


@runtime_checkable
class Quick(Protocol):
    def quick(self, *, coarse: bool) -> Decoder:
        """Return a faster decoder for one search; it may overwrite a state that it steps from.

        It is equal up to rounding: with `coarse`, an int8 model rounds the inputs of its matrices to 8 bits.
        """
        ...


@runtime_checkable
class TrainableDecoder(Decoder, Protocol):
    """A decoder that computes the features of all positions of a target at once, for training."""

    @property
    def head(self) -> Scorer: ...

    def features(self, tokens: PositionIds, context: State, state: State) -> Read: ...
