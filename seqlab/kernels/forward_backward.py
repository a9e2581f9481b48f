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
from seqlab.equations.hmm import Posterior

EVERY = 8
"""Steps from one scaling to the next."""


def forward(
    pi: Float[Tensor, " N"],
    A: Float[Tensor, "N N"],
    log_b: Float[Tensor, "B T N"],
    lengths: Int[Tensor, " B"],
    *,
    every: int = EVERY,
) -> tuple[Float[Tensor, "B T N"], Float[Tensor, " B"]]:
    """The twin of `equations.hmm.forward`."""
    size = _block_size(*log_b.shape)
    b, top, real = _likelihoods(log_b, lengths, size)
    blocks, first, last = _cut(pi, A, b, size)
    alpha, c = (_joined(part, b) for part in _filter(first, A, blocks, every))
    scales, total = [c], alpha @ b.new_ones(b.shape[-1], 1)
    if A.min() < _least(A.dtype):  # a state that was given up may have been right: only what follows can tell
        beta, _ = (_joined(part, b) for part in _look_back(last, A, blocks, every))
        scales.append(beta.mul_(alpha).sum(-1, keepdim=True))
    filtered = alpha.mul_(real / total).transpose(0, 1)[:, : log_b.shape[1]]
    log_likelihood = (c.log() + top).sum((0, 2))
    if len(lost := _lost(scales)):
        again = partial(forward, every=1) if every > 1 else hmm.forward
        filtered[lost], log_likelihood[lost] = again(pi, A, log_b[lost], lengths[lost])
    return filtered, log_likelihood


def posterior(
    pi: Float[Tensor, " N"],
    A: Float[Tensor, "N N"],
    log_b: Float[Tensor, "B T N"],
    lengths: Int[Tensor, " B"],
    weights: Float[Tensor, " B"] | None = None,
    *,
    every: int = EVERY,
) -> Posterior:
    """The twin of `equations.hmm.posterior`: γ_t(i) = α_t(i) β_t(i) / z_t with z_t = Σ_i α_t(i) β_t(i), for any scale.

    And ξ_ij = A_ij Σ_t α_{t-1}(i) b_t(j) β_t(j) / c_t z_t, one matrix product over all positions of all rows.
    """
    weights = A.new_ones(len(lengths)) if weights is None else weights
    size = _block_size(*log_b.shape)
    b, top, real = _likelihoods(log_b, lengths, size)
    blocks, first, last = _cut(pi, A, b, size)
    alpha, c = (_joined(part, b) for part in _filter(first, A, blocks, every))
    beta, d = (_joined(part, b) for part in _look_back(last, A, blocks, every))
    log_likelihood = (c.log() + top).sum((0, 2))
    arriving, joint = b.mul_(beta), beta.mul_(alpha)
    z = joint @ A.new_ones(len(A), 1)
    lost = _lost([c * z, d])
    for part, harmless in (alpha, 0.0), (arriving, 0.0), (joint, 0.0), (z, 1.0), (c, 1.0):
        part[:, lost] = harmless
    gamma = joint.mul_(real / z).transpose(0, 1)[:, : log_b.shape[1]]
    arriving.mul_(real * weights[:, None] / (c * z))
    xi = A * torch.from_numpy(alpha[:-1].flatten(0, 1).numpy().T @ arriving[1:].flatten(0, 1).numpy())
    if len(lost):
        again = partial(posterior, every=1) if every > 1 else hmm.posterior
        gamma[lost], more, log_likelihood[lost] = again(pi, A, log_b[lost], lengths[lost], weights[lost])
        xi = xi + more
    return Posterior(gamma, xi, log_likelihood)


def _block_size(rows: int, num_steps: int, num_states: int) -> int:
    """√T for few and long rows, else one block.

    A block must be run once from every state, which costs N times the work in √T steps instead of T: for few and long
    rows the number of steps is what takes the time.
    """
    cut = num_steps >= 1000 and 0 < rows * num_states**3 < 50_000
    return math.isqrt(num_steps) if cut else max(1, num_steps)


