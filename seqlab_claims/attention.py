"""Attention: the bottleneck it removes (C6, C7), order (C8, C24), scale (C9), and heads (C10)."""

import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import fmean

import numpy as np
import torch
from jaxtyping import Float
from torch.linalg import vector_norm

from seqlab.equations.attention import dot_score, scaled_score
from seqlab.explain.attention import attention_maps
from seqlab.model import Model
from seqlab.tasks import subject
from seqlab_claims.claim import Finding
from seqlab_claims.material import UNTRAINED, Pair, as_conll, named, names, words
from seqlab_claims.settings import (
    Settings,
    bars,
    lines,
    means,
    minus,
    over,
    right,
    scored,
    scores,
    spread,
    turned,
)


def sentences(num: int, kinds: int, *, seed: int) -> Iterator[Pair]:
    """Sentences of a made-up language and their translations: every word has its own, and nouns come first."""
    keyed = random.Random(seed)
    for _ in range(num):
        phrases = [
            (keyed.randrange(kinds), keyed.randrange(kinds)) for _ in range(keyed.randint(1, 15))
        ]
        yield (
            " ".join(f"adj{a} noun{n}" for a, n in phrases),
            " ".join(f"nom{n} qual{a}" for a, n in phrases),
        )


def bottleneck(at: Settings) -> Finding:
    """C6: translation by length, without and with attention."""
    sizes = at.sizes("C6")
    fixed = at.recipe("C6")
    train = at.file("train.tsv", sentences(sizes["train"], sizes["kinds"], seed=1))
    test = at.file("test.tsv", sentences(sizes["test"], sizes["kinds"], seed=2))
    models = at.each({"without attention": {}}, "translate", train, "seq2seq", fixed, test)
    models |= at.each({"with attention": {}}, "translate", train, "dot-attention", fixed, test)
    tables = {
        name: [run.metrics["validation"]["by_length"] for run in each]
        for name, each in models.items()
    }
    lengths = list(tables["with attention"][0])
    results = {
        name: [[each[n]["bleu"] for each in seeds] for n in lengths]
        for name, seeds in tables.items()
    }
    return Finding(
        {name.split()[0]: over(rows[-1], rows[0]) for name, rows in results.items()},
        [
            means("BLEU by words of the source", lengths, results),
            scored("all lengths", models, "bleu"),
        ],
        lines(
            "Quality of translation by length", ("words of the source", "BLEU"), lengths, results
        ),
    )


def both_ends(at: Settings) -> Finding:
    """C7: words that an encoder has read, written as they are and backwards."""
    sizes = at.sizes("C7")
    fixed = at.recipe("C7")
    length, letters = sizes["length"], "abcdefgh"
    exactly = range(length, length + 1)
    rows = list(words(sizes["train"], exactly, seed=1, letters=letters))
    test = list(words(sizes["test"], exactly, seed=2, letters=letters))

    def recall(model: Model, order: int) -> list[float]:
        """How often the letter at each place of the source is right."""
        answers = [
            answer.output.ljust(length, "?")[:length][::order] for answer in model.predict(test)
        ]
        return [
            fmean(a[place] == b[place] for a, b in zip(answers, test, strict=True))
            for place in range(length)
        ]

    results, cells, part = (
        dict[str, list[list[float]]](),
        {"tanh RNN": "rnn", "LSTM": "lstm"},
        length // 4,
    )
    for verb, order in (("copied", 1), ("reversed", -1)):
        train = at.file(f"{verb}.tsv", [(word, word[::order]) for word in rows])
        ways = {f"{cell}, {verb}": {"model.encoder.kind": kind} for cell, kind in cells.items()}
        models = at.each(ways, "translate", train, "dates", fixed)
        results |= {name: [recall(model, order) for model in each] for name, each in models.items()}
    for cell in cells:  # the mean of both orders, seed by seed
        pairs = zip(results[f"{cell}, copied"], results[f"{cell}, reversed"], strict=True)
        results[f"{cell}, mean"] = [[fmean(two) for two in turned(pair)] for pair in pairs]
    gains = [
        fmean(row[-part:]) - fmean(row[:part]) for cell in cells for row in results[f"{cell}, mean"]
    ]
    by_place = {name: turned(each) for name, each in results.items()}
    chance = {"baseline: chance": [1 / len(letters)] * length}
    lstm = {name: each for name, each in by_place.items() if name.startswith("LSTM")}
    axes, places = ("place in the word", "share of right letters"), range(1, length + 1)
    return Finding(
        {"end": gains},
        [
            means(
                "how often the letter is right, by its place in the word", places, by_place, chance
            )
        ],
        lines("What an LSTM encoder keeps of a word", axes, places, lstm, chance),
    )


