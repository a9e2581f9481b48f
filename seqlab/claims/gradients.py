"""What becomes of a gradient on its way back: through time (C1, C2) and depth (C16, C22), and with norms (C17)."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor
from torch.linalg import matrix_norm, vector_norm

from seqlab.claims.claim import (
    Chart,
    Claim,
    Criterion,
    Finding,
    Line,
    Settings,
    Table,
    lines,
    minus,
    over,
    scores,
    table_of,
)
from seqlab.claims.material import MANUAL, NAMES, NAMES_IN, manual, named
from seqlab.equations.bptt import forward, state_gradients
from seqlab.equations.recurrent import highway, residual
from seqlab.errors import RunError
from seqlab.layers.recurrence import Recurrence
from seqlab.layers.stack import CausalStack
from seqlab.model import RUN, Model
from seqlab.recipe import Cell, Connection, Stack
from seqlab.training.log import MetricsFile


def _singular_values(at: Settings) -> Finding:
    size, steps, draws, sigmas = 32, at.pick(100, 100, 5), range(at.pick(100, 20, 2)), (0.7, 0.9, 1.1, 1.3)
    zero, eye = torch.zeros(size).double(), torch.eye(size).double()
    g_o = torch.cat([torch.zeros(steps - 1, size), torch.ones(1, size)]).double()  # the loss is that of the last step

    def factor(sigma: float, orthogonal: bool, inputs: float, draw: int) -> float:
        random = torch.Generator().manual_seed(draw)
        matrix, x = (torch.randn(n, size, generator=random).double() for n in (size, steps))
        matrix = sigma * (torch.linalg.qr(matrix)[0] if orthogonal else matrix / matrix_norm(matrix, ord=2))
        h, _ = forward(inputs * x, zero, matrix, eye, zero, eye, zero)
        norms = vector_norm(state_gradients(h, matrix, eye, g_o), dim=1)
        return float(norms[0] / norms[-1]) ** (1 / (steps - 1))

    cases = {"orthogonal, at rest": (True, 0.0), "random, at rest": (False, 0.0), "orthogonal, driven": (True, 0.5)}
    found = {name: [[factor(s, *case, draw) for draw in draws] for s in sigmas] for name, case in cases.items()}
    means = {name: [fmean(each) for each in rows] for name, rows in found.items()}
    title = "what a step back leaves of the gradient, by the largest singular value of W"
    drawn = lines(sigmas, found) + [Line(label="the border of the claim", x=[0.7, 1.3], y=[[1.0], [1.0]])]
    return Finding(
        values={
            "below": [value for row in means.values() for value in row[:2]],
            "above": [value for row in means.values() for value in row[2:]],
        },
        tables=[Table(title=title, header=("", *map(str, sigmas)), rows=[(n, *row) for n, row in means.items()])],
        chart=Chart(title="A gradient's factor of a step back", titles=("singular value", "factor"), lines=drawn),
    )


C1 = Claim(
    "C1",
    "a singular value above 1 explodes, below 1 vanishes",
    words="If the largest singular value of the recurrent matrix is above 1, gradients explode; below 1, they vanish.",
    data="generated: random matrices and inputs",
    experiment="A tanh network of 32 units (E17) reads 100 steps, and E31 sends the gradient of the last one back to "
    "the first. W is orthogonal, or random with independent entries, scaled to a largest singular value of 0.7 to 1.3; "
    "the network rests at zero, where its slope is 1, or is driven by inputs of deviation 0.5.",
    criteria={
        "below": Criterion("factor of a step back where the singular value is below 1, in each case", at_most=0.999),
        "above": Criterion("factor of a step back where the singular value is above 1, in each case", at_least=1.001),
    },
    limits="A singular value says how far a step can stretch a vector, not that it stretches the same one each time; "
    "and where states are driven, the slope of the tanh shrinks what W stretches. Training moves W besides.",
    run=_singular_values,
)


def _clipping(at: Settings) -> Finding:
    text = at.file("manual.txt", manual()[: at.pick(400_000, 100_000, 4000)])
    rates = at.pick((0.01, 0.03, 0.1, 0.3, 1.0, 3.0), (0.01, 0.03, 0.1, 0.3, 1.0), (0.01, 0.1))
    fixed = {"model.decoder.kind": "relu-rnn", "model.decoder.size": at.pick(128, 64, 8), "model.dropout": 0.0}
    fixed |= {"train.optimizer": "sgd", "train.schedule": "constant", "train.warmup": 0, "train.average": "none"}
    fixed |= {"train.steps": at.pick(1500, 200, 2), "train.batch_rows": 16, "train.bptt": at.pick(64, 48, 8)}
    floors = list[float]()

    def loss(clip: float, rate: float, seed: int) -> float:
        change = fixed | {"train.learning_rate": rate, "train.clip": clip, "train.divergence": "stop"}
        try:
            model = at.trained(f"clip {clip:g} rate {rate}", "lm", text, "char-rnn", change, seed=seed)
        except RunError:  # a gradient that is not finite
            return math.inf
        floors.append(model.metrics["validation"]["floors"]["1-gram"]["loss"])
        return model.metrics["validation"]["loss"] or math.inf

    ways = {"clipped at 1": 1.0, "not clipped": 1e9}
    found = {name: [[loss(clip, rate, seed) for rate in rates] for seed in at.seeds] for name, clip in ways.items()}
    floor = min(floors, default=math.inf)
    learns = {n: [[r for r, v in zip(rates, row, strict=True) if v < floor] for row in rows] for n, rows in found.items()}
    fastest = [[max(row, default=rates[0] / 3) for row in rows] for rows in learns.values()]
    best = [[min(row) for row in rows] for rows in found.values()]
    rows = [(name, *map(fmean, zip(*each, strict=True))) for name, each in found.items()]
    rows.append(("floor: by frequency", *[floor] * len(rates)))
    shown = {name: [[min(v, floor + 0.5) for v in at_rate] for at_rate in zip(*e, strict=True)] for name, e in found.items()}
    shown["by frequency"] = [[floor]] * len(rates)
    title = "held-out loss in nats a letter, by the rate of SGD (inf: a gradient was not finite)"
    return Finding(
        values={"rate": over(*fastest), "loss": minus(*best)},
        tables=[Table(title=title, header=("", *map(str, rates)), rows=rows)],
        chart=Chart(
            title="Held-out loss by rate; what stands above the floor is lost",
            titles=("log10 of the rate", "nats a letter"),
            lines=lines([math.log10(rate) for rate in rates], shown),
        ),
    )


C2 = Claim(
    "C2",
    "clipping tames exploding gradients",
    words="Clipping the norm of the gradient keeps training stable where gradients explode.",
    data=MANUAL,
    experiment="A ReLU network, whose states nothing bounds, learns a language model by SGD with momentum at rates that "
    "grow by factors of three, with the gradient's norm clipped at 1 (E37) and unclipped. A run with a gradient that is "
    "not finite is lost; one that stays above the floor of letter frequencies has learnt nothing.",
    criteria={
        "rate": Criterion("largest rate that learns, clipped over unclipped", at_least=3),
        "loss": Criterion("best loss over all rates, clipped minus unclipped", at_most=0.02),
    },
    limits="SGD was chosen because Adam divides by the size of the gradient anyway; with it clipping matters less.",
    run=_clipping,
)


def _deep(at: Settings) -> Finding:
    held_out, train = named(at)
    size, depth, steps = at.pick(64, 32, 4), at.pick(12, 8, 2), at.pick(1200, 150, 4)
    fixed: dict[str, object] = {**NAMES, "model.embedding": size, "model.encoder.size": size, "train.steps": steps}
    fixed |= {"model.encoder.layers": depth, "train.validate_every": max(1, steps // 6)}
    ways: dict[str, dict[str, object]] = {"plain, 1 layer": {"model.encoder.layers": 1}}
    ways |= {f"{kind}, {depth} layers": {"model.encoder.connection": kind} for kind in ("plain", "residual", "highway")}
    models = at.each(ways, "classify", train, "lstm-classifier", fixed, held_out)
    _, plain, skipping, gated = scores(models, "accuracy").values()
    return Finding(
        values={"residual": minus(skipping, plain), "highway": minus(gated, plain)},
        tables=[table_of("stacks of LSTM layers", models, "accuracy")],
        chart=learning_curves("Held-out loss of stacked LSTM layers", models),
    )


C16 = Claim(
    "C16",
    "residual and highway connections train deep stacks",
    words="Residual and highway connections make deep stacks trainable.",
    data=NAMES_IN,
    experiment="Stacks of LSTM layers learn to say which language a name is, letter by letter, all for the same number "
    "of steps: one layer, and many with plain, residual (E27) and highway (E26) connections.",
    criteria={
        "residual": Criterion("accuracy of the deep residual stack minus the deep plain one's", at_least=0.1),
        "highway": Criterion("accuracy of the deep highway stack minus the deep plain one's", at_least=0.1),
    },
    limits="One rate for all, in a short training: a plain stack may get there with more of both. Whether depth itself "
    "pays is another question: compare the deep stacks with the single layer.",
    run=_deep,
)


def _norms(at: Settings) -> Finding:
    held_out, train = named(at)
    steps, rates = at.pick(1200, 120, 4), at.pick((1e-3, 3e-3, 1e-2), (3e-3, 1e-2), (3e-3,))
    fixed: dict[str, object] = {**NAMES, "model.encoder.kind": "transformer", "model.encoder.size": at.pick(64, 32, 8)}
    fixed |= {"model.encoder.layers": at.pick(6, 4, 1), "model.pooling": "mean", "train.steps": steps}
    fixed |= {"train.batch_tokens": 512, "train.validate_every": max(1, steps // 12)}
    norms = {"after the sum": ("post", "layer"), "before the sublayer": ("pre", "layer"), "without": ("post", "none")}
    models = dict[str, list[Model]]()
    for name, (place, kind) in norms.items():
        way = {"model.encoder.norm": place, "model.encoder.normalise": kind}
        ways = {f"{name} {rate}": {**way, "train.learning_rate": rate} for rate in rates}
        runs = at.each(ways, "classify", train, "lstm-classifier", fixed, held_out)
        models[name] = [min(same, key=lambda run: validations(run)[-1][1]) for same in zip(*runs.values(), strict=True)]

    def needed(name: str) -> list[float]:
        """The share of the steps after which a run is where the one without norms ends."""
        pairs = zip(models[name], models["without"], strict=True)
        reached = [(validations(one), validations(other)[-1][1]) for one, other in pairs]
        return [min((s for s, loss in run if loss <= end), default=math.inf) / steps for run, end in reached]

    return Finding(
        values={"after": needed("after the sum"), "before": needed("before the sublayer")},
        tables=[table_of("layer norm, each at its best rate", models, "accuracy")],
        chart=learning_curves("Held-out loss of a Transformer encoder, each at its best rate", models),
    )


C17 = Claim(
    "C17",
    "layer norm speeds convergence",
    words="Layer normalisation makes training converge in fewer steps.",
    data=NAMES_IN,
    experiment="Transformer encoders learn to say which language a name is: with layer norm (E50) after each sum, as in "
    "the paper, or before each sublayer, and without any. Each is trained at several rates, and its best one counts. "
    "Counted are the steps until the loss is where the one without norms ends.",
    criteria={
        "after": Criterion("share of the steps needed with the norm after the sum", at_most=0.8),
        "before": Criterion("share of the steps needed with the norm before the sublayer", at_most=0.8),
    },
    limits="Few layers, a small task and Adam: norms are said to matter more the deeper the stack and the larger the "
    "rate. A share of inf means that the loss was never reached.",
    run=_norms,
)


def _depth(at: Settings) -> Finding:
    size, length, depth = 32, at.pick(24, 24, 4), at.pick(24, 24, 3)
    kinds: tuple[Connection, ...] = ("plain", "residual", "highway", "dense")
    cells: dict[str, Cell] = {"tanh": "rnn", "LSTM": "lstm", "GRU": "gru-torch"}

    def norms(cell: Cell, kind: Connection, seed: int) -> list[float]:
        """Of the gradient behind each layer, from the last to the first, as a share of the last one's."""
        torch.manual_seed(seed)
        stack = CausalStack(size, Stack(kind=cell, size=size, layers=depth, connection=kind), dropout=0.0, name="")
        x, kept = torch.randn(8, length, size), list[Tensor]()
        for layer in stack.layers:
            x, _ = layer(x, layer.recurrence.start(len(x)))
            kept.append(x)
        grads = torch.autograd.grad((x[..., -size:] * torch.randn(8, length, size)).sum(), kept[::-1])
        return [float(vector_norm(grad) / vector_norm(grads[0])) for grad in grads]

    def in_time(cell: Cell, seed: int) -> float:
        """What a step back in time leaves, in one layer."""
        torch.manual_seed(seed)
        layer, states = Recurrence(cell, size, size, name=""), list[Tensor]()
        state = layer.start(8)
        for x in torch.randn(length, 8, 1, size):
            _, state = layer(x, state)
            states.append(state[0])
        last, first = torch.autograd.grad((state[0] * torch.randn(8, size)).sum(), [states[-1], states[0]])
        return float(vector_norm(first) / vector_norm(last)) ** (1 / (length - 1))

    runs = [(cell, seed) for cell in cells.values() for seed in at.seeds]
    found = {kind: [norms(cell, kind, seed) for cell, seed in runs] for kind in kinds}
    layers = {kind: [row[-1] ** (1 / (depth - 1)) for row in rows] for kind, rows in found.items()}
    times, num = [in_time(cell, seed) for cell, seed in runs], len(at.seeds)
    x, hx, gate = torch.randn(100, size), torch.randn(100, size), torch.ones(100, size)
    header = ("", *cells, "what a step or layer leaves of the gradient")
    rows = [(k, *(fmean(v[n * num : n * num + num]) for n in range(3))) for k, v in {"time": times, **layers}.items()]
    lstm = {kind: [[math.log10(row[k]) for row in rows[num : 2 * num]] for k in range(depth)] for kind, rows in found.items()}
    return Finding(
        values={
            "time": times,
            "depth": layers["plain"],
            **{kind: over(layers[kind], layers["plain"]) for kind in kinds[1:]},
            "open": [float((highway(x, hx, gate, gate) - residual(x, hx)).abs().max())],
        },
        tables=[Table(title="what a step in time, and a layer, leaves of the gradient", header=header[:4], rows=rows)],
        chart=Chart(
            title="Gradient behind each layer of an LSTM stack, before training",
            titles=("layers from the loss", "log10 of its norm"),
            lines=lines(range(depth), lstm),
        ),
    )


