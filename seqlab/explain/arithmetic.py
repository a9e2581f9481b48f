"""How a number inside a model was made: torch's operations, noted while the model runs and read backwards.

So the account of a number is the computation itself, back to the stages and weights nearest to it. Where an operation
only moves numbers, it is done once more to their places, which tells where each of them came from.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seqlab.explain.canvas import Vector
from seqlab.explain.figure_text import number
from seqlab.layers.tap import listening
from seqlab.subject import Subject
from seqlab.trace import Trace

Cell = tuple[int, ...]
Operation = Callable[..., Any]
ALL = slice(None)
Row = tuple[int | slice, ...]  # one of its parts is ALL
SAME = (
    "to",
    "float",
    "double",
    "clone",
    "contiguous",
)  # operations that leave each number where it is
MOVES = re.compile(
    "__get__|__getitem__|cat|chunk|expand|expand_as|flatten|flip|masked_fill|permute|repeat_interleave|reshape|select|"
    "split|squeeze|stack|transpose|unbind|unflatten|unsqueeze|view|where"
)
SIGNS = {"add": "+", "sub": "−", "rsub": "−", "mul": "×", "div": "/"}
FUNCTIONS = {"sigmoid": "σ", "tanh": "tanh", "relu": "relu", "gelu": "gelu"}
LETTERS = {"weight": "W", "bias": "b"}  # of weights without a name of their own


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
class Term:
    """A number as a formula, and as the same formula with numbers in the places of names."""

    formula: str
    filled: str
    value: float
    is_sum: bool = False


class Tape(TorchFunctionMode):
    """One run of a model on its subject: what its taps passed, and the operation that made each tensor."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.model = subject.bundle.model
        self.trace = Trace(subject.sides)
        self.made: dict[int, tuple[Operation, tuple[Any, ...], dict[str, Any], int]] = {}
        self.kept: list[Tensor] = []  # an id is that of one tensor as long as this is there
        self.stages: dict[int, str] = {}
        self.weights: dict[int, str] = {}
        for name, weight in (*self.model.named_parameters(), *self.model.named_buffers()):
            leaf = name.rpartition(".")[2]
            self.weights[id(weight)] = LETTERS.get(leaf, leaf)
        # with gradients, for without them some operations overwrite what they read
        with torch.enable_grad(), self, listening(self._keep):
            subject.logits()

    def _keep(self, name: str, value: Tensor) -> Tensor:
        self.trace.parts.setdefault(name, []).append(value)
        self.stages.setdefault(id(value), name.rpartition(".")[2])
        return value

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for place, part in enumerate(result if isinstance(result, tuple) else (result,)):
            if isinstance(part, Tensor) and id(part) not in self.made:
                self.made[id(part)] = (function, args, kwargs or {}, place)
                self.kept.append(part)
        return result

    def stage(self, name: str) -> Tensor:
        """A stage, all its steps side by side."""
        with self:
            return self.trace[name]

    def name(self, tensor: Tensor, cell: Cell) -> str:
        """The name of a number's stage or weight, of a sinusoid its formula (E54); empty where it has none."""
        name = self.stages.get(id(tensor)) or self.weights.get(id(tensor), "")
        if name != "waves":
            return name
        t, c = cell
        return f"{'cos' if c % 2 else 'sin'}({t} / 10000^({c - c % 2}/{tensor.shape[1]}))"

    def source(self, tensor: Tensor, cell: Cell) -> tuple[Tensor, Cell]:
        """Where a number stood before it was only moved: in a stage, in a weight, or in what an operation made."""
        while not self.name(tensor, cell) and (origin := self.origin(tensor, cell)) is not None:
            tensor, cell = origin
        return tensor, cell

    def origin(self, tensor: Tensor, cell: Cell) -> tuple[Tensor, Cell] | None:
        """Where a number stood before the operation that made its tensor, if that only moved it."""
        function, args, kwargs, place = self.made.get(id(tensor), (str, (), {}, 0))
        if function.__name__ in SAME:
            return args[0], cell
        if not MOVES.fullmatch(function.__name__):
            return None
        sources: list[tuple[int, Tensor]] = []
        count = 1  # 0 is for what an operation fills in

        def places(part: Any) -> Any:
            """The places of the numbers in a tensor, all tensors counted together."""
            nonlocal count
            if isinstance(part, list | tuple):
                return type(part)(map(places, part))
            if isinstance(part, Tensor) and part.is_floating_point():
                sources.append((count, part))
                count += part.numel()
                return torch.arange(count - part.numel(), count).view(part.shape)
            return 0 if isinstance(part, float) else part

        moved = function(*places(args), **kwargs)
        origin = int((moved[place] if isinstance(moved, tuple) else moved)[cell])
        for first, part in reversed(sources):
            if first <= origin:
                return part, _unravelled(origin - first, part)
        return None


