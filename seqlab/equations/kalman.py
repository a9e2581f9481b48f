"""The linear dynamical system h_t = W_hh h_{t-1} + W_hx x_t + ε, y_t = W_hy h_t + η, with ε ~ N(0, Q), η ~ N(0, R).

A linearly transformed Gaussian is a Gaussian, so a mean and a covariance say all that is known about a state. The
first state is h_1 ~ N(m_1, P_1); the inputs x_2, x_3, ... drive the steps after it. A pad holds the state as it is. At
a missing value time passes and nothing is learnt; of a vector, single entries may be missing.

Covariances depend on which entries were seen, not on what was seen. So rows with the same pattern share them (they are
one *group*), they are computed again only until they settle, and what is left for each row is a linear recurrence of
means. Every covariance is written as a sum of squares (Joseph's form): it stays positive however long the series.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

STEADY = 1e-12
"""Covariances that change by less than this share of themselves from one step to the next have settled."""


class System(NamedTuple):
    """The parameters, in the lectures' letters; W_hx only where there are inputs."""

    W_hh: Float[Tensor, "H H"]
    W_hy: Float[Tensor, "D H"]
    Q: Float[Tensor, "H H"]
    R: Float[Tensor, "D D"]
    m_1: Float[Tensor, " H"]
    P_1: Float[Tensor, "H H"]
    W_hx: Float[Tensor, "H X"] | None = None


class Filtered(NamedTuple):
    """What is known of h_t before y_t (predicted) and after it; `shared` says that all rows are one group."""

    predicted_mean: Float[Tensor, "B T H"]
    predicted_covariance: Float[Tensor, "B T H H"]
    mean: Float[Tensor, "B T H"]
    covariance: Float[Tensor, "B T H H"]
    log_likelihood: Float[Tensor, " B"]
    shared: bool


class Smoothed(NamedTuple):
    """What is known of h_t after the whole row; `lagged` is Cov(h_t, h_{t-1}), and zero where there is no h_{t-1}."""

    mean: Float[Tensor, "B T H"]
    covariance: Float[Tensor, "B T H H"]
    lagged: Float[Tensor, "B T H H"]


class Pairs(NamedTuple):
    """N pairs of vectors y and z as far as they are known: their means, and their covariances summed over the pairs."""

    y: Float[Tensor, "N Y"]
    z: Float[Tensor, "N Z"]
    yy: Float[Tensor, "Y Y"]
    yz: Float[Tensor, "Y Z"]
    zz: Float[Tensor, "Z Z"]


