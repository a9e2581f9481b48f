"""Pictures to memory: rows or patches for any encoder, a convolutional encoder (S8, S9), or glimpses (S22)."""

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
NUMBER_RANGES = (
    1.0,
    1.0,
    1.5,
    1.0,
    1.0,
)  # how far the five numbers go: a centre is never outside of the picture


class PictureInputs(nn.Module):
    """A picture comes as H rows of W·C pixel values. It leaves as rows, or as patches from left to right and down."""

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
    """Squares of `side` pixels, row by row, each as one vector."""
    cut = pixels.unflatten(2, (-1, side)).unflatten(1, (-1, side))  # B, row, y, column, x, C
    return cut.transpose(2, 3).flatten(3).flatten(1, 2)


def jittered(pixels: Shaped[Tensor, "B H W C"], settings: ImageConfig) -> Shaped[Tensor, "B H W C"]:
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


class PictureEncoder(nn.Module):
    """An encoder with pictures before it: its memory knows where in the picture each state lies."""

    def __init__(self, pictures: PictureInputs, encoder: Encoder) -> None:
        super().__init__()
        self.pictures, self.encoder = pictures, encoder
        self.output_size, self.summary_size = encoder.output_size, encoder.summary_size

    def forward(self, source: Padded) -> Memory:
        memory = self.encoder(self.pictures(source))
        return replace(memory, grid=self.pictures.grid or memory.grid)


class FeatureEncoder(nn.Module):
    """Vectors of another network: max(0, W x + b) for each, and the mean of these as summary."""

    def __init__(self, inputs: Inputs, *, dropout: float) -> None:
        super().__init__()
        self.inputs, self.dropout = inputs, Dropout(dropout, name="encoder.input")
        self.output_size = self.summary_size = inputs.size

    def forward(self, source: Padded) -> Memory:
        return encoder_memory(source, self.dropout(self.inputs(source).relu()))


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
        self.shortcut = (
            nn.Linear(before, after, bias=False) if before != after or stride > 1 else None
        )

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B R h w"]:
        y = _normed(self.norms[0], self.first(x)).relu()
        y = _normed(self.norms[1], self.second(y))
        if (
            self.shortcut is not None
        ):  # a matrix: oneDNN's strided 1 x 1 convolution of few channels can crash
            x = self.shortcut(x[..., :: self.stride, :: self.stride].permute(0, 2, 3, 1)).permute(
                0, 3, 1, 2
            )
        return tap(f"{self.name}.output", (y + x).relu())


class ConvolutionalEncoder(nn.Module):
    """Convolutions that halve a picture again and again; what is left is a grid of places with D features each.

    States are the places, row by row, each with a sinusoid of its row and one of its column (S9). The summary is one
    vector (S8): the mean over places of max(0, W x + b), so that a unit may stand for "this, here".
    """

    def __init__(self, settings: ConvolutionConfig, image: ImageConfig, *, dropout: float) -> None:
        super().__init__()
        self.image = image
        widths = [
            min(settings.channels * 2**depth, settings.size) for depth in range(settings.layers)
        ]
        self.stem, self.norm = (
            _convolution(image.channels, widths[0], stride=2),
            LayerNorm(widths[0]),
        )
        blocks = list[Block]()
        for before, after in pairwise(widths):
            for place in range(settings.blocks):
                entering, stride = (after, 1) if place else (before, 2)
                blocks.append(Block(entering, after, stride=stride, name=f"encoder.{len(blocks)}"))
        self.blocks = nn.Sequential(*blocks)
        self.project, self.last_norm = (
            nn.Linear(widths[-1], settings.size),
            LayerNorm(settings.size),
        )
        self.dropout = Dropout(dropout, name="encoder.grid")
        self.pool = nn.Linear(settings.size, settings.size)
        shrink = 2**settings.layers
        self.grid = (-(-image.height // shrink), -(-image.width // shrink))
        self.positions = nn.Buffer(grid_positions(*self.grid, settings.size), persistent=False)
        self.output_size = self.summary_size = settings.size

    def forward(self, source: Padded) -> Memory:
        pixels = source.values.unflatten(-1, (self.image.width, self.image.channels))
        x = _normed(
            self.norm, self.stem(pixels.permute(0, 3, 1, 2))
        ).relu()  # channels last, as they came
        x = self.blocks(x).permute(0, 2, 3, 1).flatten(1, 2)
        states = self.last_norm(self.project(x)) + self.positions.to(x.dtype)
        states = self.dropout(tap("encoder.grid", states))
        return Memory(
            len(source), Padded.full(states), self.pool(states).relu().mean(1), grid=self.grid
        )


def grid_positions(height: int, width: int, size: int) -> Float[Tensor, "L D"]:
    """E54 twice: half of the features say the row of a place, the other half its column."""
    rows, columns = (
        sinusoidal_positions(height, size - size // 2),
        sinusoidal_positions(width, size // 2),
    )
    return torch.cat([rows.repeat_interleave(width, 0), columns.repeat(height, 1)], dim=1)


def _convolution(before: int, after: int, *, stride: int) -> nn.Conv2d:
    layer = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return layer


def _normed(norm: nn.Module, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
    places = x.permute(0, 2, 3, 1)
    return norm(places.flatten(1, 2)).view(places.shape).permute(0, 3, 1, 2)


class GlimpseEncoder(nn.Module):
    """h_t = LSTM([patch_t; where_t], h_{t-1}), where the window of step t is placed by h_{t-1} (E64).

    States are those after each glimpse; the summary is the last. The first window is learned, and begins as all of
    the picture.
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
