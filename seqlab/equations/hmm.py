"""The hidden Markov model, as the lectures write it: a belief over N states that time moves and observations sharpen.

π is the distribution of the first state z_1, A_ij = p(z_t = j | z_{t-1} = i), and `log_b` holds log p(x_t | z_t = j).
A missing observation has `log_b` = 0 in every state: time passes and nothing is learnt. Positions from `lengths` on
are pads: whatever lies there is not read, and zeros come back.

A may also be p(w | u, v). Then a state is a pair of K labels: (u, v) has the number u K + v, where v counts from 0 and
u from 1 (u = 0: there is none before v), and a step costs K³, not the K⁴ of a matrix over pairs.

The recursions run on probabilities that are normalised at every step, which is quick and, unlike a plain product,
reaches any length; a few long rows are cut into blocks that run side by side. Where a number falls below the smallest
there is, and it matters (the states that can be reached are hundreds of nats worse than one that cannot), the row is
done again in logs. So -inf means impossible, and nothing is NaN.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

Moves = Float[Tensor, "N N"] | Float[Tensor, "U K K"]


class Posterior(NamedTuple):
    """E9: p(z_t | x), Σ_t p(z_{t-1}, z_t | x) over all rows, and log p(x)."""

    gamma: Float[Tensor, "B T N"]
    xi: Moves
    log_likelihood: Float[Tensor, " B"]


def predict(belief: Float[Tensor, "B N"], A: Moves) -> Float[Tensor, "B N"]:
    """E5: p(z_t = j | x_<t) = Σ_i p(z_{t-1} = i | x_<t) A_ij: where the state goes while nobody looks."""
    if A.dim() == 2:
        return belief @ A
    by_last = belief.unflatten(-1, A.shape[:2]).permute(2, 0, 1) @ A.transpose(0, 1)  # v B w
    return torch.nn.functional.pad(by_last.transpose(0, 1), (0, 0, 1, 0)).flatten(1)


def predict_back(rest: Float[Tensor, "B N"], A: Moves) -> Float[Tensor, "B N"]:
    """Σ_j A_ij rest_j: how well each state foretells what comes after it."""
    if A.dim() == 2:
        return rest @ A.mT
    by_last = rest.unflatten(-1, A.shape[:2])[:, 1:].transpose(0, 1) @ A.permute(1, 2, 0)  # v B u
    return by_last.permute(1, 2, 0).flatten(1)


def as_matrix(A: Moves) -> Float[Tensor, "N N"]:
    """A over all states; of pairs, most moves are impossible."""
    if A.dim() == 2:
        return A
    num_labels, num_states = A.shape[2], A.shape[0] * A.shape[1]
    state, label = torch.arange(num_states)[:, None], torch.arange(num_labels)
    goes_to = (state % num_labels + 1) * num_labels + label
    return A.new_zeros(num_states, num_states).scatter_(1, goes_to, A.flatten(0, 1))


def condition(
    predicted: Float[Tensor, "B N"], b: Float[Tensor, "B N"]
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B 1"]]:
    """E6: p(z_t | x_≤t) = p(z_t | x_<t) b_t / c_t, and c_t = p(x_t | x_<t), the sum that normalises it."""
    joint = predicted * b
    c = joint.sum(-1, keepdim=True)
    return joint / c.clamp(min=_least(c.dtype)), c


def forward(
    pi: Float[Tensor, " N"], A: Moves, log_b: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "B T N"], Float[Tensor, " B"]]:
    """E7: E5 and E6 in turn: the filtered belief p(z_t | x_≤t), and log p(x) = Σ_t log c_t."""
    b, top = _likelihoods(log_b, lengths)
    blocks, first, last = _cut(pi, A, b)
    alpha, c = (_joined(part, b) for part in _filter(first, A, blocks))
    filtered, log_likelihood = _at_real(alpha, lengths), _at_real(c.log() + top, lengths).sum((1, 2))
    lost = _rows(c)
    if A.min() < _least(A.dtype):  # a state that was given up may have been right: only what follows can tell
        beta, _ = (_joined(part, b) for part in _look_back(last, A, blocks))
        lost = _rows(torch.minimum(c, (alpha * beta).sum(-1, keepdim=True)))
    if len(lost):
        log_alpha, log_p = log_forward(pi, A, log_b[lost], lengths[lost])
        filtered = filtered.index_copy(0, lost, _distribution(log_alpha, lengths[lost]))
        log_likelihood = log_likelihood.index_copy(0, lost, log_p)
    return filtered, log_likelihood


def backward(A: Moves, log_b: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T N"]:
    """E8: β_t(i) = p(x_>t | z_t = i) = Σ_j A_ij b_{t+1}(j) β_{t+1}(j), scaled at each t to sum to one over i."""
    b, _ = _likelihoods(log_b, lengths)
    blocks, _, last = _cut(A.new_full(b.shape[2:], 1 / b.shape[2]), A, b)
    beta, d = (_joined(part, b) for part in _look_back(last, A, blocks))
    scaled = _at_real(beta / beta.sum(-1, keepdim=True), lengths)
    lost = _rows(d)
    if len(lost):
        log_beta = log_backward(A, log_b[lost], lengths[lost])
        scaled = scaled.index_copy(0, lost, _distribution(log_beta, lengths[lost]))
    return scaled


def posterior(
    pi: Float[Tensor, " N"],
    A: Moves,
    log_b: Float[Tensor, "B T N"],
    lengths: Int[Tensor, " B"],
    weights: Float[Tensor, " B"] | None = None,
) -> Posterior:
    """E9: γ_t(i) = α_t(i) β_t(i) / z_t and ξ_ij = Σ_t α_{t-1}(i) A_ij b_t(j) β_t(j) / c_t z_t, z_t = Σ_i α_t(i) β_t(i).

    ξ is one matrix product over all positions of all rows; `weights` says how often each row counts in it.
    """
    b, top = _likelihoods(log_b, lengths)
    weights = b.new_ones(len(b)) if weights is None else weights
    blocks, first, last = _cut(pi, A, b)
    alpha, c = (_joined(part, b) for part in _filter(first, A, blocks))
    beta, d = (_joined(part, b) for part in _look_back(last, A, blocks))
    joint = alpha * beta
    z = joint.sum(-1, keepdim=True)
    lost = _rows(torch.minimum(c * z, d))
    if len(lost):
        alpha, beta, joint = (x.index_fill(0, lost, 0.0) for x in (alpha, beta, joint))
        c, z = (x.index_fill(0, lost, 1.0) for x in (c, z))
    gamma = _at_real(joint.div_(z), lengths)
    xi = A * _over_time(alpha, b * beta * _at_real(weights[:, None, None] / (c * z), lengths), A)
    log_likelihood = _at_real(c.log() + top, lengths).sum((1, 2))
    if len(lost):
        redone = _posterior_in_logs(pi, A, log_b[lost], lengths[lost], weights[lost])
        gamma = gamma.index_copy(0, lost, redone.gamma)
        log_likelihood = log_likelihood.index_copy(0, lost, redone.log_likelihood)
        xi = xi + redone.xi
    return Posterior(gamma, xi, log_likelihood)


def viterbi(
    pi: Float[Tensor, " N"], A: Moves, log_b: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]
) -> tuple[Int[Tensor, "B T"], Float[Tensor, " B"]]:
    """E10: argmax_z log p(x, z) and its value, from δ_t(j) = max_i (δ_{t-1}(i) + log A_ij) + log b_t(j)."""
    log_A = (A.mT if A.dim() == 2 else A.permute(1, 2, 0)).log().contiguous()  # the maximum runs along memory
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
    counts: Float[Tensor, "*rows N"],
    last: Float[Tensor, "*rows N"],
    *,
    pseudo: float | Float[Tensor, "*rows N"] = 0.0,
) -> Float[Tensor, "*rows N"]:
    """E11: θ_k = (n_k + pseudo) / Σ_k (n_k + pseudo), where γ_1 counts for π, ξ for A, and γ at x_t = k for B.

    What is impossible stays so, as in EM without pseudo-counts: a chain that only goes right keeps its shape. A state
    that nothing visits keeps its last distribution, because the data say nothing about it.
    """
    total = counts.sum(-1, keepdim=True)
    smoothed = counts + pseudo * (last > 0)
    return torch.where(total > 0, smoothed / smoothed.sum(-1, keepdim=True).clamp(min=_least(total.dtype)), last)


def log_forward(
    pi: Float[Tensor, " N"], A: Moves, log_b: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "B T N"], Float[Tensor, " B"]]:
    """E7 in logs: log α_t(j) = log Σ_i exp(log α_{t-1}(i) + log A_ij) + log b_t(j), and log p(x)."""
    log_A, log_b = as_matrix(A).log(), _at_real(log_b, lengths)
    log_alpha = [pi.log() + log_b[:, 0]]
    for here in log_b[:, 1:].unbind(1):
        log_alpha.append(torch.logsumexp(log_alpha[-1][:, :, None] + log_A, 1) + here)
    return torch.stack(log_alpha, 1), torch.logsumexp(log_alpha[-1], -1)


def log_backward(A: Moves, log_b: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T N"]:
    """E8 in logs: log β_t(i) = log Σ_j exp(log A_ij + log b_{t+1}(j) + log β_{t+1}(j)); 0 at the end."""
    log_A, log_b = as_matrix(A).log(), _at_real(log_b, lengths)
    log_beta = [torch.zeros_like(log_b[:, 0])]
    for after in reversed(log_b[:, 1:].unbind(1)):
        log_beta.append(torch.logsumexp(log_A + (after + log_beta[-1])[:, None], -1))
    return torch.stack(log_beta[::-1], 1)


def _best_move(
    delta: Float[Tensor, "B N"], log_A: Float[Tensor, "... N"] | Float[Tensor, "K K U"]
) -> tuple[Float[Tensor, "B N"], Int[Tensor, "B N"]]:
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


def _likelihoods(
    log_b: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "B T N"], Float[Tensor, "B T 1"]]:
    """b = exp(log b - top), where top makes the largest 1; where all are -inf, all become 0.

    In memory the steps come first, here and in all that is computed from it: each is then read in one piece.
    """
    log_b = _at_real(log_b, lengths).transpose(0, 1).contiguous().transpose(0, 1)
    top = log_b.amax(-1, keepdim=True).clamp(min=torch.finfo(log_b.dtype).min)
    return (log_b - top).exp_(), top


def _filter(
    first: Float[Tensor, "R N"], A: Moves, b: Float[Tensor, "R T N"]
) -> tuple[Float[Tensor, "R T N"], Float[Tensor, "R T 1"]]:
    """E7 from a belief before the first observation: E6 and E5 in the fewest operations; gives α_t and c_t.

    A step that falls to zero leaves NaN in its row, which `_rows` finds.
    """
    predicted, beliefs, scales, ones = first, [], [], A.new_ones(b.shape[2], 1)
    for here in b.unbind(1):
        belief = predicted * here
        scales.append(belief @ ones)
        beliefs.append(belief.div_(scales[-1]))
        predicted = predict(belief, A)
    return torch.stack(beliefs).transpose(0, 1), torch.stack(scales).transpose(0, 1)


def _look_back(
    last: Float[Tensor, "R N"], A: Moves, b: Float[Tensor, "R T N"]
) -> tuple[Float[Tensor, "R T N"], Float[Tensor, "R T 1"]]:
    """E8 from β after the last observation: with w_t = b_t β_t the same steps with Aᵀ; gives β_t and Σ w_t."""
    betas, scales, ones = [last], [], A.new_ones(b.shape[2], 1)
    for here in reversed(b.unbind(1)):
        w = betas[-1] * here
        scales.append(w @ ones)
        betas.append(predict_back(w.div_(scales[-1]), A))
    return torch.stack(betas[-2::-1]).transpose(0, 1), torch.stack(scales[::-1]).transpose(0, 1)


def _cut(
    pi: Float[Tensor, " N"], A: Moves, b: Float[Tensor, "B T N"]
) -> tuple[Float[Tensor, "R M N"], Float[Tensor, "R N"], Float[Tensor, "R N"]]:
    """Long rows cut into blocks, with p(z | all before) at the start of each and β at its end; short rows as they are.

    Each block is run once from every state, which costs N times the work in √T steps instead of T: for few and long
    rows the number of steps is what takes the time.
    """
    rows, num_steps, num_states = b.shape
    if num_steps < 1000 or not 0 < rows * num_states**3 < 50_000 or A.dim() > 2:
        b = b if num_steps else b.new_ones(rows, 1, num_states)  # rows without a position still have one step to run
        return b, pi.expand(rows, -1), b.new_ones(rows, num_states)
    size = math.isqrt(num_steps)
    num_blocks = -(-num_steps // size)
    padded = torch.nn.functional.pad(b, (0, 0, 0, num_blocks * size - num_steps), value=1.0)
    blocks = padded.unflatten(1, (num_blocks, size)).flatten(0, 1)
    through = torch.eye(num_states, dtype=b.dtype, device=b.device).repeat(len(blocks), 1)
    log_scale = through.new_zeros(len(through), 1)
    for here in blocks.unbind(1):
        belief, c = condition(through, here.repeat_interleave(num_states, 0))
        through, log_scale = predict(belief, A), log_scale + c.clamp(min=_least(c.dtype)).log()
    log_through = (through.log() + log_scale).view(rows, num_blocks, num_states, num_states).unbind(1)
    log_first, log_rest = [pi.log().expand(rows, -1)], [b.new_zeros(rows, num_states)]
    for k in range(num_blocks - 1):
        log_first.append(torch.logsumexp(log_first[-1][:, :, None] + log_through[k], 1))
        log_rest.append(torch.logsumexp(log_through[-1 - k] + log_rest[-1][:, None], -1))
    first, rest = (torch.stack(x, 1).softmax(-1).nan_to_num(0.0).flatten(0, 1) for x in (log_first, log_rest[::-1]))
    return blocks, first, predict(rest, A.mT)


def _joined(blocks: Float[Tensor, "R M N"], b: Float[Tensor, "B T S"]) -> Float[Tensor, "B T N"]:
    """The blocks of each row of b side by side again."""
    num_blocks = len(blocks) // max(len(b), 1)
    return blocks.reshape(len(b), num_blocks * blocks.shape[1], blocks.shape[2])[:, : b.shape[1]]


def _over_time(x: Float[Tensor, "B T N"], y: Float[Tensor, "B T N"], A: Moves) -> Moves:
    """Σ_t x_{t-1} y_tᵀ over all rows, where A has a move."""
    x, y = x.transpose(0, 1)[:-1].flatten(0, 1), y.transpose(0, 1)[1:].flatten(0, 1)
    if A.dim() == 2:
        return x.mT @ y
    before, after = x.unflatten(-1, A.shape[:2]), y.unflatten(-1, A.shape[:2])[:, 1:]  # P u v, P v w
    return (before.permute(2, 1, 0) @ after.transpose(0, 1)).transpose(0, 1)


def _posterior_in_logs(
    pi: Float[Tensor, " N"],
    A: Moves,
    log_b: Float[Tensor, "B T N"],
    lengths: Int[Tensor, " B"],
    weights: Float[Tensor, " B"],
) -> Posterior:
    """E9 in logs; an impossible row has a posterior of zeros."""
    log_alpha, log_p = log_forward(pi, A, log_b, lengths)
    log_beta, matrix = log_backward(A, log_b, lengths), as_matrix(A)
    arriving, xi = _at_real(log_b, lengths) + log_beta - log_p[:, None, None], torch.zeros_like(matrix)
    for t in range(1, log_b.shape[1]):
        pair = (log_alpha[:, t - 1, :, None] + matrix.log() + arriving[:, t, None]).exp().nan_to_num(0.0)
        xi = xi + torch.einsum("b,bij->ij", weights * (t < lengths), pair)
    if A.dim() > 2:  # of pair (u, v), the moves to (v, w)
        xi = xi.unflatten(0, A.shape[:2]).unflatten(2, A.shape[:2])[:, :, 1:].diagonal(dim1=1, dim2=2).mT
    return Posterior(_distribution(log_alpha + log_beta, lengths), xi, log_p)


def _distribution(log_p: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T N"]:
    """exp(log p) normalised over the states; zeros where nothing is possible, and at the pads."""
    return _at_real(log_p.softmax(-1).nan_to_num(0.0), lengths)


def _at_real(x: Float[Tensor, "B T N"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B T N"]:
    """Zeros at the pads: as `log_b` they observe nothing, and since the rows of A sum to one they change nothing."""
    pads = torch.arange(x.shape[1], device=x.device) >= lengths[:, None]
    return x.masked_fill(pads[..., None], 0.0) if pads.any() else x


def _rows(scale: Float[Tensor, "B T 1"]) -> Int[Tensor, " R"]:
    """The rows in which the scale of some step is too small, or no number any more."""
    fine = scale >= _least(scale.dtype)
    return (~fine.all(1)).nonzero()[:, 0]


@cache
def _least(dtype: torch.dtype) -> float:
    """The smallest sum that still has all its digits."""
    return torch.finfo(dtype).tiny / torch.finfo(dtype).eps
