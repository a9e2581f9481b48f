"""What a model learns from text without labels: language models before classifiers (C13), and ELMo's features (C19)."""

import random
from collections import defaultdict
from collections.abc import Iterator
from statistics import fmean

import numpy as np
import torch

from seqlab.assemble.model import embedding_of
from seqlab.assemble.vocabularies import padded
from seqlab.claims.claim import Chart, Claim, Criterion, Finding, Line, Settings, Table, accuracies
from seqlab.claims.material import NAMES, Pair, as_conll, names
from seqlab.model import Model


def _few_labels(at: Settings) -> Finding:
    rows, size = names(1), at.pick(128, 64, 8)
    num = at.pick(1500, 500, 30)
    test, rest = at.file("test.tsv", rows[:num]), rows[num:]
    text = at.file("text.txt", "".join(f"{name}\n" for _, name in rest[: at.pick(None, None, 60)]))
    counts = at.pick((50, 200, 800, 3200), (50, 200, 800), (20, 40))
    lm: dict[str, object] = {"target.kind": "characters", "target.lower": "false", "model.embedding": 32, "model.decoder.size": size, "model.dropout": 0.0}
    lm |= {"train.steps": at.pick(3000, 400, 3), "train.batch_tokens": 1024, "train.learning_rate": 5e-3, "train.warmup": 20}
    fixed: dict[str, object] = {**NAMES, "model.pooling": "mean", "model.dropout": 0.2, "train.steps": at.pick(400, 150, 2), "train.batch_tokens": 1024, "train.learning_rate": 5e-3}
    for seed in at.seeds:
        before = at.trained("language model", "lm", text, "word-lstm", lm, seed=seed)
        print(before.metrics["validation"], before.metrics["seconds"])
        for count in counts:
            few = at.file(f"few{count}.tsv", rest[:count])
            anew = at.trained(f"anew {count}", "classify", few, "tuned-classifier", fixed | {"model.embedding": 32, "model.encoder.size": size, "train.encoder_rate": 1.0}, seed=seed, valid=test)
            tuned = at.trained(f"tuned {count}", "classify", few, "tuned-classifier", {k: v for k, v in fixed.items() if not k.startswith("source.")}, seed=seed, valid=test, start=before)
            print(count, [m.metrics["validation"]["accuracy"] for m in (anew, tuned)], anew.metrics["validation"]["floors"], [m.metrics["seconds"] for m in (anew, tuned)])
    return Finding(values={}, tables=[], chart=Chart(title="", titles=("", "")))


def ambiguous(num: int, *, seed: int) -> Iterator[list[Pair]]:
    """Sentences of a made-up language: classes of words that follow each other by chance, and half of all words in two."""
    made, keyed = random.Random(0), random.Random(seed)
    kinds = "ABCDEF"
    words = {kind: ["".join(made.choices("bdgklmnprstaeiou", k=5)) for _ in range(20)] for kind in kinds}
    for kind in kinds:
        other = made.choice([each for each in kinds if each != kind])
        words[kind] += words[other][:10]
    moves = {kind: [made.random() ** 4 for _ in kinds] for kind in kinds}
    for _ in range(num):
        kind, sentence = keyed.choice(kinds), []
        for _ in range(keyed.randint(5, 15)):
            sentence.append((keyed.choice(words[kind]), kind))
            kind = keyed.choices(kinds, moves[kind])[0]
        yield sentence


def _contexts(at: Settings) -> Finding:
    sentences = list(ambiguous(at.pick(10_000, 3000, 60), seed=1))
    text = at.file("text.txt", "".join(" ".join(word for word, _ in each) + "\n" for each in sentences))
    few = at.file("few.conll", as_conll(sentences[: at.pick(50, 50, 20)]))
    test = at.file("test.conll", as_conll(ambiguous(at.pick(500, 200, 10), seed=2)))
    size = at.pick(128, 64, 8)
    elmo: dict[str, object] = {"model.embedding": size, "model.encoder.size": size, "model.dropout": 0.1, "train.steps": at.pick(2000, 300, 2), "train.batch_tokens": 1024, "train.learning_rate": 5e-3, "train.warmup": 20}
    tagger: dict[str, object] = {"model.embedding": size, "model.encoder.size": at.pick(64, 32, 8), "model.encoder.layers": 1, "train.steps": at.pick(300, 120, 2), "train.batch_tokens": 512, "train.average": "none", "train.warmup": 20, "train.learning_rate": 5e-3}
    for seed in at.seeds:
        before = at.trained("elmo", "bilm", text, "elmo", elmo, seed=seed)
        print(before.metrics["validation"], before.metrics["seconds"])
        weight, tokens = embedding_of(before.bundle.model).weight.tolist(), before.bundle.vocabularies.sources.vocabulary
        path = at.file("static.vec", "".join(f"{word} {' '.join(f'{v:.5f}' for v in row)}\n" for word, row in list(zip(tokens, weight, strict=True))[6:]))
        words = {"source.min_count": 1}
        runs = {
            "anew": at.trained("anew", "tag", few, "tuned-tagger", tagger | words, seed=seed, valid=test),
            "static": at.trained("static", "tag", few, "tuned-tagger", tagger | words | {"model.vectors": path}, seed=seed, valid=test),
            "elmo": at.trained("contextual", "tag", few, "tuned-tagger", tagger, seed=seed, valid=test, start=before),
        }
        for name, m in runs.items():
            print(name, m.metrics["validation"]["accuracy"], m.metrics["validation"]["floors"], m.metrics["seconds"])
    return Finding(values={}, tables=[], chart=Chart(title="", titles=("", "")))
