"""Recurrent layers: memory (C3, C15, C18), cost (C4, C11), both ways (C5), distance (C20), and the choice (C21)."""

import random
import time
from collections.abc import Callable, Sequence
from statistics import fmean

import torch
from torch import Tensor
from torch.autograd.graph import Node, saved_tensors_hooks

from seqlab.claims.claim import Chart, Finding
from seqlab.claims.material import NAMES, QUIET, Pair, as_conll, date_fields, manual, named, words
from seqlab.claims.settings import (
    Settings,
    bar_chart,
    lines,
    means,
    minus,
    over_places,
    scored,
    scores,
    spread,
)
from seqlab.equations.attention import self_attention
from seqlab.equations.recurrent import gru_step, lstm_step, rnn_step
from seqlab.explain.cells import followers, marks, states
from seqlab.explain.saliency import saliency
from seqlab.explain.subject import subject
from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.recurrence import Recurrence
from seqlab.model import Model


def keys(num: int, lengths: range, *, seed: int) -> list[Pair]:
    """A letter, and rows that begin with it and go on with others that mean nothing."""
    keyed = random.Random(seed)
    return [(key, key + row) for row in words(num, lengths, seed=seed, letters="wxyz") for key in keyed.choice("abcd")]


def lags(at: Settings) -> Finding:
    """C3: which letter came first, so many letters ago?"""
    since = at.pick((10, 25, 50, 75, 100), (5, 10, 20, 30), (2, 5))
    train = at.file("train.tsv", keys(at.pick(20_000, 8000, 100), range(1, since[-1] + 1), seed=1))
    tests = [keys(at.pick(400, 200, 8), range(n, n + 1), seed=n) for n in since]
    fixed = {**NAMES, "model.embedding": 8, "model.encoder.size": at.pick(64, 32, 4), "data.max_source": 1000}
    fixed |= {"train.steps": at.pick(2500, 500, 3), "train.batch_tokens": at.pick(2048, 768, 64)}
    fixed |= {"train.learning_rate": at.pick(5e-3, 1e-2, 1e-2)}
    ways = {
        name: {"model.encoder.kind": kind}
        for name, kind in {"tanh RNN": "rnn", "LSTM": "lstm", "GRU": "gru-torch"}.items()
    }
    models = at.each(ways, "classify", train, "lstm-classifier", fixed)

    def right(model: Model, rows: list[Pair]) -> float:
        answers = model.predict([text for _, text in rows])
        return fmean(answer.output == key for answer, (key, _) in zip(answers, rows, strict=True))

    def on_the_first(model: Model) -> float:
        """The share of the gradient, over the letters of the longest rows, that rests on the first one."""
        found = [saliency(subject(model.bundle, text), method="gradient").source.abs() for _, text in tests[-1][:20]]
        return fmean(float(each[0] / each.sum().clamp(min=1e-30)) for each in found)

    known = {name: [[right(model, rows) for model in each] for rows in tests] for name, each in models.items()}
    shares = {name: [on_the_first(model) for model in each] for name, each in models.items()}
    gated = ("LSTM", "GRU")
    return Finding(
        {
            "known": [gain for cell in gated for gain in minus(known[cell][-1], known["tanh RNN"][-1])],
            "gradient": [gain for cell in gated for gain in minus(shares[cell], shares["tanh RNN"])],
        },
        [
            means(
                "how often the first letter is known, by the letters since",
                since,
                known | {"floor: chance": [[0.25]] * len(since)},
            ),
            spread(f"share of the gradient that rests on the first letter, after {since[-1]} others", shares),
        ],
        Chart("Which letter came first?", ("letters read since", "share of right answers"), lines(since, known)),
    )


