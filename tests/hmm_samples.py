"""Draws from a hidden Markov model, for tests that need data whose model they know."""

import math

import torch

from seqlab.equations.hmm import as_matrix
from seqlab.padded import Padded
from seqlab.randomness import mix, uniform


def sample(hmm, num, length, *, seed):
    """States and observations, keyed by (seed, row, step): a row is the same in any number and to any length."""
    keys = mix(mix(torch.arange(num), seed)[:, None] + torch.arange(length), 0)
    u, start, move = (
        uniform(keys, 0),
        cumulative(hmm.initial),
        cumulative(as_matrix(hmm.transitions)),
    )
    states = torch.zeros(num, length, dtype=torch.long)
    for t in range(length):
        edges = move[states[:, t - 1]] if t else start
        states[:, t] = (edges <= u[:, t, None]).sum(-1)
    values = emitted(vars(hmm.emissions), states.flatten() % hmm.num_rows, keys.flatten())
    return states, Padded(values.unflatten(0, (num, length)), torch.full((num,), length))


def emitted(tensors, states, keys):
    if "probabilities" in tensors:
        edges = cumulative(tensors["probabilities"])[states]
        return torch.searchsorted(edges, uniform(keys, 1)[:, None], right=True).squeeze(1)
    means = tensors["means"]
    u = uniform(keys[:, None] + torch.arange(means.shape[1]), 1).clamp(min=2.0**-54)
    normal = (math.sqrt(2) * torch.erfinv(2 * u - 1)).to(means.dtype)
    if "variances" in tensors:
        return means[states] + tensors["variances"][states].sqrt() * normal
    factor = torch.linalg.cholesky(tensors["covariances"])[states]
    return means[states] + (factor @ normal[..., None]).squeeze(-1)


def cumulative(probabilities):
    """The cumulative distribution, ending in exactly 1."""
    steps = probabilities.double().cumsum(-1)
    return steps / steps[..., -1:]
