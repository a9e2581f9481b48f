"""The loss of a prediction, the probability of a sequence, and the choice of a token from logits.

Random numbers are arguments, one uniform number a row, so that these are pure functions.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax, pad, softmax

from seqlab.types import (
    BestIds,
    BestScores,
    FlatIds,
    FlatLogits,
    FlatNumbers,
    Logits,
    Mask,
    PerRow,
    PositionIds,
    PositionLogits,
    RowIds,
    Scalar,
)


def cross_entropy(
    logits: FlatLogits, gold: FlatIds, *, label_smoothing: float = 0.0
) -> FlatNumbers:
    """E4: -Σ_v q_v log p_v at each position, in nats, with p = softmax(logits).

    q is 1 at the gold token; with label smoothing ε it is (1 - ε) there plus ε/V everywhere.
    """
    return smoothed_loss(log_softmax(logits, dim=-1), gold, label_smoothing)


def smoothed_loss(log_p: FlatLogits, gold: FlatIds, smoothing: float) -> FlatNumbers:
    """-Σ_v q_v log p_v from log p."""
    loss = -log_p.gather(-1, gold[:, None]).squeeze(-1)
    return loss if not smoothing else (1 - smoothing) * loss - smoothing * log_p.mean(-1)


def perplexity(mean_loss: float | Scalar) -> float:
    """E4: exp of the mean cross-entropy in nats: the number of equally likely tokens with the same entropy."""
    try:
        return math.exp(mean_loss)
    except OverflowError:
        return math.inf


def sequence_log_probability(logits: PositionLogits, gold: PositionIds, real: Mask) -> PerRow:
    """E57: log p(y|x) = Σ_t log p(y_t | y_<t, x) over the real positions."""
    log_p = -cross_entropy(logits[real], gold[real])
    return logits.new_zeros(real.shape).masked_scatter(real, log_p).sum(1)


def greedy_choice(logits: Logits) -> RowIds:
    """E58: argmax_v p(v); among equal ones, the first."""
    return logits.argmax(-1)


def temper(logits: Logits, temperature: float) -> Logits:
    """E59: logits / τ. τ below 1 sharpens the distribution, τ above 1 flattens it."""
    if not temperature > 0:
        raise ValueError(
            f"the temperature must be above 0, not {temperature}; for the limit at 0, decode greedily"
        )
    return logits / temperature


def keep_top_k(logits: Logits, k: int) -> Logits:
    """E59: keep the k largest logits, and set the others to -inf; among equal ones the first are kept."""
    if k < 1:
        raise ValueError(f"top-k must keep at least 1 token, not {k}")
    smallest = logits.topk(min(k, logits.shape[-1]), dim=-1).values[:, -1:]
    above = logits > smallest
    equal = logits == smallest
    room = k - above.sum(-1, keepdim=True)
    return logits.masked_fill(~(above | (equal & (equal.cumsum(-1) <= room))), -math.inf)


def keep_top_p(logits: Logits, p: float) -> Logits:
    """E59: keep the fewest likeliest tokens whose probabilities sum to at least p, and set the others to -inf."""
    if not 0 < p <= 1:
        raise ValueError(f"top-p must be above 0 and at most 1, not {p}")
    if p == 1:  # with rounding, the sum could reach 1 before the last tokens
        return logits
    ranked, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = softmax(ranked, dim=-1, dtype=torch.float64).cumsum(-1)
    mass_before = pad(mass[:, :-1], (1, 0))
    keep = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, mass_before < p)
    return logits.masked_fill(~keep, -math.inf)


def choose(probabilities: Logits, uniform: PerRow) -> RowIds:
    """E59: the first v with Σ_{v' ≤ v} p_v' > uniform: sampling by the inverse of the distribution function.

    `uniform` is between 0 and 1 inclusive. A token of probability 0 is never chosen, because the sum does not grow
    there.
    """
    mass = probabilities.double().cumsum(-1)
    total = mass[:, -1]
    if not (total > 0).all():
        row = int((~(total > 0)).nonzero()[0])
        raise ValueError(
            f"row {row} has no token to choose from: its probabilities sum to {total[row].item()}"
        )
    # without this, rounding near 1 could give an index past the last token
    below_total = total.nextafter(torch.zeros_like(total))
    target = torch.minimum(uniform * total, below_total)
    return torch.searchsorted(mass, target[:, None], right=True).squeeze(-1)


def beam_step(
    scores: Float[Tensor, "B K"], log_p: Float[Tensor, "B K V"], keep: int
) -> tuple[BestScores, BestIds, BestIds]:
    """E60: extend each of the K hypotheses by each token, and keep the best: their scores, parents and tokens.

    `log_p` may be limited to the best `keep` tokens of each hypothesis, since no other can be among the best of all.
    """
    total = (scores[..., None] + log_p.to(scores.dtype)).flatten(1)
    best, indices = total.topk(min(keep, total.shape[1]), dim=-1)
    return best, indices // log_p.shape[-1], indices % log_p.shape[-1]


def length_normalised(
    score: Float[Tensor, "..."], length: Int[Tensor, "..."] | int, alpha: float
) -> Float[Tensor, "..."]:
    """E61: log p / length^α: α = 1 gives the mean per token, α = 0 the sum as on the slides."""
    length = torch.as_tensor(length, dtype=score.dtype).clamp(min=1)
    return score / length**alpha
