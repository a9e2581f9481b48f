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
from seqlab.errors import UsageError, nearest
from seqlab.explain.canvas import Canvas, Text
from seqlab.explain.labels import number, text_width
from seqlab.explain.lens import NAMES
from seqlab.explain.view import View
from seqlab.layers.attention import MultiHeadAttention, SourceAttention
from seqlab.layers.blocks import AddNorm, DecoderBlock, EncoderBlock, FeedForward
from seqlab.layers.norms import LayerNorm
from seqlab.layers.recurrence import Recurrence
from seqlab.models.heads import Head
from seqlab.models.transformer import Entrance
from seqlab.recipe import Decode
from seqlab.subject import Subject
from seqlab.tasks import subject
from seqlab.trace import Trace

CLOSE = 1e-3  # of its size, or at all: by how much a sum in doubles may miss a number that was made in floats
SUBLAYERS = {"first": "attention", "second": "feed_forward", "third": "cross"}
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

    looked: Subject
    trace: Trace
    name: str
    cell: tuple[int, ...]

    @property
    def prefix(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def value(self) -> float:
        return float(self.trace[self.name][0].double()[self.cell])

    def part(self, leaf: str) -> Tensor:
        """Another stage of the same layer."""
        return self.trace[f"{self.prefix}.{leaf}"][0].double()

    def layer(self, kind: type[Layer], name: str | None = None) -> Layer:
        wanted = self.prefix if name is None else name
        return next(m for m in self.looked.bundle.model.modules() if isinstance(m, kind) and m.name == wanted)

    def at(self, leaf: str) -> float:
        return float(self.part(leaf)[self.cell])


@torch.no_grad()
def account(looked: Subject, trace: Trace, name: str, cell: tuple[int, ...]) -> Account:
    """How a number came about; where there is no equation for it, or not a true one, only what it is."""
    place = Place(looked, trace, name, cell)
    made = _EQUATIONS.get(place.leaf)
    plain = Account("", NAMES.get(place.leaf, "") or place.leaf, place.value)
    try:
        found = None if made is None else made(place)
    except (KeyError, StopIteration, IndexError, ValueError):  # this layer keeps no record of what the equation needs
        return plain
    if found is None or abs(found.value - place.value) > CLOSE * max(1.0, abs(place.value)):
        return plain
    return found


def number_view(
    bundle: Bundle,
    given: Any,
    *,
    output: str | None = None,
    decode: Decode | None = None,
    layer: str | None = None,
    cell: str | None = None,
) -> View:
    """One number of a stage (`cell` counts from 0, as 2,5 or with a head 0,2,5) and the equation that made it.

    Without a stage it is of the last, and without a cell the largest.
    """
    looked = subject(bundle, given, output=output, decode=decode)
    trace = looked.trace()
    layer = layer or trace.names()[-1]
    if layer not in trace:
        raise UsageError(f"there is no stage '{layer}'", hint=nearest(layer, trace.names()))
    place = _cell(trace[layer][0], cell)
    found = account(looked, trace, layer, place)
    name = f"{layer.rpartition('.')[2]}[{', '.join(map(str, place))}]"
    lines = [found.formula, *(f"{p.what} = {number(p.sum)}" for p in found.products), *found.lines]
    lines.append(f"{name} = {number(found.value)}")
    data: dict[str, Any] = {"stage": layer, "cell": place, "name": name, "equation": found.equation}
    data |= {"formula": found.formula, "lines": found.lines, "value": found.value}
    data["products"] = [asdict(product) | {"sum": product.sum} for product in found.products]
    title = f"{layer} at {', '.join(map(str, place))}"
    return View("number", title, data, (_written(lines),), lambda width, colour: "\n".join(lines))


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


def _numbers(values: Tensor) -> Float[np.ndarray, " N"]:
    return values.detach().double().numpy()


# Attention


def _score(p: Place) -> Account:
    *head, t, s = p.cell
    q, k = p.part("q")[(*head, t)], p.part("k")[(*head, s)]
    product = Product("q·k", f"q at {t + 1}", f"k at {s + 1}", _numbers(q), _numbers(k))
    kind = "scaled" if head else p.layer(SourceAttention).kind
    if kind == "scaled":
        value = product.sum / math.sqrt(len(q))
        line = f"{number(product.sum)} / √{len(q)} = {number(value)}"
        return Account("E44", "score = q·k / √d", value, (product,), (line,))
    if kind == "additive":
        v = p.layer(SourceAttention).v
        assert v is not None
        product = Product(
            "v·tanh(q + k)", "v", f"tanh(q at {t + 1} + k at {s + 1})", _numbers(v), _numbers((q + k).tanh())
        )
        return Account("E43", "score = v·tanh(W₁ h + W₂ s), with q = W₁ h and k = W₂ s", product.sum, (product,))
    equation, formula = ("E42", "score = h·W s, with k = W s") if kind == "general" else ("E41", "score = h·s")
    return Account(equation, formula, product.sum, (product,))


def _weight(p: Place) -> Account:
    *row, s = p.cell
    scores, weights = p.part("score")[tuple(row)], p.part("weights")[tuple(row)]
    seen = weights > 0
    if not seen[s]:
        return Account("E48", "masked: what comes later, or is not there, has no weight", 0.0)
    total = float(scores[seen].exp().sum())
    score, value = float(scores[s]), float(scores[s].exp()) / total
    lines = (
        f"exp({number(score)}) = {number(math.exp(score))}",
        f"Σ exp over {int(seen.sum())} positions = {number(total)}",
        f"{number(math.exp(score))} / {number(total)} = {number(value)}",
    )
    return Account("E38", "weight = softmax(score) = exp(score) / Σ exp(scores)", value, (), lines)


def _head(p: Place) -> Account:
    h, t, c = p.cell
    product = Product(
        "Σ weight × v",
        f"weights from {t + 1}",
        f"v, feature {c}",
        _numbers(p.part("weights")[h, t]),
        _numbers(p.part("v")[h, :, c]),
    )
    return Account("E39", "head = Σ weight × v", product.sum, (product,))


def _projected(p: Place) -> Account:
    h, t, c = p.cell
    layer = p.layer(MultiHeadAttention)
    size = layer.mix.in_features
    row = "qkv".index(p.leaf) * size + h * (size // layer.num_heads) + c
    enters = "memory" if f"{p.prefix}.memory" in p.trace and p.leaf != "q" else "x"
    weight, bias = layer.query_key_value.weight[row], float(layer.query_key_value.bias[row])
    name = p.leaf.upper()
    product = Product(
        f"W{name}·x",
        f"W{name}, row {row % size}",
        f"{enters} at {t + 1}",
        _numbers(weight),
        _numbers(p.part(enters)[t]),
    )
    line = f"{number(product.sum)} + {number(bias)} = {number(product.sum + bias)}"
    return Account("E45", f"{p.leaf} = W{name} x + b", product.sum + bias, (product,), (line,))


# Blocks


def _inner(p: Place) -> Account:
    t, j = p.cell
    layer = p.layer(FeedForward)
    product = Product(
        "W₁·x", f"W₁, row {j}", f"x at {t + 1}", _numbers(layer.widen.weight[j]), _numbers(p.part("x")[t])
    )
    total = product.sum + float(layer.widen.bias[j])
    value = float(layer.activation(torch.tensor(total, dtype=torch.float64)))
    line = f"{number(product.sum)} + {number(float(layer.widen.bias[j]))} = {number(total)}, then {number(value)}"
    return Account(
        "E53", "inner = max(0, W₁ x + b₁)" if total * value >= 0 else "inner = φ(W₁ x + b₁)", value, (product,), (line,)
    )


def _sum(p: Place) -> Account:
    """What a sublayer adds to what went into it."""
    t, c = p.cell
    block, _, which = p.prefix.rpartition(".")
    name = f"{block}.{SUBLAYERS[which]}"
    if which == "second":
        linear, last = p.layer(FeedForward, name).narrow, p.trace[f"{name}.inner"][0].double()[t]
        formula, side = "sum = x + (W₂ inner + b₂)", "inner"
    else:
        linear = p.layer(MultiHeadAttention, name).mix
        last = p.trace[f"{name}.heads"][0].double().transpose(0, 1).flatten(1)[t]
        formula, side = "sum = x + (W_O [head₁; head₂; ...] + b)", "heads side by side"
    product = Product(f"W·{side}", f"W, row {c}", f"{side} at {t + 1}", _numbers(linear.weight[c]), _numbers(last))
    added = product.sum + float(linear.bias[c])
    x = float(_stream(p, name)[t, c])
    lines = (
        f"sublayer = {number(product.sum)} + {number(float(linear.bias[c]))} = {number(added)}",
        f"x + sublayer = {number(x)} + {number(added)} = {number(x + added)}",
    )
    return Account("E52" if which != "second" else "E53", formula, x + added, (product,), lines)


def _stream(p: Place, sublayer: str) -> Tensor:
    """What went past a sublayer: its own input, or where that is normed first, what was there before."""
    if not p.layer(AddNorm).before:
        return p.trace[f"{sublayer}.x"][0].double()
    side, names = p.name.partition(".")[0], p.trace.names()
    before = names[: names.index(p.name)]
    ends = (".positions", ".sum", ".output")
    return p.trace[next(n for n in reversed(before) if n.startswith(side) and n.endswith(ends))][0].double()


def _output(p: Place) -> Account:
    block = next(
        m for m in p.looked.bundle.model.modules() if isinstance(m, EncoderBlock | DecoderBlock) and m.name == p.prefix
    )
    name = f"{p.prefix}.second.sum"
    if block.second.before:
        return _sum(Place(p.looked, p.trace, name, p.cell))
    t, c = p.cell
    row, norm = p.trace[name][0].double()[t], block.second.norm
    if not isinstance(norm, LayerNorm):
        raise ValueError("only a layer norm is of one position")
    mean, variance = float(row.mean()), float(row.var(unbiased=False))
    gain, bias = float(norm.gain[c]), float(norm.bias[c])
    value = (float(row[c]) - mean) / math.sqrt(variance + norm.epsilon) * gain + bias
    lines = (
        f"mean of {len(row)} features = {number(mean)}, deviation = {number(math.sqrt(variance))}",
        f"({number(float(row[c]))} − {number(mean)}) / {number(math.sqrt(variance + norm.epsilon))} × {number(gain)}"
        f" + {number(bias)} = {number(value)}",
    )
    return Account("E50", "output = gain × (x − mean) / deviation + bias", value, (), lines)


def _position(p: Place) -> Account:
    t, c = p.cell
    entrance = next(
        m for m in p.looked.bundle.model.modules() if isinstance(m, Entrance) and m.positions.name == p.prefix
    )
    if entrance.bridge is not None:
        raise ValueError("the embedding is projected first")
    e, table = float(p.part("embedding")[t, c]), entrance.positions.table
    if table is not None:
        equation, signal, line = "E55", float(table[t, c]), f"p = row {t}, feature {c} of the learned table"
    else:
        size = entrance.positions.size
        signal = float(sinusoidal_positions(t + 1, size)[t, c])
        wave = "sin" if c % 2 == 0 else "cos"
        equation, line = "E54", f"p = {wave}({t} / 10000^({c - c % 2}/{size})) = {number(signal)}"
    value = entrance.scale * e + signal
    scale = f"{number(entrance.scale)} × " if entrance.scale != 1 else ""
    total = f"{scale}{number(e)} + {number(signal)} = {number(value)}"
    return Account(equation, f"x = {'√d × ' if scale else ''}embedding + p", value, (), (line, total))


# Recurrence


def _enters(p: Place) -> tuple[Recurrence, list[Tensor]]:
    """The layer, and what enters it at this step: the input, the state before, and in an LSTM the cell before."""
    layer, entered = p.layer(Recurrence), p.part("enters")[p.cell[0]]
    return layer, list(entered.split([layer.U.shape[1], *[layer.size] * layer.num_states]))


def _driven(p: Place, gate: int, h: Tensor | None = None) -> tuple[tuple[Product, Product], float]:
    """U x and W h for one unit of a gate, and its bias."""
    layer, (x, before, *_) = _enters(p)
    t, unit = p.cell
    row = gate * layer.size + unit
    products = (
        Product("U·x", f"U, row {unit}", f"x at {t + 1}", _numbers(layer.U[row]), _numbers(x)),
        Product(
            "W·h", f"W, row {unit}", f"h before {t + 1}", _numbers(layer.W[row]), _numbers(before if h is None else h)
        ),
    )
    return products, float(layer.b[row])


def _gate(p: Place) -> Account:
    layer = p.layer(Recurrence)
    order = {"lstm": "ifgo", "gru": "run", "gru-torch": "rzn"}[layer.kind]
    products, bias = _driven(p, order.index(p.leaf))
    total = products[0].sum + products[1].sum + bias
    squash, name = (math.tanh, "tanh") if p.leaf == "g" else (lambda x: 1 / (1 + math.exp(-x)), "σ")
    value = squash(total)
    lines = (
        f"{number(products[0].sum)} + {number(products[1].sum)} + {number(bias)} = {number(total)}",
        f"{name}({number(total)}) = {number(value)}",
    )
    equation = "E24" if layer.kind == "lstm" else "E25"
    return Account(equation, f"{p.leaf} = {name}(U x + W h + b)", value, products, lines)


def _candidate(p: Place) -> Account:
    layer, (_, h) = _enters(p)
    t, unit = p.cell
    reset = p.part("r")[t]
    if layer.b_n is not None:  # torch's GRU resets after the product
        products, bias = _driven(p, 2)
        inner = float(reset[unit]) * (products[1].sum + float(layer.b_n[unit]))
        formula = "n = tanh(U x + b + r (W h + b′))"
    else:
        products, bias = _driven(p, 2, reset * h)
        inner, formula = products[1].sum, "n = tanh(U x + W (r h) + b)"
    total = products[0].sum + inner + bias
    lines = (
        f"{number(products[0].sum)} + {number(inner)} + {number(bias)} = {number(total)}",
        f"tanh({number(total)}) = {number(math.tanh(total))}",
    )
    return Account("E25", formula, math.tanh(total), products, lines)


def _cell_state(p: Place) -> Account:
    _, (_, _, before) = _enters(p)
    c, (f, i, g) = float(before[p.cell[1]]), (p.at(leaf) for leaf in "fig")
    value = f * c + i * g
    line = f"{number(f)} × {number(c)} + {number(i)} × {number(g)} = {number(value)}"
    return Account("E24", "c = f × c before + i × g", value, (), (line,))


def _state(p: Place) -> Account:
    layer, (_, before, *_) = _enters(p)
    h = float(before[p.cell[1]])
    if layer.kind == "lstm":
        o, c = p.at("o"), p.at("c")
        line = f"{number(o)} × tanh({number(c)}) = {number(o * math.tanh(c))}"
        return Account("E24", "h = o × tanh(c)", o * math.tanh(c), (), (line,))
    if layer.kind in ("gru", "gru-torch"):
        u = p.at("u") if layer.kind == "gru" else 1 - p.at("z")
        value = (1 - u) * h + u * p.at("n")
        line = f"{number(1 - u)} × {number(h)} + {number(u)} × {number(p.at('n'))} = {number(value)}"
        return Account("E25", "h = (1 − u) × h before + u × n", value, (), (line,))
    products, bias = _driven(p, 0)
    total = products[0].sum + products[1].sum + bias
    value, name = (math.tanh(total), "tanh") if layer.kind == "rnn" else (max(0.0, total), "max(0, ·)")
    lines = (
        f"{number(products[0].sum)} + {number(products[1].sum)} + {number(bias)} = {number(total)}",
        f"{name} of {number(total)} = {number(value)}",
    )
    return Account("E17", "h = φ(W h before + U x + b)", value, products, lines)


# The way out


def _logit(p: Place) -> Account:
    *row, j = p.cell
    head = next(m for m in p.looked.bundle.model.modules() if isinstance(m, Head))
    features = p.trace["features"][0].double()[tuple(row)]
    bias = float(head.output.bias[j])
    product = Product("V·h", f"V, row {j}", "features", _numbers(head.output.weight[j]), _numbers(features))
    line = f"{number(product.sum)} + {number(bias)} = {number(product.sum + bias)}"
    return Account("E18", "logit = V h + c", product.sum + bias, (product,), (line,))


_EQUATIONS: dict[str, Callable[[Place], Account]] = {
    "score": _score, "weights": _weight, "heads": _head, "q": _projected, "k": _projected, "v": _projected,
    "inner": _inner, "sum": _sum, "output": _output, "positions": _position,
    "i": _gate, "f": _gate, "g": _gate, "o": _gate, "r": _gate, "u": _gate, "z": _gate,
    "n": _candidate, "c": _cell_state, "h": _state, "logits": _logit,
}  # fmt: skip
