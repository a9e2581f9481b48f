"""Accounts of numbers in a recurrent layer: gates, candidates, cells and states."""

import math

from torch import Tensor

from seqlab.explain.accounts import Account, Place, Product, dot, fill, squashed
from seqlab.layers.recurrence import Recurrence


def _entering(p: Place) -> tuple[Recurrence, list[Tensor]]:
    """The layer, and what enters it at this step: the input, the state before, and in an LSTM the cell before."""
    layer = p.layer(Recurrence)
    parts = p.part("enters")[p.cell[0]].split([layer.U.shape[1], *[layer.size] * layer.num_states])
    return layer, list(parts)


def _drive(
    p: Place, gate: int, reset: Tensor | float = 1.0
) -> tuple[tuple[Product, Product], list[float]]:
    """U x and W h for one unit of a gate, and the terms that they and its bias are. `reset` scales h first."""
    layer, (x, h, *_) = _entering(p)
    t, unit = p.cell
    row = gate * layer.size + unit
    driven = dot("U·x", f"U, row {unit}", layer.U[row], f"x at {t + 1}", x)
    recurrent = dot("W·h", f"W, row {unit}", layer.W[row], f"h before {t + 1}", reset * h)
    return (driven, recurrent), [driven.sum, recurrent.sum, float(layer.b[row])]


def gate(p: Place) -> Account:
    """A gate, or the candidate of an LSTM."""
    cell = p.layer(Recurrence).cell
    name = "tanh" if p.leaf == "g" else "σ"
    formula = f"{p.leaf} = {name}(U x + W h + b)"
    return squashed(cell.equation, formula, *_drive(p, cell.gates.index(p.leaf)), f"{name}({{}})")


def candidate(p: Place) -> Account:
    """The candidate of a GRU or an MGU, whose state is reset first."""
    layer = p.layer(Recurrence)
    gate = layer.cell.gates[0]
    last = len(layer.cell.gates) - 1
    bias = layer.b_n
    reset = p.part(gate)[p.cell[0]]
    if bias is None:
        formula = f"n = tanh(U x + W ({gate} h) + b)"
        products, terms = _drive(p, last, reset)
    else:  # torch's GRU resets after the product
        formula = "n = tanh(U x + b + r (W h + b′))"
        unit = p.cell[1]
        products, terms = _drive(p, last)
        terms[1] = float(reset[unit]) * (terms[1] + float(bias[unit]))
    return squashed(layer.cell.equation, formula, products, terms, "tanh({})")


def cell_state(p: Place) -> Account:
    """The cell of an LSTM."""
    _, (_, _, before) = _entering(p)
    c = float(before[p.cell[1]])
    f = p.at("f")
    i = p.at("i")
    g = p.at("g")
    value = f * c + i * g
    return Account(
        "E24", "c = f × c before + i × g", value, (fill("{} × {} + {} × {}", value, f, c, i, g),)
    )


def state(p: Place) -> Account:
    """The state that a step leaves."""
    layer, (_, before, *_) = _entering(p)
    if layer.kind == "lstm":
        o = p.at("o")
        c = p.at("c")
        value = o * math.tanh(c)
        return Account("E24", "h = o × tanh(c)", value, (fill("{} × tanh({})", value, o, c),))
    if (
        layer.cell.gates[-1] == "n"
    ):  # a candidate, and the gate before it says how much of it to take
        gate = layer.cell.gates[-2]
        h = float(before[p.cell[1]])
        n = p.at("n")
        u, name = (1 - p.at(gate), "u") if gate == "z" else (p.at(gate), gate)
        value = (1 - u) * h + u * n
        line = fill("{} × {} + {} × {}", value, 1 - u, h, u, n)
        return Account(
            layer.cell.equation, f"h = (1 − {name}) × h before + {name} × n", value, (line,)
        )
    squash = "tanh of {}" if layer.kind == "rnn" else "max(0, ·) of {}"
    return squashed("E17", "h = φ(W h before + U x + b)", *_drive(p, 0), squash)
