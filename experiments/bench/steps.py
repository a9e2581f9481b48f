"""A whole training step of this checkout and of another one, in turn: data, forward, backward, optimiser.

    python -m experiments.bench.steps --beside ../before --case small --rounds 12

Each side is a process of its own that makes a step when it is told to, one thread each, and counts processor time.
Every step has a batch that it has not met before. `--precision` names the precisions in which this checkout trains.
"""

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

CASES = {
    "small": "transformer-small",
    "base": "transformer-base",
    "bert-tiny": "bert-tiny",
    "gpt-tiny": "gpt-tiny",
    "char-lstm": "char-lstm",
    "char-gru": "char-gru",
}
SETTINGS = {
    "small": [
        *("model.dropout=0.1", "train.steps=100000", "shared=true"),
        *(
            f"model.{part}.{name}"
            for part in ("encoder", "decoder")
            for name in ("size=192", "layers=3")
        ),
    ],
    "base": ["train.steps=100000"],
    "bert-tiny": ["train.steps=100000"],
}
VOCABULARY, CHARACTERS, TOKENS = 8000, 65, 2048
WARM = 4  # steps before the first that counts


class Generated:
    """Numbered batches of random tokens, as long as Multi30k's sentences, as texts, or as streams."""

    def __init__(self, case: str, settings: Any) -> None:
        self.case, self.settings = case, settings
        self.streams = CASES[case].startswith(("char-", "gpt-"))
        self.carries = CASES[case].startswith("char-")

    def num_batches(self, epoch: int) -> int:
        return 10**6

    def batch(self, epoch: int, index: int) -> Any:
        import torch

        from seqlab.padded import Batch, Padded

        draw = torch.Generator().manual_seed(index)
        settings = self.settings
        if self.streams:
            shape = (settings.batch_rows, settings.bptt + 1)
            ids = torch.randint(CHARACTERS, shape, generator=draw)
            return Batch(torch.arange(len(ids)), target=Padded.from_rows(list(ids)))
        if self.case == "bert-tiny":
            lengths = torch.full((settings.batch_tokens // 64, 1), 64)
        else:
            longest = int(torch.randint(8, 32, (1,), generator=draw))
            lengths = torch.randint(
                longest - 2, longest + 1, (TOKENS // longest, 2), generator=draw
            )
        sides = [
            Padded.from_rows(
                [torch.randint(10, VOCABULARY, (int(n),), generator=draw) for n in side]
            )
            for side in lengths.T
        ]
        return Batch(
            torch.arange(len(lengths)), source=sides[0], target=sides[1] if len(sides) > 1 else None
        )


def work() -> None:
    """The body of a process: build the case of the first line, then make a step for each line that follows."""
    import seqlab  # noqa: F401  as every training does, before torch is loaded

    # isort: split
    import torch

    from seqlab.models.build import (
        build_decoder,
        build_encoder,
        build_seeded,
        build_seq2seq,
        embedding_of,
    )
    from seqlab.padded import Tokens
    from seqlab.recipe import load_recipe, override
    from seqlab.training.gradient import GradientLearner

    torch.set_num_threads(1)
    _keep_memory()
    order = json.loads(sys.stdin.readline())
    case = order["case"]
    recipe = override(load_recipe(CASES[case]), [*SETTINGS.get(case, ()), *order["settings"]])

    def build() -> torch.nn.Module:
        from seqlab.layers.linear import Head
        from seqlab.models.masked import MaskedLanguageModel
        from seqlab.models.seq2seq import LanguageModel

        if recipe.task == "lm":
            return LanguageModel(build_decoder(recipe, CHARACTERS))
        if recipe.task == "mask":
            encoder = build_encoder(recipe, Tokens(VOCABULARY))
            head = Head(encoder.output_size, VOCABULARY, tied=embedding_of(encoder).weight)
            return MaskedLanguageModel(
                encoder, head, num_tokens=VOCABULARY, share=recipe.model.masked
            )
        return build_seq2seq(recipe, Tokens(VOCABULARY), VOCABULARY)

    model = build_seeded(recipe, build)
    learner = GradientLearner(model, Generated(case, recipe.train), recipe.train)
    for _ in sys.stdin:
        began = time.process_time()
        learner.step()
        used = time.process_time() - began
        recent = learner.progress.recent[-1]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"cpu": used, "loss": recent[0] / recent[1], "peak": peak}), flush=True)


def _keep_memory() -> None:
    """What every training does: freed memory stays with the process for the next step."""
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(-3, 1 << 30)
        ctypes.CDLL(None).mallopt(-1, (1 << 31) - 1)


class Side:
    """A checkout that makes steps."""

    def __init__(self, checkout: Path, case: str, settings: list[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(checkout.resolve()), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-P", __file__, "work"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env=environment)
        self._say(json.dumps({"case": case, "settings": settings}))

    def step(self) -> dict[str, float]:
        self._say("step")
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


def compare(
    checkouts: dict[str, Path], case: str, settings: dict[str, list[str]], rounds: int
) -> dict[str, Any]:
    """Medians of processor time, the ratio of neighbours, the mean loss and the peak memory of each side."""
    sides = {name: Side(path, case, settings[name]) for name, path in checkouts.items()}
    done: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(WARM + rounds):
        for name, side in sides.items():
            done[name].append(side.step())
    for side in sides.values():
        side.process.kill()
    first, *_ = done
    return {
        name: {
            "ms": 1000 * median(each["cpu"] for each in steps[WARM:]),
            "ratio": median(
                before["cpu"] / now["cpu"]
                for before, now in zip(done[first][WARM:], steps[WARM:], strict=True)
            ),
            "loss": sum(each["loss"] for each in steps) / len(steps),
            "peak": steps[-1]["peak"],
        }
        for name, steps in done.items()
    }


def rows(case: str, result: dict[str, Any]) -> Iterator[str]:
    """Rows for a table in Markdown."""
    for name, each in result.items():
        yield (
            f"| {case} | {name} | {each['ms']:.0f} ms | {each['ratio']:.2f} "
            f"| {each['peak']:.0f} MB | {each['loss']:.4f} |"
        )


def main() -> None:
    import argparse

    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--beside", type=Path, required=True, help="another checkout")
    words.add_argument("--case", nargs="*", default=list(CASES), choices=list(CASES))
    words.add_argument("--precision", nargs="*", default=["float32", "auto"])
    words.add_argument("--rounds", type=int, default=12)
    asked = words.parse_args()
    here = Path(__file__).resolve().parents[2]
    print("| step | precision | processor time | times as fast | peak memory | mean loss |")
    print("|---|---|---|---|---|---|", flush=True)
    for case in asked.case:
        checkouts = {"before": asked.beside} | dict.fromkeys(asked.precision, here)
        settings = {"before": list[str]()} | {
            name: [f"train.precision={name}"] for name in asked.precision
        }
        print(*rows(case, compare(checkouts, case, settings, asked.rounds)), sep="\n", flush=True)


if __name__ == "__main__":
    work() if sys.argv[1:] == ["work"] else main()
