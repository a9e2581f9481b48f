"""A pointer-generator decoder, which can copy tokens of its source (See et al. 2017)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.attention import attention_weights, scaled_score
from seqlab.layers.linear import Head
from seqlab.layers.tap import tap
from seqlab.models.interface import Memory, Read, TrainableDecoder
from seqlab.models.seq2seq import FeatureDecoder
from seqlab.types import Features, PositionIds, State

NUM_CONTEXT = 3  # parts of the context that the pointer adds: keys, tokens, mask of real positions
INITIAL_BIAS = -1.0  # of the gate: at first, the pointer has about a quarter of the probability
TINY = 1e-10  # added to each probability, so that no logarithm is infinite


class PointerHead(nn.Module):
    """log p with p = (1 - g) softmax(V h + c) + g q, where q is the pointer's distribution and g = σ(w h + b)."""

    def __init__(self, head: Head, size: int) -> None:
        super().__init__()
        self.head, self.size = head, size
        self.gate = nn.Linear(size, 1)
        nn.init.constant_(self.gate.bias, INITIAL_BIAS)

    def forward(self, features: Features) -> Float[Tensor, "... V"]:
        h = features[..., : self.size]
        copied = features[..., self.size :]
        gate = tap("copy.gate", self.gate(h).sigmoid())
        generated = self.head(h).softmax(-1)
        return (generated + gate * (copied - generated) + TINY).log()


class PointerDecoder(FeatureDecoder):
    """Any decoder plus a pointer: attention of its features over the source, whose weights are copy probabilities.

    Its features are those of the decoder, followed by the copy probability of each token of the vocabulary, which
    source and target share. It can repeat names and numbers that are in no training example.
    """

    def __init__(
        self, decoder: TrainableDecoder, head: Head, *, size: int, memory_size: int
    ) -> None:
        super().__init__()
        self.decoder, self.head = decoder, PointerHead(head, size)
        self.num_tokens = head.output.out_features
        self.query = nn.Linear(size, size, bias=False)
        self.key = nn.Linear(memory_size, size, bias=False)

    def start(self, memory: Memory) -> tuple[State, State]:
        context, state = self.decoder.start(memory)
        states = memory.require_states()
        return (*context, self.key(states.values), memory.require_tokens(), states.real), state

    def features(self, tokens: PositionIds, context: State, state: State) -> Read:
        keys, source, real = context[-NUM_CONTEXT:]
        read = self.decoder.features(tokens, context[:-NUM_CONTEXT], state)
        rows, length, size = read.features.shape
        # all hypotheses of one source are queries to the same keys
        query = self.query(read.features).reshape(len(keys), -1, size)
        weights = tap("copy.weights", attention_weights(scaled_score(query, keys), real[:, None]))
        copied = weights.new_zeros(*weights.shape[:2], self.num_tokens)
        copied = copied.scatter_add(2, source[:, None].expand_as(weights), weights)
        both = torch.cat([read.features, copied.reshape(rows, length, self.num_tokens)], dim=-1)
        return Read(both, read.state, read.penalty)
