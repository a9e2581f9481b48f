"""One number of a stage, and the equation that made it, filled with the actual values.

What an account says is checked against what was recorded: where a layer does more than its equation (rotated queries,
a block that is read again and again), the number is told without one, and never a sum that is not true.
"""

from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import torch
from torch import Tensor

from seqlab.errors import UsageError
from seqlab.explain import layer_accounts as layers
from seqlab.explain import recurrent_accounts as recurrent
from seqlab.explain.accounts import Account, Place
from seqlab.explain.charts import table
from seqlab.explain.labels import number
from seqlab.explain.lens import meaning, stage_named
from seqlab.explain.view import View
from seqlab.subject import Subject
from seqlab.trace import Trace

CLOSE = 1e-3  # of its size, or at all: by how much a sum in doubles may miss a number that was made in floats
EQUATIONS: dict[str, Callable[[Place], Account]] = {
    "score": layers.score,
    "weights": layers.weight,
    "heads": layers.head,
    **dict.fromkeys("qkv", layers.projection),
    "inner": layers.inner,
    "sum": layers.residual_sum,
    "output": layers.block_output,
    "positions": layers.position,
    **dict.fromkeys("ifgoruz", recurrent.gate),
    "n": recurrent.candidate,
    "c": recurrent.cell_state,
    "h": recurrent.state,
    "logits": layers.logit,
}


@torch.no_grad()
def account(subject: Subject, trace: Trace, name: str, cell: tuple[int, ...]) -> Account:
    """How a number came about; where there is no equation for it, or not a true one, only what it is."""
    place = Place(subject, trace, name, cell)
    value = float(place.stage(name)[cell])
    plain = Account("", meaning(name) or place.leaf, value)
    if place.leaf not in EQUATIONS:
        return plain
    try:
        filled = EQUATIONS[place.leaf](place)
    except (
        KeyError,
        StopIteration,
        IndexError,
        ValueError,
    ):  # this layer keeps no record of what the equation needs
        return plain
    return filled if abs(filled.value - value) <= CLOSE * max(1.0, abs(value)) else plain


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
