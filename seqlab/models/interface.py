"""What models are to the rest of the house: to training a reading with its gold, to the search a decoder."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int, Shaped
from torch import Tensor

from seqlab.equations.pooling import mean_pool
from seqlab.models.outputs import Output
from seqlab.padded import Batch, Padded
from seqlab.types import State

Scorer = Callable[[Tensor], Tensor]  # features (..., D) to logits (..., V)


@dataclass(frozen=True)
class Memory:
    """What an encoder leaves for a decoder: how many rows, the states of each, and one summary of each.

    `penalty` is what the loss adds for how the encoder worked: the ponder cost of a Universal Transformer. `grid` is
    how the states lie in a picture, row by row: so many rows, so many columns.
    """

    rows: int
    states: Padded | None = None
    summary: Float[Tensor, "B F"] | None = None
    penalty: Float[Tensor, ""] | None = None
    grid: tuple[int, int] | None = None


class Read(NamedTuple):
    """What a decoder makes of the tokens it read: features for its head, its state, and perhaps a penalty."""

    features: Float[Tensor, "B T D"]
    state: State
    penalty: Float[Tensor, ""] | None = None


@dataclass(frozen=True)
class Reading:
    """What a model saw in a batch: features at each position where something is to be predicted, and what.

    The model's `head` turns features into logits; it is applied by whoever needs them, at the positions that count.
    Where that is a real number, `output` says what a prediction of it costs; without one, logits are of classes.
    `carried` is the state in which the next chunk of the same streams begins; `penalty` is added to the summed loss.
    """

    features: Float[Tensor, "B T D"]
    gold: Padded
    carried: State = ()
    penalty: Float[Tensor, ""] | None = None
    output: Output | None = None


@runtime_checkable
class Model(Protocol):
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
        self, tokens: Int[Tensor, "B T"], context: State, state: State
    ) -> tuple[Float[Tensor, "B T V"], State]: ...

    def step(self, token: Int[Tensor, " B"], context: State, state: State) -> tuple[Float[Tensor, "B V"], State]: ...


@runtime_checkable
class Quick(Protocol):
    def quick(self) -> Decoder:
        """The same decoder for one search, faster; a state that was stepped from is used up."""
        ...


def for_search(decoder: Decoder) -> Decoder:
    """A decoder as a search should drive it."""
    return decoder.quick() if isinstance(decoder, Quick) else decoder


@runtime_checkable
class Teachable(Decoder, Protocol):
    """A decoder that training can read a target with: what the head is given, at all positions at once."""

    @property
    def head(self) -> Scorer: ...

    def features(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> Read: ...


def read_target(decoder: Teachable, target: Padded, context: State, state: State) -> Reading:
    """Teacher forcing: all tokens but the last are read, all but the first are to be predicted."""
    tokens, lengths = target.values, (target.lengths - 1).clamp(min=0)
    read = decoder.features(tokens[:, :-1], context, state)
    observed = None if target.observed is None else target.observed[:, 1:]
    return Reading(read.features, Padded(tokens[:, 1:], lengths, observed), read.state, read.penalty)


def logits_of(decoder: Teachable, tokens: Int[Tensor, "B T"], context: State, state: State) -> tuple[Tensor, State]:
    """`Decoder.read`, for every decoder that is a head on features."""
    read = decoder.features(tokens, context, state)
    return decoder.head(read.features), read.state


def states_and_summary(memory: Memory) -> tuple[Padded, Float[Tensor, "B F"]]:
    """What an encoder of a sequence leaves, which has both."""
    assert memory.states is not None
    assert memory.summary is not None
    return memory.states, memory.summary


def mean_states(encoder: Callable[[Padded], Memory], source: Padded) -> Float[Tensor, "B D"]:
    """One vector for each row: the mean of what an encoder made of its positions."""
    states = encoder(source).states
    if states is None:
        raise ValueError("this encoder leaves no states")
    return mean_pool(states.values, states.real)


def added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Two penalties as one, where there are any."""
    return other if one is None else one if other is None else one + other


def for_each_hypothesis(part: Shaped[Tensor, "B *rest"], rows: int) -> Shaped[Tensor, "R *rest"]:
    """A part of the context for `rows` hypotheses, which stand source by source."""
    return part if len(part) == rows else part.repeat_interleave(rows // len(part), dim=0)


def reorder(state: State, rows: Int[Tensor, " K"]) -> State:
    """The state of the rows that survived, in their new places."""
    return tuple(part.index_select(0, rows) for part in state)