def marked(num: int, lengths: range, *, seed: int) -> list[Pair]:
    """Which of a and b comes first, and rows with one of each among other letters."""
    keyed, rows = random.Random(seed), list[Pair]()
    for row in words(num, lengths, seed=seed, letters="vwxyz"):
        one, other = sorted(keyed.sample(range(len(row)), 2))
        first, second = keyed.choice(("ab", "ba"))
        rows.append((first, row[:one] + first + row[one + 1 : other] + second + row[other + 1 :]))
    return rows


def repeats(num: int, lengths: range, *, seed: int) -> str:
    """Letters, each with whether it is the one before it again."""
    rows = words(num, lengths, seed=seed, letters="abc")
    return as_conll(
        [(b, "again" if a == b else "other") for a, b in zip(f"-{row}", row, strict=False)]
        for row in rows
    )


def placed(
    at: Settings, kinds: Sequence[str]
) -> tuple[dict[str, list[Model]], dict[str, list[Model]]]:
    """Transformers with these kinds of positions, on two tasks that are all about order, in rows of 4 to 20 letters."""
    sizes, lengths = at.sizes("C8"), range(4, 21)
    reading, tagging = at.recipes("C8")
    parts = {1: sizes["train"], 2: sizes["test"]}
    first = [
        at.file(f"first{seed}.tsv", marked(num, lengths, seed=seed)) for seed, num in parts.items()
    ]
    again = [
        at.file(f"again{seed}.conll", repeats(num, lengths, seed=seed))
        for seed, num in parts.items()
    ]
    ways = [
        {f"{task}, {kind}": {"model.encoder.positions": kind} for kind in kinds}
        for task in ("first", "again")
    ]
    return (
        at.each(ways[0], "classify", first[0], "lstm-classifier", reading, first[1]),
        at.each(ways[1], "tag", again[0], "bilstm-tagger", tagging, again[1]),
    )


def order(at: Settings) -> Finding:
    """C8: no positions, and two kinds of them."""
    first, again = placed(at, ("none", "sinusoidal", "learned"))
    rows = [row for _, row in marked(50, range(10, 11), seed=3)]
    shuffled = [
        "".join(random.Random(place).sample(row, len(row))) for place, row in enumerate(rows)
    ]

    def moved(model: Model) -> float:
        """The most that a probability changes when the letters are shuffled."""
        both = zip(model.predict(rows), model.predict(shuffled), strict=True)
        return max(
            abs(a.details["probabilities"]["a"] - b.details["probabilities"]["a"]) for a, b in both
        )

    results = {**scores(first, "accuracy"), **scores(again, "accuracy")}
    gaps = [
        minus(results[f"{task}, sinusoidal"], results[f"{task}, learned"])
        for task in ("first", "again")
    ]
    return Finding(
        {
            "shuffled": [moved(model) for model in first["first, none"]],
            "none": results["first, none"],
            "apart": [abs(gap) for each in gaps for gap in each],
        },
        [
            scored("which letter comes first", first, "accuracy"),
            scored("the same letter again", again, "accuracy"),
        ],
        bars("Which letter comes first, and is it the same again?", "accuracy", results),
    )


