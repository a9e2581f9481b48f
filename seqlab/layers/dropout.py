"""Dropout whose masks are keyed, not drawn: the same for the same (seed, step, layer, row of the data).

Results therefore do not depend on batch size, number of processes, or where a run was interrupted. Drawing fresh
random numbers costs up to a third of a small model's step on a CPU; here a row's mask is a window into a pool of
ready-made masks, at an offset that its key chooses: one copy and one product.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.keyed import mix
from seqlab.types import RowIds

BLOCK = (
    1 << 20
)  # the pool grows by this many numbers; a window may start anywhere in its first block
_noise: ContextVar["Noise | None"] = ContextVar("noise", default=None)


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
