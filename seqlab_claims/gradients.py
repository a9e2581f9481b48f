"""What becomes of a gradient on its way back: through time (C1, C2) and depth (C16, C22), and with norms (C17)."""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from statistics import fmean
from typing import cast

import torch
from torch import Tensor
from torch.linalg import matrix_norm, vector_norm

from seqlab.equations.bptt import forward, state_gradients
from seqlab.equations.recurrent import highway, residual
from seqlab.errors import RunError
from seqlab.layers.recurrence import Recurrence
from seqlab.layers.stack import CausalLayer, CausalStack
from seqlab.model import Model
from seqlab.recipe import Cell, Connection, StackConfig
from seqlab_claims.claim import Finding, Row, Table
from seqlab_claims.material import manual, named
from seqlab_claims.settings import (
    Settings,
    curves,
    lines,
    means,
    minus,
    over,
    scored,
    scores,
    turned,
    validations,
)


def singular_values(at: Settings) -> Finding:
    """C1: a tanh network whose W has a known largest singular value."""
    sizes = at.sizes("C1")
    size, steps = 32, sizes["steps"]
    draws = range(sizes["draws"])
    sigmas = (0.7, 0.9, 1.1, 1.3)
    zero, eye = torch.zeros(size).double(), torch.eye(size).double()
    g_o = torch.cat(
        [torch.zeros(steps - 1, size), torch.ones(1, size)]
    ).double()  # the loss is that of the last step

    def factor(sigma: float, orthogonal: bool, inputs: float, draw: int) -> float:
        random = torch.Generator().manual_seed(draw)
        matrix, x = (torch.randn(n, size, generator=random).double() for n in (size, steps))
        matrix = sigma * (
            torch.linalg.qr(matrix)[0] if orthogonal else matrix / matrix_norm(matrix, ord=2)
        )
        h, _ = forward(inputs * x, zero, matrix, eye, zero, eye, zero)
        norms = vector_norm(state_gradients(h, matrix, eye, g_o), dim=1)
        return float(norms[0] / norms[-1]) ** (1 / (steps - 1))

    cases = {
        "orthogonal, at rest": (True, 0.0),
        "random, at rest": (False, 0.0),
        "orthogonal, driven": (True, 0.5),
    }
    results = {
        name: [[factor(s, *case, draw) for draw in draws] for s in sigmas]
        for name, case in cases.items()
    }
    below, above = (
        [fmean(row) for rows in results.values() for row in rows[part]]
        for part in (slice(2), slice(2, 4))
    )
    border = {"neither explodes nor vanishes": [1.0] * len(sigmas)}
    return Finding(
        {"below": below, "above": above},
        [
            means(
                "what a step back leaves of the gradient, by the largest singular value of W",
                sigmas,
                results,
            )
        ],
        lines(
            "A gradient's factor of a step back",
            ("largest singular value of W", "factor"),
            sigmas,
            results,
            border,
        ),
    )


def clipping(at: Settings) -> Finding:
    """C2: a ReLU network under SGD at growing rates."""
    sizes = at.sizes("C2")
    text = at.file("manual.txt", manual()[: sizes["letters"]])
    rates = sizes["rates"]
    fixed = at.recipe("C2")
    baselines = list[float]()

    def loss(clip: float, rate: float, seed: int) -> float:
        change = fixed | {"train.learning_rate": rate, "train.clip": clip}
        try:
            model = at.trained(
                f"clip {clip:g} rate {rate}", "lm", text, "char-rnn", change, seed=seed
            )
        except RunError:  # a gradient that is not finite
            return math.inf
        baselines.append(model.metrics["validation"]["baselines"]["1-gram"]["loss"])
        return model.metrics["validation"]["loss"] or math.inf

    ways = {"clipped at 1": 1.0, "not clipped": 1e9}
    results = {
        name: [[loss(clip, rate, seed) for seed in at.seeds] for rate in rates]
        for name, clip in ways.items()
    }
    baseline, num = min(baselines, default=0.0), len(rates)
    bounded = {
        name: [[min(v, baseline + 0.5) for v in row] for row in rows]
        for name, rows in results.items()
    }
    by_seed = [turned(rows) for rows in bounded.values()]
    learn = [
        [[r for r, v in zip(rates, row, strict=True) if v < baseline] for row in rows]
        for rows in by_seed
    ]
    fastest = [[max(row, default=rates[0] / 3) for row in rows] for rows in learn]
    table: list[Row] = [
        (n, *("lost" if math.inf in row else fmean(row) for row in rows))
        for n, rows in results.items()
    ]
    places, floored = list(map(str, rates)), {"baseline: by frequency": [baseline] * num}
    table.append(("baseline: by frequency", *[baseline] * num))
    return Finding(
        {"rate": over(*fastest), "loss": minus(*([min(row) for row in rows] for rows in by_seed))},
        [
            Table(
                "held-out loss in nats a letter, by the rate; lost: a gradient was not finite",
                ("", *places),
                table,
            )
        ],
        lines(
            "Lost runs stand above the baseline",
            ("rate of SGD", "held-out nats a letter"),
            places,
            bounded,
            floored,
        ),
    )


