"""E14 and E15 with as little work as there is: shared covariances once, and the means of all rows in large products.

Covariances depend on which entries were seen, not on what was seen. So rows with the same pattern share them (they are
one *group*), they are computed again only until they settle, in numpy, whose calls cost less than torch's on matrices
this small; and what is left for each row is a linear recurrence of means. No gradients; the equations have them.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from seqlab.equations.kalman import (
    Evidence,
    Filtered,
    Smoothed,
    System,
    gain,
    log_density,
    smoother_gain,
)
from seqlab.types import HiddenStates, Mask, Vectors

STEADY = 1e-12
"""Covariances that change by less than this share of themselves from one step to the next have settled."""


def kalman_filter(system: System, evidence: Evidence) -> Filtered:
    """The twin of `equations.kalman.kalman_filter`.

    With the gains known, the filter is the recurrence m_t = (I - K_t W_hy)(W_hh m_{t-1} + W_hx x_t) + K_t y_t.
    """
    y, real, entries, x = evidence
    shared = bool((real == real[:1]).all() & (entries == entries[:1]).all())
    groups = 1 if shared else len(y)
    alive, by_step = real[:groups].mT, entries[:groups].transpose(0, 1)
    prior, posterior, K, L = _covariances(system, alive, by_step)

    eye = torch.eye(len(system.m_1), dtype=y.dtype)
    moves = alive[..., None, None] & (torch.arange(len(alive)) > 0)[:, None, None, None]
    W = torch.where(moves, system.W_hh, eye)  # nothing moves at a pad, nor before the first step
    keep = eye - K @ system.W_hy
    values = _columns(torch.where(entries, y, 0.0), groups)
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
    v = values.sub_(system.W_hy @ predicted).mul_(by_step[..., None])
    log_likelihood = log_density(v, L, by_step).sum(0).flatten()
    prior, posterior = (
        part.transpose(0, 1).expand(len(y), -1, -1, -1) for part in (prior, posterior)
    )
    return Filtered(_rows(predicted), prior, _rows(mean), posterior, log_likelihood)


def rts_smoother(system: System, filtered: Filtered, real: Mask) -> Smoothed:
    """The twin of `equations.kalman.rts_smoother`: gains where they change, and the same recurrence from the end."""
    groups = num_groups(filtered.covariance)
    P = filtered.covariance[:groups].transpose(0, 1)
    goes_on = torch.cat([real[:groups, 1:], torch.zeros_like(real[:groups, :1])], dim=1).mT[
        ..., None, None
    ]
    new = torch.ones(len(P), dtype=torch.bool)
    new[1:] = ((P[1:] != P[:-1]) | (goes_on[1:] != goes_on[:-1])).flatten(1).any(1)
    J, C = smoother_gain(P[new], system)
    J, C = J * goes_on[new], torch.where(goes_on[new], C, P[new])
    kind = new.cumsum(0) - 1
    smoothed, J = _smoothed_covariances(_plain(P[-1]), _plain(J), _plain(C), kind.tolist()), J[kind]
    smoothed = smoothed.view(P.shape)
    lagged = torch.cat([torch.zeros_like(P[:1]), smoothed[1:] @ J[:-1].mT])

    mean = _columns(filtered.mean, groups).clone()
    mean[:-1].sub_(J[:-1] @ _columns(filtered.predicted_mean, groups)[1:])
    _scan(J, mean, backwards=True)
    smoothed, lagged = (
        part.transpose(0, 1).expand(len(real), -1, -1, -1) for part in (smoothed, lagged)
    )
    return Smoothed(_rows(mean), smoothed, lagged)


def num_groups(covariance: Float[Tensor, "B T H H"]) -> int:
    """How many rows have covariances of their own: those of one group are the same memory, repeated."""
    return 1 if covariance.stride(0) == 0 else len(covariance)


@np.errstate(all="ignore")  # whether numbers are finite is asked of the factors
def _covariances(
    system: System, real: Bool[Tensor, "T G"], entries: Bool[Tensor, "T G D"]
) -> tuple[Tensor, ...]:
    """E12, E13 for each group, without data: P predicted, P conditioned, K, and L of S, each `T G`.

    Once they settle they are not computed again until the pattern changes.
    """
    pattern = torch.cat([entries, real[..., None]], dim=-1)
    same = [False, *(pattern[1:] == pattern[:-1]).flatten(1).all(1).tolist()]
    alive, by_step = _plain(real[..., None, None]), _plain(entries[..., None])[..., 0]
    W, Q, P = (
        system.W_hh.numpy(),
        system.Q.numpy(),
        _plain(system.P_1.expand(real.shape[1], -1, -1)),
    )
    steps: list[tuple[np.ndarray, ...]] = []
    places: list[int] = []
    steady = False
    for t, unchanged in enumerate(same):
        if not (steady and unchanged):
            prior = np.where(alive[t], _symmetric(W @ P @ W.T + Q), P) if t else P
            K, L, P = _gain(prior, system, by_step[t])
            steady = unchanged and _settled(prior, steps[-1][0])
            steps.append((prior, P, K, L))
        places.append(len(steps) - 1)
    parts = (torch.from_numpy(np.stack(part)[places]) for part in zip(*steps, strict=True))
    return tuple(part[:, None] if part.dim() == 3 else part for part in parts)


def _gain(
    P: np.ndarray, system: System, entries: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The twin of `equations.kalman.gain`, to which it turns where S is singular."""
    Z, R = system.W_hy.numpy(), system.R.numpy()
    U, eye = Z @ P, np.eye(len(Z))
    S = np.where(entries[..., :, None] & entries[..., None, :], U @ Z.T + R, eye)
    U = U * entries[..., None]
    try:
        L = np.linalg.cholesky(S * (1 + 8 * np.finfo(S.dtype).eps * eye))
        apart = np.linalg.inv(L)
        singular = not np.isfinite(apart).all()
    except np.linalg.LinAlgError:
        singular = True
    if singular:
        K, L, P = (
            part.numpy() for part in gain(torch.from_numpy(P), system, torch.from_numpy(entries))
        )
        return K, L, P
    K = (apart.swapaxes(-1, -2) @ (apart @ U)).swapaxes(-1, -2)
    keep = np.eye(P.shape[-1]) - K @ Z
    return K, L, _symmetric(keep @ P @ keep.swapaxes(-1, -2) + K @ R @ K.swapaxes(-1, -2))


