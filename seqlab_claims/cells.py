"""Recurrent layers: what they remember (C3, C15, C18), cost (C4), both ways (C5), and the choice between them (C21)."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from seqlab.equations.recurrent import gru_step, lstm_step
from seqlab.explain.cells import best_units, marks, states
from seqlab.explain.saliency import saliency
from seqlab.layers.recurrence import Recurrence
from seqlab.model import Model
from seqlab.tasks import subject
from seqlab_claims.claim import Finding
from seqlab_claims.material import UNTRAINED, Pair, as_conll, date_fields, manual, named, words
from seqlab_claims.settings import (
    Settings,
    bars,
    flat,
    lines,
    means,
    minus,
    right,
    scored,
    scores,
    spread,
    timed,
)

WIN = 0.02  # nats


def keys(num: int, lengths: range, *, seed: int) -> list[Pair]:
    """A letter, and rows that begin with it and go on with others that mean nothing."""
    keyed = random.Random(seed)
    return [
        (key, key + row)
        for row in words(num, lengths, seed=seed, letters="wxyz")
        for key in keyed.choice("abcd")
    ]


def lags(at: Settings) -> Finding:
    """C3: which letter came first, so many letters ago? Each lag has its own training, with as many rows a step."""
    sizes = at.sizes("C3")
    fixed = at.recipe("C3")
    since = sizes["lags"]
    names = ("tanh RNN", "LSTM", "GRU")
    kinds = {
        name: {"model.encoder.kind": kind}
        for name, kind in zip(names, ("rnn", "lstm", "gru-torch"), strict=True)
    }
    known, shares = ({name: list[list[float]]() for name in names} for _ in range(2))

    def on_the_first(model: Model, rows: list[Pair]) -> float:
        """The share of the gradient, over the letters of a row, that rests on the first one."""
        results = [
            saliency(subject(model.bundle, text), method="gradient").source.abs()
            for _, text in rows
        ]
        return fmean(float(each[0] / each.sum().clamp(min=1e-30)) for each in results)

    for lag in since:
        train = at.file(f"{lag}.tsv", keys(sizes["train"], range(lag, lag + 1), seed=1))
        test = keys(sizes["test"], range(lag, lag + 1), seed=2)
        ways = {f"{name}, {lag}": kinds[name] for name in names}
        models = at.each(
            ways,
            "classify",
            train,
            "lstm-classifier",
            {**fixed, "train.batch_tokens": 32 * (lag + 1)},
        )
        for name, each in zip(names, models.values(), strict=True):
            known[name].append([right(model, test) for model in each])
            shares[name].append([on_the_first(model, test[:20]) for model in each])
    gains = [
        [minus(each[cell][-1], each["tanh RNN"][-1]) for cell in names[1:]]
        for each in (known, shares)
    ]
    title, chance = (
        "how often the first letter is known, by the letters since",
        {"baseline: chance": [0.25] * len(since)},
    )
    return Finding(
        {"known": flat(gains[0]), "gradient": flat(gains[1])},
        [
            means(title, since, known, chance),
            means("share of the gradient on the first letter", since, shares),
        ],
        lines(
            "Which letter came first?",
            ("letters read since", "share of right answers"),
            since,
            known,
            chance,
        ),
    )


def cost(at: Settings) -> Finding:
    """C4: weights and CPU time of layers of the same size."""
    chosen = at.sizes("C4")
    sizes, length, rows = chosen["units"], chosen["length"], 16
    results: dict[str, list[list[float]]] = {
        "weights": [],
        "time, by the equations": [],
        "time, by torch's kernels": [],
    }

    def by_steps(
        step: Callable[..., Tensor | tuple[Tensor, ...]], layer: Recurrence, x: Tensor
    ) -> None:
        state = layer.start(rows)
        for x_t in x.unbind(1):
            after = step(x_t, *state, layer.W, layer.U, layer.b)
            state = after if isinstance(after, tuple) else (after,)
        state[0].sum().backward()

    def by_kernel(layer: Recurrence, x: Tensor) -> None:
        layer(x, layer.start(rows))[0].sum().backward()

    for size in sizes:
        x = torch.randn(rows, length, size)
        lstm, gru, other = (
            Recurrence(kind, size, size, name="") for kind in ("lstm", "gru", "gru-torch")
        )
        works = [partial(by_steps, gru_step, gru, x), partial(by_steps, lstm_step, lstm, x)]
        taken = timed(
            [*works, *(partial(by_kernel, layer, x) for layer in (other, lstm))],
            rounds=chosen["rounds"],
        )
        weights = [float(layer.W.numel() + layer.U.numel()) for layer in (gru, lstm)]
        for each, pair in zip(results.values(), (weights, taken[:2], taken[2:]), strict=True):
            each.append([pair[0] / pair[1]])
    places = list(map(str, sizes))
    return Finding(
        dict(zip(("weights", "steps", "kernels"), map(flat, results.values()), strict=True)),
        [means("GRU over LSTM, by the number of units", places, results)],
        lines(
            "A GRU layer over an LSTM layer",
            ("units", "ratio"),
            places,
            results,
            {"no less": [1.0] * len(sizes)},
        ),
    )


def directions(at: Settings) -> Finding:
    """C5: as many weights in one direction as in both: 2 d units twice need 12 d² numbers a gate, and 3 d as well."""
    sizes = at.sizes("C5")
    labelling, tagging = at.recipes("C5")
    held_out, train = named(at)
    fields = at.file("fields.conll", as_conll(date_fields(sizes["train"], seed=1)))
    test = at.file("test.conll", as_conll(date_fields(sizes["test"], seed=2)))
    size = sizes["units"]
    one = {"model.encoder.bidirectional": "false", "model.encoder.size": 3 * size}
    both = {"model.encoder.bidirectional": "true", "model.encoder.size": 2 * size}
    ways = {"fields, forward": one, "fields, both directions": both}
    tagged = at.each(ways, "tag", fields, "bilstm-tagger", tagging, test)
    ways = {"languages, forward": one, "languages, both directions": both}
    labelled = at.each(ways, "classify", train, "lstm-classifier", labelling, held_out)
    results = scores(tagged, "accuracy") | scores(labelled, "accuracy")
    tags, more_tags, labels, more_labels = results.values()
    return Finding(
        {"tags": minus(more_tags, tags), "labels": minus(more_labels, labels)},
        [
            scored("fields of dates", tagged, "accuracy"),
            scored("language of names", labelled, "accuracy"),
        ],
        bars("One direction, and both with as many weights", "accuracy", results),
    )


def kept_bytes(length: int) -> float:
    """What an LSTM layer of 64 units keeps for the way back through one sequence, besides its weights."""
    layer, kept = Recurrence("lstm", 64, 64, name=""), list[Tensor]()

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with saved_tensors_hooks(keep, lambda x: x):
        layer(torch.randn(1, length, 64), layer.start(1))
    sizes = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in kept}
    weights = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    return float(sum(size for place, size in sizes.items() if place not in weights))


def truncation(at: Settings) -> Finding:
    """C15: the gradient is cut after few steps or many, with as many letters in each batch."""
    sizes = at.sizes("C15")
    fixed = at.recipe("C15")
    chunks, tokens = sizes["chunks"], sizes["batch_tokens"]
    drawn = words(sizes["words"], range(1, 2), seed=1, letters="abcdefgh")
    texts = {"manual": manual()[: sizes["letters"]]}
    texts["recall"] = "".join(f"{key}{'.' * sizes['dots']}{key} " for key in drawn)
    models = dict[str, dict[str, list[Model]]]()
    for what, text in texts.items():
        ways = {
            f"{what}, {n} steps": {"train.bptt": n, "train.batch_rows": tokens // n} for n in chunks
        }
        models[what] = at.each(ways, "lm", at.file(f"{what}.txt", text), "char-lstm", fixed)
    results = {what: list(scores(each, "loss").values()) for what, each in models.items()}
    places = list(map(str, chunks))
    memory = [kept_bytes(n) for n in chunks]
    title = "bytes that a layer of 64 units keeps of one sequence, by the steps of a chunk"
    return Finding(
        {what: minus(each[0], each[-1]) for what, each in results.items()}
        | {"memory": [memory[0] / memory[-1]]},
        [
            *(scored(what, each, "loss") for what, each in models.items()),
            means(title, places, {}, {"": memory}),
        ],
        lines(
            "Where the gradient is cut",
            ("steps of a chunk", "held-out nats a letter"),
            places,
            results,
        ),
    )


def readable(at: Settings) -> Finding:
    """C18: units that follow quotes and the place in the line, chosen in one text and tested in another."""
    sizes = at.sizes("C18")
    text, num = manual(), sizes["read"]
    train = at.file("manual.txt", text[: sizes["train"]])
    read = (text[-16_000:], text[-8000:])
    fixed = at.recipe("C18")
    models = at.each(
        {"trained": {}, "baseline: untrained": UNTRAINED}, "lm", train, "char-lstm", fixed
    )

    def follows(model: Model, what: str) -> float:
        """How well the unit that follows something best in one text follows it in the other."""
        subjects = [subject(model.bundle, text[:num]) for text in read]
        traces = [
            (states(each.trace(), list(each.written)), marks(list(each.written), None)[what])
            for each in subjects
        ]
        best = best_units(traces[0][0], {what: traces[0][1]}, most=1)[0]
        unit = {best.layer: traces[1][0][best.layer][:, best.unit : best.unit + 1]}
        score = best_units(unit, {what: traces[1][1]})[0].score
        return abs(score - 0.5) * 2 if what == "quotes" else abs(score)

    whats = ("quotes", "place in line")
    results = {
        f"{what}, {name}": [follows(run, what) for run in each]
        for what in whats
        for name, each in models.items()
    }
    title = "how well the unit that is best in one text follows it in another"
    return Finding(
        {"quotes": results["quotes, trained"], "place": results["place in line, trained"]},
        [spread(title, results), scored("language model", models, "loss")],
        bars(
            "How well a unit follows quotes and the place in the line",
            "0: by chance, 1: perfectly",
            results,
        ),
    )


def lstm_or_gru(at: Settings) -> Finding:
    """C21: as many weights in both: 4 h (h + d) in an LSTM, 3 h (h + d) in a GRU of more units."""
    sizes = at.sizes("C21")
    labelling, tagging, writing = at.recipes("C21")
    held_out, train = named(at)
    fields = at.file("fields.conll", as_conll(date_fields(sizes["train"], seed=1)))
    first = at.file("first.tsv", keys(sizes["first"], range(1, sizes["longest"]), seed=1))
    text = at.file("manual.txt", manual()[: sizes["letters"]])
    trainings: dict[str, tuple[str, tuple[str, Path, str, dict[str, object], Path | None]]] = {
        "language model": ("decoder", ("lm", text, "char-lstm", writing, None)),
        "language of names": (
            "encoder",
            ("classify", train, "lstm-classifier", labelling, held_out),
        ),
        "fields of dates": ("encoder", ("tag", fields, "bilstm-tagger", tagging, None)),
        "which letter came first": (
            "encoder",
            ("classify", first, "lstm-classifier", labelling, None),
        ),
    }
    gains, tables = dict[str, list[float]](), []
    for name, (side, training) in trainings.items():
        lstm = {f"model.{side}.kind": "lstm", f"model.{side}.size": sizes["lstm_units"]}
        gru = {f"model.{side}.kind": "gru-torch", f"model.{side}.size": sizes["gru_units"]}
        models = at.each({f"{name}, LSTM": lstm, f"{name}, GRU": gru}, *training)
        gains[name] = minus(*scores(models, "loss").values())
        tables.append(scored(name, models, "loss"))
    lstm_wins, gru_wins = (
        sum(max(v) <= -WIN for v in gains.values()),
        sum(min(v) >= WIN for v in gains.values()),
    )
    return Finding(
        {"lstm": [float(lstm_wins)], "gru": [float(gru_wins)]},
        [spread("nats by which the LSTM's loss is above the GRU's", gains), *tables],
        bars("Loss of the LSTM above the GRU's", "nats; to the left the LSTM is better", gains),
    )
