"""How likely a given target is: forced scoring."""

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.equations.decoding import sequence_log_probability
from seqlab.models.interface import Decoder, Memory
from seqlab.padded import Padded


@torch.inference_mode()
def score(decoder: Decoder, memory: Memory, target: Padded) -> Float[Tensor, " B"]:
    """E57: the log-probability of each row of `target` after its first token."""
    if target.values.shape[1] < 2:
        return torch.zeros(len(target), dtype=torch.float64)
    context, state = decoder.start(memory)
    logits, _ = decoder.read(target.values[:, :-1], context, state)
    real = Padded(target.values[:, 1:], (target.lengths - 1).clamp(min=0)).real
    return sequence_log_probability(logits.double(), target.values[:, 1:], real)
