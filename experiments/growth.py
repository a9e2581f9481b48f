"""Time and memory by size of the corpus and by length of the answer, on texts repeated to several sizes.

    python experiments/growth.py input.txt [--megabytes 10 1000] [--recipe char-lstm] [--steps 200]

Each text is trained on in a process of its own, whose peak of memory is its own: the whole of it, with the pages of
the memory-mapped corpus that happen to be in memory, and without them. Then the model of the first text writes
answers of several lengths.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import seqlab
from seqlab.model import Model

LENGTHS = (250, 500, 1000, 2000, 4000)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[10, 1000])
    parser.add_argument("--recipe", default="char-lstm")
    parser.add_argument("--steps", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(
            "| text | around steps | tokens/s | peak memory | of it not the corpus's pages |\n|---|---|---|---|---|"
        )
        for size in asked.megabytes:
            text = repeated(asked.text.read_text("utf-8"), size, folder / "text.txt")
            print(
                f"| {size:,} MB | {trained(text, folder / str(size), asked.recipe, asked.steps)} |",
                flush=True,
            )
        print("\n| characters written | seconds | a thousand |\n|---|---|---|")
        model = seqlab.load(folder / str(asked.megabytes[0]))
        for length in LENGTHS:
            seconds = statistics.median(written(model, length) for _ in range(5))
            print(f"| {length:,} | {seconds:.2f} | {1000 * seconds / length:.2f} |", flush=True)


def repeated(text: str, megabytes: int, path: Path) -> Path:
    """Write a file of that size by repeating a text."""
    with path.open("w", encoding="utf-8") as file:
        for _ in range(-(-megabytes * 10**6 // len(text))):
            file.write(text)
    return path


def trained(text: Path, out: Path, recipe: str, steps: int) -> str:
    """Train briefly; return seconds before the first and after the last step, tokens per second, and memory."""
    words = ["train", "lm", text, "-r", recipe, "-o", out, "-q", "-s", f"train.steps={steps}"]
    words += ["-s", f"train.validate_every={steps}"]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "seqlab", *map(str, words)], stdout=subprocess.DEVNULL
    )
    most = 0
    while process.poll() is None:
        most = max(most, anonymous(process.pid))
        time.sleep(0.05)
    whole = time.perf_counter() - began
    if process.returncode:
        raise SystemExit("the training failed")
    rows = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    speed = statistics.median(
        row["tokens_per_second"] for row in rows if "tokens_per_second" in row
    )
    peak, seconds = seqlab.load(out).metrics["peak_memory"], whole - rows[-1]["seconds"]
    return f"{seconds:.0f} s | {speed:,.0f} | {peak / 1e9:.2f} GB | {most / 1e9:.2f} GB"


def anonymous(pid: int) -> int:
    """Return the anonymous memory of a process in bytes, without mapped files."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    return next(
        (1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")),
        0,
    )


def written(model: Model, length: int) -> float:
    """Return the seconds for an answer of that length."""
    began = time.perf_counter()
    model.predict("the ", max_length=length, temperature=0.7)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
