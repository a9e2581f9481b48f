"""A decoder that may copy tokens of its source: a pointer beside the vocabulary (See et al. 2017)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.attention import attention_weights, scaled_score
from seqlab.layers.linear import Head
from seqlab.layers.tap import tap
from seqlab.models.interface import Memory, Read, Teachable
from seqlab.models.seq2seq import FeatureDecoder
from seqlab.types import Features, PositionIds, State

NUM_OWN = 3  # parts of the context that are the pointer's: keys, tokens, which of them are real
RARELY = -1.0  # where the gate begins: about a quarter of the probability is the pointer's
TINY = 1e-10  # added to each probability, so that the logarithm of none is infinite


class CopyingHead(nn.Module):
    """log p with p = (1 - g) softmax(V h + c) + g q; q is the pointer's share of each token, and g = σ(w h + b)."""

    def __init__(self, head: Head, size: int) -> None:
        super().__init__()
        self.head, self.size = head, size
        self.gate = nn.Linear(size, 1)
        nn.init.constant_(self.gate.bias, RARELY)

    def forward(self, features: Features) -> Float[Tensor, "... V"]:
        h, pointed = features[..., : self.size], features[..., self.size :]
        gate = tap("copy.gate", self.gate(h).sigmoid())
        written = self.head(h).softmax(-1)
        return (written + gate * (pointed - written) + TINY).log()


class CopyingDecoder(FeatureDecoder):
    """Any decoder, and a pointer into the source: its features ask the memory, and where they look is what is copied.

    The features that its head is given are those of the decoder, then the pointer's probability of each token of the
    vocabulary, which source and target share. Names and numbers that no training example holds can so be repeated.
    """

    def __init__(self, decoder: Teachable, head: Head, *, size: int, memory_size: int) -> None:
        super().__init__()
        self.decoder, self.head = decoder, CopyingHead(head, size)
        self.num_tokens = head.output.out_features
        self.query = nn.Linear(size, size, bias=False)
        self.key = nn.Linear(memory_size, size, bias=False)

    def start(self, memory: Memory) -> tuple[State, State]:
        context, state = self.decoder.start(memory)
        states = memory.require_states()
        return (*context, self.key(states.values), memory.require_tokens(), states.real), state

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
        keys, source, real = context[-NUM_OWN:]
        read = self.decoder.features(tokens, context[:-NUM_OWN], state)
        rows, length, size = read.features.shape
        # the hypotheses of one source stand side by side as queries to the same keys
        query = self.query(read.features).reshape(len(keys), -1, size)
        weights = tap("copy.weights", attention_weights(scaled_score(query, keys), real[:, None]))
        pointed = weights.new_zeros(*weights.shape[:2], self.num_tokens)
        pointed = pointed.scatter_add(2, source[:, None].expand_as(weights), weights)
        both = torch.cat([read.features, pointed.reshape(rows, length, self.num_tokens)], dim=-1)
        return Read(both, read.state, read.penalty)
