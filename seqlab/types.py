"""The shape annotations of tensors. The letters mean the same in every module:

    B  rows of a batch            T  positions in time (of the target, where there are two sequences)
    S  positions of the source    D  features            H  units of a hidden state, or heads
    K  hypotheses or classes      V  vocabulary          N  states of an HMM, or real positions of a batch
    G  gates of a recurrent cell  L  layers

A leading `*` or `...` means any dimensions; `#B` means B or 1.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

State = tuple[Tensor, ...]
"""The state of a decoder between two tokens: batch-first tensors, so that one function can reorder all of them."""

Vectors = Float[Tensor, "B T D"]
"""A vector at each position."""
Vector = Float[Tensor, "B D"]
"""One vector for each row."""
Summary = Float[Tensor, "B F"]
"""The summary of each row by an encoder; its size may differ from that of the states."""
Logits = Float[Tensor, "B V"]
"""A score of each token, or of each class."""
PositionIds = Int[Tensor, "B T"]
"""An integer at each position: a token, a label, or a state of a Markov chain."""
Mask = Bool[Tensor, "B T"]
RowIds = Int[Tensor, " B"]
"""An integer for each row: its number in the data, its length, or its next token."""
PerRow = Float[Tensor, " B"]
Scalar = Float[Tensor, ""]

Features = Float[Tensor, "... D"]
PerPosition = Float[Tensor, "B T"]
"""A number at each position."""
PositionLogits = Float[Tensor, "B T V"]
HiddenStates = Float[Tensor, "B T H"]
HiddenVector = Float[Tensor, " H"]
Square = Float[Tensor, "H H"]
Entries = Bool[Tensor, "B T D"]
"""Which features at each position are observed."""
FlatIds = Int[Tensor, " N"]
"""Integers at the real positions of a batch, concatenated; the next types likewise:"""
FlatNumbers = Float[Tensor, " N"]
FlatVectors = Float[Tensor, "N D"]
FlatLogits = Float[Tensor, "N V"]
BestScores = Float[Tensor, "B k"]
"""The k best scores of each row, and the ids that they belong to:"""
BestIds = Int[Tensor, "B k"]
