"""The recurrent encoder (S3-S6) and the recurrent decoder without attention (S7, S13)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.layers.dropout import Dropout
from seqlab.layers.inputs import Embedding, Inputs
from seqlab.layers.linear import Head
from seqlab.layers.stack import BidirectionalStack, CausalStack
from seqlab.models.interface import Memory, Read
from seqlab.models.seq2seq import FeatureDecoder, for_each_hypothesis
from seqlab.padded import Padded
from seqlab.types import State


class RecurrentEncoder(nn.Module):
    """Vectors of tokens into a recurrent stack (S3-S6)."""

    def __init__(self, inputs: Inputs, stack: CausalStack | BidirectionalStack, *, dropout: float) -> None:
        super().__init__()
        self.inputs, self.stack = inputs, stack
        self.dropout = Dropout(dropout, name="encoder.input")
        self.output_size, self.summary_size = stack.output_size, stack.summary_size

    def forward(self, source: Padded) -> Memory:
        states, summary = self.stack.encode(source.with_values(self.dropout(self.inputs(source))))
        return Memory(len(source), states, summary)


class Bridge(nn.Module):
    """The first state of a decoder, made from the summary of the source (S13): tanh(W c + b) for each part."""

    def __init__(self, summary_size: int, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.project = nn.Linear(summary_size, sum(sizes))

    def forward(self, summary: Float[Tensor, "B F"]) -> State:
        return self.project(summary).tanh().split(self.sizes, dim=-1)


class RecurrentDecoder(FeatureDecoder):
    """A recurrent stack over the tokens so far, without attention.

    With a bridge it begins where the source ended (S13), without one at zero (S7). With `reads_summary` the
    source's summary is part of every input, h_t = phi(W_xh [x; y_{t-1}] + W_hh h_{t-1}) (E19), so that it need not
    be remembered.
    """

    def __init__(
        self,
        embedding: Embedding,
        stack: CausalStack,
        head: Head,
        *,
        bridge: Bridge | None,
        reads_summary: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding, self.stack, self.head, self.bridge = embedding, stack, head, bridge
        self.reads_summary = reads_summary
        self.dropout = Dropout(dropout, name=f"{embedding.name}.input")

    def start(self, memory: Memory) -> tuple[State, State]:
        if self.bridge is None or memory.summary is None:
            return (), self.stack.start(memory.rows)
        return ((memory.summary,) if self.reads_summary else ()), self.bridge(memory.summary)

    def features(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> Read:
        x = self.dropout(self.embedding(tokens))
        if context:
            summary = for_each_hypothesis(context[0], len(x))
            x = torch.cat([x, summary[:, None].expand(-1, x.shape[1], -1)], dim=-1)
        return Read(*self.stack(x, state))
