"""How a number inside a model was computed: torch's operations are recorded in a run and traced backwards.

The account of a number is therefore the computation itself, back to the nearest named stages and weights. An operation
that only moves numbers, such as a transpose, is repeated on their indices, which shows where each number came from.
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
# operations that leave each number at its index
IDENTITIES = ("to", "float", "double", "clone", "contiguous")
# operations that move numbers without changing them
MOVES = re.compile(
    "__get__|__getitem__|cat|chunk|expand|expand_as|flatten|flip|masked_fill|permute|repeat_interleave|reshape|select|"
    "split|squeeze|stack|transpose|unbind|unflatten|unsqueeze|view|where"
)
SIGNS = {"add": "+", "sub": "−", "rsub": "−", "mul": "×", "div": "/"}
FUNCTIONS = {"sigmoid": "σ", "tanh": "tanh", "relu": "relu", "gelu": "gelu"}
LETTERS = {"weight": "W", "bias": "b"}  # in formulas, of parameters that torch names like this


@dataclass(frozen=True)
class Product:
    """A dot product a·b, with the names of both vectors."""

    what: str
    left: str
    right: str
    a: Vector
    b: Vector
    sum: float


@dataclass(frozen=True)
class Term:
    """A number with its formula, and the same formula with numbers in place of the names."""

    formula: str
    filled: str
    value: float
    is_sum: bool = False


class Tape(TorchFunctionMode):
    """One run of a model on its subject: the values at its taps, and the operation that made each tensor."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.model = subject.bundle.model
        self.trace = Trace(subject.sides)
        self.operations: dict[int, tuple[Operation, tuple[Any, ...], dict[str, Any], int]] = {}
        # references to all tensors, since Python reuses the id of a tensor that was freed
        self.tensors: list[Tensor] = []
        self.stages: dict[int, str] = {}
        self.weights: dict[int, str] = {}
        for name, weight in (*self.model.named_parameters(), *self.model.named_buffers()):
            leaf = name.rpartition(".")[2]
            self.weights[id(weight)] = LETTERS.get(leaf, leaf)
        # with gradients, because without them some operations overwrite their inputs
        with torch.enable_grad(), self, listening(self._record):
            subject.logits()

    def _record(self, name: str, value: Tensor) -> Tensor:
        self.trace.parts.setdefault(name, []).append(value)
        self.stages.setdefault(id(value), name.rpartition(".")[2])
        return value

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        outputs = result if isinstance(result, tuple) else (result,)
        for position, output in enumerate(outputs):
            if isinstance(output, Tensor) and id(output) not in self.operations:
                self.operations[id(output)] = (function, args, kwargs or {}, position)
                self.tensors.append(output)
        return result

    def stage(self, name: str) -> Tensor:
        """Return the values of a stage, with all its time steps in one tensor."""
        with self:
            return self.trace[name]

    def name(self, tensor: Tensor, cell: Cell) -> str:
        """Return the name of a number's stage or weight, or the formula of a sinusoid (E54); '' if it has no name."""
        name = self.stages.get(id(tensor)) or self.weights.get(id(tensor), "")
        if name != "waves":
            return name
        t, c = cell
        return f"{'cos' if c % 2 else 'sin'}({t} / 10000^({c - c % 2}/{tensor.shape[1]}))"

    def source(self, tensor: Tensor, cell: Cell) -> tuple[Tensor, Cell]:
        """Trace a number back through moves to a stage, a weight, or the result of a computation."""
        while not self.name(tensor, cell) and (origin := self.origin(tensor, cell)) is not None:
            tensor, cell = origin
        return tensor, cell

    def origin(self, tensor: Tensor, cell: Cell) -> tuple[Tensor, Cell] | None:
        """Return where a number was before the last operation, or None if that operation computed it."""
        function, args, kwargs, output = self.operations.get(id(tensor), (str, (), {}, 0))
        if function.__name__ in IDENTITIES:
            return args[0], cell
        if not MOVES.fullmatch(function.__name__):
            return None
        sources: list[tuple[int, Tensor]] = []
        count = 1  # 0 stands for constants that an operation fills in

        def as_indices(part: Any) -> Any:
            """Replace each number of the arguments by its index, counted over all tensors together."""
            nonlocal count
            if isinstance(part, list | tuple):
                return type(part)(map(as_indices, part))
            if isinstance(part, Tensor) and part.is_floating_point():
                sources.append((count, part))
                count += part.numel()
                return torch.arange(count - part.numel(), count).view(part.shape)
            return 0 if isinstance(part, float) else part

        moved = function(*as_indices(args), **kwargs)
        indices = moved[output] if isinstance(moved, tuple) else moved
        origin = int(indices[cell])
        for first, part in reversed(sources):
            if first <= origin:
                return part, _cell_at(origin - first, part)
        return None


