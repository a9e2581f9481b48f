"""One number of a stage, and the equation that made it, filled with the actual values."""

from dataclasses import asdict

import numpy as np
from torch import Tensor

from seqlab.errors import UsageError
from seqlab.explain.accounts import account
from seqlab.explain.charts import table
from seqlab.explain.labels import number
from seqlab.explain.lens import stage_named
from seqlab.explain.view import View
from seqlab.subject import Subject


def number_view(subject: Subject, *, layer: str | None = None, cell: str | None = None) -> View:
    """One number of a stage (`cell` counts from 0, as 2,5 or with a head 0,2,5) and the equation that made it.

    Without a stage it is of the last, and without a cell the largest.
    """
    trace = subject.trace()
    layer = stage_named(trace, layer or trace.names()[-1])
    place = _cell(trace[layer][0], cell)
    filled = account(subject, trace, layer, place)
    where = ", ".join(map(str, place))
    name = f"{layer.rpartition('.')[2]}[{where}]"
    sums = [f"{product.what} = {number(product.sum)}" for product in filled.products]
    lines = [filled.formula, *sums, *filled.lines, f"{name} = {number(filled.value)}"]
    data = {
        "stage": layer,
        "cell": place,
        "name": name,
        "equation": filled.equation,
        "formula": filled.formula,
        "lines": filled.lines,
        "value": filled.value,
        "products": [asdict(product) | {"sum": product.sum} for product in filled.products],
    }
    picture = table(lines[:1], [[line] for line in lines[1:]], title=lines[0])
    return View("number", f"{layer} at {where}", data, [picture, *lines])


def _cell(values: Tensor, text: str | None) -> tuple[int, ...]:
    sizes = tuple(values.shape)
    if text is None:
        return tuple(int(i) for i in np.unravel_index(int(values.abs().argmax()), sizes))
    parts = [int(part) if part.strip().isdecimal() else -1 for part in text.split(",")]
    if len(parts) != len(sizes) or any(not 0 <= part < size for part, size in zip(parts, sizes, strict=True)):
        first = ",".join("0" for _ in sizes)
        last = ",".join(str(size - 1) for size in sizes)
        raise UsageError(f"there is no number at '{text}'", hint=f"cells are {first} to {last}.")
    return tuple(parts)
