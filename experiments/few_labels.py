"""The gain of pretraining with 200 labels: three samples of IMDb's training half, scored on 3,000 test texts.

    python experiments/few_labels.py imdb.train.tsv.gz imdb.test.tsv.gz [--themes DIR] [--minilm DIR]

The files have a label first and a text last, between tabs. DIR is what `seqlab train mask imdb.txt --recipe themes` has
made of the training half's texts, one a line, and what `seqlab import` has made of all-MiniLM-L6-v2.
"""

import argparse
import gzip
import random
import tempfile
import warnings
from pathlib import Path
from statistics import fmean

import seqlab
from seqlab.errors import SeqlabWarning

SEEDS, EACH, SCORED = (1, 2, 3), 100, 3000
ALL = (
    "data.validation=0.1",
    "model.pooling_norm=true",
    "model.dropout=0.3",
    "train.validate_every=100000",
)
SHORT = ("data.max_source=600", "train.steps=200", "train.learning_rate=3e-3")
GENTLE = (
    "data.max_source=256",
    "train.steps=60",
    "train.batch_tokens=4096",
    "train.encoder_rate=0.05",
    "train.learning_rate=2e-3",
)
Rows = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--themes", type=Path)
    parser.add_argument("--minilm", type=Path)
    asked = parser.parse_args()
    scratch = {
        "from scratch, the mean of word vectors": (
            *SHORT,
            "model.encoder.kind=features",
            "model.pooling=mean",
        ),
        "from scratch, BiLSTM": (*SHORT, "model.pooling=mean"),
    }
    arms = [(name, "bilstm-classifier", None, settings) for name, settings in scratch.items()]
    if asked.themes:
        arms.append(
            (
                "themes",
                "bilstm-classifier",
                asked.themes,
                (*SHORT, "model.pooling=theme", "train.encoder_frozen=60"),
            )
        )
    if asked.minilm:
        arms.append(("MiniLM", "tuned-classifier", asked.minilm, (*GENTLE, "model.pooling=mean")))
    warnings.simplefilter("ignore", SeqlabWarning)  # of few labels, which are meant
    train, test = read(asked.train), read(asked.test)
    random.Random(20261118).shuffle(test)
    print("| model | accuracy |\n|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "test.tsv", test[:SCORED])
        for seed in SEEDS:
            write(folder / f"few-{seed}.tsv", few(train, seed))
        for arm, recipe, start, settings in arms:
            found = [
                100 * accuracy(folder, seed, recipe, start, (*ALL, *settings)) for seed in SEEDS
            ]
            print(
                f"| {arm} | {fmean(found):.1f} % ({', '.join(f'{each:.1f}' for each in found)}) |",
                flush=True,
            )


def accuracy(
    folder: Path, seed: int, recipe: str, start: Path | None, settings: tuple[str, ...]
) -> float:
    """Return the accuracy of the model at its last step."""
    out, words = folder / "model", (*settings, f"train.seed={seed}")
    data = folder / f"few-{seed}.tsv"
    run = seqlab.train(
        "classify", data, recipe=recipe, start=start, settings=words, out=out, overwrite=True
    )
    return run.model.evaluate(folder / "test.tsv").scores["accuracy"]


def few(rows: Rows, seed: int) -> Rows:
    """Return a hundred random rows of each label."""
    order, found = list(range(len(rows))), Rows()
    random.Random(seed).shuffle(order)
    for place in order:
        if sum(label == rows[place][0] for label, _ in found) < EACH:
            found.append(rows[place])
    return found


def read(path: Path) -> Rows:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [
            (cells[0], cells[-1]) for cells in (line.rstrip("\n").split("\t") for line in lines)
        ]


def write(path: Path, rows: Rows) -> None:
    path.write_text("".join(f"{label}\t{text}\n" for label, text in rows), "utf-8")


if __name__ == "__main__":
    main()
