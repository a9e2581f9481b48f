"""How well `train.minutes` is kept: time of different trainings, from the first step to the end of the command.

python -m experiments.budgets --minutes 1 --busy 2
"""

import argparse
import math
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seqlab.data.scenes import make_pictures
from seqlab.data.synthetic import parity, reversals
from seqlab.training.checkpoint import MetricsFile

# task, file, recipe, settings
TRAININGS = (
    ("translate", "pairs.tsv", "seq2seq", ()),
    ("translate", "pairs.tsv", "transformer-small", ()),
    ("classify", "bits.tsv", "lstm-classifier", ()),
    ("classify", "bits.tsv", "transformer-classifier", ()),
    ("tag", "words.conll", "bilstm-tagger", ()),
    ("lm", "book.txt", "char-lstm", ()),
    ("lm", "book.txt", "gpt-tiny", ()),
    ("mask", "book.txt", "bert-tiny", ()),
    ("forecast", "waves.csv", "gru-forecast", ()),
    ("caption", "shapes.npz", None, ()),
    ("lm", "book.txt", "hmm-lm", ("train.restarts=2", "train.tolerance=0")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--busy",
        type=int,
        default=0,
        help="number of other processes that compute at the same time",
    )
    parser.add_argument("--only", type=int, nargs="*", help="only the trainings of these numbers")
    options = parser.parse_args()
    limit = 60 * options.minutes
    chosen = range(len(TRAININGS)) if options.only is None else options.only
    print("| task | recipe | seconds | of the limit | steps | validations |")
    print("|---|---|---|---|---|---|")
    worst = 0.0
    with tempfile.TemporaryDirectory() as name, busy(options.busy):
        folder = Path(name)
        write_data(folder)
        for place in chosen:
            seconds, steps, validations = measured(folder, place, options.minutes)
            worst = max(worst, seconds / limit)
            task, _, recipe, _ = TRAININGS[place]
            row = f"{seconds:.1f} | {seconds / limit:.0%} | {steps} | {validations}"
            print(f"| {task} | {recipe or 'default'} | {row} |", flush=True)
    load = f"{options.busy} busy processes, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    print(f"\n{len(chosen)} trainings of {limit:.0f} s: at most {worst:.0%} of the limit; {load}")
    sys.exit(worst > 1.1)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep `count` other processes computing in this block."""
    processes = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()


def _compute() -> None:
    while True:
        math.factorial(2000)


def measured(folder: Path, place: int, minutes: float) -> tuple[float, int, int]:
    """Return the seconds from the first step to the end, the steps, and the validations."""
    task, data, recipe, settings = TRAININGS[place]
    out = folder / f"{place}"
    words = [sys.executable, "-m", "seqlab", "train", task, str(folder / data), "-o", str(out)]
    words += ["--minutes", str(minutes), *(["--recipe", recipe] if recipe else [])]
    words += [word for setting in settings for word in ("--set", setting)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    began, said = 0.0, []
    for line in process.stderr:
        said.append(line)
        if "steps: about" in line:
            began = time.perf_counter()
    if process.wait():
        raise SystemExit("".join(said))
    seconds = time.perf_counter() - began
    rows = list(MetricsFile(out / "run" / "metrics.jsonl").rows())
    return seconds, max(row["step"] for row in rows), sum("validation" in row for row in rows)


def write_data(folder: Path) -> None:
    """Write a generated file for each kind of task."""
    draw = random.Random(0)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(3_000)]
    lines = [" ".join(draw.choices(words, k=12)) for _ in range(10_000)]
    tagged = (
        "".join(f"{word}\t{'LONG' if len(word) > 5 else 'SHORT'}\n" for word in line.split())
        for line in lines[:5000]
    )
    pairs = (f"{source}\t{target}" for source, target in reversals(20_000, seed=1, longest=12))
    bits = (f"{label}\t{' '.join(each)}" for each, label in parity(20_000, seed=1))
    days = (f"{2000 + day // 336}-{1 + day // 28 % 12:02}-{1 + day % 28:02}" for day in range(5000))
    waves = (f"{day},{math.sin(number):.3f}" for number, day in enumerate(days))
    (folder / "book.txt").write_text("\n".join(lines), "utf-8")
    (folder / "words.conll").write_text("\n".join(tagged), "utf-8")
    (folder / "pairs.tsv").write_text("\n".join(pairs), "utf-8")
    (folder / "bits.tsv").write_text("\n".join(bits), "utf-8")
    (folder / "waves.csv").write_text("\n".join(["time,value", *waves]), "utf-8")
    make_pictures("shapes", 1000, folder / "shapes.npz", seed=1)


if __name__ == "__main__":
    main()
