"""The linear dynamical system h_t = W_hh h_{t-1} + W_hx x_t + ε, y_t = W_hy h_t + η, with ε ~ N(0, Q), η ~ N(0, R).

A linear function of a Gaussian is Gaussian, so a mean and a covariance describe the belief about a state. The first
state is h_1 ~ N(m_1, P_1); the inputs x_2, x_3, ... enter at the steps after it. A pad leaves the state unchanged. At a
missing value the state is predicted but not corrected; single entries of a vector may be missing too.

Every covariance is written as a sum of squares (Joseph's form), so that it stays positive over any length. Models run
the fast versions of filter and smoother in `kernels.kalman`.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqlab.types import Entries, HiddenStates, HiddenVector, Mask, PerRow, Square, Vector, Vectors

Regression = Float[Tensor, "Y Z"]
Covariance = Float[Tensor, "*rows H H"]
Mean = Float[Tensor, "B H"]
Factor = Float[Tensor, "*rows D D"]


class System(NamedTuple):
    """The parameters, in the letters of the lectures; W_hx only if there are inputs."""

    W_hh: Square
    W_hy: Float[Tensor, "D H"]
    Q: Square
    R: Float[Tensor, "D D"]
    m_1: HiddenVector
    P_1: Square
    W_hx: Float[Tensor, "H X"] | None = None


class Evidence(NamedTuple):
    """Observations, the mask of real positions, the mask of observed entries, and the inputs if there are any."""

    y: Vectors
    real: Mask
    observed: Entries
    x: Float[Tensor, "B T X"] | None = None


class Filtered(NamedTuple):
    """The distribution of h_t before y_t (predicted) and after it."""

    predicted_mean: HiddenStates
    predicted_covariance: Covariance
    mean: HiddenStates
    covariance: Covariance
    log_likelihood: PerRow


class Smoothed(NamedTuple):
    """The distribution of h_t given the whole row; `lagged` is Cov(h_t, h_{t-1}), and zero for the first step."""

    mean: HiddenStates
    covariance: Covariance
    lagged: Covariance


class Pairs(NamedTuple):
    """Expected statistics of N pairs of vectors y and z: their means, and covariances summed over the pairs."""

    y: Float[Tensor, "N Y"]
    z: Float[Tensor, "N Z"]
    yy: Float[Tensor, "Y Y"]
    yz: Regression
    zz: Float[Tensor, "Z Z"]


def predict(
    m: Mean, P: Covariance, system: System, x: Float[Tensor, "B X"] | None = None
) -> tuple[Mean, Covariance]:
    """E12: m ← W_hh m + W_hx x_t and P ← W_hh P W_hhᵀ + Q: one step in time without an observation."""
    m = m @ system.W_hh.mT
    if system.W_hx is not None and x is not None:
        m = m + x @ system.W_hx.mT
    return m, predict_covariance(P, system)


def condition(
    m: Mean,
    P: Covariance,
    system: System,
    y: Vector,
    entries: Bool[Tensor, "B D"],
) -> tuple[Mean, Covariance, PerRow]:
    """E13: m ← m + K (y_t - W_hy m) and P ← P - K W_hy P, with K of `gain`; and log p(y_t | y_<t), a term of E68."""
    K, L, P = gain(P, system, entries)
    v = torch.where(entries, y - m @ system.W_hy.mT, 0.0)[..., None]
    return m + (K @ v)[..., 0], P, log_density(v, L, entries)[..., 0]


def predict_covariance(P: Covariance, system: System) -> Covariance:
    """E12: W_hh P W_hhᵀ + Q."""
    return _symmetric(system.W_hh @ P @ system.W_hh.mT + system.Q)


def gain(
    P: Covariance, system: System, entries: Bool[Tensor, "*rows D"]
) -> tuple[Float[Tensor, "*rows H D"], Factor, Covariance]:
    """E13: K = P W_hyᵀ S⁻¹ with S = W_hy P W_hyᵀ + R; L Lᵀ = S; and P - K W_hy P, as a sum of squares.

    A missing entry has a gain of zero, and in S the row and column of the identity, so that it has no effect.
    """
    U = system.W_hy @ P
    S = U @ system.W_hy.mT + system.R
    L = factor(torch.where(entries[..., :, None] & entries[..., None, :], S, _eye(S)))
    K = torch.cholesky_solve(U * entries[..., None], L).mT
    return K, L, _joseph(P, K, system.W_hy, system.R)


def log_density(
    v: Float[Tensor, "*rows D N"], L: Factor, entries: Bool[Tensor, "*rows D"]
) -> Float[Tensor, "*rows N"]:
    """log N(v; 0, L Lᵀ) = -½ (vᵀ S⁻¹ v + log |S| + d log 2π), over the d observed entries (v is 0 at the others)."""
    z = torch.linalg.solve_triangular(L, _eye(L), upper=False) @ v
    volume = (2 * L.diagonal(dim1=-2, dim2=-1).log() + math.log(2 * math.pi)) * entries
    return -0.5 * ((z * z).sum(-2) + volume.sum(-1, keepdim=True))


def kalman_filter(system: System, evidence: Evidence) -> Filtered:
    """E14, E68: E12 and E13 at each step; log p(y_1..T) = Σ_t log N(y_t; W_hy m, W_hy P W_hyᵀ + R), m, P predicted."""
    y, real, observed, x = evidence
    m = system.m_1.expand(len(y), -1)
    P = system.P_1.expand(len(y), -1, -1)
    steps = []
    log_likelihood = y.new_zeros(len(y))
    for t in range(y.shape[1]):
        if t:
            next_m, next_P = predict(m, P, system, None if x is None else x[:, t])
            m = torch.where(real[:, t, None], next_m, m)
            P = torch.where(real[:, t, None, None], next_P, P)
        predicted = m, P
        m, P, log_p = condition(m, P, system, y[:, t], observed[:, t])
        log_likelihood = log_likelihood + log_p
        steps.append((*predicted, m, P))
    prior_mean, prior, mean, posterior = (torch.stack(part, 1) for part in zip(*steps, strict=True))
    return Filtered(prior_mean, prior, mean, posterior, log_likelihood)


def smoother_gain(P: Covariance, system: System) -> tuple[Covariance, Covariance]:
    """E15: J = P W_hhᵀ (W_hh P W_hhᵀ + Q)⁻¹ and C = P - J W_hh P: gain and covariance of h_t given h_{t+1}."""
    J = torch.cholesky_solve(system.W_hh @ P, factor(predict_covariance(P, system))).mT
    return J, _joseph(P, J, system.W_hh, system.Q)


def rts_smoother(system: System, filtered: Filtered, real: Mask) -> Smoothed:
    """E15, from the last step back (Rauch, Tung & Striebel 1965); ˢ marks values given the whole row:

    mˢ_t = m_t + J_t (mˢ_{t+1} - predicted m_{t+1}), Pˢ_t = C_t + J_t Pˢ_{t+1} J_tᵀ, Cov(h_{t+1}, h_t) = Pˢ_{t+1} J_tᵀ.
    """
    m = filtered.mean[:, -1]
    P = filtered.covariance[:, -1]
    steps = [(m, P)]
    lagged = []
    for t in reversed(range(real.shape[1] - 1)):
        J, C = smoother_gain(filtered.covariance[:, t], system)
        has_next = real[:, t + 1, None, None]
        J = J * has_next
        C = torch.where(has_next, C, filtered.covariance[:, t])
        m = filtered.mean[:, t] + (J @ (m - filtered.predicted_mean[:, t + 1])[..., None])[..., 0]
        lagged.append(P @ J.mT)
        P = _symmetric(C + J @ P @ J.mT)
        steps.append((m, P))
    lagged.append(torch.zeros_like(P))
    mean, covariance = (torch.stack(part[::-1], 1) for part in zip(*steps, strict=True))
    return Smoothed(mean, covariance, torch.stack(lagged[::-1], 1))


def reestimate(
    pairs: Pairs, W: Regression, learnt: Bool[Tensor, " Z"]
) -> tuple[Regression, Float[Tensor, "Y Y"]]:
    """E16: y regressed on z, W ← Σ E[y zᵀ] (Σ E[z zᵀ])⁻¹; and the residual covariance, 1/N Σ E[(y - W z)(y - W z)ᵀ].

    h_t regressed on [h_{t-1}; x_t] gives W_hh, W_hx and Q; y_t on h_t gives W_hy and R; h_1 on a one gives m_1 and P_1.
    The result is written as a step from W, so that columns that are not learnt, and directions without data, stay.
    """
    zz = (pairs.z.mT @ pairs.z + pairs.zz)[learnt][:, learnt]
    residual = (pairs.y - pairs.z @ W.mT).mT @ pairs.z + pairs.yz - W @ pairs.zz
    zz.diagonal().mul_(1 + 1e-10)
    W = W.clone()
    W[:, learnt] += torch.cholesky_solve(residual[:, learnt].mT, factor(zz)).mT
    r = pairs.y - pairs.z @ W.mT
    cross = W @ pairs.yz.mT
    return W, _symmetric(r.mT @ r + pairs.yy - cross - cross.mT + W @ pairs.zz @ W.mT) / len(r)


def factor(A: Factor) -> Factor:
    """Return L with L Lᵀ = A; if A is singular, its variances are increased as little as needed.

    If a state is known exactly, its covariance is only rounding errors of either sign, which needs a larger increase.
    """
    limits = torch.finfo(A.dtype)
    increase: Tensor | float = 8 * limits.eps
    scale = A.diagonal(dim1=-2, dim2=-1).abs()
    for _ in range(7):
        regular = A.clone()
        regular.diagonal(dim1=-2, dim2=-1).add_(increase * scale).add_(limits.tiny**0.5)
        L, failed = torch.linalg.cholesky_ex(regular)
        if not failed.any():
            return L
        has_failed = failed[..., None] > 0
        increase = torch.where(has_failed, 1000.0, 1.0) * increase
        scale = torch.where(has_failed, A.abs().amax(-1), scale)
    raise ValueError(
        "a covariance is not finite: check the noise covariances, and whether W_hh lets the states explode"
    )


def _joseph(P: Tensor, K: Tensor, W: Tensor, noise: Tensor) -> Tensor:
    """P - K W P = (I - K W) P (I - K W)ᵀ + K noise Kᵀ: a sum of squares, which rounding cannot make negative."""
    keep = _eye(P) - K @ W
    return _symmetric(keep @ P @ keep.mT + K @ noise @ K.mT)


def _symmetric(P: Tensor) -> Tensor:
    return (P + P.mT) / 2


def _eye(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)
