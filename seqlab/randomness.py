"""Randomness that is keyed, never global: the same keys give the same numbers, in any batch and any process.

Dropout masks are the same for the same (seed, step, layer, row of the data). Results therefore do not depend on batch
size, number of processes, or where a run was interrupted. Drawing fresh random numbers costs up to a third of a small
model's step on a CPU; here a row's mask is a window into a pool of ready-made masks, at an offset that its key
chooses: one copy and one product.
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

_GOLDEN = 0x9E3779B97F4A7C15
# the pool grows by this many numbers; a window may start anywhere in its first block
BLOCK = 1 << 20
_noise: ContextVar["Noise | None"] = ContextVar("noise", default=None)


def mix(rows: Int[Tensor, "..."], *keys: int | Tensor) -> Int[Tensor, "..."]:
    """A non-negative number for each row that looks random and depends on the row and on all keys.

    A key may also be a tensor with a number for each row.

    The finaliser of splitmix64 (Steele, Lea & Flood 2014), once for each key.
    """
    x = rows.to(torch.int64)
    for key in keys:
        number = key * _signed(_GOLDEN) if isinstance(key, Tensor) else _signed(key * _GOLDEN)
        x = (x ^ number) + _signed(_GOLDEN)
        x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
        x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
        x = x ^ _shift(x, 31)
    return x & 0x7FFFFFFFFFFFFFFF


def uniform(rows: Int[Tensor, "..."], *keys: int | Tensor) -> Float[Tensor, "..."]:
    """A number in [0, 1) for each row, as float64."""
    return (mix(rows, *keys) >> 10).double() / (1 << 53)


def _shift(x: Tensor, bits: int) -> Tensor:
    """A logical shift to the right, which torch's shift of signed numbers is not."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(number: int) -> int:
    number &= 0xFFFFFFFFFFFFFFFF
    return number - (1 << 64) if number >= 1 << 63 else number


@dataclass(frozen=True)
class Noise:
    """What a step's masks depend on, apart from the layer."""

    seed: int
    step: int
    rows: RowIds


@contextmanager
def noise(seed: int, step: int, rows: RowIds) -> Iterator[None]:
    """Within this block dropout is on; outside of it every layer is deterministic."""
    token = _noise.set(Noise(seed, step, rows))
    try:
        yield
    finally:
        _noise.reset(token)


def current_noise() -> Noise | None:
    """What this step's randomness is keyed by; nothing outside of training."""
    return _noise.get()


def training() -> bool:
    """Whether this is a step of training: whether we are in a `noise` block."""
    return _noise.get() is not None


class Dropout(nn.Module):
    """Zeroes a share of the features and scales up the rest, within a `noise` block."""

    def __init__(self, rate: float, *, name: str) -> None:
        super().__init__()
        self.rate = rate
        self.key = zlib.crc32(name.encode())

    def forward(self, x: Float[Tensor, "B *F"]) -> Float[Tensor, "B *F"]:
        drawn = _noise.get()
        if drawn is None or self.rate == 0 or x.numel() == 0:
            return x
        size = x[0].numel()
        pool = _pool(self.rate, x.dtype, x.device, 1 + -(-size // BLOCK))
        offsets = mix(drawn.rows, drawn.seed, drawn.step, self.key) % BLOCK
        return x * pool.as_strided((BLOCK, size), (1, 1))[offsets].view_as(x)


@lru_cache(maxsize=8)
def _pool(
    rate: float, dtype: torch.dtype, device: torch.device, num_blocks: int
) -> Float[Tensor, " P"]:
    """0 or 1 / (1 - rate), in random order; seeded by block, so that a longer pool begins like a shorter one."""
    seeds = (torch.Generator().manual_seed(block) for block in range(num_blocks))
    blocks = [
        torch.rand(BLOCK, generator=seed, device=seed.device) for seed in seeds
    ]  # the same on every device
    return (torch.cat(blocks) >= rate).to(device, dtype) / (1 - rate)
