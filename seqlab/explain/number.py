"""One number of a stage, and the equation that made it, filled with the actual values."""

from dataclasses import asdict, dataclass

import numpy as np
from torch import Tensor, nn

from seqlab.errors import UsageError, one_of
from seqlab.explain.arithmetic import Arithmetic, Product, Tape
from seqlab.explain.charts import table
from seqlab.explain.figure_text import number
from seqlab.explain.lens import meaning
from seqlab.explain.view import View
from seqlab.layers.inputs import Positions
from seqlab.layers.recurrence import Recurrence
from seqlab.models.recurrent import SourceAttention
from seqlab.subject import Subject

CLOSE = 1e-3  # of its size, or at all: by how much a sum in doubles may miss a number that was made in floats
EQUATIONS = {
    **{"score": "E44", "weights": "E38", "heads": "E39", **dict.fromkeys("qkv", "E45")},
    **{"inner": "E53", "sum": "E52", "output": "E50", "positions": "E54", "logits": "E18"},
}
SCORES = {"dot": "E41", "general": "E42", "additive": "E43", "scaled": "E44"}


@dataclass(frozen=True)
class Account:
    """An equation by its id, what comes out, the arithmetic in lines, and the products in it."""

    equation: str
    formula: str
    value: float
    lines: tuple[str, ...] = ()
    products: tuple[Product, ...] = ()


def account(tape: Tape, name: str, cell: tuple[int, ...]) -> Account:
    """How a number came about; where that is not known, or comes to another number, only what it is."""
    stage, leaf = tape.stage(name), name.rpartition(".")[2]
    value = stage[0][cell].item()
    if leaf == "weights" and value == 0:
        return Account("E48", "masked: what comes later, or is not there, has no weight", value)
    sums = Arithmetic(tape, stage, (0, *cell))
    result = sums.result
    is_true = abs(result.value - value) <= CLOSE * max(1.0, abs(value))
    if not is_true or not (sums.lines or sums.products):
        return Account("", meaning(name) or leaf, value)
    equation = equation_of(tape.model, name)
    formula = f"{leaf} = {result.formula}"
    return Account(equation, formula, value, tuple(sums.lines), tuple(sums.products))


def equation_of(model: nn.Module, name: str) -> str:
    """The id of the equation that makes a stage; empty where it enters others, and comes from none of the lectures."""
    prefix, _, leaf = name.rpartition(".")
    for layer in model.modules():
        if getattr(layer, "name", None) != prefix:
            continue
        if isinstance(layer, Recurrence):
            return layer.cell.equation if leaf in (*layer.cell.gates, "c", "h") else ""
        if isinstance(layer, SourceAttention):
            return {"score": SCORES[layer.kind], "weights": "E38"}.get(leaf, "")
        if isinstance(layer, Positions) and layer.table is not None and leaf == "positions":
            return "E55"
    return "E53" if name.endswith(".second.sum") else EQUATIONS.get(leaf, "")


def number_view(subject: Subject, *, layer: str | None = None, cell: str | None = None) -> View:
    """One number of a stage (`cell` counts from 0, as 2,5 or with a head 0,2,5) and the equation that made it.

    Without a stage it is of the last, and without a cell the largest.
    """
    tape = Tape(subject)
    layer = one_of("stage", layer or tape.trace.names()[-1], tape.trace.parts)
    place = _cell(tape.stage(layer)[0].detach(), cell)
    filled = account(tape, layer, place)
    where = ", ".join(map(str, place))
    name = f"{layer.rpartition('.')[2]}[{where}]"
    sums = [f"{product.what} = {number(product.sum)}" for product in filled.products]
    lines = [filled.formula, *sums, *filled.lines, f"{name} = {number(filled.value)}"]
    products = [asdict(product) for product in filled.products]
    data = {"stage": layer, "cell": place, "name": name, **asdict(filled), "products": products}
    picture = table(
        lines[:1],
        [[line] for line in lines[1:]],
        title="the equation, filled with the actual values",
    )
    return View("number", f"{layer} at {where}", data, [picture, *lines])


def _cell(values: Tensor, text: str | None) -> tuple[int, ...]:
    sizes = tuple(values.shape)
    if text is None:
        return tuple(int(i) for i in np.unravel_index(int(values.abs().argmax()), sizes))
    parts = tuple(int(part) if part.strip().isdecimal() else -1 for part in text.split(","))
    if len(parts) != len(sizes) or not all(
        part in range(size) for part, size in zip(parts, sizes, strict=True)
    ):
        last = ",".join(str(size - 1) for size in sizes)
        raise UsageError(
            f"there is no number at '{text}'",
            hint=f"cells are {','.join('0' * len(sizes))} to {last}.",
        )
    return parts
