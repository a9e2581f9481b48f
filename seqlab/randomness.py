"""Keyed random numbers: the same keys give the same numbers, in any batch and any process.

Dropout masks are the same for the same (seed, step, layer, row of the data). Results therefore do not depend on batch
size, number of processes, or where a run was interrupted. Drawing new random numbers takes up to a third of the time
of a small model's step on a CPU. Here the mask of a row is a window of a precomputed pool of random masks, at an
offset that its key determines, which costs one copy and one product.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqlab.types import RowIds

# 2^64 divided by the golden ratio: the increment of splitmix64
_GOLDEN_RATIO = 0x9E3779B97F4A7C15
# the pool grows by this many numbers; a window may start anywhere in its first block
BLOCK = 1 << 20
_noise: ContextVar["Noise | None"] = ContextVar("noise", default=None)


def mix(rows: Int[Tensor, "..."], *keys: int | Tensor) -> Int[Tensor, "..."]:
    """Return a pseudo-random non-negative number for each row, which depends on the row and on all keys.

    A key may also be a tensor with a number for each row.

    The finaliser of splitmix64 (Steele, Lea & Flood 2014), applied once for each key.
    """
    x = rows.to(torch.int64)
    for key in keys:
        if isinstance(key, Tensor):
            number: int | Tensor = key * _signed(_GOLDEN_RATIO)
        else:
            number = _signed(key * _GOLDEN_RATIO)
        x = (x ^ number) + _signed(_GOLDEN_RATIO)
        x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
        x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
        x = x ^ _shift(x, 31)
    return x & 0x7FFFFFFFFFFFFFFF


def uniform(rows: Int[Tensor, "..."], *keys: int | Tensor) -> Float[Tensor, "..."]:
    """Return a pseudo-random number in [0, 1) for each row, as float64."""
    return (mix(rows, *keys) >> 10).double() / (1 << 53)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right logically; torch's shift of signed numbers is arithmetic."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    """Interpret the lowest 64 bits as a signed number."""
    number &= 0xFFFFFFFFFFFFFFFF
    return number - (1 << 64) if number >= 1 << 63 else number


@dataclass(frozen=True)
class Noise:
    """The keys of the dropout masks of a step, apart from the layer."""

    seed: int
    step: int
    rows: RowIds


@contextmanager
def noise(seed: int, step: int, rows: RowIds) -> Iterator[None]:
    """Turn on dropout in this block; outside of it every layer is deterministic."""
    token = _noise.set(Noise(seed, step, rows))
    try:
        yield
    finally:
        _noise.reset(token)


def current_noise() -> Noise | None:
    """Return the keys of the current step, or None outside of training."""
    return _noise.get()


def training() -> bool:
    """Whether this is a training step, that is, inside a `noise` block."""
    return _noise.get() is not None


class Dropout(nn.Module):
    """Inside a `noise` block, sets a share of the features to zero and scales up the others."""

    def __init__(self, rate: float, *, name: str) -> None:
        super().__init__()
        self.rate = rate
        self.key = zlib.crc32(name.encode())

    def forward(self, x: Float[Tensor, "B *F"]) -> Float[Tensor, "B *F"]:
        windows = self.windows(x, x.dtype)
        if windows is None:
            return x
        pool, offsets = windows
        return x * pool.as_strided((BLOCK, x[0].numel()), (1, 1))[offsets].view_as(x)

    def windows(
        self, x: Float[Tensor, "B *F"], dtype: torch.dtype
    ) -> tuple[Float[Tensor, " P"], RowIds] | None:
        """The pool of masks, and where in it the mask of each row begins; None where nothing is to be dropped."""
        keys = _noise.get()
        if keys is None or self.rate == 0 or x.numel() == 0:
            return None
        pool = _pool(self.rate, dtype, x.device, 1 + -(-x[0].numel() // BLOCK))
        return pool, mix(keys.rows, keys.seed, keys.step, self.key) % BLOCK


@lru_cache(maxsize=8)
def _pool(
    rate: float, dtype: torch.dtype, device: torch.device, num_blocks: int
) -> Float[Tensor, " P"]:
    """Return random values 0 and 1 / (1 - rate); seeded by block, so a longer pool extends a shorter one."""
    # CPU generators, so that the numbers are the same on every device
    generators = [torch.Generator().manual_seed(block) for block in range(num_blocks)]
    blocks = [torch.rand(BLOCK, generator=each, device=each.device) for each in generators]
    return (torch.cat(blocks) >= rate).to(device, dtype) / (1 - rate)
