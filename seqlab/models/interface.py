"""What models are to the rest of the package: to training a reading with its gold, to the search a decoder."""

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
    """What an encoder leaves for a decoder: how many rows, the states of each, and one summary of each.

    `penalty` is what the loss adds for how the encoder worked: the ponder cost of a Universal Transformer. `grid` is
    how the states lie in a picture, row by row: so many rows, so many columns. `tokens` are those of the source, where
    it is made of tokens.
    """

    rows: int
    states: Padded | None = None
    summary: Summary | None = None
    penalty: Scalar | None = None
    grid: tuple[int, int] | None = None
    tokens: PositionIds | None = None

    def require_states(self) -> Padded:
        """The states, for whoever cannot do without."""
        if self.states is None:
            raise ValueError("this memory has no states: no source was encoded")
        return self.states

    def require_summary(self) -> Summary:
        """The summary, for whoever cannot do without."""
        if self.summary is None:
            raise ValueError("this memory has no summary: no source was encoded")
        return self.summary

    def require_tokens(self) -> PositionIds:
        """The source's tokens, for whoever copies them."""
        if self.tokens is None:
            raise ValueError("this memory has no tokens: its source is not made of them")
        return self.tokens


class Read(NamedTuple):
    """What a decoder makes of the tokens it read: features for its head, its state, and perhaps a penalty."""

    features: Vectors
    state: State
    penalty: Scalar | None = None


@dataclass(frozen=True)
class Reading:
    """What a model saw in a batch: features at each position where something is to be predicted, and what.

    The model's `head` turns features into logits; it is applied by whoever needs them, at the positions that count.
    Where that is a real number, `output` says what a prediction of it costs; without one, logits are of classes.
    `carried` is the state in which the next chunk of the same streams begins; `penalty` is added to the summed loss.
    """

    features: Vectors
    gold: Padded
    carried: State = ()
    penalty: Scalar | None = None
    output: Output | None = None


def one_label(batch: Batch) -> Padded:
    """The label of each row as a sequence of length one."""
    target = batch.require("target")
    return Padded(target.values[:, :1], target.lengths)


def frozen(start: Tensor) -> nn.Parameter:
    """Numbers that are saved with a model, and that no gradient changes: counting, EM or calibration finds them."""
    return nn.Parameter(start, requires_grad=False)


@runtime_checkable
class SequenceModel(Protocol):
    """What training and evaluation need of a model."""

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
    """What the search needs: something that starts, reads, steps, and whose state can be put in another order.

    The context is what is computed once per source row; the state is what changes from token to token.
    Law: `read` equals `step` repeated.
    """

    def start(self, memory: Memory) -> tuple[State, State]: ...

    def read(
        self, tokens: PositionIds, context: State, state: State
    ) -> tuple[PositionLogits, State]: ...

    def step(self, token: RowIds, context: State, state: State) -> tuple[Logits, State]: ...


@runtime_checkable
class Quick(Protocol):
    def quick(self) -> Decoder:
        """The same decoder for one search, faster; a state that was stepped from is used up."""
        ...


@runtime_checkable
class TrainableDecoder(Decoder, Protocol):
    """A decoder that training can read a target with: what the head is given, at all positions at once."""

    @property
    def head(self) -> Scorer: ...

    def features(self, tokens: PositionIds, context: State, state: State) -> Read: ...