class Arithmetic:
    """The account of one number: its formula, the lines that lead to it, and the products in it."""

    def __init__(self, tape: Tape, tensor: Tensor, cell: Cell) -> None:
        self.tape = tape
        self.lines: list[str] = []
        self.products: list[Product] = []
        self.result = self._made(*tape.source(tensor, cell))
        self._write(self.result)

    def _write(self, term: Term) -> None:
        """A line for what a formula comes to, unless it is a number alone."""
        if term.filled != number(term.value):
            self.lines.append(f"{term.filled} = {number(term.value)}")

    def _term(self, part: Any, cell: Cell) -> Term:
        """A number by the name of its stage or weight, or without one by what made it."""
        if not isinstance(part, Tensor):
            return Term(number(part), number(part), float(part))
        tensor, cell = self.tape.source(part, cell)
        if name := self.tape.name(tensor, cell):
            return Term(name, number(value := tensor[cell].item()), value)
        return self._made(tensor, cell)

    def _made(self, tensor: Tensor, cell: Cell) -> Term:
        """A number by what made it; alone where that is not known."""
        if (origin := self.tape.origin(tensor, cell)) is not None:
            return self._term(*origin)
        function, args, options, _ = self.tape.made.get(id(tensor), (str, (), {}, 0))
        name = function.__name__.strip("_")
        if name in SIGNS or name in FUNCTIONS:
            return self._combined(name, function, args[:2], tensor, cell)
        if name == "linear":
            x, weight, bias = args
            dot = self._dot(weight, (cell[-1], ALL), x, (*cell[:-1], ALL))
            return dot if bias is None else _sum(dot, self._term(bias, cell[-1:]))
        if name == "matmul":
            left, right = args
            if right.dim() == 1:
                return self._dot(right, (ALL,), left, (*cell, ALL))
            batch = cell[:-2] if right.dim() > 2 else ()
            return self._dot(left, (*cell[:-1], ALL), right, (*batch, ALL, cell[-1]))
        if name == "softmax":
            return self._softmax(args[0], cell)
        if name == "layer_norm":
            return self._norm(args[0], options, cell)
        return self._term(tensor[cell].item(), ())

    def _combined(
        self, name: str, function: Operation, parts: tuple[Any, ...], like: Tensor, cell: Cell
    ) -> Term:
        """What an operation makes number by number; a sum within a product or a quotient stands in brackets."""
        sides = [self._term(part, _place(part, like, cell)) for part in parts]
        value = function(*(torch.tensor(side.value, dtype=torch.float64) for side in sides)).item()
        if name in FUNCTIONS:
            (inner,), name = sides, FUNCTIONS[name]
            self._write(inner)
            return Term(f"{name}({inner.formula})", f"{name}({number(inner.value)})", value)
        if name == "add":
            return _sum(*sides)
        sides = sides[::-1] if name == "rsub" else sides
        pairs = [("({})" if side.is_sum else "{}", side) for side in sides]
        sign = f" {SIGNS[name]} "
        formula = sign.join(pattern.format(side.formula) for pattern, side in pairs)
        filled = sign.join(pattern.format(side.filled) for pattern, side in pairs)
        return Term(formula, filled, value, is_sum=name in ("sub", "rsub"))

    def _dot(self, left: Tensor, row: Row, right: Tensor, column: Row) -> Term:
        (one, one_at), (other, other_at) = self._name(left, row), self._name(right, column)
        a, b = (each.detach().double().numpy() for each in (left[row], right[column]))
        what, total = f"{one}·{other}", float(np.dot(a, b))
        self.products.append(Product(what, one + one_at, other + other_at, a, b, total))
        return Term(what, number(total), total)

    def _name(self, tensor: Tensor, row: Row) -> tuple[str, str]:
        """What a row of numbers is called, and where it stands if that is in one place; two rows may be joined."""
        names: dict[str, str] = {}
        for end in (0, tensor.shape[row.index(ALL) - len(row)] - 1):
            place = tuple(end if isinstance(part, slice) else part for part in row)
            source, at = self.tape.source(tensor, place)
            name = self.tape.name(source, at) or Arithmetic(self.tape, source, at).result.formula
            if id(source) in self.tape.weights:
                where = f", row {at[0]}" if source.dim() > 1 else ""
            else:
                where = f" at {at[-2] + 1}" if source.dim() > 2 else ""
            names[name] = where if names.get(name, where) == where else ""
        return names.popitem() if len(names) == 1 else (f"[{'; '.join(names)}]", "")

    def _softmax(self, scores: Tensor, cell: Cell) -> Term:
        """exp(score) / Σ exp(scores), over the positions that are visible."""
        name, row = self._term(scores, cell).formula, scores[cell[:-1]].detach().double()
        visible = row.isfinite()
        total, score = float(row[visible].exp().sum()), float(row[cell[-1]])
        power = math.exp(score)
        self._write(Term("", f"exp({number(score)})", power))
        self._write(Term("", f"Σ exp over {int(visible.sum())} positions", total))
        formula = f"softmax({name}) = exp({name}) / Σ exp({name})"
        return Term(formula, f"{number(power)} / {number(total)}", power / total)

    def _norm(self, x: Tensor, options: dict[str, Any], cell: Cell) -> Term:
        """gain × (x − mean) / deviation + bias, over the features of a position."""
        row, here = x[cell[:-1]].detach().double(), self._term(x, cell)
        gain, bias = (options[name][cell[-1]].item() for name in ("weight", "bias"))
        mean, deviation = float(row.mean()), math.sqrt(row.var(unbiased=False) + options["eps"])
        mean_of = f"mean of {len(row)} features = {number(mean)}"
        self._write(Term("", f"{mean_of}, deviation", deviation))
        numbers = map(number, (here.value, mean, deviation, gain, bias))
        value = (here.value - mean) / deviation * gain + bias
        formula = f"({here.formula} − mean) / deviation × gain + bias"
        return Term(formula, "({} − {}) / {} × {} + {}".format(*numbers), value)


def _sum(one: Term, other: Term) -> Term:
    formula, filled = f"{one.formula} + {other.formula}", f"{one.filled} + {other.filled}"
    return Term(formula, filled, one.value + other.value, is_sum=True)


def _place(part: Any, like: Tensor, cell: Cell) -> Cell:
    """Where an operation that works number by number finds its number in one of its sides."""
    if not isinstance(part, Tensor):
        return ()
    places = torch.arange(part.numel()).view(part.shape).expand(like.shape)
    return _unravelled(int(places[cell]), part)


def _unravelled(place: int, tensor: Tensor) -> Cell:
    return tuple(map(int, np.unravel_index(place, tensor.shape)))
