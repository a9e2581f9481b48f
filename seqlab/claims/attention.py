"""Attention: the bottleneck it removes (C6, C7), order (C8, C24), scale (C9), heads (C10), and distance (C11, C20)."""

import math
import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from seqlab.claims.claim import Chart, Claim, Criterion, Finding, Line, Settings, Table, accuracies
from seqlab.claims.material import NAMES, Pair, named, words
from seqlab.equations.attention import dot_score, scaled_score, self_attention
from seqlab.equations.recurrent import rnn_step
from seqlab.explain.attention import attention_maps
from seqlab.explain.subject import subject
from seqlab.model import Model

LETTERS = {"source.kind": "characters", "target.kind": "characters", "decode.max_length": 60, "data.max_validation": 400}
QUIET = {"model.dropout": 0.0, "train.average": "none", "train.warmup": 20}


def sentences(num: int, phrases: range, *, seed: int) -> Iterator[Pair]:
    """Sentences of a made-up language and their translations: every word has its own, and nouns come first."""
    keyed, words = random.Random(seed), random.Random(0)
    lexicon = [
        [("".join(words.choices("bdgklmnprst", k=2)) + ending, "".join(words.choices("fhjvwxz", k=2)) + "aeo"[part])
         for _ in range(10)]
        for part, ending in enumerate(("i", "u"))
    ]
    for _ in range(num):
        said = [[keyed.choice(part) for part in lexicon] for _ in range(keyed.choice(phrases))]
        source = " ".join(word for phrase in said for word, _ in phrase)
        yield source, " ".join(phrase[place][1] for phrase in said for place in (1, 0))


def _bottleneck(at: Settings) -> Finding:
    train = at.file("train.tsv", sentences(at.pick(20_000, 6000, 40), range(1, 16), seed=1))
    test = at.file("test.tsv", sentences(at.pick(1000, 300, 20), range(1, 16), seed=2))
    size = at.pick(128, 64, 8)
    fixed: dict[str, object] = {**QUIET, "source.kind": "words", "target.kind": "words", "shared": "false", "decode.max_length": 40}
    fixed |= {"model.embedding": 32, "model.encoder.size": size, "model.decoder.size": size, "decode.method": "greedy"}
    fixed |= {"train.steps": at.pick(3000, 300, 3), "train.batch_tokens": at.pick(1024, 768, 60), "train.learning_rate": at.pick(3e-3, 6e-3, 6e-3), "train.optimizer": "muon"}
    found = {}
    for name, recipe in {"without attention": "seq2seq", "with attention": "dot-attention"}.items():
        models = [at.trained(name, "translate", train, recipe, fixed, seed=seed) for seed in at.seeds]
        found[name] = [{length: row["bleu"] for length, row in model.evaluate(test).by_length.items()} for model in models]
        print(name, models[0].metrics["validation"], found[name])
    lengths = list(found["with attention"][0])
    fall = {name: [each[lengths[0]] - each[lengths[-1]] for each in seeds] for name, seeds in found.items()}
    return Finding(values={"without": fall["without attention"], "with": fall["with attention"]}, tables=[], chart=Chart(title="", titles=("", "")))


def _ends(at: Settings) -> Finding:
    length = at.pick(12, 8, 4)
    letters = "abcdefgh"
    fixed: dict[str, object] = {**LETTERS, **QUIET, "model.embedding": 16, "model.encoder.bidirectional": "false", "model.context": "first"}
    fixed |= {"model.encoder.size": at.pick(128, 64, 8), "model.decoder.size": at.pick(128, 64, 8)}
    fixed |= {"train.steps": at.pick(3000, 300, 3), "train.batch_tokens": 512, "train.optimizer": "muon", "train.learning_rate": 6e-3}
    rows = list(words(at.pick(40_000, 10_000, 50), range(length, length + 1), seed=1, letters=letters))
    test = list(words(at.pick(1000, 300, 10), range(length, length + 1), seed=2, letters=letters))
    found = {}
    for cell in ("rnn", "lstm"):
        for order in (1, -1):
            train = at.file(f"train{order}.tsv", [(word, word[::order]) for word in rows])
            change = fixed | {"model.encoder.kind": cell, "model.decoder.kind": "lstm"}
            for seed in at.seeds:
                model = at.trained(f"{cell} {order}", "translate", train, "dates", change, seed=seed)
                said = [a.output.ljust(length, "?")[:length][::order] for a in model.predict(test)]
                found[cell, order, seed] = [fmean(a[i] == b[i] for a, b in zip(said, test, strict=True)) for i in range(length)]
                print(cell, order, [round(v, 2) for v in found[cell, order, seed]])
    return Finding(values={}, tables=[], chart=Chart(title="", titles=("", "")))


def marked(num: int, lengths: range, *, seed: int) -> Iterator[Pair]:
    """Rows with one a and one b among other letters, and which of the two comes first."""
    keyed = random.Random(seed)
    for row in words(num, lengths, seed=seed, letters="vwxyz"):
        one, other = sorted(keyed.sample(range(len(row)), 2))
        first, second = keyed.choice(("ab", "ba"))
        yield first, row[:one] + first + row[one + 1 : other] + second + row[other + 1 :]


def _order(at: Settings) -> Finding:
    size = at.pick(64, 32, 8)
    lengths = range(4, 21)
    train, test = at.file("train.tsv", marked(at.pick(20_000, 5000, 60), lengths, seed=1)), at.file("test.tsv", marked(at.pick(1000, 400, 20), lengths, seed=2))
    backwards = [at.file(f"{part}back.tsv", [(w, w[::-1]) for w in words(num, lengths, seed=seed, letters="abcdefgh")]) for part, num, seed in (("train", at.pick(20_000, 5000, 60), 1), ("test", at.pick(1000, 300, 20), 2))]
    fixed: dict[str, object] = {**NAMES, **QUIET, "model.pooling": "mean", "model.encoder.kind": "transformer", "model.encoder.size": size, "model.encoder.layers": 2, "data.max_source": 100}
    fixed |= {"train.steps": at.pick(1500, 200, 3), "train.batch_tokens": 1024, "train.learning_rate": 3e-3}
    both: dict[str, object] = {**LETTERS, **QUIET, "shared": "false", "model.encoder.size": size, "model.decoder.size": size, "model.encoder.layers": 2, "model.decoder.layers": 2, "decode.method": "greedy"}
    both |= {"train.steps": at.pick(3000, 250, 3), "train.batch_tokens": 768, "train.learning_rate": 6e-3, "train.label_smoothing": 0.0}
    for kind in ("none", "sinusoidal", "learned"):
        for seed in at.seeds:
            m = at.trained(f"marks {kind}", "classify", train, "lstm-classifier", fixed | {"model.encoder.positions": kind}, seed=seed, valid=test)
            n = at.trained(f"back {kind}", "translate", backwards[0], "transformer-tiny", both | {"model.encoder.positions": kind, "model.decoder.positions": kind}, seed=seed, valid=backwards[1])
            print(kind, m.metrics["validation"]["accuracy"], n.metrics["validation"]["exact"], n.metrics["validation"]["loss"], m.metrics["seconds"], n.metrics["seconds"])
    return Finding(values={}, tables=[], chart=Chart(title="", titles=("", "")))
