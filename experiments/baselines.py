"""Our baselines and those of common libraries: scores and CPU seconds on the same training and test parts.

    python experiments/baselines.py ours DATA > ours.tsv
    python experiments/baselines.py peers DATA > peers.tsv

DATA is the folder of the data sets that the functions below read. `peers` needs scikit-learn, sklearn-crfsuite,
statsmodels and sacrebleu, and not Seqlab: run it in an environment of its own.
"""

import argparse
import csv
import gzip
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Pairs = list[tuple[str, str]]
Sentence = list[tuple[str, str]]
SERIES = {  # file, rows at the end that are forecast, rows of a season, look-back
    "champagne": ("foreign/monthly_champagne_sales.csv", 12, 12, 36),
    "shampoo": ("foreign/shampoo.csv", 6, 12, 12),
    "births": ("foreign/daily-births.csv", 28, 7, 84),
    "airline": ("timeseries-small/airline-passengers.csv", 12, 12, 36),
    "temperatures": ("timeseries-small/daily-min-temperatures.csv", 28, 7, 84),
    "sunspots": ("timeseries-small/monthly-sunspots.csv", 24, 12, 120),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("whose", choices=("ours", "peers"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", default="", help="only data sets whose names contain this")
    asked = parser.parse_args()
    ours = asked.whose == "ours"
    work: list[tuple[dict[str, Any], Callable[..., Any]]] = [
        (labelled(asked.data), our_classifier if ours else their_classifier),
        (tagged(asked.data), our_tagger if ours else their_tagger),
        (translated(asked.data), our_neighbour if ours else their_neighbour),
        (dict(SERIES), our_forecast if ours else their_forecast),
    ]
    for sets, run in work:
        for name, parts in sets.items():
            if asked.only in name:
                began = time.process_time()
                parts = series_parts(asked.data, *parts) if name in SERIES else parts()
                for model, score in run(*parts):
                    print(
                        f"{name}\t{model}\t{score:.2f}\t{time.process_time() - began:.1f} s",
                        flush=True,
                    )
                    began = time.process_time()


def lines(path: Path) -> Iterator[str]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def columns(path: Path) -> Pairs:
    rows = (line.split("\t") for line in lines(path))
    return [(row[0], row[1]) for row in rows if len(row) > 1]


def tenth(rows: Pairs) -> tuple[Pairs, Pairs]:
    """Return a training part, and a random tenth to test on."""
    random.Random(0).shuffle(rows)
    count = len(rows) // 10
    return rows[count:], rows[:count]


def labelled(data: Path) -> dict[str, Callable[[], tuple[Pairs, Pairs]]]:
    """Return readers of (label, text) pairs, by data set."""

    def waimai(part: str) -> Pairs:
        rows = csv.DictReader(lines(data / f"foreign/waimai_{part}.csv.gz"))
        return [(row["label"], " ".join(row["review"].split())) for row in rows]

    def sst(part: str) -> Pairs:
        return [
            (label, text) for text, label in columns(data / f"sst2/{part}.tsv.gz") if label in "01"
        ]

    def films() -> Pairs:
        files = {label: data / f"rt-polarity/rt-polarity.{label}" for label in ("neg", "pos")}
        return [
            (label, " ".join(text.split()))
            for label, path in files.items()
            for text in path.read_text("latin-1").splitlines()
        ]

    def names() -> Pairs:
        files = sorted(
            path for path in (data / "names-18lang").glob("*.txt") if path.stem != "SOURCE"
        )
        return [(path.stem, name.strip()) for path in files for name in lines(path) if name.strip()]

    return {
        "trec": lambda: (
            columns(data / "foreign/trec_train.tsv"),
            columns(data / "foreign/trec_test.tsv"),
        ),
        "waimai": lambda: (waimai("train"), waimai("test")),
        "names-18lang": lambda: tenth(names()),
        "rt-polarity": lambda: tenth(films()),
        "sst2": lambda: (sst("train"), sst("dev")),
    }


def tagged(data: Path) -> dict[str, Callable[[], tuple[list[Sentence], list[Sentence]]]]:
    def sentences(path: str, word: int = 0, tag: int = -1) -> list[Sentence]:
        found: list[Sentence] = [[]]
        for line in lines(data / path):
            cells = line.split()
            if not cells:
                found.append([])
            elif not path.endswith("conllu.gz") or cells[0].isdigit():
                found[-1].append((cells[word], cells[tag]))
        return [sentence for sentence in found if sentence]

    ewt, conll = "ud-en-ewt/en_ewt-ud-{}.conllu.gz", "conll2000/{}.txt.gz"
    return {
        "hindi": lambda: (
            sentences("foreign/hindi_pos_train.conll"),
            sentences("foreign/hindi_pos_test.conll"),
        ),
        "conll2000": lambda: (sentences(conll.format("train")), sentences(conll.format("test"))),
        "wnut17": lambda: (
            sentences("wnut17/wnut17train.conll.gz"),
            sentences("wnut17/emerging.dev.conll.gz"),
        ),
        "ud-en-ewt": lambda: (
            sentences(ewt.format("train"), 1, 3),
            sentences(ewt.format("dev"), 1, 3),
        ),
    }


def translated(data: Path) -> dict[str, Callable[[], tuple[Pairs, Pairs]]]:
    def captions(part: str, most: int) -> Pairs:
        both = (lines(data / f"multi30k/{part}.{language}.gz") for language in ("en", "fr"))
        return list(zip(*both, strict=True))[:most]

    return {
        "nl2bash": lambda: (
            columns(data / "foreign/nl2bash_train.tsv.gz"),
            columns(data / "foreign/nl2bash_test.tsv"),
        ),
        "multi30k-5000": lambda: (captions("train", 5000), captions("val", 2000)),
    }


def series_parts(
    data: Path, path: str, horizon: int, season: int, look_back: int
) -> tuple[Any, ...]:
    rows = [row for row in csv.reader(lines(data / path)) if len(row) == 2 and row[1]]
    values = [
        (f"200{t}" if re.match(r"\d-\d", t) else t, float(v.replace("?", ""))) for t, v in rows[1:]
    ]
    return values[:-horizon], values[-horizon:], season, look_back


def trained(task: str, recipe: str, name: str, text: str, *settings: str) -> Any:
    """Train a model of Seqlab in its own folder; it holds out a part to choose the penalty."""
    import seqlab

    folder = Path(tempfile.mkdtemp())
    (folder / name).write_text(text, "utf-8")
    return seqlab.train(
        task, folder / name, recipe=recipe, settings=settings, out=folder / "model"
    ).model


def our_classifier(train: Pairs, test: Pairs) -> Iterator[tuple[str, float]]:
    text = "".join(f"{label}\t{text}\n" for label, text in train)
    model = trained(
        "classify", "linear-classifier", "t.tsv", text, "data.source=2", "data.target=1"
    )
    answers = model.predict([text for _, text in test])
    right = sum(answer.output == label for answer, (label, _) in zip(answers, test, strict=True))
    yield "linear-classifier, accuracy", 100 * right / len(test)


def their_classifier(train: Pairs, test: Pairs) -> Iterator[tuple[str, float]]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.svm import LinearSVC

    labels, texts = zip(*train, strict=True)
    gold, asked = zip(*test, strict=True)
    for name, model in (
        ("LinearSVC", LinearSVC()),
        ("LogisticRegression", LogisticRegression(C=10, max_iter=300)),
    ):
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\w+|[^\w\s]")
        letters = TfidfVectorizer(
            analyzer="char_wb", ngram_range=(1, 5), sublinear_tf=True, min_df=2
        )
        fitted = make_pipeline(make_union(words, letters), model).fit(texts, labels)
        yield f"{name}, accuracy", 100 * fitted.score(asked, gold)


def our_tagger(train: list[Sentence], test: list[Sentence]) -> Iterator[tuple[str, float]]:
    text = "\n".join("".join(f"{word}\t{tag}\n" for word, tag in sentence) for sentence in train)
    model = trained("tag", "crf-tagger", "t.conll", text)
    answers = model.predict([" ".join(word for word, _ in sentence) for sentence in test])
    yield from tag_scores("crf-tagger", [answer.details["tags"] for answer in answers], test)


def their_tagger(train: list[Sentence], test: list[Sentence]) -> Iterator[tuple[str, float]]:
    import sklearn_crfsuite

    model = sklearn_crfsuite.CRF(algorithm="lbfgs", c1=0.05, c2=0.05, max_iterations=100)
    model.fit(
        [features(sentence) for sentence in train],
        [[tag for _, tag in sentence] for sentence in train],
    )
    yield from tag_scores(
        "sklearn-crfsuite", model.predict([features(sentence) for sentence in test]), test
    )


def features(sentence: Sentence) -> list[list[str]]:
    """Return the features that our tagger uses: spellings, neighbours and pairs."""
    words = [word for word, _ in sentence]
    shapes = [
        re.sub(r"[a-z]", "x", re.sub(r"[A-Z]", "X", re.sub(r"\d", "0", word))) for word in words
    ]
    rows = []
    for here, word in enumerate(words):
        row = [f"w={word}", f"l={word.lower()}", f"s={shapes[here]}"]
        row += [
            f"{end}{n}={part}"
            for n in range(1, 5)
            for end, part in (("p", word[:n]), ("e", word[-n:]))
        ]
        around = {
            o: words[here + o].lower() if 0 <= here + o < len(words) else "#"
            for o in (-2, -1, 0, 1, 2)
        }
        for offset in (-2, -1, 1, 2):
            row.append(f"{offset}={around[offset]}")
            if around[offset] != "#":
                row += [
                    f"{offset}s={shapes[here + offset]}",
                    f"{offset}e={words[here + offset][-3:]}",
                ]
        rows.append([*row, f"b={around[-1]}|{around[0]}", f"a={around[0]}|{around[1]}"])
    return rows


def tag_scores(name: str, answers: Any, test: list[Sentence]) -> Iterator[tuple[str, float]]:
    gold = [[tag for _, tag in sentence] for sentence in test]
    right = sum(
        a == b
        for one, other in zip(answers, gold, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    if not any(tag.startswith("B-") for tags in gold for tag in tags):
        yield f"{name}, accuracy", 100 * right / sum(map(len, gold))
        return
    pairs = [(spans(list(one)), spans(other)) for one, other in zip(answers, gold, strict=True)]
    both, all_of = sum(len(a & b) for a, b in pairs), sum(len(a) + len(b) for a, b in pairs)
    yield f"{name}, F1", 200 * both / max(1, all_of)


def spans(tags: list[str]) -> set[tuple[int, int, str]]:
    found, start, kind = set(), -1, ""
    for place, tag in enumerate([*tags, "O"]):
        first, _, name = tag.partition("-")
        if start >= 0 and (first != "I" or name != kind):
            found.add((start, place, kind))
            start = -1
        if first == "B" or (first == "I" and start < 0):
            start, kind = place, name
    return found


def our_neighbour(train: Pairs, test: Pairs) -> Iterator[tuple[str, float]]:
    import sacrebleu

    model = trained(
        "translate", "nearest-neighbour", "t.tsv", "".join(f"{a}\t{b}\n" for a, b in train)
    )
    answers = [answer.output for answer in model.predict([source for source, _ in test])]
    yield (
        "nearest-neighbour, BLEU",
        sacrebleu.corpus_bleu(answers, [[target for _, target in test]]).score,
    )


def their_neighbour(train: Pairs, test: Pairs) -> Iterator[tuple[str, float]]:
    import sacrebleu
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.neighbors import NearestNeighbors

    table = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    search = NearestNeighbors(n_neighbors=1, metric="cosine").fit(
        table.fit_transform([a for a, _ in train])
    )
    places = search.kneighbors(table.transform([a for a, _ in test]), return_distance=False)[:, 0]
    answers = [train[place][1] for place in places]
    yield (
        "TF-IDF, NearestNeighbors, BLEU",
        sacrebleu.corpus_bleu(answers, [[b for _, b in test]]).score,
    )


def our_forecast(train: Any, test: Any, season: int, look_back: int) -> Iterator[tuple[str, float]]:
    horizon, text = len(test), "time,value\n" + "".join(f"{t},{v}\n" for t, v in train)
    held_out = max(horizon + 2, int(0.15 * len(train))) / len(train)
    settings = (
        f"forecast.look_back={look_back}",
        f"forecast.horizon={horizon}",
        f"data.validation={held_out}",
    )
    for recipe in ("seasonal-naive", "exponential-smoothing"):
        model = trained(
            "forecast",
            recipe,
            "t.csv",
            text,
            *settings,
            f"forecast.season={season}",
            "data.test=0.0",
        )
        mean = model.predict(str(model.path.parent / "t.csv")).mean[:, 0]
        yield (
            f"{recipe}, MAE",
            sum(abs(m - v) for m, (_, v) in zip(mean, test, strict=True)) / horizon,
        )


def their_forecast(
    train: Any, test: Any, season: int, look_back: int
) -> Iterator[tuple[str, float]]:
    import numpy as np
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    past, ahead = (np.array([value for _, value in part]) for part in (train, test))
    fits = {}
    for trend in (None, "add"):
        for damped in (False, True)[: 1 + bool(trend)]:
            for seasonal in (None, "add", "mul") if past.min() > 0 else (None, "add"):
                model = ExponentialSmoothing(
                    past,
                    trend=trend,
                    damped_trend=damped,
                    seasonal=seasonal,
                    seasonal_periods=season,
                )
                fits[trend, damped, seasonal] = model.fit()
    best = min(fits.values(), key=lambda fit: fit.aicc)
    yield (
        "ExponentialSmoothing by AICc, MAE",
        float(np.abs(best.forecast(len(ahead)) - ahead).mean()),
    )
    additive = fits["add", False, "add"]
    yield "Holt-Winters, additive, MAE", float(np.abs(additive.forecast(len(ahead)) - ahead).mean())


if __name__ == "__main__":
    main()
