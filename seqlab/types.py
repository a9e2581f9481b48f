"""The legend: what the letters in shape annotations mean, the same in every room.

    B  rows of a batch            T  positions in time (of the target, where there are two sequences)
    S  positions of the source    D  features            H  units of a hidden state, or heads
    K  hypotheses or classes      V  vocabulary          N  states of an HMM, or real positions of a batch
    G  gates of a recurrent cell  L  layers

A leading `*` or `...` stands for any dimensions; `#B` for B or 1.
"""

from torch import Tensor

State = tuple[Tensor, ...]
"""What a decoder carries from one token to the next: batch-first tensors, so one function can reorder any of them."""