def predict(
    m: Float[Tensor, "B H"], P: Float[Tensor, "B H H"], system: System, x: Float[Tensor, "B X"] | None = None
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H H"]]:
    """E12: m ← W_hh m + W_hx x_t and P ← W_hh P W_hhᵀ + Q: one step of time, in which nothing is seen."""
    m = m @ system.W_hh.mT
    if system.W_hx is not None and x is not None:
        m = m + x @ system.W_hx.mT
    return m, spread(P, system)


def condition(
    m: Float[Tensor, "B H"],
    P: Float[Tensor, "B H H"],
    system: System,
    y: Float[Tensor, "B D"],
    seen: Bool[Tensor, "B D"],
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H H"], Float[Tensor, " B"]]:
    """E13: m ← m + K (y_t - W_hy m) and P ← P - K W_hy P, with `gain`'s K; and log p(y_t | before), a term of E68."""
    K, L, P = gain(P, system, seen)
    v = torch.where(seen, y - m @ system.W_hy.mT, 0.0)[..., None]
    return m + (K @ v)[..., 0], P, log_density(v, L, seen)[..., 0]


def spread(P: Float[Tensor, "*rows H H"], system: System) -> Float[Tensor, "*rows H H"]:
    """E12: W_hh P W_hhᵀ + Q."""
    return _symmetric(system.W_hh @ P @ system.W_hh.mT + system.Q)


def gain(
    P: Float[Tensor, "*rows H H"], system: System, seen: Bool[Tensor, "*rows D"] | None = None
) -> tuple[Float[Tensor, "*rows H D"], Float[Tensor, "*rows D D"], Float[Tensor, "*rows H H"]]:
    """E13: K = P W_hyᵀ S⁻¹ with S = W_hy P W_hyᵀ + R; L Lᵀ = S; and P - K W_hy P, as a sum of squares.

    An entry that was not seen has a gain of zero, and in S a one of its own on the diagonal: it says nothing.
    """
    U = system.W_hy @ P
    S = U @ system.W_hy.mT + system.R
    if seen is not None:
        U = U * seen[..., None]
        S = torch.where(seen[..., :, None] & seen[..., None, :], S, _eye(S))
    L = factor(S)
    K = torch.cholesky_solve(U, L).mT
    return K, L, _joseph(P, K, system.W_hy, system.R)


def log_density(
    v: Float[Tensor, "*rows D N"], L: Float[Tensor, "*rows D D"], seen: Bool[Tensor, "*rows D"]
) -> Float[Tensor, "*rows N"]:
    """log N(v; 0, L Lᵀ) = -½ (vᵀ S⁻¹ v + log |S| + d log 2π), over the d entries that were seen (v is 0 at others)."""
    z = torch.linalg.solve_triangular(L, _eye(L), upper=False) @ v
    volume = (2 * L.diagonal(dim1=-2, dim2=-1).log() + math.log(2 * math.pi)) * seen
    return -0.5 * ((z * z).sum(-2) + volume.sum(-1, keepdim=True))


def kalman_filter(
    system: System,
    y: Float[Tensor, "B T D"],
    real: Bool[Tensor, "B T"],
    observed: Bool[Tensor, "B T"] | Bool[Tensor, "B T D"] | None = None,
    x: Float[Tensor, "B T X"] | None = None,
) -> Filtered:
    """E14: E12 and E13 at each step; E68: log p(y_1..T) = Σ_t log N(y_t; W_hy m, W_hy P W_hyᵀ + R), m and P predicted.

    With the gains known, the filter is the recurrence m_t = (I - K_t W_hy)(W_hh m_{t-1} + W_hx x_t) + K_t y_t.
    """
    seen = real[..., None].expand(y.shape)
    if observed is not None:
        seen = seen & (observed[..., None] if observed.dim() == 2 else observed)
    shared = bool((real == real[:1]).all() & (seen == seen[:1]).all())
    groups = 1 if shared else len(y)
    alive, looked = real[:groups].mT, seen[:groups].transpose(0, 1)
    prior, posterior, K, L = _covariances(system, alive, looked)

    moves = alive[..., None, None] & (torch.arange(len(alive), device=y.device) > 0)[:, None, None, None]
    W = torch.where(moves, system.W_hh, _eye(system.W_hh))  # nothing moves at a pad, nor before the first step
    keep = _eye(system.W_hh) - K @ system.W_hy
    values = _columns(torch.where(seen, y, 0.0), groups)
    start = system.m_1[:, None].expand(groups, -1, values.shape[-1])
    mean = K @ values
    mean[0].add_(keep[0] @ start)
    drive = None
    if system.W_hx is not None and x is not None:
        drive = torch.where(moves, system.W_hx @ _columns(x, groups), 0.0)
        mean.add_(keep @ drive)
    _scan(keep @ W, mean)

    predicted = torch.empty_like(mean)
    predicted[0] = start
    torch.matmul(W[1:], mean[:-1], out=predicted[1:])
    if drive is not None:
        predicted.add_(drive)
    v = values.sub_(system.W_hy @ predicted).mul_(looked[..., None])
    log_likelihood = log_density(v, L, looked).sum(0).flatten()
    prior, posterior = (part.transpose(0, 1).expand(len(y), -1, -1, -1) for part in (prior, posterior))
    return Filtered(_rows(predicted), prior, _rows(mean), posterior, log_likelihood, shared)


def smoother_gain(
    P: Float[Tensor, "*rows H H"], system: System
) -> tuple[Float[Tensor, "*rows H H"], Float[Tensor, "*rows H H"]]:
    """E15: J = P W_hhᵀ (W_hh P W_hhᵀ + Q)⁻¹ and C = P - J W_hh P: the gain and the rest of seeing h_{t+1} itself."""
    J = torch.cholesky_solve(system.W_hh @ P, factor(spread(P, system))).mT
    return J, _joseph(P, J, system.W_hh, system.Q)


def rts_smoother(system: System, filtered: Filtered, real: Bool[Tensor, "B T"]) -> Smoothed:
    """E15, from the last step back (Rauch, Tung & Striebel 1965); ˢ marks what is known after the whole row:

    mˢ_t = m_t + J_t (mˢ_{t+1} - predicted m_{t+1}), Pˢ_t = C_t + J_t Pˢ_{t+1} J_tᵀ, Cov(h_{t+1}, h_t) = Pˢ_{t+1} J_tᵀ.
    """
    groups = 1 if filtered.shared else len(real)
    P = filtered.covariance[:groups].transpose(0, 1)
    goes_on = torch.cat([real[:groups, 1:], torch.zeros_like(real[:groups, :1])], dim=1).mT[..., None, None]
    J, C = smoother_gain(P, system)
    J, C = J * goes_on, torch.where(goes_on, C, P)

    same = ((J[1:] == J[:-1]) & (C[1:] == C[:-1])).all((1, 2, 3)).tolist()
    S, steady, covariances = P[-1], False, [P[-1]]
    for t in reversed(range(len(same))):
        if not (steady and same[t]):
            after, S = S, _symmetric(C[t] + J[t] @ S @ J[t].mT)
            steady = same[t] and _settled(S, after)
        covariances.append(S)
    smoothed = torch.stack(covariances[::-1])
    lagged = torch.cat([torch.zeros_like(P[:1]), smoothed[1:] @ J[:-1].mT])

    mean = _columns(filtered.mean, groups).clone()
    mean[:-1].sub_(J[:-1] @ _columns(filtered.predicted_mean, groups)[1:])
    _scan(J, mean, backwards=True)
    smoothed, lagged = (part.transpose(0, 1).expand(len(real), -1, -1, -1) for part in (smoothed, lagged))
    return Smoothed(_rows(mean), smoothed, lagged)


def reestimate(
    pairs: Pairs, W: Float[Tensor, "Y Z"], learnt: Bool[Tensor, " Z"]
) -> tuple[Float[Tensor, "Y Z"], Float[Tensor, "Y Y"]]:
    """E16: y regressed on z, W ← Σ E[y zᵀ] (Σ E[z zᵀ])⁻¹; and the noise that is left, 1/N Σ E[(y - W z)(y - W z)ᵀ].

    So h_t on [h_{t-1}; x_t] gives W_hh, W_hx and Q; y_t on h_t gives W_hy and R; h_1 on a one gives m_1 and P_1.
    Written as a step away from W: columns that are not learnt stay, and so do directions that the data do not show.
    """
    zz = (pairs.z.mT @ pairs.z + pairs.zz)[learnt][:, learnt]
    rest = (pairs.y - pairs.z @ W.mT).mT @ pairs.z + pairs.yz - W @ pairs.zz
    zz.diagonal().mul_(1 + 1e-10)
    W = W.clone()
    W[:, learnt] += torch.cholesky_solve(rest[:, learnt].mT, factor(zz)).mT
    r = pairs.y - pairs.z @ W.mT
    across = W @ pairs.yz.mT
    return W, _symmetric(r.mT @ r + pairs.yy - across - across.mT + W @ pairs.zz @ W.mT) / len(r)


def factor(A: Float[Tensor, "*rows D D"]) -> Float[Tensor, "*rows D D"]:
    """L with L Lᵀ = A, for a covariance that may be singular: its variances are raised by as little as it takes.

    A state that is known exactly leaves a covariance of nothing but rounding errors, of either sign: that takes more.
    """
    limits = torch.finfo(A.dtype)
    lift: Tensor | float = 8 * limits.eps
    scale = A.diagonal(dim1=-2, dim2=-1).abs()
    for _ in range(7):
        raised = A.clone()
        raised.diagonal(dim1=-2, dim2=-1).add_(lift * scale).add_(limits.tiny**0.5)
        L, failed = torch.linalg.cholesky_ex(raised)
        if not failed.any():
            return L
        again = failed[..., None] > 0
        lift, scale = torch.where(again, 1000.0, 1.0) * lift, torch.where(again, A.abs().amax(-1), scale)
    raise ValueError("a covariance is not finite: look at the noise covariances, and whether W_hh makes states explode")


def _covariances(system: System, real: Bool[Tensor, "T G"], seen: Bool[Tensor, "T G D"]) -> tuple[Tensor, ...]:
    """E12, E13 for each group, without data: P predicted, P conditioned, K, and L of S, each `T G`.

    Once they settle they are not computed again until the pattern changes.
    """
    pattern = torch.cat([seen, real[..., None]], dim=-1)
    whole = pattern.all(-1).all(-1).tolist()
    same = [False, *(pattern[1:] == pattern[:-1]).all(-1).all(-1).tolist()]
    P, steady = system.P_1.expand(real.shape[1], -1, -1), False
    if one := real.shape[1] == 1:  # plain matrices cost half of what stacks of one matrix do
        P, real, seen = P[0], real[:, 0], seen[:, 0]
    steps: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    which: list[int] = []
    for t, unchanged in enumerate(same):
        if not (steady and unchanged):
            prior = P if t == 0 else spread(P, system)
            prior = prior if whole[t] else torch.where(real[t, ..., None, None], prior, P)
            K, L, P = gain(prior, system, None if whole[t] else seen[t])
            steady = unchanged and _settled(prior, steps[-1][0])
            steps.append((prior, P, K, L))
        which.append(len(steps) - 1)
    parts = (torch.stack(part)[which] for part in zip(*steps, strict=True))
    return tuple(part[:, None] if one else part for part in parts)


def _scan(A: Float[Tensor, "T G H H"], s: Float[Tensor, "T G H N"], *, backwards: bool = False) -> None:
    """s_t ← A_t s_{t-1} + s_t for the N rows of each group, or A_t s_{t+1} + s_t; in place, as fresh memory costs more.

    Two steps are one step with A_{t+1} A_t and A_{t+1} s_t + s_{t+1}: a recurrence of half the length gives every other
    state, and one product the states between. So a thousand steps take ten rounds of large products.
    """
    if len(s) < 2:
        return
    (A_now, A_then), (now, then) = ((x[:-1], x[1:]) if backwards else (x[1:], x[:-1]) for x in (A, s))
    odd = len(s) % 2 if backwards else 0
    now[odd::2].add_(A_now[odd::2] @ then[odd::2])
    _scan(A_now[odd::2] @ A_then[odd::2], now[odd::2], backwards=backwards)
    now[1 - odd :: 2].add_(A_now[1 - odd :: 2] @ then[1 - odd :: 2])


def _joseph(P: Tensor, K: Tensor, W: Tensor, noise: Tensor) -> Tensor:
    """P - K W P = (I - K W) P (I - K W)ᵀ + K noise Kᵀ: squares, so that rounding cannot make it negative."""
    keep = _eye(P) - K @ W
    return _symmetric(keep @ P @ keep.mT + K @ noise @ K.mT)


def _symmetric(P: Tensor) -> Tensor:
    return (P + P.mT) / 2


def _settled(P: Tensor, other: Tensor) -> bool:
    scale = P.diagonal(dim1=-2, dim2=-1).sqrt()
    return bool(((P - other).abs() <= STEADY * scale[..., :, None] * scale[..., None, :]).all())


def _eye(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def _columns(part: Float[Tensor, "B T D"], groups: int) -> Float[Tensor, "T G D N"]:
    """The rows of each group side by side as the columns of a matrix, as the formulas (and the processor) want them."""
    return part.unflatten(0, (groups, -1)).permute(2, 0, 3, 1).contiguous()


def _rows(part: Float[Tensor, "T G H N"]) -> Float[Tensor, "B T H"]:
    return part.permute(1, 3, 0, 2).flatten(0, 1)
