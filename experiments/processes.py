"""Training speed of one and two processes and of one with two threads, in turn, on an idle machine.

    python experiments/processes.py [--rounds 3] [--steps 40] [--recipe transformer-small]

Each trains the same batches; its speed is the mean over its last 20 steps, and the table has medians over the rounds.
The efficiency is the speed beside that of one process with one thread, for each core that is used.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from seqlab.data.synthetic import reversals

WAYS = ((1, 1), (2, 1), (1, 2))  # processes, threads of each
SETTINGS = ("source.kind=characters", "shared=false")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--recipe", default="transformer-small")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = reversals(4000, seed=1, longest=20)
        (folder / "pairs.tsv").write_text(
            "".join(f"{source}\t{target}\n" for source, target in pairs)
        )
        seen = [
            [measured(folder, way, asked.recipe, asked.steps) for way in WAYS]
            for _ in range(asked.rounds)
        ]
    by_way = [[run[place] for run in seen] for place in range(len(WAYS))]
    speeds = [statistics.median(speed for speed, _ in runs) for runs in by_way]
    print("| processes | threads of each | tokens/s | times | efficiency | loss at the end |")
    print("|---|---|---|---|---|---|")
    for (processes, threads), speed, runs in zip(WAYS, speeds, by_way, strict=True):
        times = speed / speeds[0]
        figures = (
            f"{speed:,.0f} | {times:.2f} | {times / (processes * threads):.0%} | {runs[0][1]:.6f}"
        )
        print(f"| {processes} | {threads} | {figures} |")


def measured(folder: Path, way: tuple[int, int], recipe: str, steps: int) -> tuple[float, float]:
    """Return the tokens per second of a short training, and its loss."""
    processes, threads = way
    torchrun = (
        ["-m", "torch.distributed.run", f"--nproc-per-node={processes}"] if processes > 1 else []
    )
    settings = [*SETTINGS, f"train.steps={steps}", f"train.validate_every={steps}"]
    words = [
        "train",
        "translate",
        folder / "pairs.tsv",
        "-r",
        recipe,
        "--threads",
        threads,
        "--overwrite",
        "-q",
    ]
    words += ["-o", folder / "m", *(word for setting in settings for word in ("-s", setting))]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [*map(str, [sys.executable, *torchrun, "-m", "seqlab", *words])]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    rows = map(json.loads, (folder / "m" / "run" / "metrics.jsonl").read_text().splitlines())
    last = [row for row in rows if "tokens_per_second" in row][-1]
    return last["tokens_per_second"], last["loss"]


if __name__ == "__main__":
    main()
