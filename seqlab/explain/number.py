"""One number of a stage, and the equation that computes it with its actual values."""

from dataclasses import asdict, dataclass

import numpy as np
from torch import Tensor, nn

from seqlab.errors import UsageError, one_of
from seqlab.explain.arithmetic import Arithmetic, Product, Tape
from seqlab.explain.charts import table
from seqlab.explain.figure_text import number
from seqlab.explain.stage_names import meaning
from seqlab.explain.view import View
from seqlab.layers.inputs import Positions
from seqlab.layers.recurrence import Recurrence
from seqlab.models.recurrent import SourceAttention
from seqlab.subject import Subject

# relative or absolute difference allowed between the account, in doubles, and the model's number, in floats
TOLERANCE = 1e-3
EQUATIONS = {
    **{"score": "E44", "weights": "E38", "heads": "E39", **dict.fromkeys("qkv", "E45")},
    **{"inner": "E53", "sum": "E52", "output": "E50", "positions": "E54", "logits": "E18"},
}
SCORES = {"dot": "E41", "general": "E42", "additive": "E43", "scaled": "E44"}


@dataclass(frozen=True)
class Account:
    """The id of an equation, its formula and value, the arithmetic in lines, and the dot products in it."""

    equation: str
    formula: str
    value: float
    lines: tuple[str, ...] = ()
    products: tuple[Product, ...] = ()


def account(tape: Tape, name: str, cell: tuple[int, ...]) -> Account:
    """Return how a number was computed; if the operations do not lead to the same value, only what the number is."""
    stage = tape.stage(name)
    leaf = name.rpartition(".")[2]
    value = stage[0][cell].item()
    if leaf == "weights" and value == 0:
        return Account("E48", "masked: later positions and padding get the weight 0", value)
    arithmetic = Arithmetic(tape, stage, (0, *cell))
    result = arithmetic.result
    is_equal = abs(result.value - value) <= TOLERANCE * max(1.0, abs(value))
    if not is_equal or not (arithmetic.lines or arithmetic.products):
        return Account("", meaning(name) or leaf, value)
    equation = equation_of(tape.model, name)
    formula = f"{leaf} = {result.formula}"
    return Account(equation, formula, value, tuple(arithmetic.lines), tuple(arithmetic.products))


def equation_of(model: nn.Module, name: str) -> str:
    """Return the id of the equation that computes a stage, or '' if the stage is an input or not in the lectures."""
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
    """Show one number of a stage and the equation that computes it.

    `cell` counts from 0, as 2,5 or with a head 0,2,5. By default it is the largest number of the last stage.
    """
    tape = Tape(subject)
    layer = one_of("stage", layer or tape.trace.names()[-1], tape.trace.parts)
    index = _cell(tape.stage(layer)[0].detach(), cell)
    computed = account(tape, layer, index)
    index_text = ", ".join(map(str, index))
    name = f"{layer.rpartition('.')[2]}[{index_text}]"
    sums = [f"{product.what} = {number(product.sum)}" for product in computed.products]
    lines = [computed.formula, *sums, *computed.lines, f"{name} = {number(computed.value)}"]
    products = [asdict(product) for product in computed.products]
    data = {"stage": layer, "cell": index, "name": name, **asdict(computed), "products": products}
    picture = table(
        lines[:1],
        [[line] for line in lines[1:]],
        title="the equation with its actual values",
    )
    return View("number", f"{layer} at {index_text}", data, [picture, *lines])


def _cell(values: Tensor, text: str | None) -> tuple[int, ...]:
    """Parse the index of a number, such as '2,5'; None is the index of the largest one."""
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
