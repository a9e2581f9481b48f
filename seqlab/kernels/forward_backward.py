"""E7 and E9 on probabilities instead of logs, in numpy, whose calls cost less than torch's on matrices this small.

Likelihoods are scaled so that the largest of each position is 1, and beliefs to sum to one every few steps: that is
quick and, unlike a plain product, reaches any length. A few long rows are cut into blocks that run side by side. Where
a number falls below the smallest there is, and it matters (the states that can be reached are hundreds of nats worse
than one that cannot), the row is done again, scaled at every step; and if that was not it, by its equation, in logs.

Arrays are `T B N` (blocks `M R N`): each step is read in one piece. No gradients; the equations have them.
"""

import math
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from seqlab.equations import hmm
from seqlab.equations.hmm import Initial, Lengths, Moves, PerRow, Posterior, Trellis

Scale = Float[Tensor, "T B 1"]
Real = Bool[Tensor, "T B 1"]
Blocks = Float[Tensor, "M R N"]
Steps = Float[Tensor, "T B N"]
BlockBelief = Float[Tensor, "R N"]

EVERY = 8
"""Steps from one scaling to the next."""


def forward(
    pi: Initial,
    A: Moves,
    log_b: Trellis,
    lengths: Lengths,
    *,
    every: int = EVERY,
) -> tuple[Trellis, PerRow]:
    """The twin of `equations.hmm.forward`."""
    A = hmm.as_matrix(A)
    size = _block_size(*log_b.shape)
    b, top, real = _likelihoods(log_b, lengths, size)
    blocks, first, last = _cut(pi, A, b, size)
    alpha, c = _filter(first, A, blocks, every)
    filtered, n = alpha / (alpha @ A.new_ones(len(A), 1)), c
    if A.min() < _least(A.dtype):  # a state that was given up may have been right: only what follows can tell
        joint, _, d = _look_back(last, A, blocks, alpha, every)
        n = torch.minimum(c * joint.sum(-1, keepdim=True), d)
    filtered, c, n = (_joined(part, b) for part in (filtered, c, n))
    filtered = (filtered if real is None else filtered * real).transpose(0, 1)[:, : log_b.shape[1]]
    log_likelihood = (c.log() + top).sum((0, 2))
    if len(lost := _lost(n)):
        again = partial(forward, every=1) if every > 1 else hmm.forward
        filtered[lost], log_likelihood[lost] = again(pi, A, log_b[lost], lengths[lost])
    return filtered, log_likelihood


def posterior(
    pi: Initial,
    A: Moves,
    log_b: Trellis | Float[Tensor, "V N"],
    lengths: Lengths,
    weights: PerRow | None = None,
    *,
    which: Int[Tensor, "B T"] | None = None,
    every: int = EVERY,
) -> Posterior:
    """The twin of `equations.hmm.posterior`: γ_t(i) = α_t(i) β_t(i) / z_t with z_t = Σ_i α_t(i) β_t(i), for any scale.

    And ξ_ij = A_ij Σ_t α_{t-1}(i) b_t(j) β_t(j) / c_t z_t, one matrix product over all positions of all rows. Symbols
    are quicker looked up: then `log_b` has a row for each, and one of zeros for pads, and `which` says where they are.
    """
    moves, A = A, hmm.as_matrix(A)
    num_steps = log_b.shape[1] if which is None else which.shape[1]
    size = _block_size(len(lengths), num_steps, len(pi))
    b, top, real = _likelihoods(log_b, lengths, size) if which is None else _looked_up(log_b, which, lengths, size)
    blocks, first, last = _cut(pi, A, b, size)
    alpha, c = _filter(first, A, blocks, every)
    joint, arriving, d = _look_back(last, A, blocks, alpha, every)
    alpha, c, joint, arriving, d = (_joined(part, b) for part in (alpha, c, joint, arriving, d))
    z = joint @ A.new_ones(len(A), 1)
    lost = _lost(torch.minimum(c * z, d))
    for part in (alpha, joint, arriving):
        part[:, lost] = 0.0
    share, count = 1 / z, d / (c * z)
    share[:, lost] = count[:, lost] = 0.0
    if real is not None:
        share, count = share * real, count * real
    gamma = joint.mul_(share).transpose(0, 1)[:, :num_steps]
    arriving.mul_(count if weights is None else count * weights[:, None])
    xi = A * torch.from_numpy(alpha[:-1].flatten(0, 1).numpy().T @ arriving[1:].flatten(0, 1).numpy())
    log_likelihood = (c.log() + top).sum((0, 2))
    if len(lost):
        again = partial(posterior, every=1) if every > 1 else hmm.posterior
        counted, here = None if weights is None else weights[lost], log_b[lost if which is None else which[lost]]
        gamma[lost], more, log_likelihood[lost] = again(pi, A, here, lengths[lost], counted)
        xi = xi + more
    return Posterior(gamma, hmm.moves_of(xi, moves), log_likelihood)


def _block_size(rows: int, num_steps: int, num_states: int) -> int:
    """√T for few and long rows, else one block.

    A block must be run once from every state, which costs N times the work in √T steps instead of T: for few and long
    rows the number of steps is what takes the time.
    """
    cut = num_steps >= 1000 and 0 < rows * num_states**3 < 50_000
    return math.isqrt(num_steps) if cut else max(1, num_steps)