def timed(works: Sequence[Callable[[], object]], *, rounds: int) -> list[float]:
    """CPU seconds of each: the least of several rounds in which they take turns, as others use the machine too."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 1):  # the first warms up
        for each, work in zip(taken, works, strict=True):
            began = time.process_time()
            work()
            each.append(time.process_time() - began)
    return [min(each[1:]) for each in taken]


def cost(at: Settings) -> Finding:
    """C4: weights and CPU time of layers of the same size."""
    sizes, length, rows = at.pick((64, 128, 256, 512), (64, 128, 256), (4, 8)), at.pick(64, 32, 4), 16

    def by_steps(step: Callable[..., Tensor | tuple[Tensor, ...]], layer: Recurrence, x: Tensor) -> None:
        state = layer.start(rows)
        for x_t in x.unbind(1):
            after = step(x_t, *state, layer.W, layer.U, layer.b)
            state = after if isinstance(after, tuple) else (after,)
        state[0].sum().backward()

    def by_kernel(layer: Recurrence, x: Tensor) -> None:
        layer(x, layer.start(rows))[0].sum().backward()

    found: dict[str, list[list[float]]] = {"weights": [], "time, by the equations": [], "time, by torch's kernels": []}
    for size in sizes:
        x, lstm, gru = (
            torch.randn(rows, length, size),
            Recurrence("lstm", size, size, name=""),
            Recurrence("gru", size, size, name=""),
        )
        other = Recurrence("gru-torch", size, size, name="")
        works = (
            (by_steps, gru_step, gru, x),
            (by_steps, lstm_step, lstm, x),
            (by_kernel, other, x),
            (by_kernel, lstm, x),
        )
        taken = timed([lambda work=work: work[0](*work[1:]) for work in works], rounds=at.pick(25, 10, 1))
        ratios = (
            (gru.W.numel() + gru.U.numel()) / (lstm.W.numel() + lstm.U.numel()),
            taken[0] / taken[1],
            taken[2] / taken[3],
        )
        for each, ratio in zip(found.values(), ratios, strict=True):
            each.append([ratio])
    return Finding(
        {
            name: [row[0] for row in each]
            for name, each in zip(("weights", "steps", "kernels"), found.values(), strict=True)
        },
        [means("GRU over LSTM, by the number of units", sizes, found)],
        over_places("A GRU layer over an LSTM layer", ("units", "ratio"), sizes, found),
    )


def directions(at: Settings) -> Finding:
    """C5: as many weights in one direction as in both: 2 d units twice need 12 d² numbers a gate, and 3 d as well."""
    (held_out, train), size = named(at), at.pick(32, 16, 4)
    fields = at.file("fields.conll", as_conll(date_fields(at.pick(20_000, 4000, 60), seed=1)))
    test = at.file("test.conll", as_conll(date_fields(at.pick(1000, 500, 20), seed=2)))
    fixed = {**NAMES, "model.embedding": size, "train.learning_rate": 1e-2, "train.steps": at.pick(1200, 200, 3)}
    ways = {"forward": ("false", 3 * size), "both directions": ("true", 2 * size)}
    changes = {name: {"model.encoder.bidirectional": both, "model.encoder.size": n} for name, (both, n) in ways.items()}
    tagging = {**fixed, "model.encoder.layers": 1, "source.kind": "words", "source.min_count": 1}
    tags = {f"fields, {name}": change for name, change in changes.items()}
    labels = {f"languages, {name}": change for name, change in changes.items()}
    tagged = at.each(tags, "tag", fields, "bilstm-tagger", tagging, test)
    labelled = at.each(labels, "classify", train, "lstm-classifier", fixed, held_out)
    found = {**scores(tagged, "accuracy"), **scores(labelled, "accuracy")}
    one, both, other, other_both = found.values()
    return Finding(
        {"tags": minus(both, one), "labels": minus(other_both, other)},
        [scored("fields of dates", tagged, "accuracy"), scored("language of names", labelled, "accuracy")],
        bar_chart("One direction, and both with as many weights", "accuracy", found),
    )


def shortest(output: Tensor, leaf: Tensor) -> int:
    """Operations on the shortest way from an input to an output, in the graph that autograd recorded."""
    level, seen, steps = {output.grad_fn}, set[Node | None](), 0
    while not any(getattr(node, "variable", None) is leaf for node in level):
        seen |= level
        level = {node for each in level if each is not None for node, _ in each.next_functions} - seen
        steps += 1
    return steps


def longest(output: Tensor) -> int:
    """Operations of which each waits for the one before: what no number of processors can shorten."""
    depth, stack = dict[Node | None, int]({None: 0}), [output.grad_fn]
    while stack:
        below = [node for node, _ in stack[-1].next_functions] if stack[-1] is not None else []
        waiting = [node for node in below if node not in depth]
        stack += waiting
        if not waiting:
            depth[stack.pop()] = 1 + max((depth[node] for node in below), default=0)
    return depth[output.grad_fn]


def last_outputs(length: int) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The last output of a tanh network (E17) and of self-attention (E46), and the inputs of both."""
    inputs, square = [torch.randn(1, 4, requires_grad=True) for _ in range(length)], torch.ones(4, 4)
    h = torch.zeros(1, 4)
    for x in inputs:
        h = rnn_step(x, h, square, square, torch.zeros(4))
    visible = torch.ones(1, 1, length, dtype=torch.bool)
    seen, _ = self_attention(torch.stack(inputs, dim=1), square, square, square, visible)
    return {"recurrent": h, "self-attention": seen[:, -1]}, inputs


