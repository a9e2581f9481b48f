"""The command line: in this process (`run`) if possible, in a process of its own (`start`) otherwise."""

import math
import os
import random
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from seqlab.data.scenes import make_pictures
from seqlab.data.synthetic import parity, reversals

SMALL = ("model.embedding=8", "train.validate_every=10")
ENCODER, DECODER = ("model.encoder.size=12",), ("model.decoder.size=12",)


def settings(*values):
    return [word for value in values for word in ("--set", value)]


@pytest.fixture(scope="session")
def small():
    """A function that returns the options for a tiny model of a task; a translator is then recurrent."""

    def small(task, steps=4):
        sizes = {
            "lm": DECODER,
            "classify": ENCODER,
            "tag": (*ENCODER, "source.min_count=1"),
            "translate": (),
        }
        sizes["forecast"] = (
            *ENCODER,
            "forecast.look_back=16",
            "forecast.horizon=4",
            "forecast.patch=4",
        )
        sizes |= {
            "bilm": ("model.encoder.size=8",),
            "mask": (*ENCODER, "model.encoder.layers=1", "source.size=280"),
        }
        sizes |= {
            "caption": (*ENCODER, *DECODER, "image.height=8", "image.width=8", "target.min_count=1")
        }
        sizes |= {"speak": (*ENCODER, *DECODER, "data.max_target=40")}
        sizes = sizes[task]
        if task == "translate":
            sizes = (
                *ENCODER,
                *DECODER,
                "shared=false",
                "source.kind=characters",
                "data.max_source=30",
            )
        if task == "classify":
            sizes = (*sizes, "source.min_count=1")
        recipe = ["--recipe", "seq2seq"] if task == "translate" else []
        return [*recipe, *settings(*SMALL, *sizes, f"train.steps={steps}")]

    return small


@pytest.fixture
def start():
    """A function that starts a process; what still runs at the end of the test is killed."""
    running = []

    def start(*words, env=(), **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        environment = {**usual, "OMP_NUM_THREADS": "1", **dict(env)}
        words = [sys.executable, "-m", "seqlab", *map(str, words)]
        process = subprocess.Popen(words, env=environment, **options)
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """One generated file for each task."""
    folder = tmp_path_factory.mktemp("files")
    texts = {
        "translate": (
            "pairs.tsv",
            [f"{source}\t{target}" for source, target in reversals(300, seed=1, longest=6)],
        ),
        "classify": (
            "bits.tsv",
            [f"{label}\t{' '.join(bits)}" for bits, label in parity(300, seed=1)],
        ),
        "tag": ("words.conll", list(_sentences(100, seed=1))),
        "lm": ("book.txt", list(_book(200, seed=1))),
        "mask": ("text.txt", list(_book(100, seed=2))),
        "bilm": ("lines.txt", list(_book(100, seed=2))),
        "forecast": ("waves.csv", list(_waves(300, seed=1))),
    }
    paths = {}
    for task, (name, text) in texts.items():
        paths[task] = folder / name
        paths[task].write_text("".join(line + "\n" for line in text), "utf-8")
    paths["caption"] = folder / "shapes.npz"
    make_pictures("shapes", 60, paths["caption"], seed=1)
    paths["speak"] = folder / "frames.npz"
    texts = [source for source, _ in reversals(60, seed=3, longest=6)]
    frames = [
        [[ord(letter) % 5, ord(letter) % 3] for letter in text for _ in range(2)] for text in texts
    ]
    lengths = [len(each) for each in frames]
    np.savez(
        paths["speak"],
        values=np.concatenate(frames).astype(np.float32),
        lengths=lengths,
        labels=texts,
    )
    return paths


@pytest.fixture(scope="session")
def models(tmp_path_factory, files, small, run):
    """One small model for each task, trained through the command line; tests must not change them."""
    folder = tmp_path_factory.mktemp("models")
    extra = {"lm": settings("train.bptt=16", "train.batch_rows=4", "decode.max_length=20")}
    for task, path in files.items():
        result = run(
            "train",
            task,
            path,
            "--out",
            folder / task,
            "-q",
            *small(task, steps=30),
            *extra.get(task, []),
        )
        assert result.code == 0, result.stderr
    return {task: folder / task for task in files}


@pytest.fixture
def untouched():
    """A function from a directory to its content: names, bytes and modification times."""

    def contents(folder: Path):
        return {
            str(path.relative_to(folder)): (
                path.stat().st_mtime_ns,
                path.read_bytes() if path.is_file() else None,
            )
            for path in sorted(folder.rglob("*"))
        }

    return contents


def _sentences(num, *, seed):
    keyed = random.Random(seed)
    kinds = {"NUM": "0123456789", "NAME": "ABCDEF", "WORD": "abcdef"}
    for _ in range(num):
        for _ in range(keyed.randint(1, 6)):
            tag = keyed.choice(sorted(kinds))
            yield f"{keyed.choice(kinds[tag])} {tag}"
        yield ""


def _waves(num, *, seed):
    """Two columns with a period of eight hours, the second ten times as high, some values missing."""
    keyed = random.Random(seed)
    yield "date,low,high"
    for hour in range(num):
        moment = f"2024-01-{1 + hour // 24:02d} {hour % 24:02d}:00"
        values = [math.sin(hour * math.pi / 4) + keyed.gauss(0, 0.1) for _ in range(2)]
        cells = [
            "" if keyed.random() < 0.02 else f"{size * v:.3f}"
            for v, size in zip(values, (1, 10), strict=True)
        ]
        yield ",".join([moment, *cells])


def _book(num, *, seed):
    keyed = random.Random(seed)
    subjects, verbs = (
        ("the cat", "a dog", "the time traveller"),
        ("sat", "ran", "said nothing", "went on"),
    )
    return islice(iter(lambda: f"{keyed.choice(subjects)} {keyed.choice(verbs)}", None), num)
