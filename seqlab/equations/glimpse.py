"""Glimpses: a window onto a picture whose position and size are differentiable (S22).

Dimensions: B rows, A pixels along one side of the picture, H and W its height and width, N filters on each side.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from seqlab.types import PerRow


class Window(NamedTuple):
    """A window in pixels: its centre, the stride between filters and their variance; and its intensity."""

    x: PerRow
    y: PerRow
    stride: PerRow
    variance: PerRow
    intensity: PerRow


def place_window(
    numbers: Float[Tensor, "B 5"], *, height: int, width: int, num_filters: int
) -> Window:
    """E64: turn five numbers of a network into a window (Gregor et al. 2015); zeros give the whole picture.

    x = (W - 1)/2 (x̃ + 1),  y = (H - 1)/2 (ỹ + 1),  δ = (max(H, W) - 1)/(N - 1) exp δ̃,  σ² = (δ/2)² exp σ̃²,
    γ = exp γ̃. Pixels are counted from 0; with σ̃ = 0, the deviation of a filter is half a stride.
    """
    x, y, stride, variance, intensity = numbers.unbind(-1)
    stride = (max(height, width) - 1) / (num_filters - 1) * stride.exp()
    return Window(
        (width - 1) / 2 * (x + 1),
        (height - 1) / 2 * (y + 1),
        stride,
        (stride / 2).square() * variance.exp(),
        intensity.exp(),
    )


def filter_bank(
    centre: PerRow,
    stride: PerRow,
    variance: PerRow,
    *,
    num_filters: int,
    length: int,
) -> Float[Tensor, "B N A"]:
    """E64: F[i, a] = exp(-(a - μ_i)² / 2σ²) / Z_i, with μ_i = g + (i - (N - 1)/2) δ, and each row summing to one.

    A filter far outside of the picture has a row of zeros instead of 0/0.
    """
    offset = torch.arange(num_filters, dtype=centre.dtype) - (num_filters - 1) / 2
    means = centre[:, None] + offset * stride[:, None]
    distance = torch.arange(length, dtype=centre.dtype) - means[..., None]
    weights = (-distance.square() / (2 * variance[:, None, None])).exp()
    return weights / weights.sum(-1, keepdim=True).clamp(min=1e-8)


def read_window(
    pixels: Float[Tensor, "B H W C"],
    rows: Float[Tensor, "B N H"],
    columns: Float[Tensor, "B N W"],
    intensity: PerRow,
) -> Float[Tensor, "B N N C"]:
    """E64: γ F_Y x F_Xᵀ, for each channel."""
    window = torch.einsum("bnh,bhwc,bmw->bnmc", rows, pixels, columns)
    return intensity[:, None, None, None] * window