def deep_stacks(at: Settings) -> Finding:
    """C16: one LSTM layer, and many with each connection."""
    held_out, train = named(at)
    fixed = at.recipe("C16")
    depth = fixed["model.encoder.layers"]
    ways: dict[str, dict[str, object]] = {"plain, 1 layer": {"model.encoder.layers": 1}}
    ways |= {
        f"{kind}, {depth} layers": {"model.encoder.connection": kind}
        for kind in ("plain", "residual", "highway")
    }
    models = at.each(ways, "classify", train, "lstm-classifier", fixed, held_out)
    _, plain, skipping, gated = scores(models, "accuracy").values()
    return Finding(
        {"residual": minus(skipping, plain), "highway": minus(gated, plain)},
        [scored("stacks of LSTM layers", models, "accuracy")],
        curves("Stacked LSTM layers learn to tell languages", models),
    )


def layer_norm(at: Settings) -> Finding:
    """C17: a Transformer with norms in two places, and without."""
    held_out, train = named(at)
    rates = at.sizes("C17")["rates"]
    fixed = at.recipe("C17")
    steps = fixed["train.steps"]
    places = {
        "after the sum": ("post", "layer"),
        "before the sublayer": ("pre", "layer"),
        "without": ("post", "none"),
    }
    models = {name: list[Model]() for name in places}

    def run(name: str, rate: float, seed: int) -> Iterator[Model]:
        """Nothing, where the gradient did not stay finite: another rate must do."""
        way = dict(
            zip(("model.encoder.norm", "model.encoder.normalise"), places[name], strict=True)
        )
        change = fixed | way | {"train.learning_rate": rate}
        with suppress(RunError):
            yield at.trained(
                f"{name} {rate}",
                "classify",
                train,
                "lstm-classifier",
                change,
                seed=seed,
                valid=held_out,
            )

    for name, seed in product(places, at.seeds):
        runs = [model for rate in rates for model in run(name, rate, seed)]
        models[name].append(min(runs, key=lambda model: validations(model)[-1][1]))

    def needed(name: str) -> list[float]:
        """The share of the steps after which a run is where the one without norms ends."""
        ends = [validations(other)[-1][1] for other in models["without"]]
        both = zip(models[name], ends, strict=True)
        return [
            min((s for s, v in validations(run) if v <= end), default=2 * steps) / steps
            for run, end in both
        ]

    return Finding(
        {"after": needed("after the sum"), "before": needed("before the sublayer")},
        [scored("layer norm, each at its best rate", models, "accuracy")],
        curves("Where the norm stands in a Transformer encoder", models),
    )


def over_depth(at: Settings) -> Finding:
    """C22: stacks of each cell and connection, before training."""
    sizes = at.sizes("C22")
    size, length, depth = 32, sizes["length"], sizes["depth"]
    num = len(at.seeds)
    kinds: tuple[Connection, ...] = ("plain", "residual", "highway", "dense")
    cells: dict[str, Cell] = {"tanh": "rnn", "LSTM": "lstm", "GRU": "gru-torch"}

    def norms(cell: Cell, kind: Connection, seed: int) -> list[float]:
        """Of the gradient behind each layer, from the last to the first, as a share of the last one's."""
        torch.manual_seed(seed)
        stack = CausalStack(
            size,
            StackConfig(kind=cell, size=size, layers=depth, connection=kind),
            dropout=0.0,
            name="",
        )
        x, kept = torch.randn(8, length, size), list[Tensor]()
        for layer in cast(Iterable[CausalLayer], stack.layers):
            x, _ = layer(x, layer.recurrence.start(len(x)))
            kept.append(x)
        grads = torch.autograd.grad(
            (x[..., -size:] * torch.randn(8, length, size)).sum(), kept[::-1]
        )
        return [float(vector_norm(grad) / vector_norm(grads[0])) for grad in grads]

    def in_time(cell: Cell, seed: int) -> float:
        """What a step back in time leaves, in one layer."""
        torch.manual_seed(seed)
        layer, states = Recurrence(cell, size, size, name=""), list[Tensor]()
        state = layer.start(8)
        for x in torch.randn(length, 8, 1, size):
            _, state = layer(x, state)
            states.append(state[0])
        last, first = torch.autograd.grad(
            (state[0] * torch.randn(8, size)).sum(), [states[-1], states[0]]
        )
        return float(vector_norm(first) / vector_norm(last)) ** (1 / (length - 1))

    runs = [(cell, seed) for cell in cells.values() for seed in at.seeds]
    results = {str(kind): [norms(cell, kind, seed) for cell, seed in runs] for kind in kinds}
    factors = {"step in time": [in_time(cell, seed) for cell, seed in runs]}
    factors |= {
        kind: [row[-1] ** (1 / (depth - 1)) for row in rows] for kind, rows in results.items()
    }
    x, hx, gate = torch.randn(100, size), torch.randn(100, size), torch.ones(100, size)
    values = {"time": factors["step in time"], "depth": factors["plain"]}
    values |= {kind: over(factors[kind], factors["plain"]) for kind in kinds[1:]}
    values["open"] = [float((highway(x, hx, gate, gate) - residual(x, hx)).abs().max())]
    by_cell = {
        name: [row[n : n + num] for n in range(0, len(row), num)] for name, row in factors.items()
    }
    lstm = {
        kind: [[math.log10(v) for v in row] for row in turned(rows[num : 2 * num])]
        for kind, rows in results.items()
    }
    axes = ("layers from the loss", "log10 of its norm")
    return Finding(
        values,
        [
            means(
                "what a step in time, and a layer of each kind, leaves of the gradient",
                cells,
                by_cell,
            )
        ],
        lines("The gradient in an LSTM stack before training", axes, range(depth), lstm),
    )
