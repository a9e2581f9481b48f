"""Memory and the tokens so far to logits for the next token."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.layers.dropout import Dropout
from seqlab.layers.embedding import Embedding
from seqlab.layers.stack import CausalStack
from seqlab.models.heads import Head
from seqlab.models.interface import Memory, Read, for_each_hypothesis, logits_of
from seqlab.types import State


class Bridge(nn.Module):
    """The first state of a decoder, made from the summary of the source (S13): tanh(W c + b) for each part."""

    def __init__(self, summary_size: int, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.project = nn.Linear(summary_size, sum(sizes))

    def forward(self, summary: Float[Tensor, "B F"]) -> State:
        return self.project(summary).tanh().split(self.sizes, dim=-1)


class RecurrentDecoder(nn.Module):
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

    def read(self, tokens: Int[Tensor, "B T"], context: State, state: State) -> tuple[Float[Tensor, "B T V"], State]:
        return logits_of(self, tokens, context, state)

    def step(self, token: Int[Tensor, " B"], context: State, state: State) -> tuple[Float[Tensor, "B V"], State]:
        logits, state = self.read(token[:, None], context, state)
        return logits[:, 0], state
