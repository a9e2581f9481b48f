"""The hidden Markov model, as the lectures write it: a belief over N states that time moves and observations sharpen.

π is the distribution of the first state z_1, A_ij = p(z_t = j | z_{t-1} = i), and `log_b` holds log p(x_t | z_t = j).
A missing observation has `log_b` = 0 in every state: time passes and nothing is learnt. Positions from `lengths` on
are pads: whatever lies there is not read, and zeros come back.

The recursions run in logs: they reach any length, -inf means impossible, and nothing is NaN. What runs in practice is
their twin in `kernels.forward_backward`.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Posterior(NamedTuple):
    """E9: p(z_t | x), Σ_t p(z_{t-1}, z_t | x) over all rows, and log p(x)."""

    gamma: Float[Tensor, "B T N"]
    xi: Float[Tensor, "N N"]
    log_likelihood: Float[Tensor, " B"]


def predict(belief: Float[Tensor, "B N"], A: Float[Tensor, "N N"]) -> Float[Tensor, "B N"]:
    """E5: p(z_t = j | x_<t) = Σ_i p(z_{t-1} = i | x_<t) A_ij: where the state goes while nobody looks."""
    return belief @ A


def condition(
    predicted: Float[Tensor, "B N"], b: Float[Tensor, "B N"]
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B 1"]]:
    """E6: p(z_t | x_≤t) = p(z_t | x_<t) b_t / c_t, and c_t = p(x_t | x_<t), the sum that normalises it."""
    joint = predicted * b
    c = joint.sum(-1, keepdim=True)
    return joint / c.clamp(min=torch.finfo(c.dtype).tiny), c


def forward(
    pi: Float[Tensor, " N"], A: Float[Tensor, "N N"], log_b: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "B T N"], Float[Tensor, " B"]]:
    """E7: E5 and E6 in turn: the filtered belief p(z_t | x_≤t) = α_t(j) / Σ_j α_t(j), and log p(x)."""
    log_alpha, log_p = log_forward(pi, A, log_b, lengths)
    return _distribution(log_alpha, lengths), log_p


def log_forward(
    pi: Float[Tensor, " N"], A: Float[Tensor, "N N"], log_b: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "B T N"], Float[Tensor, " B"]]:
    """E7: log α_t(j) = log Σ_i exp(log α_{t-1}(i) + log A_ij) + log b_t(j), and log p(x) = log Σ_j α_T(j)."""
    log_A, log_b = A.log(), _at_real(log_b, lengths)
    log_alpha = [pi.log() + log_b[:, 0]]
    for here in log_b[:, 1:].unbind(1):
        log_alpha.append(torch.logsumexp(log_alpha[-1][:, :, None] + log_A, 1) + here)
    steps, rows = torch.stack(log_alpha, 1), torch.arange(len(lengths), device=A.device)
    return steps, torch.logsumexp(steps[rows, lengths - 1], -1).masked_fill(lengths == 0, 0.0)


def log_backward(
    A: Float[Tensor, "N N"], log_b: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B T N"]:
    """E8: β_t(i) = p(x_>t | z_t = i): log β_t(i) = log Σ_j exp(log A_ij + log b_{t+1}(j) + log β_{t+1}(j)), 0 at T."""
    log_A, log_b = A.log(), _at_real(log_b, lengths)
    log_beta = [torch.zeros_like(log_b[:, 0])]
    for after in reversed(log_b[:, 1:].unbind(1)):
        log_beta.append(torch.logsumexp(log_A + (after + log_beta[-1])[:, None], -1))
    return torch.stack(log_beta[::-1], 1)


def posterior(
    pi: Float[Tensor, " N"],
    A: Float[Tensor, "N N"],
    log_b: Float[Tensor, "B T N"],
    lengths: Int[Tensor, " B"],
    weights: Float[Tensor, " B"] | None = None,
) -> Posterior:
    """E9: γ_t(i) = α_t(i) β_t(i) / p(x) and ξ_ij = Σ_t α_{t-1}(i) A_ij b_t(j) β_t(j) / p(x).

    `weights` says how often each row counts in ξ. An impossible row has a posterior of zeros.
    """
    weights = log_b.new_ones(len(log_b)) if weights is None else weights
    log_alpha, log_p = log_forward(pi, A, log_b, lengths)
    log_beta, xi = log_backward(A, log_b, lengths), torch.zeros_like(A)
    arriving = _at_real(log_b, lengths) + log_beta - log_p[:, None, None]
    for t in range(1, log_b.shape[1]):
        pair = (log_alpha[:, t - 1, :, None] + A.log() + arriving[:, t, None]).exp().nan_to_num(0.0)
        xi = xi + torch.einsum("b,bij->ij", weights * (t < lengths), pair)
    return Posterior(_distribution(log_alpha + log_beta, lengths), xi, log_p)


def viterbi(
    pi: Float[Tensor, " N"], A: Float[Tensor, "N N"], log_b: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]
) -> tuple[Int[Tensor, "B T"], Float[Tensor, " B"]]:
    """E10: argmax_z log p(x, z) and its value, from δ_t(j) = max_i (δ_{t-1}(i) + log A_ij) + log b_t(j)."""
    log_A, stay = A.log().mT.contiguous(), torch.arange(len(A), device=A.device)  # j i: the maximum runs along memory
    delta, came_from = pi.log().expand(len(lengths), -1), []
    for t, here in enumerate(log_b.unbind(1)):
        moved, best = (delta[:, None] + log_A).max(-1) if t else (delta, stay)
        alive = (t < lengths)[:, None]
        delta = torch.where(alive, moved + here, delta)
        came_from.append(torch.where(alive, best, stay))
    log_p, state = delta.max(-1)
    path = []
    for best in reversed(came_from):
        path.append(state)
        state = best.gather(1, state[:, None]).squeeze(1)
    states = torch.stack(path[::-1], 1) if path else lengths.new_zeros(len(lengths), 0)
    real = torch.arange(log_b.shape[1], device=A.device) < lengths[:, None]
    return states * real, log_p.masked_fill(lengths == 0, 0.0)


def reestimate(
    counts: Float[Tensor, "*rows N"], last: Float[Tensor, "*rows N"], *, pseudo: float = 0.0
) -> Float[Tensor, "*rows N"]:
    """E11: θ_k = (n_k + pseudo) / Σ_k (n_k + pseudo), where γ_1 counts for π, ξ for A, and γ at x_t = k for B.

    What is impossible stays so, as in EM without pseudo-counts: a chain that only goes right keeps its shape. A state
    that nothing visits keeps its last distribution, because the data say nothing about it.
    """
    total = counts.sum(-1, keepdim=True)
    smoothed = counts + pseudo * (last > 0)
    return torch.where(total > 0, smoothed / smoothed.sum(-1, keepdim=True), last)


def _distribution(log_p: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T N"]:
    """exp(log p) normalised over the states; zeros where nothing is possible, and at the pads."""
    return _at_real(log_p.softmax(-1).nan_to_num(0.0), lengths)


def _at_real(x: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T N"]:
    """Zeros at the pads: as `log_b` they observe nothing, and since the rows of A sum to one they change nothing."""
    pads = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
    return x.masked_fill(pads[..., None], 0.0) if pads.any() else x