@np.errstate(all="ignore")
def _smoothed_covariances(
    last: np.ndarray, gains: np.ndarray, rests: np.ndarray, kind: list[int]
) -> Float[Tensor, "T *G H H"]:
    """Pˢ_t = C_t + J_t Pˢ_{t+1} J_tᵀ from the last step back; once it settles, not again until J and C change."""
    steps, places, steady = [last], [0], False
    for now, then in zip(kind[-2::-1], kind[:0:-1], strict=True):
        if not (steady and now == then):
            steps.append(
                _symmetric(rests[now] + gains[now] @ steps[-1] @ gains[now].swapaxes(-1, -2))
            )
            steady = now == then and _settled(steps[-1], steps[-2])
        places.append(len(steps) - 1)
    return torch.from_numpy(np.stack(steps)[places[::-1]])


def _scan(
    A: Float[Tensor, "T G H H"], s: Float[Tensor, "T G H N"], *, backwards: bool = False
) -> None:
    """s_t ← A_t s_{t-1} + s_t for the N rows of each group, or A_t s_{t+1} + s_t; in place, as fresh memory costs more.

    Two steps are one step with A_{t+1} A_t and A_{t+1} s_t + s_{t+1}: a recurrence of half the length gives every other
    state, and one product the states between. So a thousand steps take ten rounds of large products.
    """
    if len(s) < 2:
        return
    (A_now, A_then), (now, then) = (
        (x[:-1], x[1:]) if backwards else (x[1:], x[:-1]) for x in (A, s)
    )
    odd = len(s) % 2 if backwards else 0
    now[odd::2].add_(A_now[odd::2] @ then[odd::2])
    _scan(A_now[odd::2] @ A_then[odd::2], now[odd::2], backwards=backwards)
    now[1 - odd :: 2].add_(A_now[1 - odd :: 2] @ then[1 - odd :: 2])


def _plain(part: Tensor) -> np.ndarray:
    """Stacks of matrices, one for each group; of one group plain matrices, which cost half of what stacks of one do."""
    return (part.squeeze(-3) if part.shape[-3] == 1 else part).numpy()


def _symmetric(P: np.ndarray) -> np.ndarray:
    return (P + P.swapaxes(-1, -2)) / 2


def _settled(P: np.ndarray, other: np.ndarray) -> bool:
    scale = np.sqrt(P.diagonal(axis1=-2, axis2=-1))
    return bool((np.abs(P - other) <= STEADY * scale[..., :, None] * scale[..., None, :]).all())


def _columns(part: Vectors, groups: int) -> Float[Tensor, "T G D N"]:
    """The rows of each group side by side as the columns of a matrix, as the formulas (and the processor) want them."""
    return part.unflatten(0, (groups, -1)).permute(2, 0, 3, 1).contiguous()


def _rows(part: Float[Tensor, "T G H N"]) -> HiddenStates:
    return part.permute(1, 3, 0, 2).flatten(0, 1)
