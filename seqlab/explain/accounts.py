"""How one recorded number came about: the equation that made it, filled with the actual values.

What an account says is checked against what was recorded: where a layer does more than its equation (rotated queries,
a block that is read again and again), the number is told without one, and never a sum that is not true.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from seqlab.equations.transformer import sinusoidal_positions
from seqlab.explain.canvas import Vector
from seqlab.explain.labels import number
from seqlab.explain.lens import meaning
from seqlab.layers.inputs import Entrance
from seqlab.layers.linear import Head
from seqlab.layers.recurrence import Recurrence
from seqlab.layers.transformer import AddNorm, FeedForward, LayerNorm, MultiHeadAttention
from seqlab.models.attentive import SourceAttention
from seqlab.subject import Subject
from seqlab.trace import Trace

CLOSE = 1e-3  # of its size, or at all: by how much a sum in doubles may miss a number that was made in floats
SUBLAYERS = {"first": "attention", "second": "feed_forward", "third": "cross"}
SCORES = {
    "dot": ("E41", "score = h·s"),
    "general": ("E42", "score = h·W s, with k = W s"),
    "additive": ("E43", "score = v·tanh(W₁ h + W₂ s), with q = W₁ h and k = W₂ s"),
}
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

    @property
    def sum(self) -> float:
        return float(self.a @ self.b)


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


@torch.no_grad()
def account(subject: Subject, trace: Trace, name: str, cell: tuple[int, ...]) -> Account:
    """How a number came about; where there is no equation for it, or not a true one, only what it is."""
    place = Place(subject, trace, name, cell)
    value = float(place.stage(name)[cell])
    plain = Account("", meaning(name) or place.leaf, value)
    if place.leaf not in _EQUATIONS:
        return plain
    try:
        filled = _EQUATIONS[place.leaf](place)
    except (KeyError, StopIteration, IndexError, ValueError):  # this layer keeps no record of what the equation needs
        return plain
    return filled if abs(filled.value - value) <= CLOSE * max(1.0, abs(value)) else plain


# What several equations share


def _line(pattern: str, value: float, *numbers: float) -> str:
    """Numbers in the places {} of a pattern, and what they come to."""
    return f"{pattern.format(*map(number, numbers))} = {number(value)}"


def _product(what: str, left: str, a: Tensor, right: str, b: Tensor) -> Product:
    return Product(what, left, right, a.double().numpy(), b.double().numpy())


def _affine(what: str, left: str, right: str, layer: Any, row: int, x: Tensor) -> tuple[Product, float, str]:
    """One row of a linear layer: the product, its sum with the bias, and the line that says so."""
    product = _product(what, left, layer.weight[row], right, x)
    bias = float(layer.bias[row])
    total = product.sum + bias
    return product, total, _line("{} + {}", total, product.sum, bias)


def _squashed(equation: str, formula: str, products: tuple[Product, ...], terms: list[float], squash: str) -> Account:
    """A sum of terms, and one of the functions in SQUASH of it."""
    total = sum(terms)
    value = SQUASH[squash](total)
    lines = (_line(" + ".join("{}" for _ in terms), total, *terms), _line(squash, value, total))
    return Account(equation, formula, value, lines, products)


# Attention


def _score(p: Place) -> Account:
    *head, t, s = p.cell
    q = p.part("q")[(*head, t)]
    k = p.part("k")[(*head, s)]
    at_query = f"q at {t + 1}"
    at_key = f"k at {s + 1}"
    product = _product("q·k", at_query, q, at_key, k)
    kind = "scaled" if head else p.layer(SourceAttention).kind
    if kind == "scaled":
        value = product.sum / math.sqrt(len(q))
        line = _line(f"{{}} / √{len(q)}", value, product.sum)
        return Account("E44", "score = q·k / √d", value, (line,), (product,))
    if kind == "additive":
        v = cast(Tensor, p.layer(SourceAttention).v)
        product = _product("v·tanh(q + k)", "v", v, f"tanh({at_query} + {at_key})", (q + k).tanh())
    equation, formula = SCORES[kind]
    return Account(equation, formula, product.sum, products=(product,))


def _weight(p: Place) -> Account:
    *row, s = p.cell
    scores = p.part("score")[tuple(row)]
    weights = p.part("weights")[tuple(row)]
    visible = weights > 0
    if not visible[s]:
        return Account("E48", "masked: what comes later, or is not there, has no weight", 0.0)
    total = float(scores[visible].exp().sum())
    score = float(scores[s])
    power = math.exp(score)
    value = power / total
    lines = (
        _line("exp({})", power, score),
        _line(f"Σ exp over {int(visible.sum())} positions", total),
        _line("{} / {}", value, power, total),
    )
    return Account("E38", "weight = softmax(score) = exp(score) / Σ exp(scores)", value, lines)


def _head(p: Place) -> Account:
    h, t, c = p.cell
    weights = p.part("weights")[h, t]
    values = p.part("v")[h, :, c]
    product = _product("Σ weight × v", f"weights from {t + 1}", weights, f"v, feature {c}", values)
    return Account("E39", "head = Σ weight × v", product.sum, products=(product,))


def _projection(p: Place) -> Account:
    h, t, c = p.cell
    layer = p.layer(MultiHeadAttention)
    size = layer.mix.in_features
    feature = h * (size // layer.num_heads) + c
    row = "qkv".index(p.leaf) * size + feature
    side = "memory" if f"{p.prefix}.memory" in p.trace and p.leaf != "q" else "x"
    matrix = f"W{p.leaf.upper()}"
    names = f"{matrix}·x", f"{matrix}, row {feature}", f"{side} at {t + 1}"
    product, total, line = _affine(*names, layer.query_key_value, row, p.part(side)[t])
    return Account("E45", f"{p.leaf} = {matrix} x + b", total, (line,), (product,))


# Blocks


def _inner(p: Place) -> Account:
    t, j = p.cell
    layer = p.layer(FeedForward)
    product, total, line = _affine("W₁·x", f"W₁, row {j}", f"x at {t + 1}", layer.widen, j, p.part("x")[t])
    value = float(layer.activation(torch.tensor(total, dtype=torch.float64)))
    formula = "inner = max(0, W₁ x + b₁)" if total * value >= 0 else "inner = φ(W₁ x + b₁)"
    return Account("E53", formula, value, (f"{line}, then {number(value)}",), (product,))


def _sum(p: Place) -> Account:
    """What a sublayer adds to what went into it."""
    t, c = p.cell
    block, _, which = p.prefix.rpartition(".")
    name = f"{block}.{SUBLAYERS[which]}"
    if which == "second":
        equation = "E53"
        formula = "sum = x + (W₂ inner + b₂)"
        side = "inner"
        linear = p.layer(FeedForward, name).narrow
        last = p.stage(f"{name}.inner")
    else:
        equation = "E52"
        formula = "sum = x + (W_O [head₁; head₂; ...] + b)"
        side = "heads side by side"
        linear = p.layer(MultiHeadAttention, name).mix
        last = p.stage(f"{name}.heads").transpose(0, 1).flatten(1)
    product, added, line = _affine(f"W·{side}", f"W, row {c}", f"{side} at {t + 1}", linear, c, last[t])
    x = float(_stream(p, name)[t, c])
    lines = (f"sublayer = {line}", _line("x + sublayer = {} + {}", x + added, x, added))
    return Account(equation, formula, x + added, lines, (product,))


def _stream(p: Place, sublayer: str) -> Tensor:
    """What went past a sublayer: its own input, or where that is normed first, what was there before."""
    if not p.layer(AddNorm).before:
        return p.stage(f"{sublayer}.x")
    side = p.name.partition(".")[0]
    names = p.trace.names()
    ends = (".positions", ".sum", ".output")
    before = [name for name in names[: names.index(p.name)] if name.startswith(side) and name.endswith(ends)]
    return p.stage(before[-1])


def _output(p: Place) -> Account:
    second = f"{p.prefix}.second"
    add_norm = p.layer(AddNorm, second)
    if add_norm.before:
        return _sum(replace(p, name=f"{second}.sum"))
    norm = add_norm.norm
    if not isinstance(norm, LayerNorm):
        raise ValueError("only a layer norm is of one position")
    t, c = p.cell
    row = p.stage(f"{second}.sum")[t]
    x = float(row[c])
    mean = float(row.mean())
    variance = float(row.var(unbiased=False))
    gain = float(norm.gain[c])
    bias = float(norm.bias[c])
    deviation = math.sqrt(variance + norm.epsilon)
    value = (x - mean) / deviation * gain + bias
    lines = (
        _line(f"mean of {len(row)} features = {number(mean)}, deviation", math.sqrt(variance)),
        _line("({} − {}) / {} × {} + {}", value, x, mean, deviation, gain, bias),
    )
    return Account("E50", "output = gain × (x − mean) / deviation + bias", value, lines)


def _position(p: Place) -> Account:
    t, c = p.cell
    entrance = next(m for m in p.layers(Entrance) if m.positions.name == p.prefix)
    if entrance.bridge is not None:
        raise ValueError("the embedding is projected first")
    table = entrance.positions.table
    size = entrance.positions.size
    scale = entrance.scale
    if table is not None:
        equation = "E55"
        signal = float(table[t, c])
        line = f"p = row {t}, feature {c} of the learned table"
    else:
        signal = float(sinusoidal_positions(t + 1, size)[t, c])
        wave = "cos" if c % 2 else "sin"
        equation = "E54"
        line = _line(f"p = {wave}({t} / 10000^({c - c % 2}/{size}))", signal)
    embedding = p.at("embedding")
    value = scale * embedding + signal
    if scale == 1:
        return Account(equation, "x = embedding + p", value, (line, _line("{} + {}", value, embedding, signal)))
    total = _line("{} × {} + {}", value, scale, embedding, signal)
    return Account(equation, "x = √d × embedding + p", value, (line, total))


# Recurrence


def _entering(p: Place) -> tuple[Recurrence, list[Tensor]]:
    """The layer, and what enters it at this step: the input, the state before, and in an LSTM the cell before."""
    layer = p.layer(Recurrence)
    parts = p.part("enters")[p.cell[0]].split([layer.U.shape[1], *[layer.size] * layer.num_states])
    return layer, list(parts)


def _drive(p: Place, gate: int, reset: Tensor | float = 1.0) -> tuple[tuple[Product, Product], list[float]]:
    """U x and W h for one unit of a gate, and the terms that they and its bias are. `reset` scales h first."""
    layer, (x, h, *_) = _entering(p)
    t, unit = p.cell
    row = gate * layer.size + unit
    driven = _product("U·x", f"U, row {unit}", layer.U[row], f"x at {t + 1}", x)
    recurrent = _product("W·h", f"W, row {unit}", layer.W[row], f"h before {t + 1}", reset * h)
    return (driven, recurrent), [driven.sum, recurrent.sum, float(layer.b[row])]


def _gate(p: Place) -> Account:
    cell = p.layer(Recurrence).cell
    name = "tanh" if p.leaf == "g" else "σ"
    formula = f"{p.leaf} = {name}(U x + W h + b)"
    return _squashed(cell.equation, formula, *_drive(p, cell.gates.index(p.leaf)), f"{name}({{}})")


def _candidate(p: Place) -> Account:
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
    return _squashed(layer.cell.equation, formula, products, terms, "tanh({})")


def _cell_state(p: Place) -> Account:
    _, (_, _, before) = _entering(p)
    c = float(before[p.cell[1]])
    f = p.at("f")
    i = p.at("i")
    g = p.at("g")
    value = f * c + i * g
    return Account("E24", "c = f × c before + i × g", value, (_line("{} × {} + {} × {}", value, f, c, i, g),))


def _state(p: Place) -> Account:
    layer, (_, before, *_) = _entering(p)
    if layer.kind == "lstm":
        o = p.at("o")
        c = p.at("c")
        value = o * math.tanh(c)
        return Account("E24", "h = o × tanh(c)", value, (_line("{} × tanh({})", value, o, c),))
    if layer.cell.gates[-1] == "n":  # a candidate, and the gate before it says how much of it to take
        gate = layer.cell.gates[-2]
        h = float(before[p.cell[1]])
        n = p.at("n")
        u, name = (1 - p.at(gate), "u") if gate == "z" else (p.at(gate), gate)
        value = (1 - u) * h + u * n
        line = _line("{} × {} + {} × {}", value, 1 - u, h, u, n)
        return Account(layer.cell.equation, f"h = (1 − {name}) × h before + {name} × n", value, (line,))
    squash = "tanh of {}" if layer.kind == "rnn" else "max(0, ·) of {}"
    return _squashed("E17", "h = φ(W h before + U x + b)", *_drive(p, 0), squash)


# The way out


def _logit(p: Place) -> Account:
    *row, j = p.cell
    features = p.stage("features")[tuple(row)]
    product, total, line = _affine("V·h", f"V, row {j}", "features", p.layers(Head)[0].output, j, features)
    return Account("E18", "logit = V h + c", total, (line,), (product,))


_EQUATIONS: dict[str, Callable[[Place], Account]] = {
    "score": _score,
    "weights": _weight,
    "heads": _head,
    **dict.fromkeys("qkv", _projection),
    "inner": _inner,
    "sum": _sum,
    "output": _output,
    "positions": _position,
    **dict.fromkeys("ifgoruz", _gate),
    "n": _candidate,
    "c": _cell_state,
    "h": _state,
    "logits": _logit,
}
