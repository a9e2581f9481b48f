"""Interrupt trainings at random moments; measure how long they take to stop, and check that their work is saved.

python -m experiments.interruptions --times 50
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqlab.data.synthetic import parity, reversals
from seqlab.training.checkpoint import MetricsFile, read_checkpoint

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# name: task, file, settings
TRAININGS = {
    "translate": (
        "translate",
        "pairs.tsv",
        ["train.steps=400", "train.validate_every=20", "data.validation=0.2"],
    ),
    "tokenizer": (
        "lm",
        "book.txt",
        ["data.unit=line", "target.kind=bpe", "target.size=4000", "train.steps=20"],
    ),
    "classify": ("classify", "bits.tsv", ["train.steps=60", "train.validate_every=10"]),
    "large steps": (
        "lm",
        "book.txt",
        ["model.decoder.size=512", "train.bptt=128", "train.batch_rows=24"],
    ),
}
SECONDS = {
    "preparation": (0.0, 6.0),
    "run": (0.0, 15.0),
}  # how long to wait, from the start or from the first step


@dataclass(frozen=True)
class Interruption:
    """The reaction of a training to a signal."""

    training: str
    signal: str
    phase: str
    seconds: float  # until the process had ended
    code: int
    saved: str  # the step of the checkpoint, and the last one in the log
    problem: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| training | signal | phase | seconds | exit code | step saved / logged | problem |")
    print("|---|---|---|---|---|---|---|")
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        for result in interruptions(folder, options.times, random.Random(options.seed)):
            results.append(result)
            print(
                f"| {result.training} | {result.signal} | {result.phase} | {result.seconds:.2f} | {result.code} | "
                f"{result.saved} | {result.problem} |",
                flush=True,
            )
    seconds = sorted(result.seconds for result in results)
    late = sum(second > 2 for second in seconds)
    problems = sum(bool(result.problem) for result in results)
    print(
        f"\n{len(results)} interruptions: median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s, "
        f"{late} later than 2 s, {problems} with a problem; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    sys.exit(bool(late or problems))


def write_data(folder: Path) -> None:
    """Write training files, large enough for the preparation to take seconds."""
    draw = random.Random(0)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(40_000)]
    lines = [" ".join(draw.choices(words, k=12)) for _ in range(40_000)]
    (folder / "book.txt").write_text("\n".join(lines), "utf-8")
    pairs = (f"{source}\t{target}" for source, target in reversals(50_000, seed=1, longest=12))
    (folder / "pairs.tsv").write_text("\n".join(pairs), "utf-8")
    bits = (f"{label}\t{' '.join(each)}" for each, label in parity(20_000, seed=1))
    (folder / "bits.tsv").write_text("\n".join(bits), "utf-8")


def interruptions(folder: Path, times: int, draw: random.Random) -> Iterator[Interruption]:
    """Interrupt the trainings in turn, half of them before their first step."""
    names = list(TRAININGS)
    for number in range(times):
        training = names[number % len(names)]
        moment = "preparation" if number // len(names) % 2 == 0 else "run"
        yield interrupt(
            folder, training, moment, draw.choice(SIGNALS), draw.uniform(*SECONDS[moment]), number
        )


def interrupt(
    folder: Path, training: str, moment: str, number: signal.Signals, delay: float, place: int
) -> Interruption:
    """Start a training, wait, send a signal, and check the files that remain."""
    task, data, settings = TRAININGS[training]
    home = folder / f"{place}"
    home.mkdir()
    out = home / "m"
    words = [sys.executable, "-m", "seqlab", "train", task, str(folder / data), "--out", str(out)]
    words += [word for setting in settings for word in ("--set", setting)]
    with (home / "stderr").open("wb") as stderr:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=stderr)
        while (
            moment == "run"
            and process.poll() is None
            and "steps: about" not in (home / "stderr").read_text()
        ):
            time.sleep(0.05)
        time.sleep(delay)
        phase = _phase(out, (home / "stderr").read_text())
        process.send_signal(number)
        began = time.perf_counter()
        code = process.wait()
    seconds = time.perf_counter() - began
    saved, problem = _left(home, out, code, phase, number)
    return Interruption(training, number.name, phase, seconds, code, saved, problem)


def _phase(out: Path, stderr: str) -> str:
    if not (out / "run" / "recipe.toml").exists():
        return "preparation"
    if "steps: about" not in stderr:
        return "before the first step"
    last = out / "run" / "last.safetensors"
    progress = read_checkpoint(last)[0] if last.exists() else None
    if progress is not None and progress.finished and not progress.pending:
        return "scoring"
    logged = [
        row["step"]
        for row in MetricsFile(out / "run" / "metrics.jsonl").rows()
        if "validation" in row
    ]
    return (
        "validation"
        if progress and progress.pending and progress.step not in logged
        else "training"
    )


def _left(home: Path, out: Path, code: int, phase: str, number: signal.Signals) -> tuple[str, str]:
    """Return the steps that were saved and logged, and the problems of the remaining files."""
    stderr = (home / "stderr").read_text()
    if code == 0:
        return "", "" if (out / "manifest.json").exists() else "no model"
    hidden = [path.name for path in home.iterdir() if path.name.startswith(".")]
    if code != 130 and not (phase == "preparation" and code == -number):
        return "", f"exit code {code}: {stderr.strip().splitlines()[-1:]}"
    if "Traceback" in stderr or hidden:
        return "", f"left {hidden}" if hidden else "a traceback"
    if not (out / "run").exists():
        return "", "" if not out.exists() else f"left {[path.name for path in out.iterdir()]}"
    if "train --resume" not in stderr:
        return "", "no word on how to go on"
    last = out / "run" / "last.safetensors"
    step = read_checkpoint(last)[0].step if last.exists() else 0
    logged = max(
        (row["step"] for row in MetricsFile(out / "run" / "metrics.jsonl").rows()), default=0
    )
    return f"{step} / {logged}", "" if step >= logged else "steps were lost"


if __name__ == "__main__":
    main()
