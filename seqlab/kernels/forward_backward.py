"""E9 on probabilities instead of logs, in numpy, whose calls cost less than torch's on matrices this small.

Likelihoods are scaled so that the largest of each position is 1, and beliefs to sum to one every few steps: that is
quick and, unlike a plain product, reaches any length. Where a number falls below the smallest there is, and it matters
(the states that can be reached are hundreds of nats worse than one that cannot), the row is done again, scaled at every
step; and if that was not it, by its equation, in logs.

Arrays are `T B N`: each step is read in one piece. No gradients; the equations have them.
"""

from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.equations import hmm
from seqlab.equations.hmm import Distributions, Initial, Matrix, Moves, Posterior, Trellis
from seqlab.types import PerRow, PositionIds, RowIds

Scales = Float[Tensor, "T B 1"]
Steps = Float[Tensor, "T B N"]

EVERY = 8
"""Steps from one scaling to the next."""


def posterior(
    pi: Initial,
    A: Moves,
    log_b: Trellis | Float[Tensor, "V N"],
    lengths: RowIds,
    weights: PerRow | None = None,
    *,
    which: PositionIds | None = None,
    every: int = EVERY,
) -> Posterior:
    """The twin of `equations.hmm.posterior`: γ_t(i) = α_t(i) β_t(i) / z_t with z_t = Σ_i α_t(i) β_t(i), for any scale.

    And ξ_ij = A_ij Σ_t α_{t-1}(i) b_t(j) β_t(j) / c_t z_t, one matrix product over all positions of all rows. Symbols
    are quicker looked up: then `log_b` has a row for each, and one of zeros for pads, and `which` says where they are.
    """
    moves, A = A, hmm.as_matrix(A)
    num_steps = log_b.shape[1] if which is None else which.shape[1]
    real = (torch.arange(num_steps)[:, None] < lengths)[..., None]
    if which is None:  # a pad observes nothing: since the rows of A sum to one it changes nothing
        b, top = _scaled(log_b.transpose(0, 1).masked_fill(~real, 0.0))
    else:
        b, top = (
            x.index_select(0, which.mT.flatten()).unflatten(0, which.mT.shape)
            for x in _scaled(log_b)
        )
    arriving = b.contiguous()
    alpha, c = _filter(pi, A, arriving, every)
    joint, d = _look_back(A, arriving, alpha, every)
    z = joint @ A.new_ones(len(A), 1)
    # the rows in which some scale is too small to have all its digits, or no number any more
    least = torch.finfo(z.dtype).tiny / torch.finfo(z.dtype).eps
    lost = (~(torch.minimum(c * z, d) >= least).all(0)).nonzero()[:, 0]
    share, count = 1 / z, d / (c * z)
    for part in (alpha, joint, arriving, share, count):
        part[:, lost] = 0.0
    share, count = share * real, count * real
    gamma = joint.mul_(share).transpose(0, 1)
    arriving.mul_(count if weights is None else count * weights[:, None])
    xi = A * torch.from_numpy(
        alpha[:-1].flatten(0, 1).numpy().T @ arriving[1:].flatten(0, 1).numpy()
    )
    log_likelihood = (c.log() + top).sum((0, 2))
    if len(lost):
        again = partial(posterior, every=1) if every > 1 else hmm.posterior
        counted, here = (
            None if weights is None else weights[lost],
            log_b[lost if which is None else which[lost]],
        )
        gamma[lost], more, log_likelihood[lost] = again(pi, A, here, lengths[lost], counted)
        xi = xi + more
    return Posterior(gamma, hmm.moves_of(xi, moves), log_likelihood)


def _scaled(log_b: Distributions) -> tuple[Distributions, Float[Tensor, "*rows 1"]]:
    """exp(log b - top), where top makes the largest 1; where all are -inf, all become 0."""
    top = log_b.amax(-1, keepdim=True).clamp(min=torch.finfo(log_b.dtype).min)
    return (log_b - top).exp_(), top


def _filter(pi: Initial, A: Matrix, b: Steps, every: int) -> tuple[Steps, Scales]:
    """E7: α_t, and c_t, by which it was divided, 1 at most steps.

    A step that falls to zero leaves NaN in its row, which `_lost` finds.
    """
    alpha, c = torch.empty_like(b), torch.ones_like(b[..., :1])
    beliefs, scales, step = alpha.numpy(), c.numpy(), A.numpy()
    predicted, ones = pi.repeat(b.shape[1], 1).numpy(), np.ones_like(step[:, :1])
    with np.errstate(all="ignore"):
        for t, here in enumerate(b.numpy(), 1):
            belief = np.multiply(predicted, here, out=beliefs[t - 1])
            if t % every == 0 or t == len(beliefs):
                belief /= np.matmul(belief, ones, out=scales[t - 1])
            np.matmul(belief, step, out=predicted)
    return alpha, c


def _look_back(A: Matrix, b: Steps, alpha: Steps, every: int) -> tuple[Steps, Scales]:
    """E8: the same steps with Aᵀ; gives α_t β_t and d_t. What stands in `b` becomes b_t β_t / d_t."""
    joint, d = torch.empty_like(b), torch.ones_like(b[..., :1])
    joints, scales, step = joint.numpy(), d.numpy(), A.mT.contiguous().numpy()
    alphas, arriving = alpha.numpy(), b.numpy()
    beta, ones = np.ones(b.shape[1:], dtype=step.dtype), np.ones_like(step[:, :1])
    with np.errstate(all="ignore"):
        for t in reversed(range(len(joints))):
            np.multiply(beta, alphas[t], out=joints[t])
            w = np.multiply(beta, arriving[t], out=arriving[t])
            if t % every == 0:
                w /= np.matmul(w, ones, out=scales[t])
            np.matmul(w, step, out=beta)
    return joint, d
