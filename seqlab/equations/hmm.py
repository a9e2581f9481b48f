"""The hidden Markov model, as the lectures write it: a belief over N states that time moves and observations sharpen.

π is the distribution of the first state z_1, A_ij = p(z_t = j | z_{t-1} = i), and `log_b` holds log p(x_t | z_t = j).
A missing observation has `log_b` = 0 in every state: time passes and nothing is learnt. Positions from `lengths` on
are pads: whatever lies there is not read, and zeros come back.

A may also be p(w | u, v). Then a state is a pair of K labels: (u, v) has the number u K + v, where v counts from 0 and
u from 1 (u = 0: there is none before v). A step of `viterbi` then costs K³, not the K⁴ of a matrix over pairs.

The recursions run in logs: they reach any length, -inf means impossible, and nothing is NaN. What runs in practice is
their twin in `kernels.forward_backward`.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from seqlab.types import PerRow, PositionIds, RowIds

Distributions = Float[Tensor, "*rows N"]
Trellis = Float[Tensor, "B T N"]
Belief = Float[Tensor, "B N"]
Initial = Float[Tensor, " N"]
Matrix = Float[Tensor, "N N"]
Moves = Matrix | Float[Tensor, "U K K"]


class Posterior(NamedTuple):
    """E9: p(z_t | x), Σ_t p(z_{t-1}, z_t | x) over all rows, and log p(x)."""

    gamma: Trellis
    xi: Moves
    log_likelihood: PerRow


def predict(belief: Belief, A: Moves) -> Belief:
    """E5: p(z_t = j | x_<t) = Σ_i p(z_{t-1} = i | x_<t) A_ij: where the state goes while nobody looks."""
    return belief @ as_matrix(A)


def as_matrix(A: Moves) -> Matrix:
    """A over all states; of pairs, most moves are impossible."""
    if A.dim() == 2:
        return A
    num_labels, num_states = A.shape[2], A.shape[0] * A.shape[1]
    state, label = torch.arange(num_states)[:, None], torch.arange(num_labels)
    goes_to = (state % num_labels + 1) * num_labels + label
    return A.new_zeros(num_states, num_states).scatter_(1, goes_to, A.flatten(0, 1))


def moves_of(xi: Matrix, A: Moves) -> Moves:
    """What was counted over all states, in the shape of A: of pair (u, v), the moves to (v, w)."""
    if A.dim() == 2:
        return xi
    return (
        xi.unflatten(0, A.shape[:2]).unflatten(2, A.shape[:2])[:, :, 1:].diagonal(dim1=1, dim2=2).mT
    )


def condition(predicted: Belief, b: Belief) -> tuple[Belief, Float[Tensor, "B 1"]]:
    """E6: p(z_t | x_≤t) = p(z_t | x_<t) b_t / c_t, and c_t = p(x_t | x_<t), the sum that normalises it."""
    joint = predicted * b
    c = joint.sum(-1, keepdim=True)
    return joint / c.clamp(min=torch.finfo(c.dtype).tiny), c


def forward(pi: Initial, A: Moves, log_b: Trellis, lengths: RowIds) -> tuple[Trellis, PerRow]:
    """E7: E5 and E6 in turn: the filtered belief p(z_t | x_≤t) = α_t(j) / Σ_j α_t(j), and log p(x)."""
    log_alpha, log_p = log_forward(pi, A, log_b, lengths)
    return _distribution(log_alpha, lengths), log_p


def log_forward(pi: Initial, A: Moves, log_b: Trellis, lengths: RowIds) -> tuple[Trellis, PerRow]:
    """E7: log α_t(j) = log Σ_i exp(log α_{t-1}(i) + log A_ij) + log b_t(j), and log p(x) = log Σ_j α_T(j)."""
    log_A, log_b = as_matrix(A).log(), _at_real(log_b, lengths)
    log_alpha = [pi.log() + log_b[:, 0]]
    for here in log_b[:, 1:].unbind(1):
        log_alpha.append(torch.logsumexp(log_alpha[-1][:, :, None] + log_A, 1) + here)
    steps, rows = torch.stack(log_alpha, 1), torch.arange(len(lengths), device=A.device)
    return steps, torch.logsumexp(steps[rows, lengths - 1], -1).masked_fill(lengths == 0, 0.0)


def log_backward(A: Moves, log_b: Trellis, lengths: RowIds) -> Trellis:
    """E8: β_t(i) = p(x_>t | z_t = i): log β_t(i) = log Σ_j exp(log A_ij + log b_{t+1}(j) + log β_{t+1}(j)), 0 at T."""
    log_A, log_b = as_matrix(A).log(), _at_real(log_b, lengths)
    log_beta = [torch.zeros_like(log_b[:, 0])]
    for after in reversed(log_b[:, 1:].unbind(1)):
        log_beta.append(torch.logsumexp(log_A + (after + log_beta[-1])[:, None], -1))
    return torch.stack(log_beta[::-1], 1)


def posterior(
    pi: Initial,
    A: Moves,
    log_b: Trellis,
    lengths: RowIds,
    weights: PerRow | None = None,
) -> Posterior:
    """E9: γ_t(i) = α_t(i) β_t(i) / p(x) and ξ_ij = Σ_t α_{t-1}(i) A_ij b_t(j) β_t(j) / p(x).

    `weights` says how often each row counts in ξ. An impossible row has a posterior of zeros.
    """
    weights = log_b.new_ones(len(log_b)) if weights is None else weights
    log_alpha, log_p = log_forward(pi, A, log_b, lengths)
    log_beta, log_A = log_backward(A, log_b, lengths), as_matrix(A).log()
    xi = torch.zeros_like(log_A)
    arriving = _at_real(log_b, lengths) + log_beta - log_p[:, None, None]
    for t in range(1, log_b.shape[1]):
        pair = (log_alpha[:, t - 1, :, None] + log_A + arriving[:, t, None]).exp().nan_to_num(0.0)
        xi = xi + torch.einsum("b,bij->ij", weights * (t < lengths), pair)
    return Posterior(_distribution(log_alpha + log_beta, lengths), moves_of(xi, A), log_p)


def viterbi(pi: Initial, A: Moves, log_b: Trellis, lengths: RowIds) -> tuple[PositionIds, PerRow]:
    """E10: argmax_z log p(x, z) and its value, from δ_t(j) = max_i (δ_{t-1}(i) + log A_ij) + log b_t(j)."""
    log_A = (
        (A.mT if A.dim() == 2 else A.permute(1, 2, 0)).log().contiguous()
    )  # the maximum runs along memory
    delta, came_from = pi.log().expand(len(lengths), -1), []
    stay = torch.arange(len(pi), device=A.device)
    for t, here in enumerate(log_b.unbind(1)):
        moved, best = _best_move(delta, log_A) if t else (delta, stay)
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
    counts: Distributions,
    last: Distributions,
    *,
    pseudo: float | Distributions = 0.0,
) -> Distributions:
    """E11: θ_k = (n_k + pseudo) / Σ_k (n_k + pseudo), where γ_1 counts for π, ξ for A, and γ at x_t = k for B.

    What is impossible stays so, as in EM without pseudo-counts: a chain that only goes right keeps its shape. A state
    that nothing visits keeps its last distribution, because the data say nothing about it.
    """
    total = counts.sum(-1, keepdim=True)
    smoothed = counts + pseudo * (last > 0)
    return torch.where(
        total > 0,
        smoothed / smoothed.sum(-1, keepdim=True).clamp(min=torch.finfo(total.dtype).tiny),
        last,
    )


def _best_move(
    delta: Belief, log_A: Float[Tensor, "... N"] | Float[Tensor, "K K U"]
) -> tuple[Belief, Int[Tensor, "B N"]]:
    """max_i δ(i) + log A_ij for each j, and the i; of pairs (v, w), the best u before them."""
    if log_A.dim() == 2:
        value, best = (delta[:, None] + log_A).max(-1)
        return value, best
    num_labels, num_before = len(log_A), log_A.shape[-1]
    by_last = delta.unflatten(-1, (num_before, num_labels)).mT  # B v u
    value, best = (by_last[:, :, None] + log_A).max(-1)  # B v w
    best = best * num_labels + torch.arange(num_labels, device=delta.device)[:, None]
    pad = torch.nn.functional.pad
    return pad(value, (0, 0, 1, 0), value=-math.inf).flatten(1), pad(best, (0, 0, 1, 0)).flatten(1)


def _distribution(log_p: Trellis, lengths: RowIds) -> Trellis:
    """exp(log p) normalised over the states; zeros where nothing is possible, and at the pads."""
    return _at_real(log_p.softmax(-1).nan_to_num(0.0), lengths)


def _at_real(x: Trellis, lengths: RowIds) -> Trellis:
    """Zeros at the pads: as `log_b` they observe nothing, and since the rows of A sum to one they change nothing."""
    pads = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
    return x.masked_fill(pads[..., None], 0.0)
