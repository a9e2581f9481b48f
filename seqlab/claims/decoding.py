"""Searching: what a beam finds that greedy does not (C12), and what exhaustive search finds that a beam does not (C23)."""

import random
from statistics import fmean
from typing import Any

from seqlab.claims.claim import Chart, Claim, Criterion, Finding, Line, Settings, Table
from seqlab.data.synthetic import split_dates
from seqlab.model import Model


def likelihoods(model: Model, given: list[str], **decode: Any) -> list[float]:
    """The log-probability of each answer, by the sum, so that nothing but likelihood ranks them."""
    return [answer.details["log_probability"] for answer in model.predict(given, length_penalty=0.0, **decode)]


def _beams(at: Settings) -> Finding:
    train, test = split_dates(at.pick(40_000, 6000, 60), at.pick(500, 150, 5), seed=1)
    data, given = at.file("train.tsv", [row[:2] for row in train]), [text for text, _, _ in test]
    beams = at.pick((2, 4, 8, 16, 64), (2, 4, 16, 64), (2, 4))
    change = {"train.steps": at.pick(1200, 300, 3), "model.encoder.size": at.pick(96, 64, 8), "model.decoder.size": at.pick(96, 64, 8)}
    for seed in at.seeds:
        model = at.trained("dates", "translate", data, "dates", change, seed=seed)
        greedy = likelihoods(model, given, method="greedy")
        print("greedy", fmean(greedy), model.metrics["validation"]["exact"])
        for k in beams:
            found = likelihoods(model, given, beam=k)
            right = fmean(a.output == iso for a, (_, iso, _) in zip(model.predict(given, beam=k, length_penalty=0.0), test, strict=True))
            print(k, fmean(found), fmean(a > b + 1e-4 for a, b in zip(found, greedy)), fmean(a < b - 1e-4 for a, b in zip(found, greedy)), right)
    return Finding(values={}, tables=[], chart=Chart(title="", titles=("", "")))


def _exhaustive(at: Settings) -> Finding:
    import time
    letters, length = "abcd", at.pick(8, 7, 4)
    keyed = random.Random(1)
    odds = {a + b: [keyed.random() ** 3 for _ in letters] for a in letters for b in letters}

    def word() -> str:
        said = keyed.choice(letters) + keyed.choice(letters)
        while len(said) < length:
            said += keyed.choices(letters, odds[said[-2:]])[0]
        return said

    data = at.file("train.txt", "".join(word() + "\n" for _ in range(at.pick(20_000, 3000, 40))))
    prompts = [a + b for a in letters for b in letters]
    change = {"data.unit": "line", "model.decoder.size": 32, "model.embedding": 16, "model.dropout": 0.0, "train.average": "none", "train.steps": at.pick(800, 150, 3), "train.batch_tokens": 512, "train.learning_rate": 1e-2, "train.warmup": 20}
    for seed in at.seeds:
        model = at.trained("words", "lm", data, "char-lstm", change, seed=seed)
        print(model.metrics["validation"])
        for way in ({"method": "greedy"}, {"beam": 2}, {"beam": 4}, {"beam": 16}, {"beam": len(letters) ** (length - 2)}):
            a = time.process_time()
            found = likelihoods(model, prompts, max_length=length - 1, **way)
            print(way, [round(v, 2) for v in found], round(time.process_time() - a, 3))
    return Finding(values={}, tables=[], chart=Chart(title="", titles=("", "")))
