"""Scores of the default command, `seqlab train TASK FILE`, on real files.

    python -m experiments.defaults foreign DATA --seeds 1 2 3      files as strangers bring them, their test parts
    python -m experiments.defaults known DATA                      CoNLL-2000, WNUT17, CMUdict
    python -m experiments.defaults curves DATA --sizes 50 200      real files cut to so many examples

DATA is the folder of the data sets. Each row is written when its training has ended: the network alone, the baseline
that was trained beside it, which of them was kept, and the CPU time of the whole command.
"""

import argparse
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPLIT_SEED = 20261118


@dataclass(frozen=True)
class File:
    """A training file, a test file, and the deciding score."""

    name: str
    task: str
    train: tuple[Path, ...]
    test: tuple[Path, ...]
    score: str
    data: Path | None = None  # beside which the files that a table names lie


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("foreign", "known", "curves"))
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", default="", help="only files whose names contain this")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--sizes", type=int, nargs="*", default=[50, 200, 1000, 5000, 50000])
    asked = parser.parse_args()
    print(
        "| file | seed | score | network | baseline | kept | CPU |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        makers: dict[str, Callable[[], Iterator[File]]] = {
            "foreign": lambda: foreign(asked.data / "foreign"),
            "known": lambda: known(asked.data, folder),
            "curves": lambda: curves(asked.data, folder, asked.sizes),
        }
        for file in makers[asked.what]():
            for seed in asked.seeds if asked.only in file.name else ():
                print(row(file, seed, folder), flush=True)


def row(file: File, seed: int, folder: Path) -> str:
    """Train with the default command, and score both models on the test file."""
    out = folder / f"{file.name}-{seed}".replace(" ", "-")
    words = [
        "train",
        file.task,
        *map(str, file.train),
        "--quiet",
        "--out",
        str(out),
        "--set",
        f"train.seed={seed}",
    ]
    seconds = seqlab(words)
    metrics = json.loads((out / "metrics.json").read_bytes())
    selection = metrics.get("selection")
    kept = selection["kept"] if selection else json.loads(info(out))["recipe"]
    scores = {kept: scored(out, file)}
    if selection:
        scores[selection["other"]] = scored(out / selection["other"], file)
    network = next((name for name in scores if name not in BASELINES), "")
    baseline = next((name for name in scores if name in BASELINES), "")
    cells = [f"{name} {scores[name]:.2f}" if name else "" for name in (network, baseline)]
    return (
        f"| {file.name} | {seed} | {file.score} | {' | '.join(cells)} | {kept} | {seconds:.0f} s |"
    )


BASELINES = (
    "linear-classifier",
    "linear-vectors",
    "linear-pixels",
    "crf-tagger",
    "nearest-neighbour",
    "exponential-smoothing",
    "seasonal-naive",
    "ngram-lm",
)