class Arithmetic:
    """The account of one number: its formula, the lines that lead to it, and the dot products in it."""

    def __init__(self, tape: Tape, tensor: Tensor, cell: Cell) -> None:
        self.tape = tape
        self.lines: list[str] = []
        self.products: list[Product] = []
        self.result = self._derive(*tape.source(tensor, cell))
        self._write(self.result)

    def _write(self, term: Term) -> None:
        """Add a line with a formula and its value, unless the formula is just that number."""
        if term.filled != number(term.value):
            self.lines.append(f"{term.filled} = {number(term.value)}")

    def _term(self, part: Any, cell: Cell) -> Term:
        """Return a number as the name of its stage or weight; if it has no name, as its formula."""
        if not isinstance(part, Tensor):
            return Term(number(part), number(part), float(part))
        tensor, cell = self.tape.source(part, cell)
        if name := self.tape.name(tensor, cell):
            return Term(name, number(value := tensor[cell].item()), value)
        return self._derive(tensor, cell)

    def _derive(self, tensor: Tensor, cell: Cell) -> Term:
        """Return a number as the formula of the operation that made it; a bare number if unknown."""
        if (origin := self.tape.origin(tensor, cell)) is not None:
            return self._term(*origin)
        function, args, options, _ = self.tape.operations.get(id(tensor), (str, (), {}, 0))
        name = function.__name__.strip("_")
        if name in SIGNS or name in FUNCTIONS:
            return self._elementwise(name, function, args[:2], tensor, cell)
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

    def _elementwise(
        self, name: str, function: Operation, operands: tuple[Any, ...], like: Tensor, cell: Cell
    ) -> Term:
        """Return an elementwise operation as a formula; a sum inside a product or a quotient gets brackets."""
        sides = [self._term(operand, _operand_cell(operand, like, cell)) for operand in operands]
        value = function(*(torch.tensor(side.value, dtype=torch.float64) for side in sides)).item()
        if name in FUNCTIONS:
            (inner,) = sides
            symbol = FUNCTIONS[name]
            self._write(inner)
            return Term(f"{symbol}({inner.formula})", f"{symbol}({number(inner.value)})", value)
        if name == "add":
            return _sum(*sides)
        sides = sides[::-1] if name == "rsub" else sides
        pairs = [("({})" if side.is_sum else "{}", side) for side in sides]
        sign = f" {SIGNS[name]} "
        formula = sign.join(pattern.format(side.formula) for pattern, side in pairs)
        filled = sign.join(pattern.format(side.filled) for pattern, side in pairs)
        return Term(formula, filled, value, is_sum=name in ("sub", "rsub"))

    def _dot(self, left: Tensor, row: Row, right: Tensor, column: Row) -> Term:
        left_name, left_position = self._name(left, row)
        right_name, right_position = self._name(right, column)
        a = left[row].detach().double().numpy()
        b = right[column].detach().double().numpy()
        what = f"{left_name}·{right_name}"
        total = float(np.dot(a, b))
        names = (left_name + left_position, right_name + right_position)
        self.products.append(Product(what, *names, a, b, total))
        return Term(what, number(total), total)

    def _name(self, tensor: Tensor, row: Row) -> tuple[str, str]:
        """Return the name of a row of numbers and its position; both names if two rows were concatenated."""
        names: dict[str, str] = {}
        for end in (0, tensor.shape[row.index(ALL) - len(row)] - 1):
            cell = tuple(end if isinstance(part, slice) else part for part in row)
            source, at = self.tape.source(tensor, cell)
            name = self.tape.name(source, at) or Arithmetic(self.tape, source, at).result.formula
            if id(source) in self.tape.weights:
                position = f", row {at[0]}" if source.dim() > 1 else ""
            else:
                position = f" at {at[-2] + 1}" if source.dim() > 2 else ""
            names[name] = position if names.get(name, position) == position else ""
        return names.popitem() if len(names) == 1 else (f"[{'; '.join(names)}]", "")

    def _softmax(self, scores: Tensor, cell: Cell) -> Term:
        """exp(score) / Σ exp(scores), over the positions that are not masked."""
        name = self._term(scores, cell).formula
        row = scores[cell[:-1]].detach().double()
        visible = row.isfinite()
        total = float(row[visible].exp().sum())
        score = float(row[cell[-1]])
        power = math.exp(score)
        self._write(Term("", f"exp({number(score)})", power))
        self._write(Term("", f"Σ exp over {int(visible.sum())} positions", total))
        formula = f"softmax({name}) = exp({name}) / Σ exp({name})"
        return Term(formula, f"{number(power)} / {number(total)}", power / total)

    def _norm(self, x: Tensor, options: dict[str, Any], cell: Cell) -> Term:
        """gain × (x − mean) / deviation + bias, over the features of a position."""
        row = x[cell[:-1]].detach().double()
        here = self._term(x, cell)
        gain, bias = (options[name][cell[-1]].item() for name in ("weight", "bias"))
        mean = float(row.mean())
        deviation = math.sqrt(row.var(unbiased=False) + options["eps"])
        mean_of = f"mean of {len(row)} features = {number(mean)}"
        self._write(Term("", f"{mean_of}, deviation", deviation))
        numbers = map(number, (here.value, mean, deviation, gain, bias))
        value = (here.value - mean) / deviation * gain + bias
        formula = f"({here.formula} − mean) / deviation × gain + bias"
        return Term(formula, "({} − {}) / {} × {} + {}".format(*numbers), value)


def _sum(left: Term, right: Term) -> Term:
    formula = f"{left.formula} + {right.formula}"
    filled = f"{left.filled} + {right.filled}"
    return Term(formula, filled, left.value + right.value, is_sum=True)


def _operand_cell(operand: Any, like: Tensor, cell: Cell) -> Cell:
    """Return the cell of an operand that an elementwise operation reads for a cell of its result (broadcasting)."""
    if not isinstance(operand, Tensor):
        return ()
    indices = torch.arange(operand.numel()).view(operand.shape).expand(like.shape)
    return _cell_at(int(indices[cell]), operand)


def _cell_at(index: int, tensor: Tensor) -> Cell:
    return tuple(map(int, np.unravel_index(index, tensor.shape)))
