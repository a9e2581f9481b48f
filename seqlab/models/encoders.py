"""Source to memory."""

from torch import nn

from seqlab.layers.dropout import Dropout
from seqlab.layers.inputs import Inputs
from seqlab.layers.stack import BidirectionalStack, CausalStack
from seqlab.models.interface import Memory
from seqlab.padded import Padded


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
