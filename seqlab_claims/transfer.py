"""What a model learns from text without labels: language models before classifiers (C13), and ELMo's features (C19)."""

import random
from collections.abc import Iterator
from itertools import combinations
from statistics import fmean

import torch
from torch.nn.functional import cosine_similarity

from seqlab.codecs.codec import padded
from seqlab.model import Model
from seqlab.models.build import embedding_of
from seqlab.text import SPECIALS
from seqlab_claims.claim import Finding
from seqlab_claims.material import Pair, as_conll, names
from seqlab_claims.settings import Settings, bars, flat, lines, means, minus, scored, scores, spread


def few_labels(at: Settings) -> Finding:
    """C13: a classifier of names from a language model of names, and anew."""
    sizes = at.sizes("C13")
    before, fixed = at.recipes("C13")
    rows, num, counts = names(1), sizes["test"], sizes["labelled"]
    test, rest = at.file("test.tsv", rows[:num]), rows[num:]
    text = at.file("text.txt", "".join(f"{name}\n" for _, name in rest[: sizes["texts"]]))
    taken = {
        key: value
        for key, value in fixed.items()
        if not key.startswith(("source.", "model.embedding"))
    }
    old = at.each({"language model": {}}, "lm", text, "word-lstm", before)["language model"]
    results: dict[str, list[list[float]]] = {"from a language model": [], "anew": []}
    baselines = list[float]()
    for count in counts:
        few, ways = (
            at.file(f"few{count}.tsv", rest[:count]),
            {f"anew {count}": {"model.encoder.size": sizes["units"]}},
        )
        (anew,) = at.each(ways, "classify", few, "tuned-classifier", fixed, test).values()
        tuned = [
            at.trained(
                f"tuned {count}",
                "classify",
                few,
                "tuned-classifier",
                taken,
                seed=seed,
                valid=test,
                start=start,
            )
            for seed, start in zip(at.seeds, old, strict=True)
        ]
        for name, each in scores(
            {"from a language model": tuned, "anew": anew}, "accuracy"
        ).items():
            results[name].append(each)
        baselines.append(tuned[0].metrics["validation"]["baselines"]["TF-IDF, linear"]["accuracy"])
    gains = list(map(minus, *results.values()))
    baseline = {"baseline: TF-IDF, linear": baselines}
    places = list(map(str, counts))
    return Finding(
        {"few": flat(gains[:2])},
        [
            means(
                "accuracy on what was held out, by the number of labelled names",
                places,
                results,
                baseline,
            )
        ],
        lines(
            "Which language is a name?", ("labelled names", "accuracy"), places, results, baseline
        ),
    )


def ambiguous(num: int, *, seed: int) -> Iterator[list[Pair]]:
    """Sentences of a made-up language: classes of words that follow each other by chance, many words in two classes."""
    made, keyed, kinds = random.Random(0), random.Random(seed), "ABCDEF"
    words = {
        kind: ["".join(made.choices("bdgklmnprstaeiou", k=5)) for _ in range(20)] for kind in kinds
    }
    for kind in kinds:
        words[kind] += words[made.choice([each for each in kinds if each != kind])][:10]
    moves = {kind: [made.random() ** 4 for _ in kinds] for kind in kinds}
    for _ in range(num):
        kind, sentence = keyed.choice(kinds), list[Pair]()
        for _ in range(keyed.randint(5, 15)):
            sentence.append((keyed.choice(words[kind]), kind))
            kind = keyed.choices(kinds, moves[kind])[0]
        yield sentence


@torch.inference_mode()
def likeness(model: Model, sentences: list[list[Pair]]) -> tuple[float, float]:
    """The mean cosine between vectors of one word in one class, and between those of one word in two classes."""
    sources = model.bundle.codec.source.encode(
        [" ".join(word for word, _ in each) for each in sentences]
    )
    layers = model.bundle.model.readers.layers(padded(sources))[-1]
    tokens = [
        (*pair, layers[r, t]) for r, each in enumerate(sentences) for t, pair in enumerate(each)
    ]
    results: dict[bool, list[float]] = {True: [], False: []}
    for word in sorted({word for word, _, _ in tokens}):
        for (_, one, a), (_, other, b) in combinations(
            [each for each in tokens if each[0] == word][:12], 2
        ):
            results[one == other].append(float(cosine_similarity(a, b, dim=0)))
    return fmean(results[True]), fmean(results[False])


def contexts(at: Settings) -> Finding:
    """C19: taggers with ELMo's layers, with its word vectors alone, and with neither."""
    sizes = at.sizes("C19")
    before, fixed = at.recipes("C19")
    sentences = list(ambiguous(sizes["train"], seed=1))
    unseen = list(ambiguous(sizes["test"], seed=2))
    text = at.file(
        "text.txt", "".join(" ".join(word for word, _ in each) + "\n" for each in sentences)
    )
    few, test = (
        at.file("few.conll", as_conll(sentences[:50])),
        at.file("test.conll", as_conll(unseen)),
    )
    models: dict[str, list[Model]] = {
        "no vectors": [],
        "static vectors": [],
        "contextual vectors": [],
    }
    like: dict[str, list[float]] = {"in one class": [], "in two classes": []}
    for seed in at.seeds:
        elmo = at.trained("elmo", "bilm", text, "elmo", before, seed=seed)
        vectors = embedding_of(elmo.bundle.model).weight.tolist()
        table = list(zip(elmo.bundle.codec.source_tokenizer.vocabulary, vectors, strict=True))[
            len(SPECIALS) :
        ]
        path = at.file(
            f"{seed}.vec", "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in table)
        )
        words = {"source.min_count": 1}
        changes = (
            (fixed | words, None),
            (fixed | words | {"model.vectors": path}, None),
            (fixed, elmo),
        )
        for (name, kept), (change, start) in zip(models.items(), changes, strict=True):
            kept.append(
                at.trained(
                    name, "tag", few, "tuned-tagger", change, seed=seed, valid=test, start=start
                )
            )
        for kept_like, value in zip(like.values(), likeness(elmo, unseen[:100]), strict=True):
            kept_like.append(value)
    results = scores(models, "accuracy")
    return Finding(
        {
            "tags": minus(results["contextual vectors"], results["static vectors"]),
            "apart": minus(*like.values()),
        },
        [
            scored("classes of words", models, "accuracy"),
            spread("cosine of two vectors of a word", like),
        ],
        bars("Classes of words, learnt from 50 sentences", "accuracy", results),
    )
