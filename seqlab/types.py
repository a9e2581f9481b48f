"""The legend: what the letters in shape annotations mean, the same in every room.

    B  rows of a batch            T  positions in time (of the target, where there are two sequences)
    S  positions of the source    D  features            H  units of a hidden state, or heads
    K  hypotheses or classes      V  vocabulary          N  states of an HMM, or real positions of a batch
    G  gates of a recurrent cell  L  layers

A leading `*` or `...` stands for any dimensions; `#B` for B or 1.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

State = tuple[Tensor, ...]
"""What a decoder carries from one token to the next: batch-first tensors, so one function can reorder any of them."""

Vectors = Float[Tensor, "B T D"]
"""A vector at each position."""
Vector = Float[Tensor, "B D"]
"""One vector for each row."""
Summary = Float[Tensor, "B F"]
"""What an encoder leaves of each row in one vector; it may have another size than the states."""
Logits = Float[Tensor, "B V"]
"""A score of each token, or of each class."""
PositionIds = Int[Tensor, "B T"]
"""A whole number at each position: a token, a label, a state of a chain."""
Mask = Bool[Tensor, "B T"]
RowIds = Int[Tensor, " B"]
"""A whole number for each row: its place in the data, its length, its next token."""
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
"""Which numbers of the vector at each position there are."""
FlatIds = Int[Tensor, " N"]
"""Whole numbers of the real positions of a batch, one after the other; and likewise:"""
FlatNumbers = Float[Tensor, " N"]
FlatVectors = Float[Tensor, "N D"]
FlatLogits = Float[Tensor, "N V"]
BestScores = Float[Tensor, "B k"]
"""Of each row the scores of the best of something, and whose they are:"""
BestIds = Int[Tensor, "B k"]
