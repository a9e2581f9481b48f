"""Matrix products of a training, and the ways in which this machine can compute them.

- `torch`     float32, as torch multiplies by itself: through MKL on an x86 processor, which uses no AVX-512 on AMD;
- `onednn`    float32 through oneDNN;
- `bfloat16`  both factors are rounded to bfloat16, their products are summed in float32, and the result is rounded
              once. Weights stay in float32: only copies of them are rounded.

`calibration.py` measures which of them is the fastest. Layers multiply in the way that `multiplying` sets; outside of
such a block, as in inference, that is torch's own. A gradient is computed in the way of its forward pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

Way = Literal["torch", "onednn", "bfloat16"]
WAYS: tuple[Way, ...] = get_args(Way)

SMALL = (
    1 << 21
)  # multiplications; below, preparing a product of oneDNN takes longer than the product
ROWS = 128  # of which a rounded factor has a multiple
_way: ContextVar[Way] = ContextVar("way", default="torch")


@contextmanager
def multiplying(way: Way) -> Iterator[None]:
    """Within this block layers and optimisers compute their products in this way."""
    token = _way.set(way)
    try:
        yield
    finally:
        _way.reset(token)


def current_way(example: Tensor, multiplications: int) -> Way:
    """The way for a product of so many multiplications of tensors like the example."""
    suits = example.dtype == torch.float32 and example.device.type == "cpu"
    return _way.get() if suits and multiplications >= SMALL else "torch"


def linear(
    x: Float[Tensor, "*rows K"],
    weight: Float[Tensor, "N K"],
    bias: Float[Tensor, " N"] | None,
    *,
    as_factor: bool = False,
) -> Float[Tensor, "*rows N"]:
    """x Wᵀ + b, and its gradients. x may be a factor as the way takes it; so is the result, `as_factor`."""
    way = current_way(weight, x.numel() * len(weight))
    if way == "torch":
        return functional.linear(x.to(weight.dtype), weight, bias)
    return _LinearProduct.apply(way, as_factor, x, weight, bias)


class _LinearProduct(torch.autograd.Function):
    """y = x Wᵀ + b; dL/dx = g W, dL/dW = gᵀ x, dL/db = Σ g."""

    @staticmethod
    def forward(
        ctx: Any, way: Way, as_factor: bool, x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Tensor:
        rows, factor = rounded_rows(x.flatten(0, -2), way), rounded(weight, way)
        ctx.save_for_backward(rows, factor)
        ctx.way, ctx.shape, ctx.dtypes = way, x.shape, (x.dtype, weight.dtype)
        y = affine(rows, factor, bias, way)[: x.shape[:-1].numel()]
        y = y if as_factor else y.to(weight.dtype)
        return y.view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, factor = ctx.saved_tensors
        _, _, needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        gradient = gradient.reshape(-1, len(factor))
        g, (dtype, wide) = rounded_rows(gradient, ctx.way), ctx.dtypes
        d_x, d_weight, d_bias = None, None, None
        if needs_x:
            d_x = product(g, factor, ctx.way)[: len(gradient)].to(dtype).view(ctx.shape)
        if needs_weight:
            d_weight = outer(g, rows, ctx.way).to(wide)
        if needs_bias:
            d_bias = gradient.sum(0, dtype=wide)
        return None, None, d_x, d_weight, d_bias


def rounded(x: Tensor, way: Way) -> Tensor:
    """A factor as the way takes it."""
    return x.bfloat16() if way == "bfloat16" else x


def rounded_rows(x: Float[Tensor, "M K"], way: Way) -> Float[Tensor, "P K"]:
    """Rows as the way takes them. Where they are copied anyway, rows of zeros fill them up to a multiple of ROWS.

    oneDNN prepares a product anew for each number of rows, which takes a fifth of a millisecond and is kept in memory.
    """
    if way != "bfloat16":
        return x
    if len(x) % ROWS == 0:
        return x.bfloat16()
    padded = x.new_empty(-(-len(x) // ROWS) * ROWS, x.shape[1], dtype=torch.bfloat16)
    padded[: len(x)] = x
    padded[len(x) :] = 0
    return padded


def affine(
    x: Float[Tensor, "M K"], weight: Float[Tensor, "N K"], bias: Tensor | None, way: Way
) -> Float[Tensor, "M N"]:
    """x Wᵀ + b of rounded factors; the result is of their type."""
    if way == "onednn":
        return _onednn(x, weight, bias)
    return functional.linear(x, weight, None if bias is None else rounded(bias, way))


def product(a: Float[Tensor, "M K"], b: Float[Tensor, "K N"], way: Way) -> Float[Tensor, "M N"]:
    """a b of rounded factors; the result is of their type."""
    return _onednn(a, b.mT, None) if way == "onednn" else a @ b


def outer(g: Float[Tensor, "M N"], x: Float[Tensor, "M K"], way: Way) -> Float[Tensor, "N K"]:
    """gᵀ x of rounded factors, the gradient of a weight; the result is of their type."""
    if way != "onednn":
        return g.mT @ x
    if g.shape[1] <= x.shape[1]:
        return _onednn(g.mT, x.mT, None)
    return _onednn(x.mT, g.mT, None).mT.contiguous()  # oneDNN is faster with the shorter side first


def add_outer(total: Tensor, g: Tensor, x: Tensor, way: Way) -> None:
    """total += gᵀ x of rounded factors, where the total keeps all its bits."""
    if way == "torch":
        torch.addmm(total, g.mT, x, out=total)
    else:
        total += outer(g, x, way)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(_dense(x), _dense(weight), bias, "none", [], "")


def _dense(x: Tensor) -> Tensor:
    """A matrix whose rows or columns follow each other: for others oneDNN has only a reference, which takes minutes."""
    return x if x.is_contiguous() or x.mT.is_contiguous() else x.contiguous()


def has_onednn() -> bool:
    """Whether this build of torch can multiply float32 through oneDNN."""
    try:
        ones = torch.ones(1, 1)
        return torch.backends.mkldnn.is_available() and _onednn(ones, ones, None).item() == 1
    except (AttributeError, RuntimeError):
        return False


def products(
    a: Float[Tensor, "B M K"], b: Float[Tensor, "B K N"], way: Way
) -> Float[Tensor, "B M N"]:
    """a b of rounded factors, for each of several pairs."""
    if way != "onednn":
        return a @ b
    return torch.stack([product(one, other, way) for one, other in zip(a, b, strict=True)])


def add_products(
    c: Float[Tensor, "B M N"],
    a: Float[Tensor, "B M K"],
    b: Float[Tensor, "B K N"],
    way: Way,
    *,
    beta: float,
    alpha: float = 1.0,
) -> Float[Tensor, "B M N"]:
    """β c + α a b of rounded factors, for each of several triples."""
    if way != "onednn":
        return torch.baddbmm(c, a, b, beta=beta, alpha=alpha)
    return products(a, b, way).mul_(alpha).add_(c, alpha=beta)