def seqlab(words: Sequence[str]) -> float:
    """Run a command of Seqlab as a user would; return its CPU seconds."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "seqlab", *words], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def info(model: Path) -> bytes:
    command = [sys.executable, "-m", "seqlab", "info", str(model), "--json"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def scored(model: Path, file: File) -> float:
    if file.score == "word error, %":
        return word_error(model, file.test[0])
    command = [
        sys.executable,
        "-m",
        "seqlab",
        "evaluate",
        str(model),
        *map(str, file.test),
        "--json",
    ]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    value = report[file.score] if file.score in report else report["scores"][file.score]
    return 100 * value if file.score in ("accuracy", "entity_f1") else value


def word_error(model: Path, test: Path) -> float:
    """Return the share of words for which the answer is none of the listed pronunciations."""
    listed = defaultdict(set)
    for line in test.read_text("utf-8").splitlines():
        word, phonemes = line.split("\t")
        listed[word].add(phonemes)
    command = [sys.executable, "-m", "seqlab", "predict", str(model)]
    answers = subprocess.run(
        command, check=True, input="\n".join(listed), stdout=subprocess.PIPE, text=True
    ).stdout
    pairs = zip(listed, answers.splitlines(), strict=True)
    return 100 * sum(answer not in listed[word] for word, answer in pairs) / len(listed)


def foreign(data: Path) -> Iterator[File]:
    yield File(
        "TREC", "classify", (data / "trec_train.tsv",), (data / "trec_test.tsv",), "accuracy"
    )
    yield File(
        "Hindi",
        "tag",
        (data / "hindi_pos_train.conll",),
        (data / "hindi_pos_test.conll",),
        "accuracy",
    )
    yield File(
        "waimai",
        "classify",
        (data / "waimai_train.csv.gz",),
        (data / "waimai_test.csv.gz",),
        "accuracy",
    )
    motions = data / "basic_motions"
    yield File(
        "BasicMotions", "classify", (motions / "train.tsv",), (motions / "test.tsv",), "accuracy"
    )
    yield File(
        "nl2bash",
        "translate",
        (data / "nl2bash_train.tsv.gz",),
        (data / "nl2bash_test.tsv",),
        "bleu",
    )


def known(data: Path, folder: Path) -> Iterator[File]:
    conll = data / "conll2000"
    for part in ("train", "test"):  # words alone
        lines = (line.split() for line in text(conll / f"{part}.txt.gz").splitlines())
        write(
            folder / f"chunks.{part}.conll",
            (f"{row[0]}\t{row[-1]}" if row else "" for row in lines),
        )
    yield File(
        "CoNLL-2000",
        "tag",
        (folder / "chunks.train.conll",),
        (folder / "chunks.test.conll",),
        "entity_f1",
    )
    wnut = data / "wnut17"
    yield File(
        "WNUT17",
        "tag",
        (wnut / "wnut17train.conll.gz",),
        (wnut / "emerging.dev.conll.gz",),
        "entity_f1",
    )
    train, test = spellings(data / "cmudict" / "cmudict.dict.gz")
    write(folder / "cmudict.train.tsv", train)
    write(folder / "cmudict.test.tsv", test)
    yield File(
        "CMUdict",
        "translate",
        (folder / "cmudict.train.tsv",),
        (folder / "cmudict.test.tsv",),
        "word error, %",
    )


def spellings(path: Path) -> tuple[list[str], list[str]]:
    """Return spellings and phonemes, split by word: 2,000 words with all pronunciations are the test part."""
    by_word = defaultdict(list)
    for line in text(path).splitlines():
        spelling, *phonemes = line.partition(" #")[0].split()
        by_word[re.sub(r"\(\d\)$", "", spelling)].append(" ".join(phonemes))
    words = sorted(by_word)
    random.Random(SPLIT_SEED).shuffle(words)
    parts = (words[2000:], words[:2000])
    train, test = ([f"{word}\t{each}" for word in part for each in by_word[word]] for part in parts)
    return train, test


def curves(data: Path, folder: Path, sizes: Sequence[int]) -> Iterator[File]:
    """Yield real files cut to each size; sizes above that of the file are left out."""
    makers = {
        "phrases": (phrases, "classify", ".tsv", "accuracy"),
        "names": (names, "classify", ".tsv", "accuracy"),
        "tags": (tags, "tag", ".conll", "accuracy"),
        "captions": (captions, "translate", ".tsv", "bleu"),
    }
    for name, (examples, task, ending, score) in makers.items():
        train, test = examples(data)
        random.Random(SPLIT_SEED).shuffle(train)
        write(folder / f"{name}.test{ending}", test[:2000])
        for size in sizes:
            if size > len(train) and (size != min(each for each in sizes if each > len(train))):
                continue
            cut = folder / f"{name}.{size}{ending}"
            write(cut, train[:size])
            yield File(
                f"{name} {min(size, len(train))}",
                task,
                (cut,),
                (folder / f"{name}.test{ending}",),
                score,
            )
    yield from vectors(folder, sizes)
    yield from hours(data, folder, sizes)


def phrases(data: Path) -> tuple[list[str], list[str]]:
    """SST-2: phrases of film reviews, and whole sentences to test on."""

    def part(name: str) -> list[str]:
        rows = [line.split("\t") for line in text(data / "sst2" / f"{name}.tsv.gz").splitlines()]
        return [f"{row[1]}\t{row[0]}" for row in rows if len(row) > 1 and row[1] in "01"]

    return part("train"), part("dev")


def names(data: Path) -> tuple[list[str], list[str]]:
    files = sorted(path for path in (data / "names-18lang").glob("*.txt") if path.stem != "SOURCE")
    rows = [
        f"{path.stem}\t{name.strip()}"
        for path in files
        for name in text(path).splitlines()
        if name.strip()
    ]
    random.Random(SPLIT_SEED).shuffle(rows)
    return rows[2000:], rows[:2000]


def tags(data: Path) -> tuple[list[str], list[str]]:
    """UD English EWT: sentences as lines of word and part of speech, separated by blank lines."""

    def part(name: str) -> list[str]:
        sentences = text(data / "ud-en-ewt" / f"en_ewt-ud-{name}.conllu.gz").split("\n\n")
        rows = ([line.split("\t") for line in sentence.splitlines()] for sentence in sentences)
        words = (
            [f"{row[1]}\t{row[3]}" for row in sentence if row[0].isdigit()] for sentence in rows
        )
        return ["\n".join(sentence) + "\n" for sentence in words if sentence]

    return part("train"), part("dev")


def captions(data: Path) -> tuple[list[str], list[str]]:
    """Multi30k, English to French."""

    def part(name: str) -> list[str]:
        sides = (
            text(data / "multi30k" / f"{name}.{language}.gz").splitlines()
            for language in ("en", "fr")
        )
        return [f"{source}\t{target}" for source, target in zip(*sides, strict=True)]

    return part("train"), part("val")


def vectors(folder: Path, sizes: Sequence[int]) -> Iterator[File]:
    """Fashion-MNIST of Debian's package dataset-fashion-mnist: a picture as 28 rows of 28 numbers."""
    import numpy as np

    home = Path("/usr/share/datasets/fashion-mnist")
    if not home.exists():
        print(
            "note: the package dataset-fashion-mnist is not installed: no curve for vectors",
            file=sys.stderr,
        )
        return

    def part(prefix: str) -> tuple[Any, Any]:
        pictures = gzip.decompress((home / f"{prefix}-images-idx3-ubyte.gz").read_bytes())[16:]
        labels = gzip.decompress((home / f"{prefix}-labels-idx1-ubyte.gz").read_bytes())[8:]
        return np.frombuffer(pictures, np.uint8).reshape(-1, 28, 28), np.frombuffer(
            labels, np.uint8
        )

    def store(path: Path, pictures: Any, labels: Any) -> None:
        rows = (pictures.reshape(-1, 28) / 255).astype(np.float32)
        np.savez(path, values=rows, lengths=np.full(len(labels), 28), labels=labels.astype(str))

    (pictures, labels), (others, truth) = part("train"), part("t10k")
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    test = folder / "vectors.test.npz"
    store(test, others[:2000], truth[:2000])
    for size in sizes:
        cut = folder / f"vectors.{size}.npz"
        store(cut, pictures[order[:size]], labels[order[:size]])
        yield File(f"vectors {size}", "classify", (cut,), (test,), "accuracy")


def hours(data: Path, folder: Path, sizes: Sequence[int]) -> Iterator[File]:
    """ETTh1, only the oil temperature: the rows before month 16, and the rest as test part."""
    header, *rows = text(data / "ett" / "ETTh1.csv.gz").splitlines()
    columns = header.split(",")
    place = columns.index("OT")
    cells = [f"{row.split(',')[0]},{row.split(',')[place]}" for row in rows]
    test = folder / "hours.test.csv"
    write(test, ["date,OT", *cells[11520:14400]])
    for size in sizes:
        cut = folder / f"hours.{size}.csv"
        count = min(size, 11520)
        write(cut, ["date,OT", *cells[11520 - count : 11520]])
        yield File(f"hours {count}", "forecast", (cut,), (test,), "mae")


def text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")


def write(path: Path, lines: Any) -> None:
    path.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    began = time.perf_counter()
    main()
    print(
        f"\n{time.perf_counter() - began:.0f} s in all, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
