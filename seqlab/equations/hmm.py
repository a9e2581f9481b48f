"""The hidden Markov model of the lectures: a belief over N states, predicted in time and corrected by observations.

π is the distribution of the first state z_1, A_ij = p(z_t = j | z_{t-1} = i), and `log_b` holds log p(x_t | z_t = j).
A missing observation has `log_b` = 0 in every state, so that it does not correct the belief. Positions from `lengths`
on are pads: their values are ignored, and the results there are zeros.

A may also be p(w | u, v). Then a state is a pair of K labels: (u, v) has the number u K + v, where v counts from 0 and
u from 1 (u = 0: v is the first label). A step of `viterbi` then costs K³ instead of the K⁴ of a matrix over pairs.

The recursions use log probabilities, so that they work for any length; -inf means impossible, and nothing is NaN.
Models run the fast version in `kernels.forward_backward`.
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
    """E5: p(z_t = j | x_<t) = Σ_i p(z_{t-1} = i | x_<t) A_ij: one step in time without an observation."""
    return belief @ as_matrix(A)


def as_matrix(A: Moves) -> Matrix:
    """Return the transition matrix over all states; between pairs of labels, most transitions are impossible."""
    if A.dim() == 2:
        return A
    num_labels, num_states = A.shape[2], A.shape[0] * A.shape[1]
    state, label = torch.arange(num_states)[:, None], torch.arange(num_labels)
    goes_to = (state % num_labels + 1) * num_labels + label
    return A.new_zeros(num_states, num_states).scatter_(1, goes_to, A.flatten(0, 1))


def moves_of(xi: Matrix, A: Moves) -> Moves:
    """Return transition counts over all states in the shape of A: for a pair (u, v), those to (v, w)."""
    if A.dim() == 2:
        return xi
    return (
        xi.unflatten(0, A.shape[:2]).unflatten(2, A.shape[:2])[:, :, 1:].diagonal(dim1=1, dim2=2).mT
    )


def condition(predicted: Belief, b: Belief) -> tuple[Belief, Float[Tensor, "B 1"]]:
    """E6: p(z_t | x_≤t) = p(z_t | x_<t) b_t / c_t, and the normaliser c_t = p(x_t | x_<t)."""
    joint = predicted * b
    c = joint.sum(-1, keepdim=True)
    return joint / c.clamp(min=torch.finfo(c.dtype).tiny), c


def forward(pi: Initial, A: Moves, log_b: Trellis, lengths: RowIds) -> tuple[Trellis, PerRow]:
    """E7: E5 and E6 alternately: the filtered belief p(z_t | x_≤t) = α_t(j) / Σ_j α_t(j), and log p(x)."""
    log_alpha, log_p = log_forward(pi, A, log_b, lengths)
    return _distribution(log_alpha, lengths), log_p


def log_forward(pi: Initial, A: Moves, log_b: Trellis, lengths: RowIds) -> tuple[Trellis, PerRow]:
    """E7: log α_t(j) = log Σ_i exp(log α_{t-1}(i) + log A_ij) + log b_t(j), and log p(x) = log Σ_j α_T(j)."""
    log_A = as_matrix(A).log()
    log_b = _at_real(log_b, lengths)
    log_alpha = [pi.log() + log_b[:, 0]]
    for log_b_t in log_b[:, 1:].unbind(1):
        log_alpha.append(torch.logsumexp(log_alpha[-1][:, :, None] + log_A, 1) + log_b_t)
    steps = torch.stack(log_alpha, 1)
    rows = torch.arange(len(lengths), device=A.device)
    return steps, torch.logsumexp(steps[rows, lengths - 1], -1).masked_fill(lengths == 0, 0.0)


def log_backward(A: Moves, log_b: Trellis, lengths: RowIds) -> Trellis:
    """E8: β_t(i) = p(x_>t | z_t = i): log β_t(i) = log Σ_j exp(log A_ij + log b_{t+1}(j) + log β_{t+1}(j)), 0 at T."""
    log_A = as_matrix(A).log()
    log_b = _at_real(log_b, lengths)
    log_beta = [torch.zeros_like(log_b[:, 0])]
    for log_b_next in reversed(log_b[:, 1:].unbind(1)):
        log_beta.append(torch.logsumexp(log_A + (log_b_next + log_beta[-1])[:, None], -1))
    return torch.stack(log_beta[::-1], 1)


def posterior(
    pi: Initial,
    A: Moves,
    log_b: Trellis,
    lengths: RowIds,
    weights: PerRow | None = None,
) -> Posterior:
    """E9: γ_t(i) = α_t(i) β_t(i) / p(x) and ξ_ij = Σ_t α_{t-1}(i) A_ij b_t(j) β_t(j) / p(x).

    `weights` are those of the rows in ξ. An impossible row has a posterior of zeros.
    """
    weights = log_b.new_ones(len(log_b)) if weights is None else weights
    log_alpha, log_p = log_forward(pi, A, log_b, lengths)
    log_beta = log_backward(A, log_b, lengths)
    log_A = as_matrix(A).log()
    xi = torch.zeros_like(log_A)
    log_future = _at_real(log_b, lengths) + log_beta - log_p[:, None, None]
    for t in range(1, log_b.shape[1]):
        pair = (log_alpha[:, t - 1, :, None] + log_A + log_future[:, t, None]).exp().nan_to_num(0.0)
        xi = xi + torch.einsum("b,bij->ij", weights * (t < lengths), pair)
    return Posterior(_distribution(log_alpha + log_beta, lengths), moves_of(xi, A), log_p)


def viterbi(pi: Initial, A: Moves, log_b: Trellis, lengths: RowIds) -> tuple[PositionIds, PerRow]:
    """E10: argmax_z log p(x, z) and its value, from δ_t(j) = max_i (δ_{t-1}(i) + log A_ij) + log b_t(j)."""
    # transposed, so that the maximum runs over contiguous memory
    log_A = (A.mT if A.dim() == 2 else A.permute(1, 2, 0)).log().contiguous()
    delta = pi.log().expand(len(lengths), -1)
    backpointers = []
    stay = torch.arange(len(pi), device=A.device)
    for t, log_b_t in enumerate(log_b.unbind(1)):
        moved, best = _best_move(delta, log_A) if t else (delta, stay)
        is_real = (t < lengths)[:, None]
        delta = torch.where(is_real, moved + log_b_t, delta)
        backpointers.append(torch.where(is_real, best, stay))
    log_p, state = delta.max(-1)
    path = []
    for best in reversed(backpointers):
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
    """E11: θ_k = (n_k + pseudo) / Σ_k (n_k + pseudo), with the counts γ_1 for π, ξ for A, and γ at x_t = k for B.

    A probability of zero stays zero, as in EM without pseudo-counts, so that a left-to-right chain keeps its structure.
    A state without counts keeps its last distribution.
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
    """max_i δ(i) + log A_ij for each j, and the argmax i; for pairs (v, w), over the label u before them."""
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
    """exp(log p) normalised over the states; zeros at pads, and where all states are impossible."""
    return _at_real(log_p.softmax(-1).nan_to_num(0.0), lengths)


def _at_real(x: Trellis, lengths: RowIds) -> Trellis:
    """Set the pads to zero: as `log_b` they are missing observations, which do not change the likelihood."""
    pads = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
    return x.masked_fill(pads[..., None], 0.0)
