"""What a prediction costs, how likely a sequence is, and how one token is chosen from the logits.

Randomness comes in as a uniform number per row, so that these stay functions.
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
    """E4: exp of the mean cross-entropy in nats: how many equally likely tokens would be as hard to guess."""
    try:
        return math.exp(mean_loss)
    except OverflowError:
        return math.inf


def sequence_log_probability(logits: PositionLogits, gold: PositionIds, real: Mask) -> PerRow:
    """E57: log p(y|x) = Σ_t log p(y_t | y_<t, x) over the real positions."""
    log_p = -cross_entropy(logits[real], gold[real])
    return logits.new_zeros(real.shape).masked_scatter(real, log_p).sum(1)


def greedy_choice(logits: Logits) -> RowIds:
    """E58: argmax_v p(v); of equals, the first."""
    return logits.argmax(-1)


def temper(logits: Logits, temperature: float) -> Logits:
    """E59: logits / τ. Below 1 the likely becomes likelier, above 1 all become more alike."""
    if not temperature > 0:
        raise ValueError(
            f"a temperature must be above 0, not {temperature}; for the limit at 0, choose greedily"
        )
    return logits / temperature


def keep_top_k(logits: Logits, k: int) -> Logits:
    """E59: the k largest logits, the others -inf. Of equals the first stay, so that never more than k do."""
    if k < 1:
        raise ValueError(f"at least 1 token must be kept, not {k}")
    smallest = logits.topk(min(k, logits.shape[-1]), dim=-1).values[:, -1:]
    above, equal = logits > smallest, logits == smallest
    room = k - above.sum(-1, keepdim=True)
    return logits.masked_fill(~(above | (equal & (equal.cumsum(-1) <= room))), -math.inf)


def keep_top_p(logits: Logits, p: float) -> Logits:
    """E59: the fewest likeliest tokens whose probabilities sum to p or more, the others -inf. Never fewer than one."""
    if not 0 < p <= 1:
        raise ValueError(f"a probability mass to keep lies above 0 and at most at 1, not {p}")
    if p == 1:  # rounding could bring the mass to 1 before the last tokens
        return logits
    ranked, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = softmax(ranked, dim=-1, dtype=torch.float64).cumsum(-1)
    mass_before = pad(mass[:, :-1], (1, 0))
    keep = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, mass_before < p)
    return logits.masked_fill(~keep, -math.inf)


def choose(probabilities: Logits, uniform: PerRow) -> RowIds:
    """E59: the first v with Σ_{v' ≤ v} p_v' > uniform: sampling by the inverse of the distribution function.

    `uniform` lies between 0 and 1, each end included. A token of probability 0 is never chosen: the sum does not
    grow there, so it cannot be the first to exceed anything.
    """
    mass = probabilities.double().cumsum(-1)
    total = mass[:, -1]
    if not (total > 0).all():
        row = int((~(total > 0)).nonzero()[0])
        raise ValueError(
            f"row {row} offers no token to choose: its probabilities sum to {total[row].item()}"
        )
    below_total = total.nextafter(
        torch.zeros_like(total)
    )  # else rounding near 1 would lead past the last token
    target = torch.minimum(uniform * total, below_total)
    return torch.searchsorted(mass, target[:, None], right=True).squeeze(-1)


def beam_step(
    scores: Float[Tensor, "B K"], log_p: Float[Tensor, "B K V"], keep: int
) -> tuple[BestScores, BestIds, BestIds]:
    """E60: extend each of the K hypotheses by each token, and keep the best: their scores, parents and tokens.

    Only the best of each hypothesis can be among the best of all: whoever has these already gives them alone.
    """
    total = (scores[..., None] + log_p.to(scores.dtype)).flatten(1)
    kept, places = total.topk(min(keep, total.shape[1]), dim=-1)
    return kept, places // log_p.shape[-1], places % log_p.shape[-1]


def length_normalised(
    score: Float[Tensor, "..."], length: Int[Tensor, "..."] | int, alpha: float
) -> Float[Tensor, "..."]:
    """E61: log p / length^α: with α = 1 the mean per token, with α = 0 the plain sum of the slides."""
    length = torch.as_tensor(length, dtype=score.dtype).clamp(min=1)
    return score / length**alpha
