"""Summaries of a sequence of vectors, or of a picture, as one vector of fixed size for a linear classifier.

A feature of a sequence is summarized by its mean and deviation, its quantiles, its slope, its autocorrelations and its
energy by frequency. A picture is reduced in size, and its pixels are the features.
"""

from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from seqlab.padded import Padded
from seqlab.recipe import ImageConfig

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
LAGS = (1, 2, 4, 8)
BANDS = 5  # of frequencies, each twice as wide as the one before
SIDE = 16  # pixels of a picture
TINY = 1e-6


@runtime_checkable
class Summary(Protocol):
    """A function from rows to vectors whose numbers have names."""

    @property
    def names(self) -> list[str]: ...

    def __call__(self, source: Padded) -> Float[Tensor, "B D"]: ...


class SequenceSummary:
    """Statistics of each of `width` features over a row of any length, and their values at `points` even distances."""

    parts = (
        *("mean", "log deviation", "lowest", "highest", "slope", "log mean step"),
        *(f"quantile {quantile:g}" for quantile in QUANTILES),
        *(f"autocorrelation {lag}" for lag in LAGS),
        *(f"log energy {band + 1} of {BANDS}" for band in range(BANDS)),
    )

    def __init__(self, width: int, points: int = 0) -> None:
        self.width, self.points = width, points

    @property
    def names(self) -> list[str]:
        points = (f"value {point + 1} of {self.points}" for point in range(self.points))
        return [
            f"feature {place + 1}, {part}"
            for part in (*self.parts, *points)
            for place in range(self.width)
        ]

    def __call__(self, source: Padded) -> Float[Tensor, "B D"]:
        if not len(source):
            return torch.zeros(0, len(self.names))
        return torch.stack([self._of(row.float()) for row in source.rows()])

    def _of(self, row: Float[Tensor, "T F"]) -> Float[Tensor, " D"]:
        if not len(row):
            return torch.zeros(len(self.names))
        row = row.nan_to_num()
        mean = row.mean(0)
        time = torch.linspace(-1, 1, len(row))[:, None]
        centred = row - mean
        deviation = centred.square().mean(0).sqrt()
        slope = (time * centred).sum(0) / time.square().sum().clamp(min=TINY)
        steps = row.diff(dim=0).abs().mean(0) if len(row) > 1 else torch.zeros_like(mean)
        parts = [mean, _log(deviation), row.amin(0), row.amax(0), slope, _log(steps)]
        parts += list(row.quantile(torch.tensor(QUANTILES), dim=0))
        energy = centred.square().sum(0).clamp(min=TINY)
        for lag in LAGS:
            if len(row) > lag:
                parts.append((centred[lag:] * centred[:-lag]).sum(0) / energy)
            else:
                parts.append(0 * mean)
        parts += [_log(band) for band in _bands(centred)]
        if self.points:
            values = interpolate(row.T[None], self.points, mode="linear", align_corners=True)
            parts += list(values[0].T)
        return torch.cat(parts)


class PictureSummary:
    """The pixels of a picture, averaged over squares if it has more than SIDE pixels on a side."""

    def __init__(self, image: ImageConfig) -> None:
        self.image = image
        self.size = min(SIDE, image.height), min(SIDE, image.width)

    @property
    def names(self) -> list[str]:
        height, width = self.size
        colours = ("",) if self.image.channels == 1 else (", red", ", green", ", blue")
        return [
            f"row {y + 1}, column {x + 1}{c}"
            for c in colours
            for y in range(height)
            for x in range(width)
        ]

    def __call__(self, source: Padded) -> Float[Tensor, "B D"]:
        image = self.image
        pixels = source.values[:, : image.height].unflatten(-1, (image.width, image.channels))
        return adaptive_avg_pool2d(pixels.float().permute(0, 3, 1, 2), self.size).flatten(1)


def _log(values: Float[Tensor, " F"]) -> Float[Tensor, " F"]:
    return values.clamp(min=TINY).log()


def _bands(row: Float[Tensor, "T F"]) -> list[Float[Tensor, " F"]]:
    """Return the mean power in bands of frequencies: the highest half of them, the next lower quarter, and so on."""
    power = torch.fft.rfft(row, dim=0).abs().square() / len(row)
    ends = [max(1, len(power) >> band) for band in range(BANDS)] + [0]
    return [
        power[low:high].mean(0) if high > low else power[:1].mean(0) for high, low in pairwise(ends)
    ]
