"""Searching: what a beam finds that greedy does not (C12), and what all hypotheses find that a beam does not (C23)."""

import random
import time
from statistics import fmean
from typing import Any

from seqlab.data.synthetic import split_dates
from seqlab.model import Model
from seqlab_claims.claim import Finding, Row, Table
from seqlab_claims.settings import Settings, lines, minus, over, spread

SLACK = 1e-4  # nats: what is nearer is the same


def likelihoods(model: Model, texts: list[str], **decode: Any) -> list[float]:
    """The log-probability of each answer; a beam ranks by it alone."""
    return [
        answer.details["log_probability"]
        for answer in model.predict(texts, length_penalty=0.0, **decode)
    ]


def beams(at: Settings) -> Finding:
    """C12: dates, decoded by a model that is not sure of them."""
    sizes = at.sizes("C12")
    train, test = split_dates(sizes["train"], sizes["test"], seed=1)
    data = at.file("train.tsv", [row[:2] for row in train])
    texts = [text for text, _, _ in test]
    widths = sizes["widths"]
    change = at.recipe("C12")
    gains: dict[str, list[float]] = {"baseline: greedy": [], **{f"beam {k}": [] for k in widths}}
    results: dict[str, list[float]] = {
        "likelier than greedy": [],
        "less likely": [],
        "not the likeliest known": [],
    }
    for seed in at.seeds:
        model = at.trained("dates", "translate", data, "dates", change, seed=seed)
        ways = {"baseline: greedy": likelihoods(model, texts, method="greedy")}
        ways |= {f"beam {k}": likelihoods(model, texts, beam=k) for k in widths}
        for name, each in ways.items():
            gains[name].append(fmean(minus(each, ways["baseline: greedy"])))
        best, four = list(map(max, *ways.values())), minus(ways["beam 4"], ways["baseline: greedy"])
        results["likelier than greedy"].append(fmean(gain > SLACK for gain in four))
        results["less likely"].append(fmean(gain < -SLACK for gain in four))
        results["not the likeliest known"].append(
            fmean(gap > SLACK for gap in minus(best, ways["beam 4"]))
        )
    return Finding(
        {"gain": gains["beam 4"], "missed": results["not the likeliest known"]},
        [
            spread("nats by which it is likelier than greedy's", gains),
            spread("the answers of a beam of 4", results),
        ],
        lines(
            "Likelier than greedy",
            ("width of the beam", "nats"),
            map(str, (1, *widths)),
            {"": list(gains.values())},
        ),
    )


def exhaustive(at: Settings) -> Finding:
    """C23: all words that a small language model can write."""
    sizes = at.sizes("C23")
    letters, length = "abcd", sizes["length"]
    keyed = random.Random(1)
    odds = {a + b: [keyed.random() ** 3 for _ in letters] for a in letters for b in letters}

    def word() -> str:
        text = keyed.choice(list(odds))
        while len(text) < length:
            text += keyed.choices(letters, odds[text[-2:]])[0]
        return text

    data = at.file("train.txt", "".join(f"{word()}\n" for _ in range(sizes["train"])))
    change = at.recipe("C23")
    kept = {
        "greedy": 1,
        "beam 2": 2,
        "beam 4": 4,
        "beam 16": 16,
        "exhaustive": len(letters) ** (length - 2),
    }
    gaps, taken = (
        {name: list[list[float]]() for name in kept},
        {name: list[float]() for name in kept},
    )
    for seed in at.seeds:
        model, results = (
            at.trained("words", "lm", data, "char-lstm", change, seed=seed),
            dict[str, list[float]](),
        )
        for name, width in kept.items():
            began, way = (
                time.process_time(),
                {"method": "greedy"} if name == "greedy" else {"beam": width},
            )
            results[name] = likelihoods(model, list(odds), max_length=length - 1, **way)
            taken[name].append(time.process_time() - began)
        for name, each in results.items():
            gaps[name].append(minus(results["exhaustive"], each))
    below = {name: [fmean(row) for row in rows] for name, rows in gaps.items()}
    missed = {
        name: [fmean(gap > SLACK for gap in row) for row in rows] for name, rows in gaps.items()
    }
    facts = (taken, below, missed)
    rows: list[Row] = [
        (name, width, *(fmean(each[name]) for each in facts)) for name, width in kept.items()
    ]
    header = ("", "hypotheses kept", "CPU seconds", "nats below the best", "how often")
    axes, widths = (
        ("hypotheses kept", "nats below the best"),
        [f"{width:,}" for width in kept.values()],
    )
    return Finding(
        {
            "time": over(taken["beam 4"], taken["exhaustive"]),
            "gap": below["beam 4"],
            "greedy": missed["greedy"],
        },
        [Table(f"words of {length} letters, from each pair of letters on", header, rows)],
        lines("How far a search stays below the best", axes, widths, {"": list(below.values())}),
    )
