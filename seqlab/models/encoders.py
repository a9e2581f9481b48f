"""Source to memory."""

from torch import nn

from seqlab.layers.dropout import Dropout
from seqlab.layers.embedding import Embedding
from seqlab.layers.stack import BidirectionalStack, CausalStack
from seqlab.models.interface import Memory
from seqlab.padded import Padded


class RecurrentEncoder(nn.Module):
    """Tokens through an embedding into a recurrent stack (S3-S6)."""

    def __init__(self, embedding: Embedding, stack: CausalStack | BidirectionalStack, *, dropout: float) -> None:
        super().__init__()
        self.embedding, self.stack = embedding, stack
        self.dropout = Dropout(dropout, name=f"{embedding.name}.input")
        self.output_size, self.summary_size = stack.output_size, stack.summary_size

    def forward(self, source: Padded) -> Memory:
        states, summary = self.stack.encode(source.with_values(self.dropout(self.embedding(source.values))))
        return Memory(len(source), states, summary)
