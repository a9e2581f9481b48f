"""Learning from text without labels: the corruption of a masked language model, and ELMo's mix of layers."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def corrupt(
    tokens: Int[Tensor, "B T"],
    eligible: Bool[Tensor, "B T"],
    chance: Float[Tensor, "B T"],
    fate: Float[Tensor, "B T"],
    others: Int[Tensor, "B T"],
    *,
    mask: int,
    share: float = 0.15,
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """E65: a share of the tokens is to be guessed; of these 80 % become [MASK], 10 % another token, 10 % stay.

    `chance` and `fate` are uniform numbers in [0, 1), `others` random tokens: the function itself draws nothing.
    Returned are the corrupted tokens and which ones are to be guessed.
    """
    guessed = eligible & (chance < share)
    hidden, replaced = guessed & (fate < 0.8), guessed & (fate >= 0.8) & (fate < 0.9)
    return torch.where(hidden, mask, torch.where(replaced, others, tokens)), guessed


def mix_layers(
    layers: Float[Tensor, "L B T D"], scores: Float[Tensor, " L"], gain: Float[Tensor, ""]
) -> Float[Tensor, "B T D"]:
    """E66: γ Σ_l s_l h_l with s = softmax(scores): every depth of a language model has something to say."""
    return gain * torch.tensordot(scores.softmax(0), layers, dims=1)
