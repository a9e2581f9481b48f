"""The Transformer apart from attention: norms, the feed-forward network, and adaptive halting."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.types import Features, FlatVectors, Mask, PerPosition, Scalar, Vectors

PerFeature = Float[Tensor, " D"]

Sublayer = Callable[[Tensor], Tensor]

EPSILON = 1e-5  # of norms


def layer_norm(x: Features, gain: PerFeature, bias: PerFeature) -> Features:
    """E50: gain (x - μ) / √(σ² + ε) + bias, with μ and σ² over the features of each position, σ² with 1/d."""
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return gain * (x - mean) / (variance + EPSILON).sqrt() + bias


def batch_norm(x: FlatVectors, gain: PerFeature, bias: PerFeature) -> FlatVectors:
    """E51: E50 with μ and σ² over all positions of the batch, for each feature."""
    mean = x.mean(0)
    variance = (x - mean).square().mean(0)
    return gain * (x - mean) / (variance + EPSILON).sqrt() + bias


def add_and_norm(x: Features, sublayer: Sublayer, norm: Sublayer) -> Features:
    """E52: LayerNorm(x + Sublayer(x)), with the norm after the sum, as in the paper."""
    return norm(x + sublayer(x))


def norm_and_add(x: Features, sublayer: Sublayer, norm: Sublayer) -> Features:
    """E52, pre-norm: x + Sublayer(LayerNorm(x)): the residual sum is not normalised, so that deep stacks train."""
    return x + sublayer(norm(x))


def feed_forward(
    x: Features,
    W1: Float[Tensor, "F D"],
    b1: Float[Tensor, " F"],
    W2: Float[Tensor, "D F"],
    b2: PerFeature,
) -> Features:
    """E53: max(0, x W₁ + b₁) W₂ + b₂ at each position."""
    return (x @ W1.mT + b1).relu() @ W2.mT + b2


class Halting(NamedTuple):
    """The state of each token in adaptive computation (E56)."""

    state: Vectors  # constant once the token has halted
    spent: PerPosition  # sum of the halting probabilities so far
    steps: PerPosition  # steps so far
    remainder: PerPosition  # 1 - sum at the last step; 0 while the token runs

    @property
    def running(self) -> Mask:
        return self.remainder == 0


def start_halting(x: Vectors) -> Halting:
    """Return the state before the first step."""
    zeros = x.new_zeros(x.shape[:2])
    return Halting(x, zeros, zeros, zeros)


def halting_step(
    before: Halting,
    proposed: Vectors,
    p: PerPosition,
    *,
    threshold: float = 0.99,
    last: bool = False,
) -> Halting:
    """E56: one step of adaptive halting for each token (Graves 2016; Dehghani et al. 2019).

    A running token is mixed with the output s̃ of the block with weight p: s ← w s̃ + (1 - w) s. If its sum of p would
    exceed the threshold, or at the last step, the weight is the remainder 1 - Σp, and the token halts. A halted token
    keeps its state at all deeper steps. The ponder cost is steps + remainder, summed over tokens.
    """
    running = before.running
    halts = running & ((before.spent + p > threshold) | last)
    remainder = torch.where(halts, 1 - before.spent, before.remainder)
    weight = torch.where(halts, remainder, torch.where(running, p, torch.zeros_like(p)))
    state = weight[..., None] * proposed + (1 - weight[..., None]) * before.state
    spent = before.spent + torch.where(running & ~halts, p, torch.zeros_like(p))
    return Halting(state, spent, before.steps + running.to(p.dtype), remainder)


def ponder_cost(halting: Halting, real: Mask) -> Scalar:
    """E56: Σ over real tokens of steps plus remainder; its gradient reaches the halting unit through the remainder."""
    return ((halting.steps + halting.remainder) * real).sum()
