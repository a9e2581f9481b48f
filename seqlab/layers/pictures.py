"""Pictures at the door: rows of pixel values to numbers of mean 0, moved about a little while training."""

import zlib

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from seqlab.keyed import mix
from seqlab.layers.dropout import current_noise
from seqlab.padded import Padded
from seqlab.recipe import Image

_KEY = zlib.crc32(b"pictures")


class Pictures(nn.Module):
    """A picture comes as H rows of W·C pixel values. It leaves as rows, or as patches from left to right and down."""

    def __init__(self, mean: list[float], deviation: list[float], settings: Image) -> None:
        super().__init__()
        self.settings = settings
        self.mean: Tensor
        self.deviation: Tensor
        self.register_buffer("mean", torch.tensor(mean), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation), persistent=False)
        side = settings.patch
        self.grid = (settings.height // side, settings.width // side) if side else None
        self.size = side**2 * settings.channels if side else settings.width * settings.channels

    def forward(self, source: Padded) -> Padded:
        image = self.settings
        pixels = source.values[:, : image.height].unflatten(-1, (image.width, image.channels))
        rows = (jittered(pixels, image).flatten(-2).to(self.mean.dtype) - self.mean) / self.deviation
        if self.grid is not None and image.patch is not None:
            rows = patches(rows.unflatten(-1, (image.width, image.channels)), image.patch)
        return Padded(rows, source.lengths.new_full((len(source),), rows.shape[1]))


def patches(pixels: Float[Tensor, "B H W C"], side: int) -> Float[Tensor, "B T D"]:
    """Squares of `side` pixels, row by row, each as one vector."""
    cut = pixels.unflatten(2, (-1, side)).unflatten(1, (-1, side))  # B, row, y, column, x, C
    return cut.transpose(2, 3).flatten(3).flatten(1, 2)


def jittered(pixels: Shaped[Tensor, "B H W C"], settings: Image) -> Shaped[Tensor, "B H W C"]:
    """In training, each picture moved and perhaps mirrored, as (seed, step, row) say; its edge fills what is free."""
    noise, (height, width) = current_noise(), pixels.shape[1:3]
    if noise is None or not (settings.shift or settings.flip):
        return pixels
    drawn = [mix(noise.rows, noise.seed, noise.step, _KEY, way) for way in range(3)]
    down, right = (number % (2 * settings.shift + 1) - settings.shift for number in drawn[:2])
    y = (torch.arange(height) - down[:, None]).clamp(0, height - 1)
    x = (torch.arange(width) - right[:, None]).clamp(0, width - 1)
    if settings.flip:
        x = torch.where((drawn[2] % 2 == 1)[:, None], width - 1 - x, x)
    return pixels[torch.arange(len(pixels))[:, None, None], y[:, :, None], x[:, None]]
