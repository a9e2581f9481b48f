"""What an account of a number consists of: an equation, its products and lines, and the place of the number."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from torch import Tensor, nn

from seqlab.explain.canvas import Vector
from seqlab.explain.labels import number
from seqlab.subject import Subject
from seqlab.trace import Trace

SQUASH: dict[str, Callable[[float], float]] = {
    "σ({})": lambda x: 1 / (1 + math.exp(-x)),
    "tanh({})": math.tanh,
    "tanh of {}": math.tanh,
    "max(0, ·) of {}": lambda x: max(0.0, x),
}
Layer = TypeVar("Layer", bound=nn.Module)


@dataclass(frozen=True)
class Product:
    """A sum of products, a·b, with the names of both sides."""

    what: str
    left: str
    right: str
    a: Vector
    b: Vector
    sum: float


@dataclass(frozen=True)
class Account:
    """An equation by its id, what comes out, the arithmetic in lines, and the products in it."""

    equation: str
    formula: str
    value: float
    lines: tuple[str, ...] = ()
    products: tuple[Product, ...] = ()


@dataclass(frozen=True)
class Place:
    """One number in one stage of a trace, and whatever stands near it."""

    subject: Subject
    trace: Trace
    name: str
    cell: tuple[int, ...]

    @property
    def prefix(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]

    def stage(self, name: str) -> Tensor:
        return self.trace[name][0].double()

    def part(self, leaf: str) -> Tensor:
        """Another stage of the same layer."""
        return self.stage(f"{self.prefix}.{leaf}")

    def at(self, leaf: str) -> float:
        """The number in the same cell of another stage of the same layer."""
        return float(self.part(leaf)[self.cell])

    def layer(self, kind: type[Layer], name: str = "") -> Layer:
        """A layer by its name; without one, that of this stage."""
        return next(m for m in self.layers(kind) if m.name == (name or self.prefix))

    def layers(self, kind: type[Layer]) -> list[Layer]:
        return [m for m in self.subject.bundle.model.modules() if isinstance(m, kind)]


def fill(pattern: str, value: float, *numbers: float) -> str:
    """Numbers in the places {} of a pattern, and what they come to."""
    return f"{pattern.format(*map(number, numbers))} = {number(value)}"


def dot(what: str, left: str, a: Tensor, right: str, b: Tensor) -> Product:
    """The product of two rows, with their names."""
    rows = a.double().numpy(), b.double().numpy()
    return Product(what, left, right, *rows, float(np.dot(*rows)))


def affine(
    equation: str, formula: str, names: tuple[str, str, str], layer: Any, row: int, x: Tensor
) -> Account:
    """One row of a linear layer: the product, by the names of it and of its sides, and its sum with the bias."""
    what, left, right = names
    product = dot(what, left, layer.weight[row], right, x)
    bias = float(layer.bias[row])
    total = product.sum + bias
    return Account(
        equation, formula, total, (fill("{} + {}", total, product.sum, bias),), (product,)
    )


def squashed(
    equation: str, formula: str, products: tuple[Product, ...], terms: list[float], squash: str
) -> Account:
    """A sum of terms, and one of the functions in SQUASH of it."""
    total = sum(terms)
    value = SQUASH[squash](total)
    lines = (fill(" + ".join("{}" for _ in terms), total, *terms), fill(squash, value, total))
    return Account(equation, formula, value, lines, products)
