"""One number of a stage, and the equation that made it, filled with the actual values.

What an account says is checked against what was recorded: where a layer does more than its equation (rotated queries,
a block that is read again and again), the number is told without one, and never a sum that is not true.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from seqlab.bundle import Bundle
from seqlab.equations.transformer import sinusoidal_positions
from seqlab.errors import UsageError
from seqlab.explain.canvas import Canvas, Text
from seqlab.explain.labels import number, text_width
from seqlab.explain.lens import NAMES, stage_named
from seqlab.explain.view import View
from seqlab.layers.inputs import Entrance
from seqlab.layers.linear import Head
from seqlab.layers.recurrence import Recurrence
from seqlab.layers.transformer import AddNorm, FeedForward, LayerNorm, MultiHeadAttention
from seqlab.models.recurrent import SourceAttention
from seqlab.subject import Subject
from seqlab.tasks import subject as subject_of
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


@dataclass(frozen=True, eq=False)
class Product:
    """A sum of products, a·b, with the names of both sides."""

    what: str
    left: str
    right: str
    a: Float[np.ndarray, " N"]
    b: Float[np.ndarray, " N"]

    @property
    def sum(self) -> float:
        return float(self.a @ self.b)


@dataclass(frozen=True, eq=False)
class Account:
    """An equation by its id, the products in it, what is done with them in lines, and what comes out."""

    equation: str
    formula: str
    value: float
    products: tuple[Product, ...] = ()
    lines: tuple[str, ...] = ()


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
        modules = self.subject.bundle.model.modules()
        return next(m for m in modules if isinstance(m, kind) and m.name == (name or self.prefix))


@torch.no_grad()
def account(subject: Subject, trace: Trace, name: str, cell: tuple[int, ...]) -> Account:
    """How a number came about; where there is no equation for it, or not a true one, only what it is."""
    place = Place(subject, trace, name, cell)
    value = float(place.stage(name)[cell])
    plain = Account("", NAMES.get(place.leaf, "") or place.leaf, value)
    if place.leaf not in _EQUATIONS:
        return plain
    try:
        filled = _EQUATIONS[place.leaf](place)
    except (KeyError, StopIteration, IndexError, ValueError):  # this layer keeps no record of what the equation needs
        return plain
    return filled if abs(filled.value - value) <= CLOSE * max(1.0, abs(value)) else plain


def number_view(
    bundle: Bundle,
    given: Any,
    *,
    output: str | None = None,
    layer: str | None = None,
    cell: str | None = None,
) -> View:
    """One number of a stage (`cell` counts from 0, as 2,5 or with a head 0,2,5) and the equation that made it.

    Without a stage it is of the last, and without a cell the largest.
    """
    subject = subject_of(bundle, given, output=output)
    trace = subject.trace()
    layer = stage_named(trace, layer or trace.names()[-1])
    place = _cell(trace[layer][0], cell)
    filled = account(subject, trace, layer, place)
    where = ", ".join(map(str, place))
    name = f"{layer.rpartition('.')[2]}[{where}]"
    sums = [f"{product.what} = {number(product.sum)}" for product in filled.products]
    lines = [filled.formula, *sums, *filled.lines, f"{name} = {number(filled.value)}"]
    products = [asdict(product) | {"sum": product.sum} for product in filled.products]
    data: dict[str, Any] = {
        "stage": layer,
        "cell": place,
        "name": name,
        "equation": filled.equation,
        "formula": filled.formula,
    }
    data |= {"lines": filled.lines, "value": filled.value, "products": products}
    return View("number", f"{layer} at {where}", data, (_written(lines),), lambda width, colour: "\n".join(lines))


def _cell(values: Tensor, text: str | None) -> tuple[int, ...]:
    if text is None:
        return tuple(int(i) for i in np.unravel_index(int(values.abs().argmax()), tuple(values.shape)))
    parts = [int(part) if part.strip().isdecimal() else -1 for part in text.split(",")]
    sizes = tuple(values.shape)
    if len(parts) != len(sizes) or any(not 0 <= part < size for part, size in zip(parts, sizes, strict=True)):
        first, last = ",".join("0" for _ in sizes), ",".join(str(size - 1) for size in sizes)
        raise UsageError(f"there is no number at '{text}'", hint=f"cells are {first} to {last}.")
    return tuple(parts)


def _written(lines: Sequence[str]) -> Canvas:
    items = tuple(Text(24.0, 28.0 + 24 * row, text, 14.0) for row, text in enumerate(lines))
    return Canvas(48 + max(text_width(text, 14.0) for text in lines), 24.0 + 24 * len(lines), items, lines[0])


# What several equations share


def _dot(what: str, left: str, a: Tensor, right: str, b: Tensor) -> Product:
    return Product(what, left, right, a.detach().double().numpy(), b.detach().double().numpy())


def _affine(product: Product, bias: Tensor) -> tuple[float, str]:
    """A sum of products and its bias, and the line that says so."""
    total = product.sum + float(bias)
    return total, f"{number(product.sum)} + {number(float(bias))} = {number(total)}"


def _squashed(
    equation: str, formula: str, products: tuple[Product, ...], terms: Sequence[float], squash: str
) -> Account:
    """A sum of terms, and one of the functions in SQUASH of it."""
    total = sum(terms)
    value = SQUASH[squash](total)
    lines = (
        f"{' + '.join(map(number, terms))} = {number(total)}",
        f"{squash.format(number(total))} = {number(value)}",
    )
    return Account(equation, formula, value, products, lines)


# Attention


def _score(p: Place) -> Account:
    *head, t, s = p.cell
    q, k = p.part("q")[(*head, t)], p.part("k")[(*head, s)]
    at_query, at_key = f"q at {t + 1}", f"k at {s + 1}"
    product = _dot("q·k", at_query, q, at_key, k)
    kind = "scaled" if head else p.layer(SourceAttention).kind
    if kind == "scaled":
        value = product.sum / math.sqrt(len(q))
        line = f"{number(product.sum)} / √{len(q)} = {number(value)}"
        return Account("E44", "score = q·k / √d", value, (product,), (line,))
    if kind == "additive":
        v = p.layer(SourceAttention).v
        assert v is not None
        product = _dot("v·tanh(q + k)", "v", v, f"tanh({at_query} + {at_key})", (q + k).tanh())
    equation, formula = SCORES[kind]
    return Account(equation, formula, product.sum, (product,))


def _weight(p: Place) -> Account:
    *row, s = p.cell
    scores, weights = p.part("score")[tuple(row)], p.part("weights")[tuple(row)]
    visible = weights > 0
    if not visible[s]:
        return Account("E48", "masked: what comes later, or is not there, has no weight", 0.0)
    total = float(scores[visible].exp().sum())
    score = float(scores[s])
    value = float(scores[s].exp()) / total
    lines = (
        f"exp({number(score)}) = {number(math.exp(score))}",
        f"Σ exp over {int(visible.sum())} positions = {number(total)}",
        f"{number(math.exp(score))} / {number(total)} = {number(value)}",
    )
    return Account("E38", "weight = softmax(score) = exp(score) / Σ exp(scores)", value, (), lines)


def _head(p: Place) -> Account:
    h, t, c = p.cell
    weights, values = p.part("weights")[h, t], p.part("v")[h, :, c]
    product = _dot("Σ weight × v", f"weights from {t + 1}", weights, f"v, feature {c}", values)
    return Account("E39", "head = Σ weight × v", product.sum, (product,))


def _projected(p: Place) -> Account:
    h, t, c = p.cell
    layer = p.layer(MultiHeadAttention)
    size = layer.mix.in_features
    feature = h * (size // layer.num_heads) + c
    row = "qkv".index(p.leaf) * size + feature
    enters = "memory" if f"{p.prefix}.memory" in p.trace and p.leaf != "q" else "x"
    matrix = f"W{p.leaf.upper()}"
    weight, x = layer.query_key_value.weight[row], p.part(enters)[t]
    product = _dot(f"{matrix}·x", f"{matrix}, row {feature}", weight, f"{enters} at {t + 1}", x)
    total, line = _affine(product, layer.query_key_value.bias[row])
    return Account("E45", f"{p.leaf} = {matrix} x + b", total, (product,), (line,))


# Blocks


def _inner(p: Place) -> Account:
    t, j = p.cell
    layer = p.layer(FeedForward)
    product = _dot("W₁·x", f"W₁, row {j}", layer.widen.weight[j], f"x at {t + 1}", p.part("x")[t])
    total, line = _affine(product, layer.widen.bias[j])
    value = float(layer.activation(torch.tensor(total, dtype=torch.float64)))
    formula = "inner = max(0, W₁ x + b₁)" if total * value >= 0 else "inner = φ(W₁ x + b₁)"
    return Account("E53", formula, value, (product,), (f"{line}, then {number(value)}",))


def _sum(p: Place) -> Account:
    """What a sublayer adds to what went into it."""
    t, c = p.cell
    block, _, which = p.prefix.rpartition(".")
    name = f"{block}.{SUBLAYERS[which]}"
    if which == "second":
        equation, formula, side = "E53", "sum = x + (W₂ inner + b₂)", "inner"
        linear, last = p.layer(FeedForward, name).narrow, p.stage(f"{name}.inner")
    else:
        equation, formula, side = "E52", "sum = x + (W_O [head₁; head₂; ...] + b)", "heads side by side"
        linear, last = p.layer(MultiHeadAttention, name).mix, p.stage(f"{name}.heads").transpose(0, 1).flatten(1)
    product = _dot(f"W·{side}", f"W, row {c}", linear.weight[c], f"{side} at {t + 1}", last[t])
    added, line = _affine(product, linear.bias[c])
    x = float(_stream(p, name)[t, c])
    lines = (f"sublayer = {line}", f"x + sublayer = {number(x)} + {number(added)} = {number(x + added)}")
    return Account(equation, formula, x + added, (product,), lines)


def _stream(p: Place, sublayer: str) -> Tensor:
    """What went past a sublayer: its own input, or where that is normed first, what was there before."""
    if not p.layer(AddNorm).before:
        return p.stage(f"{sublayer}.x")
    side, names = p.name.partition(".")[0], p.trace.names()
    ends = (".positions", ".sum", ".output")
    before = [name for name in names[: names.index(p.name)] if name.startswith(side) and name.endswith(ends)]
    return p.stage(before[-1])


def _output(p: Place) -> Account:
    total = f"{p.prefix}.second.sum"
    add_norm = p.layer(AddNorm, f"{p.prefix}.second")
    if add_norm.before:
        return _sum(Place(p.subject, p.trace, total, p.cell))
    norm = add_norm.norm
    if not isinstance(norm, LayerNorm):
        raise ValueError("only a layer norm is of one position")
    t, c = p.cell
    row = p.stage(total)[t]
    x, mean, variance = (float(each) for each in (row[c], row.mean(), row.var(unbiased=False)))
    gain, bias, deviation = float(norm.gain[c]), float(norm.bias[c]), math.sqrt(variance + norm.epsilon)
    value = (x - mean) / deviation * gain + bias
    lines = (
        f"mean of {len(row)} features = {number(mean)}, deviation = {number(math.sqrt(variance))}",
        f"({number(x)} − {number(mean)}) / {number(deviation)} × {number(gain)} + {number(bias)} = {number(value)}",
    )
    return Account("E50", "output = gain × (x − mean) / deviation + bias", value, (), lines)


def _position(p: Place) -> Account:
    t, c = p.cell
    modules = p.subject.bundle.model.modules()
    entrance = next(m for m in modules if isinstance(m, Entrance) and m.positions.name == p.prefix)
    if entrance.bridge is not None:
        raise ValueError("the embedding is projected first")
    table, size, scale = entrance.positions.table, entrance.positions.size, entrance.scale
    if table is not None:
        equation, signal, line = "E55", float(table[t, c]), f"p = row {t}, feature {c} of the learned table"
    else:
        signal = float(sinusoidal_positions(t + 1, size)[t, c])
        wave = "cos" if c % 2 else "sin"
        equation, line = "E54", f"p = {wave}({t} / 10000^({c - c % 2}/{size})) = {number(signal)}"
    embedding = p.at("embedding")
    value = scale * embedding + signal
    times, factor = (f"{number(scale)} × ", "√d × ") if scale != 1 else ("", "")
    total = f"{times}{number(embedding)} + {number(signal)} = {number(value)}"
    return Account(equation, f"x = {factor}embedding + p", value, (), (line, total))


# Recurrence


def _enters(p: Place) -> tuple[Recurrence, list[Tensor]]:
    """The layer, and what enters it at this step: the input, the state before, and in an LSTM the cell before."""
    layer, entered = p.layer(Recurrence), p.part("enters")[p.cell[0]]
    return layer, list(entered.split([layer.U.shape[1], *[layer.size] * layer.num_states]))


def _driven(p: Place, gate: int, reset: Tensor | float = 1.0) -> tuple[tuple[Product, Product], list[float]]:
    """U x and W h for one unit of a gate, and the terms that they and its bias are. `reset` scales h first."""
    layer, (x, h, *_) = _enters(p)
    t, unit = p.cell
    row = gate * layer.size + unit
    driven = _dot("U·x", f"U, row {unit}", layer.U[row], f"x at {t + 1}", x)
    recurrent = _dot("W·h", f"W, row {unit}", layer.W[row], f"h before {t + 1}", reset * h)
    return (driven, recurrent), [driven.sum, recurrent.sum, float(layer.b[row])]


def _gate(p: Place) -> Account:
    cell = p.layer(Recurrence).cell
    products, terms = _driven(p, cell.gates.index(p.leaf))
    name = "tanh" if p.leaf == "g" else "σ"
    return _squashed(cell.equation, f"{p.leaf} = {name}(U x + W h + b)", products, terms, f"{name}({{}})")


def _candidate(p: Place) -> Account:
    layer = p.layer(Recurrence)
    gate, last = layer.cell.gates[0], len(layer.cell.gates) - 1
    bias, reset = layer.b_n, p.part(gate)[p.cell[0]]
    if bias is None:
        formula = f"n = tanh(U x + W ({gate} h) + b)"
        products, terms = _driven(p, last, reset)
    else:  # torch's GRU resets after the product
        formula, unit = "n = tanh(U x + b + r (W h + b′))", p.cell[1]
        products, terms = _driven(p, last)
        terms[1] = float(reset[unit]) * (terms[1] + float(bias[unit]))
    return _squashed(layer.cell.equation, formula, products, terms, "tanh({})")


def _cell_state(p: Place) -> Account:
    _, (_, _, before) = _enters(p)
    c, f, i, g = float(before[p.cell[1]]), p.at("f"), p.at("i"), p.at("g")
    value = f * c + i * g
    line = f"{number(f)} × {number(c)} + {number(i)} × {number(g)} = {number(value)}"
    return Account("E24", "c = f × c before + i × g", value, (), (line,))


def _state(p: Place) -> Account:
    layer, (_, before, *_) = _enters(p)
    if layer.kind == "lstm":
        o, c = p.at("o"), p.at("c")
        value = o * math.tanh(c)
        line = f"{number(o)} × tanh({number(c)}) = {number(value)}"
        return Account("E24", "h = o × tanh(c)", value, (), (line,))
    if layer.cell.gates[-1] == "n":  # a candidate, and the gate before it says how much of it to take
        gate, h, n = layer.cell.gates[-2], float(before[p.cell[1]]), p.at("n")
        u, name = (1 - p.at(gate), "u") if gate == "z" else (p.at(gate), gate)
        value = (1 - u) * h + u * n
        line = f"{number(1 - u)} × {number(h)} + {number(u)} × {number(n)} = {number(value)}"
        return Account(layer.cell.equation, f"h = (1 − {name}) × h before + {name} × n", value, (), (line,))
    squash = "tanh of {}" if layer.kind == "rnn" else "max(0, ·) of {}"
    return _squashed("E17", "h = φ(W h before + U x + b)", *_driven(p, 0), squash)


# The way out


def _logit(p: Place) -> Account:
    *row, j = p.cell
    output = next(m for m in p.subject.bundle.model.modules() if isinstance(m, Head)).output
    product = _dot("V·h", f"V, row {j}", output.weight[j], "features", p.stage("features")[tuple(row)])
    total, line = _affine(product, output.bias[j])
    return Account("E18", "logit = V h + c", total, (product,), (line,))


_EQUATIONS: dict[str, Callable[[Place], Account]] = {
    "score": _score,
    "weights": _weight,
    "heads": _head,
    **dict.fromkeys("qkv", _projected),
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
