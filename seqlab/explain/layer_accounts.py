"""Accounts of numbers in attention, in the blocks of a Transformer, and of the logits."""

import math
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from seqlab.equations.attention import sinusoidal_positions
from seqlab.explain.accounts import Account, Place, affine, dot, fill
from seqlab.explain.labels import number
from seqlab.layers.inputs import Entrance
from seqlab.layers.linear import Head
from seqlab.layers.transformer import AddNorm, FeedForward, LayerNorm, MultiHeadAttention
from seqlab.models.recurrent import SourceAttention

SUBLAYERS = {"first": "attention", "second": "feed_forward", "third": "cross"}
SCORES = {
    "dot": ("E41", "score = h·s"),
    "general": ("E42", "score = h·W s, with k = W s"),
    "additive": ("E43", "score = v·tanh(W₁ h + W₂ s), with q = W₁ h and k = W₂ s"),
}


def score(p: Place) -> Account:
    """A score of attention, by its kind (E41 to E44)."""
    *head, t, s = p.cell
    q = p.part("q")[(*head, t)]
    k = p.part("k")[(*head, s)]
    at_query = f"q at {t + 1}"
    at_key = f"k at {s + 1}"
    product = dot("q·k", at_query, q, at_key, k)
    kind = "scaled" if head else p.layer(SourceAttention).kind
    if kind == "scaled":
        value = product.sum / math.sqrt(len(q))
        line = fill(f"{{}} / √{len(q)}", value, product.sum)
        return Account("E44", "score = q·k / √d", value, (line,), (product,))
    if kind == "additive":
        v = cast(Tensor, p.layer(SourceAttention).v)
        product = dot("v·tanh(q + k)", "v", v, f"tanh({at_query} + {at_key})", (q + k).tanh())
    equation, formula = SCORES[kind]
    return Account(equation, formula, product.sum, products=(product,))


def weight(p: Place) -> Account:
    """A weight of attention: the softmax over the positions that are visible."""
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
        fill("exp({})", power, score),
        fill(f"Σ exp over {int(visible.sum())} positions", total),
        fill("{} / {}", value, power, total),
    )
    return Account("E38", "weight = softmax(score) = exp(score) / Σ exp(scores)", value, lines)


def head(p: Place) -> Account:
    """A feature of a head: its values, weighted."""
    h, t, c = p.cell
    weights = p.part("weights")[h, t]
    values = p.part("v")[h, :, c]
    product = dot("Σ weight × v", f"weights from {t + 1}", weights, f"v, feature {c}", values)
    return Account("E39", "head = Σ weight × v", product.sum, products=(product,))


def projection(p: Place) -> Account:
    """A feature of a query, a key or a value."""
    h, t, c = p.cell
    layer = p.layer(MultiHeadAttention)
    size = layer.mix.in_features
    feature = h * (size // layer.num_heads) + c
    row = "qkv".index(p.leaf) * size + feature
    side = "memory" if f"{p.prefix}.memory" in p.trace and p.leaf != "q" else "x"
    matrix = f"W{p.leaf.upper()}"
    names = f"{matrix}·x", f"{matrix}, row {feature}", f"{side} at {t + 1}"
    return affine(
        "E45", f"{p.leaf} = {matrix} x + b", names, layer.query_key_value, row, p.part(side)[t]
    )


def inner(p: Place) -> Account:
    """A unit inside a feed-forward layer."""
    t, j = p.cell
    layer = p.layer(FeedForward)
    names = "W₁·x", f"W₁, row {j}", f"x at {t + 1}"
    driven = affine("E53", "inner = max(0, W₁ x + b₁)", names, layer.widen, j, p.part("x")[t])
    value = float(layer.activation(torch.tensor(driven.value, dtype=torch.float64)))
    formula = driven.formula if driven.value * value >= 0 else "inner = φ(W₁ x + b₁)"
    return replace(
        driven, formula=formula, value=value, lines=(f"{driven.lines[0]}, then {number(value)}",)
    )


def residual_sum(p: Place) -> Account:
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
    sublayer = affine(
        equation, formula, (f"W·{side}", f"W, row {c}", f"{side} at {t + 1}"), linear, c, last[t]
    )
    x = float(_stream(p, name)[t, c])
    total = x + sublayer.value
    lines = (
        f"sublayer = {sublayer.lines[0]}",
        fill("x + sublayer = {} + {}", total, x, sublayer.value),
    )
    return replace(sublayer, value=total, lines=lines)


def _stream(p: Place, sublayer: str) -> Tensor:
    """What went past a sublayer: its own input, or where that is normed first, what was there before."""
    if not p.layer(AddNorm).before:
        return p.stage(f"{sublayer}.x")
    side = p.name.partition(".")[0]
    names = p.trace.names()
    ends = (".positions", ".sum", ".output")
    before = [
        name
        for name in names[: names.index(p.name)]
        if name.startswith(side) and name.endswith(ends)
    ]
    return p.stage(before[-1])


def block_output(p: Place) -> Account:
    """What leaves a block: normed after the last sum, or that sum."""
    second = f"{p.prefix}.second"
    add_norm = p.layer(AddNorm, second)
    if add_norm.before:
        return residual_sum(replace(p, name=f"{second}.sum"))
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
        fill(f"mean of {len(row)} features = {number(mean)}, deviation", math.sqrt(variance)),
        fill("({} − {}) / {} × {} + {}", value, x, mean, deviation, gain, bias),
    )
    return Account("E50", "output = gain × (x − mean) / deviation + bias", value, lines)


def position(p: Place) -> Account:
    """An embedding with its position."""
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
        line = fill(f"p = {wave}({t} / 10000^({c - c % 2}/{size}))", signal)
    embedding = p.at("embedding")
    value = scale * embedding + signal
    factor = "" if scale == 1 else "√d × "
    total = fill(
        f"{number(scale)} × {{}} + {{}}" if factor else "{} + {}", value, embedding, signal
    )
    return Account(equation, f"x = {factor}embedding + p", value, (line, total))


def logit(p: Place) -> Account:
    """A logit: one row of the output layer."""
    *row, j = p.cell
    features = p.stage("features")[tuple(row)]
    names = "V·h", f"V, row {j}", "features"
    return affine("E18", "logit = V h + c", names, p.layers(Head)[0].output, j, features)
