"""How alike two vectors are, what a softmax makes of scores, and what a prediction costs.

Pure functions on tensors: no parameters, no modules, no configuration.
"""

import math

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import log_softmax, softmax


def dot(x: Float[Tensor, "... D"], y: Float[Tensor, "... D"]) -> Float[Tensor, "..."]:
    """E1: x·y = Σ_d x_d y_d."""
    return (x * y).sum(-1)


def cosine(x: Float[Tensor, "... D"], y: Float[Tensor, "... D"]) -> Float[Tensor, "..."]:
    """E2: x·y / (‖x‖ ‖y‖), between -1 and 1.

    The zero vector points nowhere: its cosine with anything is 0, not NaN.
    """
    return dot(_unit(x), _unit(y)).clamp(-1.0, 1.0)


def masked_softmax(score: Float[Tensor, "*B T"], visible: Bool[Tensor, "*#B T"]) -> Float[Tensor, "*B T"]:
    """E3: exp(s_t) / Σ_t' exp(s_t') over the visible t; what is not visible scores -inf and so gets 0.

    A row that sees nothing gets zeros, not NaN: an empty sequence is a fact of life, not an error.
    """
    weights = softmax(score.masked_fill(~visible, -math.inf), dim=-1)
    return weights.masked_fill(~visible, 0.0)


def cross_entropy(
    logits: Float[Tensor, "N V"], gold: Int[Tensor, " N"], *, label_smoothing: float = 0.0
) -> Float[Tensor, " N"]:
    """E4: -Σ_v q_v log p_v at each position, in nats, with p = softmax(logits).

    q is 1 at the gold token; with label smoothing ε it is (1 - ε) there plus ε/V everywhere.
    """
    log_p = log_softmax(logits, dim=-1)
    loss = -log_p.gather(-1, gold[:, None]).squeeze(-1)
    if label_smoothing == 0.0:
        return loss
    return (1 - label_smoothing) * loss - label_smoothing * log_p.mean(-1)


def perplexity(mean_loss: float | Float[Tensor, ""]) -> float:
    """E4: exp of the mean cross-entropy in nats: how many equally likely tokens would be as hard to guess."""
    try:
        return math.exp(mean_loss)
    except OverflowError:
        return math.inf


def _unit(x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
    """x / ‖x‖, and 0 for the zero vector."""
    # The largest |x_d| is made 1 first: then no square overflows, and the norm is at least 1 unless x = 0.
    largest = x.detach().abs().amax(-1, keepdim=True)
    x = x / largest.masked_fill(largest == 0, 1.0)
    return x / vector_norm(x, dim=-1, keepdim=True).clamp(min=1.0)