def _likelihoods(
    log_b: Float[Tensor, "B _ N"], lengths: Int[Tensor, " B"], size: int
) -> tuple[Float[Tensor, "T B N"], Float[Tensor, "T B 1"], Bool[Tensor, "T B 1"]]:
    """b = exp(log b - top), where top makes the largest 1 (where all are -inf, all become 0); and what is no pad.

    Pads, here also up to a whole number of blocks, observe nothing; since the rows of A sum to one they change nothing.
    """
    if extra := -log_b.shape[1] % size:
        log_b = pad(log_b, (0, 0, 0, extra))
    log_b, real = log_b.transpose(0, 1), (torch.arange(log_b.shape[1])[:, None] < lengths)[..., None]
    log_b = log_b if real.all() else log_b.masked_fill(~real, 0.0)
    top = log_b.amax(-1, keepdim=True).clamp(min=torch.finfo(log_b.dtype).min)
    return (log_b - top).exp_().contiguous(), top, real


def _filter(
    first: Float[Tensor, "R N"], A: Float[Tensor, "N N"], b: Float[Tensor, "M R N"], every: int
) -> tuple[Float[Tensor, "M R N"], Float[Tensor, "M R 1"]]:
    """E7 from a belief before the first observation; gives α_t and c_t, by which it was divided, 1 at most steps.

    A step that falls to zero leaves NaN in its row, which `_lost` finds.
    """
    alpha, c = torch.empty_like(b), torch.ones_like(b[..., :1])
    beliefs, scales, step = alpha.numpy(), c.numpy(), A.numpy()
    predicted, ones = first.clone().numpy(), np.ones_like(step[:, :1])
    with np.errstate(divide="ignore", invalid="ignore"):
        for t, here in enumerate(b.numpy(), 1):
            belief = np.multiply(predicted, here, out=beliefs[t - 1])
            if t % every == 0 or t == len(beliefs):
                belief /= np.matmul(belief, ones, out=scales[t - 1])
            np.matmul(belief, step, out=predicted)
    return alpha, c


def _look_back(
    last: Float[Tensor, "R N"], A: Float[Tensor, "N N"], b: Float[Tensor, "M R N"], every: int
) -> tuple[Float[Tensor, "M R N"], Float[Tensor, "M R 1"]]:
    """E8 from β after the last observation: with w_t = b_t β_t the same steps with Aᵀ; gives β_t and scales of w_t."""
    beta, d = torch.empty_like(b), torch.ones_like(b[..., :1])
    betas, scales, likelihoods, step = beta.numpy(), d.numpy(), b.numpy(), A.mT.contiguous().numpy()
    now, w, ones = last.clone().numpy(), np.empty(last.shape, step.dtype), np.ones_like(step[:, :1])
    with np.errstate(divide="ignore", invalid="ignore"):
        for t in reversed(range(len(betas))):
            betas[t] = now
            np.multiply(now, likelihoods[t], out=w)
            if t % every == 0:
                w /= np.matmul(w, ones, out=scales[t])
            np.matmul(w, step, out=now)
    return beta, d


def _cut(
    pi: Float[Tensor, " N"], A: Float[Tensor, "N N"], b: Float[Tensor, "T B N"], size: int
) -> tuple[Float[Tensor, "M R N"], Float[Tensor, "R N"], Float[Tensor, "R N"]]:
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


def _joined(blocks: Float[Tensor, "M R K"], b: Float[Tensor, "T B N"]) -> Float[Tensor, "T B K"]:
    """The blocks of each row one after the other again."""
    num_blocks = len(b) // max(1, len(blocks))
    return blocks if num_blocks < 2 else blocks.unflatten(1, (num_blocks, -1)).transpose(0, 1).flatten(0, 1)


def _lost(scales: list[Float[Tensor, "T B 1"]]) -> Int[Tensor, " R"]:
    """The rows in which some scale is too small to have all its digits, or no number any more."""
    fine = torch.cat(scales) >= _least(scales[0].dtype)
    return (~fine.all(0)).nonzero()[:, 0]


def _least(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).tiny / torch.finfo(dtype).eps
