"""Encoders of pictures: rows or patches for any encoder, convolutions (S8, S9), and glimpses (S22)."""

import zlib
from dataclasses import replace
from itertools import pairwise

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from seqlab.equations.attention import sinusoidal_positions
from seqlab.equations.glimpse import filter_bank, place_window, read_window
from seqlab.layers.inputs import Inputs
from seqlab.layers.stack import CausalStack
from seqlab.layers.tap import tap
from seqlab.layers.transformer import LayerNorm
from seqlab.models.interface import Encoder, Memory
from seqlab.models.transformer import encoder_memory
from seqlab.padded import Padded
from seqlab.randomness import Dropout, current_noise, mix
from seqlab.recipe import ConvolutionConfig, GlimpseConfig, ImageConfig, StackConfig
from seqlab.types import Vectors

_KEY = zlib.crc32(b"pictures")
# limits of the five numbers of a window, so that its centre is inside the picture
NUMBER_RANGES = (1.0, 1.0, 1.5, 1.0, 1.0)


class PictureInputs(nn.Module):
    """Standardise a picture of H rows of W·C pixel values; return its rows, or its patches row by row."""

    def __init__(self, mean: list[float], deviation: list[float], settings: ImageConfig) -> None:
        super().__init__()
        self.settings = settings
        self.mean = nn.Buffer(torch.tensor(mean), persistent=False)
        self.deviation = nn.Buffer(torch.tensor(deviation), persistent=False)
        side = settings.patch
        self.grid = (settings.height // side, settings.width // side) if side else None
        self.size = side**2 * settings.channels if side else settings.width * settings.channels

    def forward(self, source: Padded) -> Padded:
        image = self.settings
        pixels = source.values[:, : image.height].unflatten(-1, (image.width, image.channels))
        rows = (
            jittered(pixels, image).flatten(-2).to(self.mean.dtype) - self.mean
        ) / self.deviation
        if image.patch is not None:
            rows = patches(rows.unflatten(-1, (image.width, image.channels)), image.patch)
        return Padded.full(rows)


def patches(pixels: Float[Tensor, "B H W C"], side: int) -> Vectors:
    """Return squares of `side` pixels, row by row, each as one vector."""
    squares = pixels.unflatten(2, (-1, side)).unflatten(1, (-1, side))  # B, row, y, column, x, C
    return squares.transpose(2, 3).flatten(3).flatten(1, 2)


def jittered(pixels: Shaped[Tensor, "B H W C"], settings: ImageConfig) -> Shaped[Tensor, "B H W C"]:
    """In training, shift and mirror each picture at random, keyed by (seed, step, row); edge pixels are repeated."""
    noise = current_noise()
    height, width = pixels.shape[1:3]
    if noise is None or not (settings.shift or settings.flip):
        return pixels
    numbers = [mix(noise.rows, noise.seed, noise.step, _KEY, index) for index in range(3)]
    down, right = (number % (2 * settings.shift + 1) - settings.shift for number in numbers[:2])
    y = (torch.arange(height) - down[:, None]).clamp(0, height - 1)
    x = (torch.arange(width) - right[:, None]).clamp(0, width - 1)
    if settings.flip:
        x = torch.where((numbers[2] % 2 == 1)[:, None], width - 1 - x, x)
    return pixels[torch.arange(len(pixels))[:, None, None], y[:, :, None], x[:, None]]


class PictureEncoder(nn.Module):
    """An encoder of pictures, whose memory has the grid of its states."""

    def __init__(self, pictures: PictureInputs, encoder: Encoder) -> None:
        super().__init__()
        self.pictures, self.encoder = pictures, encoder
        self.output_size, self.summary_size = encoder.output_size, encoder.summary_size

    def forward(self, source: Padded) -> Memory:
        memory = self.encoder(self.pictures(source))
        return replace(memory, grid=self.pictures.grid or memory.grid)


class FeatureEncoder(nn.Module):
    """An encoder of vectors of another network: max(0, W x + b) for each, with their mean as summary."""

    def __init__(self, inputs: Inputs, *, dropout: float) -> None:
        super().__init__()
        self.inputs, self.dropout = inputs, Dropout(dropout, name="encoder.input")
        self.output_size = self.summary_size = inputs.size

    def forward(self, source: Padded) -> Memory:
        return encoder_memory(source, self.dropout(self.inputs(source).relu()))


class Block(nn.Module):
    """max(0, x + F(x)), where F is two convolutions; with a stride of 2 the picture is halved (He et al. 2016).

    The norm is a layer norm over the channels of each position. With a batch norm, rows would depend on each other; it
    was also slower.
    """

    def __init__(self, before: int, after: int, *, stride: int, name: str) -> None:
        super().__init__()
        self.name = name
        self.first = _convolution(before, after, stride=stride)
        self.second = _convolution(after, after, stride=1)
        self.norms = nn.ModuleList([LayerNorm(after), LayerNorm(after)])
        self.stride = stride
        self.shortcut = (
            nn.Linear(before, after, bias=False) if before != after or stride > 1 else None
        )

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B R h w"]:
        y = _normed(self.norms[0], self.first(x)).relu()
        y = _normed(self.norms[1], self.second(y))
        if self.shortcut is not None:
            # a linear layer, because oneDNN's strided 1 x 1 convolution of few channels can crash
            positions = x[..., :: self.stride, :: self.stride].permute(0, 2, 3, 1)
            x = self.shortcut(positions).permute(0, 3, 1, 2)
        return tap(f"{self.name}.output", (y + x).relu())


class ConvolutionalEncoder(nn.Module):
    """Convolutions that halve a picture repeatedly, down to a grid of positions with D features each.

    The states are the positions, row by row, plus a sinusoid of the row and one of the column (S9). The summary is one
    vector (S8): the mean over positions of max(0, W x + b), so that a unit can represent a feature at a position.
    """

    def __init__(self, settings: ConvolutionConfig, image: ImageConfig, *, dropout: float) -> None:
        super().__init__()
        self.image = image
        widths = [
            min(settings.channels * 2**depth, settings.size) for depth in range(settings.layers)
        ]
        self.stem = _convolution(image.channels, widths[0], stride=2)
        self.norm = LayerNorm(widths[0])
        blocks = list[Block]()
        for before, after in pairwise(widths):
            for place in range(settings.blocks):
                entering, stride = (after, 1) if place else (before, 2)
                blocks.append(Block(entering, after, stride=stride, name=f"encoder.{len(blocks)}"))
        self.blocks = nn.Sequential(*blocks)
        self.project = nn.Linear(widths[-1], settings.size)
        self.last_norm = LayerNorm(settings.size)
        self.dropout = Dropout(dropout, name="encoder.grid")
        self.pool = nn.Linear(settings.size, settings.size)
        shrink = 2**settings.layers
        self.grid = (-(-image.height // shrink), -(-image.width // shrink))
        self.positions = nn.Buffer(grid_positions(*self.grid, settings.size), persistent=False)
        self.output_size = self.summary_size = settings.size

    def forward(self, source: Padded) -> Memory:
        pixels = source.values.unflatten(-1, (self.image.width, self.image.channels))
        x = _normed(self.norm, self.stem(pixels.permute(0, 3, 1, 2))).relu()
        x = self.blocks(x).permute(0, 2, 3, 1).flatten(1, 2)
        states = self.last_norm(self.project(x)) + self.positions.to(x.dtype)
        states = self.dropout(tap("encoder.grid", states))
        return Memory(
            len(source), Padded.full(states), self.pool(states).relu().mean(1), grid=self.grid
        )


def grid_positions(height: int, width: int, size: int) -> Float[Tensor, "L D"]:
    """E54 twice: half of the features encode the row of a position, the other half its column."""
    rows = sinusoidal_positions(height, size - size // 2)
    columns = sinusoidal_positions(width, size // 2)
    return torch.cat([rows.repeat_interleave(width, 0), columns.repeat(height, 1)], dim=1)


def _convolution(before: int, after: int, *, stride: int) -> nn.Conv2d:
    layer = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return layer


def _normed(norm: nn.Module, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
    positions = x.permute(0, 2, 3, 1)
    return norm(positions.flatten(1, 2)).view(positions.shape).permute(0, 3, 1, 2)


class GlimpseEncoder(nn.Module):
    """h_t = LSTM([patch_t; window_t], h_{t-1}), where h_{t-1} determines the window of step t (E64).

    The states are those after each glimpse; the summary is the last. The first window is learnt; initially it is the
    whole picture.
    """

    def __init__(self, settings: GlimpseConfig, image: ImageConfig, *, dropout: float) -> None:
        super().__init__()
        self.settings, self.image = settings, image
        self.look = nn.Linear(settings.size, 5)
        nn.init.normal_(self.look.weight, std=0.01)
        nn.init.zeros_(self.look.bias)
        self.reach = nn.Buffer(torch.tensor(NUMBER_RANGES), persistent=False)
        self.read = nn.Linear(settings.window**2 * image.channels, settings.size)
        stack = StackConfig(kind="lstm", size=settings.size)
        self.stack = CausalStack(settings.size + 5, stack, dropout=0.0, name="encoder")
        self.dropout = Dropout(dropout, name="encoder.glimpse")
        self.output_size = self.summary_size = settings.size

    def forward(self, source: Padded) -> Memory:
        image, n = self.image, self.settings.window
        pixels = source.values.unflatten(-1, (image.width, image.channels))
        state, states = self.stack.start(len(source)), []
        for _ in range(self.settings.glimpses):
            numbers = self.look(state[0]).tanh() * self.reach
            window = place_window(numbers, height=image.height, width=image.width, num_filters=n)
            tap("glimpse.window", torch.stack(window, dim=-1))
            rows = filter_bank(
                window.y, window.stride, window.variance, num_filters=n, length=image.height
            )
            columns = filter_bank(
                window.x, window.stride, window.variance, num_filters=n, length=image.width
            )
            patch = tap(
                "glimpse.patch", read_window(pixels, rows, columns, window.intensity)[:, None]
            )
            glimpse = self.dropout(self.read(patch.flatten(1)).relu())
            h, state = self.stack(torch.cat([glimpse, numbers], dim=-1)[:, None], state)
            states.append(h)
        return Memory(len(source), Padded.full(torch.cat(states, dim=1)), states[-1][:, 0])
