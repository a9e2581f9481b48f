"""Training speed with one thread, two threads and the chosen number, also with other busy processes.

python -m experiments.thread_counts --busy 2 --rounds 3
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.budgets import busy
from seqlab.data.synthetic import reversals
from seqlab.training.checkpoint import MetricsFile, read_checkpoint

RECIPES = ("dates-attention", "transformer-small")
WAYS: dict[str, list[str]] = {
    "1 thread": ["--threads", "1"],
    "2 threads": ["--threads", "2"],
    "default": [],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--busy",
        type=int,
        default=2,
        help="number of other processes that compute at the same time",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=0.5, help="minutes of each training")
    options = parser.parse_args()
    print(
        f"{options.busy} busy processes on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before it began\n"
    )
    print(
        "| recipe | "
        + " | ".join(f"{way}, tokens/s" for way in WAYS)
        + " | default of the best | threads it chose |"
    )
    print("|---|" + "---|" * (len(WAYS) + 2))
    with tempfile.TemporaryDirectory() as name, busy(options.busy):
        folder = Path(name)
        pairs = reversals(20_000, seed=1, longest=20)
        (folder / "pairs.tsv").write_text(
            "".join(f"{source}\t{target}\n" for source, target in pairs)
        )
        for recipe in RECIPES:
            rounds = [
                [measured(folder, recipe, way, options.minutes) for way in WAYS]
                for _ in range(options.rounds)
            ]
            speeds = [
                statistics.median(each[place][0] for each in rounds) for place in range(len(WAYS))
            ]
            chosen = ", ".join(str(each[-1][1]) for each in rounds)
            cells = " | ".join(f"{speed:,.0f}" for speed in speeds)
            print(f"| {recipe} | {cells} | {speeds[-1] / max(speeds):.0%} | {chosen} |", flush=True)


def measured(folder: Path, recipe: str, way: str, minutes: float) -> tuple[float, int]:
    """Return the median tokens per second in the log, and the number of threads at the end."""
    words = [
        "train",
        "translate",
        folder / "pairs.tsv",
        "--recipe",
        recipe,
        *WAYS[way],
        "--minutes",
        minutes,
    ]
    words += ["--set", "train.batch_tokens=1024", "--out", folder / "m", "--overwrite", "--quiet"]
    command = [sys.executable, "-m", "seqlab", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    rows = MetricsFile(folder / "m" / "run" / "metrics.jsonl").rows()
    speeds = [row["tokens_per_second"] for row in rows if "tokens_per_second" in row]
    return statistics.median(speeds), read_checkpoint(folder / "m" / "run" / "last.safetensors")[
        0
    ].threads[-1][1]


if __name__ == "__main__":
    main()
