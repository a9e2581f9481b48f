"""Norms: the parameters around E50 and E51."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from seqlab.equations.transformer import batch_norm
from seqlab.layers.dropout import training

EPSILON = 1e-5


class LayerNorm(nn.Module):
    """E50, by torch's fused kernel."""

    def __init__(self, size: int, *, epsilon: float = EPSILON) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.gain = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T D"]:
        return functional.layer_norm(x, self.gain.shape, self.gain, self.bias, self.epsilon)


class BatchNorm(nn.Module):
    """E51 over the real positions, for comparison (C17): in training by the batch, in use by what training has seen.

    Its predictions in training depend on the other rows of the batch, which is why nothing here uses it by default.
    """

    def __init__(self, size: int, *, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.gain = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        # parameters without a gradient, so that they are saved, averaged and resumed like all others
        self.mean = nn.Parameter(torch.zeros(size), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(size), requires_grad=False)

    def forward(self, x: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T D"]:
        if not training():
            return self.gain * (x - self.mean) / (self.variance + EPSILON).sqrt() + self.bias
        real = torch.ones(x.shape[:2], dtype=torch.bool) if real is None else real
        seen = x[real]
        with torch.no_grad():
            self.mean.lerp_(seen.mean(0), self.momentum)
            self.variance.lerp_(seen.var(0, unbiased=False), self.momentum)
        return torch.zeros_like(x).masked_scatter(real[..., None], batch_norm(seen, self.gain, self.bias))


class NoNorm(nn.Module):
    """What comes in goes out, for comparison (C17)."""

    def forward(self, x: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T D"]:
        return x