def _likelihoods(log_b: Float[Tensor, "B _ N"], lengths: Lengths, size: int) -> tuple[Steps, Scale, Real | None]:
    """`_scaled` at each position, step by step; and which positions are real, if not all are.

    Pads, here also up to a whole number of blocks, observe nothing; since the rows of A sum to one they change nothing.
    """
    extra = -log_b.shape[1] % size
    log_b = (pad(log_b, (0, 0, 0, extra)) if extra else log_b).transpose(0, 1)
    real = _real(lengths, len(log_b))
    b, top = _scaled(log_b if real is None else log_b.masked_fill(~real, 0.0))
    return b.contiguous(), top, real


def _looked_up(
    log_b: Float[Tensor, "V N"], which: Int[Tensor, "B _"], lengths: Lengths, size: int
) -> tuple[Steps, Scale, Real | None]:
    """The same from a row for each symbol."""
    which = pad(which, (0, -which.shape[1] % size), value=len(log_b) - 1).mT
    b, top = (part.index_select(0, which.flatten()).unflatten(0, which.shape) for part in _scaled(log_b))
    return b, top, _real(lengths, len(which))


def _scaled(log_b: Float[Tensor, "*rows N"]) -> tuple[Float[Tensor, "*rows N"], Float[Tensor, "*rows 1"]]:
    """exp(log b - top), where top makes the largest 1; where all are -inf, all become 0."""
    top = log_b.amax(-1, keepdim=True).clamp(min=torch.finfo(log_b.dtype).min)
    return (log_b - top).exp_(), top


def _real(lengths: Lengths, num_steps: int) -> Real | None:
    real = (torch.arange(num_steps)[:, None] < lengths)[..., None]
    return None if real.all() else real


def _filter(
    first: BlockBelief, A: Float[Tensor, "N N"], b: Blocks, every: int
) -> tuple[Blocks, Float[Tensor, "M R 1"]]:
    """E7 from a belief before the first observation; gives α_t and c_t, by which it was divided, 1 at most steps.

    A step that falls to zero leaves NaN in its row, which `_lost` finds.
    """
    alpha, c = torch.empty_like(b), torch.ones_like(b[..., :1])
    beliefs, scales, step = alpha.numpy(), c.numpy(), A.numpy()
    predicted, ones = first.clone().numpy(), np.ones_like(step[:, :1])
    with np.errstate(all="ignore"):
        for t, here in enumerate(b.numpy(), 1):
            belief = np.multiply(predicted, here, out=beliefs[t - 1])
            if t % every == 0 or t == len(beliefs):
                belief /= np.matmul(belief, ones, out=scales[t - 1])
            np.matmul(belief, step, out=predicted)
    return alpha, c


def _look_back(
    last: BlockBelief,
    A: Float[Tensor, "N N"],
    b: Blocks,
    alpha: Blocks,
    every: int,
) -> tuple[Blocks, Blocks, Float[Tensor, "M R 1"]]:
    """E8 from β after the last observation: the same steps with Aᵀ; α_t β_t, b_t β_t / d_t (in place of b), d_t."""
    joint, d = torch.empty_like(b), torch.ones_like(b[..., :1])
    joints, scales, step = joint.numpy(), d.numpy(), A.mT.contiguous().numpy()
    beta, ones = last.clone().numpy(), np.ones_like(step[:, :1])
    alphas, arriving = alpha.numpy(), b.numpy()
    with np.errstate(all="ignore"):
        for t in reversed(range(len(joints))):
            np.multiply(beta, alphas[t], out=joints[t])
            w = np.multiply(beta, arriving[t], out=arriving[t])
            if t % every == 0:
                w /= np.matmul(w, ones, out=scales[t])
            np.matmul(w, step, out=beta)
    return joint, b, d


def _cut(pi: Initial, A: Float[Tensor, "N N"], b: Steps, size: int) -> tuple[Blocks, BlockBelief, BlockBelief]:
    """The blocks of all rows side by side, with p(z | all before) at the start of each and β at its end."""
    num_steps, rows, num_states = b.shape
    num_blocks = num_steps // size
    if num_blocks < 2:
        return b, pi.expand(rows, -1), b.new_ones(rows, num_states)
    blocks = b.unflatten(0, (num_blocks, size)).transpose(0, 1).flatten(1, 2)
    through = torch.eye(num_states, dtype=b.dtype).repeat(blocks.shape[1], 1)
    log_scale = through.new_zeros(len(through), 1)
    for here in blocks:
        belief, c = hmm.condition(through, here.repeat_interleave(num_states, 0))
        through, log_scale = hmm.predict(belief, A), log_scale + c.clamp(min=_least(c.dtype)).log()
    log_through = (through.log() + log_scale).view(num_blocks, rows, num_states, num_states)
    log_first, log_rest = [pi.log().expand(rows, -1)], [b.new_zeros(rows, num_states)]
    for k in range(num_blocks - 1):
        log_first.append(torch.logsumexp(log_first[-1][:, :, None] + log_through[k], 1))
        log_rest.append(torch.logsumexp(log_through[-1 - k] + log_rest[-1][:, None], -1))
    first, rest = (torch.cat(x).softmax(-1).nan_to_num(0.0) for x in (log_first, log_rest[::-1]))
    return blocks, first, hmm.predict(rest, A.mT)


def _joined(blocks: Float[Tensor, "M R K"], b: Steps) -> Float[Tensor, "T B K"]:
    """The blocks of each row one after the other again."""
    num_blocks = len(b) // max(1, len(blocks))
    return blocks if num_blocks < 2 else blocks.unflatten(1, (num_blocks, -1)).transpose(0, 1).flatten(0, 1)


def _lost(scale: Scale) -> Int[Tensor, " R"]:
    """The rows in which some scale is too small to have all its digits, or no number any more."""
    return (~(scale >= _least(scale.dtype)).all(0)).nonzero()[:, 0]


def _least(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).tiny / torch.finfo(dtype).eps
