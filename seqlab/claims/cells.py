"""Recurrent layers: what they remember (C3, C18), cost (C4, C11), need (C5, C15), and which is best (C21)."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

import torch
from torch import Tensor

from seqlab.claims.claim import Chart, Claim, Criterion, Finding, Line, Settings, Table, accuracies
from seqlab.claims.material import NAMES, as_conll, date_fields, manual, named, words
from seqlab.equations.recurrent import gru_step, lstm_step
from seqlab.explain.cells import followers, marks, states
from seqlab.explain.gradients import gradient_flow
from seqlab.explain.subject import subject
from seqlab.layers.recurrence import Recurrence
from seqlab.model import Model
from seqlab.recipe import Cell

CELLS: dict[str, Cell] = {"tanh RNN": "rnn", "LSTM": "lstm", "GRU": "gru-torch"}


def _lags(at: Settings) -> Finding:
    lags = at.pick((10, 25, 50, 100, 200), (5, 15, 30, 60), (2, 5))
    rows = [(word[0], word) for word in words(at.pick(40_000, 8000, 100), range(1, lags[-1] + 1), seed=1, letters="abcd")]
    train, size = at.file("train.tsv", rows), at.pick(64, 32, 4)
    tests = {n: list(words(at.pick(500, 200, 5), range(n, n + 1), seed=n, letters="abcd")) for n in lags}
    fixed: dict[str, object] = {**NAMES, "model.embedding": 8, "model.encoder.size": size, "data.max_source": 1000}
    fixed |= {"train.steps": at.pick(3000, 250, 3), "train.batch_tokens": at.pick(4096, 2048, 64)}
    fixed |= {"train.learning_rate": at.pick(3e-3, 1e-2, 1e-2)}

    def right(model: Model, given: Sequence[str]) -> float:
        said = model.predict(given)
        return fmean(answer.output == word[0] for answer, word in zip(said, given, strict=True))

    def share(model: Model, given: str) -> float:
        """Of the gradient at the last step, what arrives at the first."""
        norms = gradient_flow(subject(model.bundle, given)).last[0]
        return float(norms[0] / norms[-1])

    found, left = {}, {}
    for name, kind in CELLS.items():
        change = fixed | {"model.encoder.kind": kind}
        models = [at.trained(name, "classify", train, "lstm-classifier", change, seed=seed) for seed in at.seeds]
        found[name] = [[right(model, tests[n]) for model in models] for n in lags]
        left[name] = [median(share(model, given) for given in tests[lags[-1]][:20]) for model in models]
    far = {name: rows[-1] for name, rows in found.items()}
    return Finding(
        values={
            "LSTM": [a - b for a, b in zip(far["LSTM"], far["tanh RNN"], strict=True)],
            "GRU": [a - b for a, b in zip(far["GRU"], far["tanh RNN"], strict=True)],
        },
        tables=[
            Table(
                title="how often the first letter is known after so many, and the gradient that arrives there",
                header=("cell", *map(str, lags), f"gradient after {lags[-1]}"),
                rows=[(name, *map(fmean, rows), fmean(left[name])) for name, rows in found.items()]
                + [("floor: chance", *[0.25] * len(lags), "")],
            )
        ],
        chart=Chart(
            title="Which letter came first?",
            titles=("letters read since", "share of right answers"),
            lines=[Line(label=name, x=list(map(float, lags)), y=rows) for name, rows in found.items()],
        ),
    )


def _cost(at: Settings) -> Finding:
    sizes, length, rows = at.pick((64, 128, 256, 512), (64, 256), (4,)), at.pick(64, 32, 4), 16

    def by_steps(step: Callable[..., object], layer: Recurrence, x: Tensor) -> Callable[[], None]:
        def run() -> None:
            state = layer.start(rows)
            for x_t in x.unbind(1):
                after = step(x_t, *state, layer.W, layer.U, layer.b)
                state = after if isinstance(after, tuple) else (after,)
            state[0].sum().backward()
        return run

    def fused(layer: Recurrence, x: Tensor) -> Callable[[], None]:
        return lambda: layer(x, layer.start(rows))[0].sum().backward()

    weights, ratios = [], {"step by step": [], "torch's kernel": []}
    for size in sizes:
        x = torch.randn(rows, length, size)
        lstm, gru, other = (Recurrence(kind, size, size, name="") for kind in ("lstm", "gru", "gru-torch"))
        weights.append((gru.W.numel() + gru.U.numel()) / (lstm.W.numel() + lstm.U.numel()))
        taken = timed([by_steps(lstm_step, lstm, x), by_steps(gru_step, gru, x), fused(lstm, x), fused(other, x)], rounds=at.pick(15, 9, 1))
        ratios["step by step"].append(taken[1] / taken[0])
        ratios["torch's kernel"].append(taken[3] / taken[2])
    return Finding(values={"weights": weights, "steps": ratios["step by step"], "kernel": ratios["torch's kernel"]}, tables=[], chart=Chart(title="", titles=("", "")))


def timed(works: Sequence[Callable[[], object]], *, rounds: int) -> list[float]:
    """Seconds of each work: the shortest of several rounds in which they take turns, as others use the machine too."""
    best = [float("inf")] * len(works)
    for work in works:
        work()  # to warm up
    for _ in range(rounds):
        for place, work in enumerate(works):
            began = time.process_time()
            work()
            best[place] = min(best[place], time.process_time() - began)
    return best


def _directions(at: Settings) -> Finding:
    """As many weights in both: h = 2 d in each of two directions need 12 d^2 for each gate, h = 3 d in one as well."""
    size = at.pick(32, 16, 4)
    tags = {part: at.file(f"{part}.conll", as_conll(date_fields(num, seed=seed))) for part, num, seed in (("train", at.pick(20_000, 4000, 60), 1), ("test", at.pick(1000, 500, 20), 2))}
    held_out, train = named(at)
    fixed: dict[str, object] = {"model.embedding": size, "model.dropout": 0.0, "model.encoder.layers": 1, "train.average": "none", "train.warmup": 20, "train.learning_rate": 1e-2}
    fixed |= {"train.steps": at.pick(1500, 200, 3)}
    ways = {"forward": {"model.encoder.bidirectional": "false", "model.encoder.size": 3 * size}, "both directions": {"model.encoder.bidirectional": "true", "model.encoder.size": 2 * size}}
    tagged, named_ = {}, {}
    for name, way in ways.items():
        tagged[name] = [at.trained(f"tag {name}", "tag", tags["train"], "bilstm-tagger", {**fixed, **way, "source.min_count": 1, "train.batch_tokens": 1024}, seed=seed, valid=tags["test"]) for seed in at.seeds]
        named_[name] = [at.trained(f"name {name}", "classify", train, "lstm-classifier", {**NAMES, **fixed, **way, "train.batch_tokens": 1024}, seed=seed, valid=held_out) for seed in at.seeds]
    scores = [{name: [m.metrics["validation"]["accuracy"] for m in each] for name, each in part.items()} for part in (tagged, named_)]
    floors = [part["forward"][0].metrics["validation"]["floors"] for part in (tagged, named_)]
    gains = [[b - a for a, b in zip(*part.values(), strict=True)] for part in scores]
    return Finding(values={"tags": gains[0], "names": gains[1]}, tables=[accuracies("fields of dates", scores[0], floors[0]), accuracies("language of names", scores[1], floors[1])], chart=Chart(title="", titles=("", "")))