def parallel(at: Settings) -> Finding:
    """C11: the time of a layer, and the longest chain of operations in it."""
    lengths, size = at.pick((64, 128, 256, 512, 1024, 2048), (64, 128, 256, 512, 1024), (8, 16)), 64
    layer, heads = Recurrence("lstm", size, size, name=""), MultiHeadAttention(size, num_heads=4, name="")

    def attend(x: Tensor) -> Tensor:
        q, k, v = heads.project_all(x)
        return heads(q, (k, v), None)

    found = {
        f"{name}, {what}": list[list[float]]() for what in ("chain", "ms") for name in ("recurrent", "self-attention")
    }
    for length in lengths:
        x = torch.randn(1, length, size)
        with torch.inference_mode():
            works = [lambda x=x: layer(x, layer.start(1)), lambda x=x: attend(x)]
            taken = [1000 * seconds for seconds in timed(works, rounds=at.pick(25, 10, 1))]
        chains = [float(longest(output)) for output in last_outputs(length)[0].values()]
        for each, value in zip(found.values(), chains + taken, strict=True):
            each.append([value])
    grown, ratio = {name: rows[-1][0] / rows[0][0] for name, rows in found.items()}, lengths[-1] / lengths[0]
    return Finding(
        {
            "time": [grown["recurrent, ms"] / ratio],
            "chain": [grown["recurrent, chain"] / ratio],
            "attention": [grown["self-attention, chain"]],
        },
        [means("one sequence, by its length: operations in a row, and CPU time", lengths, found)],
        over_places(
            "Operations in a row, of one sequence", ("length", "operations"), lengths, dict(list(found.items())[:2])
        ),
    )


def distances(at: Settings) -> Finding:
    """C20: the shortest way between two positions."""
    apart = at.pick((1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8, 16, 32, 64), (1, 4))
    outputs, inputs = last_outputs(apart[-1] + 1)
    found = {name: [[float(shortest(out, inputs[-1 - n]))] for n in apart] for name, out in outputs.items()}
    added = {name: rows[-1][0] - rows[0][0] for name, rows in found.items()}
    return Finding(
        {"recurrent": [added["recurrent"] / (apart[-1] - apart[0])], "attention": [added["self-attention"]]},
        [means("operations between an output and an input, by their distance", apart, found)],
        Chart("The shortest path between two positions", ("distance", "operations"), lines(apart, found)),
    )


