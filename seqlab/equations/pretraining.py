"""Pretraining on text without labels: the corruption of a masked language model, and ELMo's mix of layers."""

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.types import Logits, Mask, PerPosition, PerRow, PositionIds, Scalar, Vectors


def corrupt(
    tokens: PositionIds,
    eligible: Mask,
    chance: PerPosition,
    fate: PerPosition,
    others: PositionIds,
    *,
    mask: int,
    share: float = 0.15,
) -> tuple[PositionIds, Mask]:
    """E65: choose a share of the tokens to be predicted; of these 80 % become [MASK], 10 % a random token, 10 % stay.

    `chance` and `fate` are uniform numbers in [0, 1), `others` random tokens, so that this is a pure function.
    Return the corrupted tokens and the mask of those to be predicted.
    """
    predicted = eligible & (chance < share)
    masked = predicted & (fate < 0.8)
    replaced = predicted & (fate >= 0.8) & (fate < 0.9)
    return torch.where(masked, mask, torch.where(replaced, others, tokens)), predicted


def theme_loss(logits: Logits, tokens: PositionIds, eligible: Mask) -> PerRow:
    """-1/|S| Σ_{w in S} log softmax(o)_w, where S is the set of words of a text; 0 if it is empty.

    One vector has to predict the words of a text in any order, as in the paragraph vectors of Le and Mikolov (2014).
    """
    sorted_tokens = tokens.masked_fill(~eligible, -1).sort(dim=1).values
    first = (sorted_tokens >= 0) & (sorted_tokens != torch.roll(sorted_tokens, 1, dims=1))
    first[:, :1] = sorted_tokens[:, :1] >= 0
    guessed = logits.log_softmax(-1).gather(1, sorted_tokens.clamp(min=0))
    return -guessed.masked_fill(~first, 0.0).sum(1) / first.sum(1).clamp(min=1)


def mix_layers(
    layers: Float[Tensor, "L B T D"], scores: Float[Tensor, " L"], gain: Scalar
) -> Vectors:
    """E66: γ Σ_l s_l h_l with s = softmax(scores): a learnt weighted mean of the layers of a language model."""
    return gain * torch.tensordot(scores.softmax(0), layers, dims=1)
