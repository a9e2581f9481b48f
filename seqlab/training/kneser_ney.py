"""N-gram probabilities by modified Kneser-Ney smoothing (Chen & Goodman 1999), counted from one long sequence.

Shorter n-grams are counted by the number of different tokens before them: a word that follows only one other is not a
likely continuation of anything else. A discount is taken from each count and distributed by the shorter history.
"""

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

Counts = Int[np.ndarray, " _"]


def kneser_ney(tokens: Integer[np.ndarray, " T"], order: int, num_tokens: int) -> dict[str, Tensor]:
    """Return the weights of an `NgramDecoder`: n-grams, their shares, and the share of each history's backoff."""
    text = np.asarray(tokens, dtype=np.int64)
    history = np.zeros(len(text), dtype=np.int64)
    num_histories = 1
    shorter = np.zeros(0, dtype=np.int64)
    levels: list[tuple[Counts, Counts, Counts, int]] = []
    for length in range(order):
        follower = text[length:]
        codes = history[: len(follower)] * num_tokens + follower
        ngrams, first, places, counts = np.unique(
            codes, return_index=True, return_inverse=True, return_counts=True
        )
        if levels:  # each n-gram is one different token before the n-gram without its first token
            before = np.bincount(shorter[1:][first], minlength=len(levels[-1][0]))
            levels[-1] = (levels[-1][0], np.maximum(before, 1), *levels[-1][2:])
        levels.append((ngrams, counts, ngrams // num_tokens, num_histories))
        history, num_histories, shorter = places, len(ngrams), places
    weights: dict[str, Tensor] = {}
    for number, (ngrams, counts, owners, num_owners) in enumerate(levels):
        discounts = _discounts(counts)[np.minimum(counts, 3)]
        totals = np.bincount(owners, counts, minlength=num_owners)
        left = np.bincount(owners, discounts, minlength=num_owners)
        backs = np.where(totals > 0, left / np.maximum(totals, 1), 1.0)
        weights[f"ngrams.{number}"] = torch.from_numpy(ngrams)
        weights[f"shares.{number}"] = torch.from_numpy(
            (counts - discounts) / totals[owners]
        ).float()
        weights[f"backs.{number}"] = torch.from_numpy(backs).float()
    return weights


def _discounts(counts: Counts) -> Float[np.ndarray, "4"]:
    """Return the discounts of the counts 0, 1, 2, and 3 or more."""
    n = [int((counts == k).sum()) for k in range(5)]
    share = n[1] / max(1, n[1] + 2 * n[2])
    discounts = [0.0]
    for k in (1, 2, 3):
        discount = k - (k + 1) * share * n[k + 1] / n[k] if n[k] and n[k + 1] else 0.5
        discounts.append(min(max(discount, 0.1), k - 0.1))
    return np.asarray(discounts)
