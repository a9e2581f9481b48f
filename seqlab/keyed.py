"""Randomness that is keyed, never global: the same keys give the same numbers, in any batch and any process."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15


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