def longer(at: Settings) -> Finding:
    """C24: rows longer than those of the training."""
    (first, again), results = (
        placed(at, ("sinusoidal", "learned", "rotary")),
        dict[str, list[list[float]]](),
    )
    lengths, num = (
        (range(4, 13), range(13, 21), range(21, 31), range(31, 41)),
        at.sizes("C24")["test"],
    )
    for each in lengths:
        rows, test = marked(num, each, seed=5), at.file("test.conll", repeats(num, each, seed=5))
        for name, runs in first.items():
            results.setdefault(name, []).append([right(run, rows) for run in runs])
        for name, runs in again.items():
            results.setdefault(name, []).append(
                [run.evaluate(test).scores["accuracy"] for run in runs]
            )
    short = {name: [fmean(two) for two in turned(rows[:2])] for name, rows in results.items()}
    places, chance = (
        [f"{each[0]}-{each[-1]}" for each in lengths],
        {"baseline: chance": [0.5] * len(lengths)},
    )
    return Finding(
        {
            task: minus(short[f"{task}, sinusoidal"], results[f"{task}, sinusoidal"][-1])
            for task in ("first", "again")
        },
        [
            means(
                "accuracy by the number of letters; 4 to 20 were seen in training",
                places,
                results,
                chance,
            )
        ],
        lines(
            "More than 20 letters, which were never seen",
            ("letters", "accuracy"),
            places,
            results,
            chance,
        ),
    )


def scaling(at: Settings) -> Finding:
    """C9: the softmax of random scores as d grows."""
    chosen = at.sizes("C9")
    sizes, num = chosen["dimensions"], chosen["queries"]

    def measured(scaled: bool, size: int, seed: int) -> list[float]:
        """How sure the softmax is (the mean of its largest weight), and the gradient that comes through it."""
        random = torch.Generator().manual_seed(seed)
        query, key = (torch.randn(n, size, generator=random) for n in (num, 32))
        score = (scaled_score if scaled else dot_score)(query, key).requires_grad_()
        weights = score.softmax(-1)
        (grad,) = torch.autograd.grad(
            (weights * torch.randn(weights.shape, generator=random)).sum(), score
        )
        return [float(weights.detach().amax(-1).mean()), float(vector_norm(grad, dim=-1).mean())]

    ways = {"q·k": False, "q·k / √d": True}
    both = {
        n: [turned(measured(way, d, seed) for seed in at.seeds) for d in sizes]
        for n, way in ways.items()
    }
    sure, grads = ({name: [row[k] for row in rows] for name, rows in both.items()} for k in (0, 1))
    places = list(map(str, sizes))
    change = {name: over(rows[-1], rows[0]) for name, rows in grads.items()}
    return Finding(
        {"sure": sure["q·k"][-1], "shrinks": change["q·k"], "scaled": change["q·k / √d"]},
        [
            means("the largest weight, by d", places, sure),
            means("gradient behind the softmax, by d", places, grads),
        ],
        lines("The gradient that comes through the softmax", ("d", "norm"), places, grads),
    )


def apart(weights: Float[np.ndarray, "H *N"]) -> float:
    """How little two of some distributions share, on average: 0 the same, 1 nothing (total variation)."""
    return fmean(float(np.abs(a - b).sum(-1).mean()) / 2 for a, b in combinations(weights, 2))


def heads(at: Settings) -> Finding:
    """C10: heads of a Transformer before and after training, and hops without and with a penalty."""
    held_out, train = named(at)
    fixed, hopping = at.recipes("C10")
    texts = [name for _, name in names(1)[: at.sizes("C10")["texts"]] if len(name) >= 8]
    ways = {"heads, untrained": UNTRAINED, "heads, trained": {}}
    models = at.each(ways, "classify", train, "lstm-classifier", fixed, held_out)
    hops = {f"hops, penalty {penalty}": {"model.hop_penalty": penalty} for penalty in (0.0, 1.0)}
    models |= at.each(hops, "classify", train, "self-attentive", hopping, held_out)

    def differ(model: Model) -> float:
        """The mean over texts and layers."""
        subjects = [subject(model.bundle, text) for text in texts]
        maps = [
            results.weights for each in subjects for results in attention_maps(each, each.trace())
        ]
        return fmean(apart(weights[0] if len(weights) == 1 else weights) for weights in maps)

    results = {name: [differ(model) for model in each] for name, each in models.items()}
    before, after, without, penalised = results.values()
    return Finding(
        {"heads": minus(after, before), "penalty": minus(penalised, without)},
        [
            spread("what two of them do not share", results),
            scored("language of names", models, "accuracy"),
        ],
        bars(
            "How little two heads, or two hops, share",
            "0: they are the same, 1: they share nothing",
            results,
        ),
    )