C22 = Claim(
    "C22",
    "gradients vanish over depth as over time",
    words="Gradients vanish over depth as they do over time; residual, highway and dense connections help; a residual "
    "net is a highway net with its gates open.",
    data="generated: random inputs",
    experiment="Stacks of 24 tanh, LSTM and GRU layers as they are before training read 24 random vectors, and the "
    "gradient of a random loss on all outputs is measured behind each layer; and in single layers, that of the last "
    "state at the first. Gates of the highway begin nearly closed (bias -2, Srivastava et al. 2015).",
    criteria={
        "time": Criterion("factor of a step back in time, for each cell", at_most=0.95),
        "depth": Criterion("factor of a plain layer, for each cell", at_most=0.95),
        "residual": Criterion("factor of a layer, residual over plain, for each cell", at_least=1.1),
        "highway": Criterion("factor of a layer, highway over plain, for each cell", at_least=1.1),
        "dense": Criterion("factor of a layer, dense over plain, for each cell", at_least=1.1),
        "open": Criterion("difference of a highway with open gates from a residual connection", at_most=0.0),
    },
    limits="All depends on how weights begin: orthogonal W and Xavier's U, which hold a tanh stack near 1. Training may "
    "mend what begins badly (C16).",
    run=_depth,
)


def validations(model: Model) -> list[tuple[int, float]]:
    """The steps at which a run was validated, and its loss there."""
    rows = MetricsFile(model.path / RUN / "metrics.jsonl").rows()
    return [(row["step"], row["validation"]["loss"]) for row in rows if "validation" in row]


def learning_curves(title: str, models: Mapping[str, Sequence[Model]]) -> Chart:
    """The validations of each way's runs."""
    curves = {name: [validations(model) for model in each] for name, each in models.items()}
    steps = [step for step, _ in next(iter(curves.values()))[0]]
    found = {name: [[loss for _, loss in row] for row in zip(*each, strict=True)] for name, each in curves.items()}
    return Chart(title=title, titles=("steps", "nats"), lines=lines(steps, found))