def truncation(at: Settings) -> Finding:
    """C15: the gradient is cut after few steps or many, with as many letters in each batch."""
    chunks, tokens, dots = at.pick((8, 32, 256), (8, 16, 64), (4, 8)), at.pick(2048, 1024, 64), "." * at.pick(24, 12, 5)
    drawn = words(at.pick(20_000, 8000, 300), range(1, 2), seed=1, letters="abcdefgh")
    texts = {
        "manual": manual()[: at.pick(400_000, 150_000, 4000)],
        "recall": "".join(f"{key}{dots}{key} " for key in drawn),
    }
    fixed = {
        **QUIET,
        "model.decoder.size": at.pick(128, 64, 8),
        "train.steps": at.pick(1500, 250, 3),
        "train.learning_rate": 1e-2,
    }
    models = dict[str, dict[str, list[Model]]]()
    for what, text in texts.items():
        ways = {f"{what}, {n} steps": {"train.bptt": n, "train.batch_rows": tokens // n} for n in chunks}
        models[what] = at.each(ways, "lm", at.file(f"{what}.txt", text), "char-lstm", fixed)
    found = {what: list(scores(each, "loss").values()) for what, each in models.items()}

    def kept(length: int) -> float:
        """Bytes that a layer keeps for the way back through one sequence, besides its weights."""
        layer, sizes = Recurrence("lstm", 64, 64, name=""), dict[int, int]()
        known = {weight.data_ptr() for weight in layer.parameters()}

        def pack(x: Tensor) -> Tensor:
            sizes[x.data_ptr()] = 0 if x.data_ptr() in known else x.numel() * x.element_size()
            return x

        with saved_tensors_hooks(pack, lambda x: x):
            layer(torch.randn(1, length, 64), layer.start(1))
        return float(sum(sizes.values()))

    memory = {"bytes": [[kept(n)] for n in chunks]}
    return Finding(
        {
            "prose": minus(found["manual"][0], found["manual"][-1]),
            "recall": minus(found["recall"][0], found["recall"][-1]),
            "memory": [memory["bytes"][0][0] / memory["bytes"][-1][0]],
        },
        [scored(what, each, "loss") for what, each in models.items()]
        + [means("memory that a layer of 64 units keeps of one sequence, by the steps of a chunk", chunks, memory)],
        over_places(
            "Held-out loss by the steps of a chunk", ("steps until the gradient is cut", "nats a letter"), chunks, found
        ),
    )


def readable(at: Settings) -> Finding:
    """C18: units that follow quotes and the place in the line, chosen in one text and tested in another."""
    text, num = manual(), at.pick(4000, 1500, 400)
    train, read = (
        at.file("manual.txt", text[: at.pick(-20_000, 200_000, 4000)]),
        (text[-16_000:][:num], text[-8000:][:num]),
    )
    fixed = {
        **QUIET,
        "model.decoder.size": at.pick(192, 96, 8),
        "train.batch_rows": 16,
        "train.bptt": at.pick(100, 80, 8),
    }
    fixed |= {"train.steps": at.pick(4000, 400, 3), "train.learning_rate": at.pick(4e-3, 1e-2, 1e-2)}
    ways = {
        "trained": {},
        "floor: untrained": {"train.steps": 1, "train.validate_every": 1, "train.learning_rate": 1e-9},
    }
    models = at.each(ways, "lm", train, "char-lstm", fixed)

    def follows(model: Model, what: str) -> float:
        """How well the unit that follows something best in one text follows it in the other."""
        looked = [subject(model.bundle, given) for given in read]
        first, second = [
            (states(each.trace(), list(each.written)), marks(list(each.written), None)[what]) for each in looked
        ]
        best = followers(first[0], {what: first[1]}, most=1)[0]
        unit = {best.layer: second[0][best.layer][:, best.unit : best.unit + 1]}
        score = followers(unit, {what: second[1]})[0].score
        return abs(score - 0.5) * 2 if what == "quotes" else abs(score)

    whats = ("quotes", "place in line")
    found = {f"{what}, {name}": [follows(run, what) for run in each] for what in whats for name, each in models.items()}
    return Finding(
        {"quotes": found["quotes, trained"], "place": found["place in line, trained"]},
        [
            spread("how well the best unit of one text follows it in another", found),
            scored("language model", models, "loss"),
        ],
        bar_chart("How well a unit follows quotes and the place in the line", "0: by chance, 1: perfectly", found),
    )


def lstm_or_gru(at: Settings) -> Finding:
    """C21: as many weights in both: 4 h (h + d) in the LSTM are 3 h (h + d) in a GRU of about 7/6 h."""
    (held_out, train), steps, embedding = named(at), {"train.steps": at.pick(1200, 200, 3)}, at.pick(64, 32, 4)
    kinds = {"LSTM": ("lstm", at.pick(112, 56, 8)), "GRU": ("gru-torch", at.pick(133, 66, 10))}
    reads = {**NAMES, **steps, "model.embedding": embedding}
    tagging = {
        **reads,
        "source.kind": "words",
        "source.min_count": 1,
        "model.encoder.layers": 1,
        "model.encoder.bidirectional": "false",
    }
    writes = {**QUIET, **steps, "train.learning_rate": 5e-3, "train.batch_rows": 16, "model.embedding": embedding}
    fields = at.file("fields.conll", as_conll(date_fields(at.pick(20_000, 4000, 60), seed=1)))
    first = at.file("first.tsv", keys(at.pick(20_000, 8000, 100), range(1, at.pick(40, 20, 6)), seed=1))
    text = at.file("manual.txt", manual()[: at.pick(400_000, 100_000, 4000)])
    tasks = {
        "language model": ("lm", text, "char-lstm", writes, "decoder", None),
        "language of names": ("classify", train, "lstm-classifier", reads, "encoder", held_out),
        "fields of dates": ("tag", fields, "bilstm-tagger", tagging, "encoder", None),
        "which letter came first": ("classify", first, "lstm-classifier", reads, "encoder", None),
    }
    found, tables = dict[str, dict[str, list[float]]](), []
    for name, (task, data, recipe, fixed, side, valid) in tasks.items():
        ways = {
            f"{name}, {cell}": {f"model.{side}.kind": kind, f"model.{side}.size": n}
            for cell, (kind, n) in kinds.items()
        }
        models = at.each(ways, task, data, recipe, fixed, valid)
        tables.append(scored(name, models, "loss"))
        found[name] = dict(zip(kinds, scores(models, "loss").values(), strict=True))
    wins = {
        cell: [all(a < 0.98 * b for a, b in zip(each[cell], each[other], strict=True)) for each in found.values()]
        for cell, other in (("LSTM", "GRU"), ("GRU", "LSTM"))
    }
    gains = {
        name: [100 * (a / b - 1) for a, b in zip(each["LSTM"], each["GRU"], strict=True)]
        for name, each in found.items()
    }
    return Finding(
        {"lstm": [float(sum(wins["LSTM"]))], "gru": [float(sum(wins["GRU"]))]},
        [spread("loss of the LSTM above the GRU's, in percent: below 0 the LSTM is better", gains), *tables],
        bar_chart("Loss of the LSTM above the GRU's", "percent; to the left the LSTM is better", gains),
    )
