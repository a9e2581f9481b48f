"""Pictures to memory: any encoder over rows or patches, or a convolutional one over the whole (S8, S9)."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.equations.transformer import sinusoidal_positions
from seqlab.layers.dropout import Dropout
from seqlab.layers.inputs import Inputs
from seqlab.layers.norms import LayerNorm
from seqlab.layers.pictures import Pictures
from seqlab.layers.tap import tap
from seqlab.models.interface import Encoder, Memory
from seqlab.models.transformer import remembered
from seqlab.padded import Padded
from seqlab.recipe import Convolution, Image


class PictureEncoder(nn.Module):
    """An encoder with pictures before it: its memory knows where in the picture each state lies."""

    def __init__(self, pictures: Pictures, encoder: Encoder) -> None:
        super().__init__()
        self.pictures, self.encoder = pictures, encoder
        self.output_size, self.summary_size = encoder.output_size, encoder.summary_size

    def forward(self, source: Padded) -> Memory:
        memory = self.encoder(self.pictures(source))
        return memory if self.pictures.grid is None else replace(memory, grid=self.pictures.grid)


class FeatureEncoder(nn.Module):
    """Vectors of another network: max(0, W x + b) for each, and the mean of these as summary."""

    def __init__(self, inputs: Inputs, *, dropout: float) -> None:
        super().__init__()
        self.inputs, self.dropout = inputs, Dropout(dropout, name="encoder.input")
        self.output_size = self.summary_size = inputs.size

    def forward(self, source: Padded) -> Memory:
        return remembered(source, self.dropout(self.inputs(source).relu()))


class Block(nn.Module):
    """max(0, x + F(x)), where F is two convolutions; with a stride the picture is halved (He et al. 2016).

    The norm is a layer norm over the channels of each place: a row then depends on no other, as it would in a batch
    norm, and it is the quickest here.
    """

    def __init__(self, before: int, after: int, *, stride: int, name: str) -> None:
        super().__init__()
        self.name = name
        self.first = _convolution(before, after, stride=stride)
        self.second = _convolution(after, after, stride=1)
        self.norms = nn.ModuleList([LayerNorm(after), LayerNorm(after)])
        self.stride = stride
        self.shortcut = nn.Linear(before, after, bias=False) if before != after or stride > 1 else None

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B R h w"]:
        y = _normed(self.norms[0], self.first(x)).relu()
        y = _normed(self.norms[1], self.second(y))
        if self.shortcut is not None:  # a matrix: oneDNN's strided 1 x 1 convolution of few channels can crash
            x = self.shortcut(x[..., :: self.stride, :: self.stride].permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return tap(f"{self.name}.output", (y + x).relu())


class ConvolutionalEncoder(nn.Module):
    """Convolutions that halve a picture again and again; what is left is a grid of places with D features each.

    States are the places, row by row, each with a sinusoid of its row and one of its column (S9). The summary is one
    vector (S8): the mean over places of max(0, W x + b), so that a unit may stand for "this, here".
    """

    def __init__(self, settings: Convolution, image: Image, *, dropout: float) -> None:
        super().__init__()
        self.image = image
        widths = [min(settings.channels * 2**depth, settings.size) for depth in range(settings.layers)]
        self.stem, self.norm = _convolution(image.channels, widths[0], stride=2), LayerNorm(widths[0])
        sizes = [(widths[d - 1], widths[d], 2) for d in range(1, settings.layers)]
        inner = [[(a, b, stride), *[(b, b, 1)] * (settings.blocks - 1)] for a, b, stride in sizes]
        self.blocks = nn.Sequential(
            *[
                Block(before, after, stride=stride, name=f"encoder.{depth}")
                for depth, (before, after, stride) in enumerate(block for stage in inner for block in stage)
            ]
        )
        self.project, self.last_norm = nn.Linear(widths[-1], settings.size), LayerNorm(settings.size)
        self.dropout = Dropout(dropout, name="encoder.grid")
        self.pool = nn.Linear(settings.size, settings.size)
        shrink = 2**settings.layers
        self.grid = (-(-image.height // shrink), -(-image.width // shrink))
        self.positions: Tensor
        self.register_buffer("positions", grid_positions(*self.grid, settings.size), persistent=False)
        self.output_size = self.summary_size = settings.size

    def forward(self, source: Padded) -> Memory:
        pixels = source.values.unflatten(-1, (self.image.width, self.image.channels))
        x = _normed(self.norm, self.stem(pixels.permute(0, 3, 1, 2))).relu()  # channels last, as they came
        x = self.blocks(x).permute(0, 2, 3, 1).flatten(1, 2)
        states = self.last_norm(self.project(x)) + self.positions.to(x.dtype)
        states = self.dropout(tap("encoder.grid", states))
        places = source.lengths.new_full((len(source),), states.shape[1])
        summary = self.pool(states).relu().mean(1)
        return Memory(len(source), Padded(states, places), summary, grid=self.grid)


def grid_positions(height: int, width: int, size: int) -> Float[Tensor, "L D"]:
    """E54 twice: half of the features say the row of a place, the other half its column."""
    rows, columns = sinusoidal_positions(height, size - size // 2), sinusoidal_positions(width, size // 2)
    return torch.cat([rows.repeat_interleave(width, 0), columns.repeat(height, 1)], dim=1)


def _convolution(before: int, after: int, *, stride: int) -> nn.Conv2d:
    layer = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return layer


def _normed(norm: nn.Module, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
    places = x.permute(0, 2, 3, 1)
    return norm(places.flatten(1, 2)).view(places.shape).permute(0, 3, 1, 2)
