"""Small models of several tasks, trained in seconds, and a real server of them on this machine."""

import random
import threading
from dataclasses import replace

import pytest

from seqlab import lab
from seqlab.data.scenes import make_pictures
from seqlab.data.synthetic import parity, reversals
from seqlab.serve.client import Client
from seqlab.serve.limits import ServerLimits
from seqlab.serve.server import Server

SMALL = ["model.embedding=8", "train.validate_every=5", "train.steps=10"]
PICTURES = [
    *(
        "image.height=8",
        "image.width=8",
        "model.encoder.size=8",
        "model.encoder.layers=2",
        "model.encoder.channels=4",
    ),
    *("model.decoder.size=8", "target.min_count=1", "decode.max_length=6", "data.validation=0.5"),
]
SIZES = {side: f"model.{side}.size=16" for side in ("encoder", "decoder")}
PATIENCE = 30.0  # seconds, for what should be immediate


def _lines(num, seed):
    keyed = random.Random(seed)
    subjects, verbs = (
        ("the cat", "a dog", "the time traveller"),
        ("sat", "ran", "said nothing", "went on"),
    )
    return [f"{keyed.choice(subjects)} {keyed.choice(verbs)}" for _ in range(num)]


def _tagged(num, seed):
    keyed = random.Random(seed)
    kinds = {"NUM": "0123456789", "WORD": "abcdef"}
    for _ in range(num):
        for _ in range(keyed.randint(1, 6)):
            tag = keyed.choice(sorted(kinds))
            yield f"{keyed.choice(kinds[tag])} {tag}"
        yield ""


def _waves(num, seed):
    keyed = random.Random(seed)
    yield "date,low,high"
    for hour in range(num):
        values = [size * ((hour % 8) + keyed.gauss(0, 0.1)) for size in (1, 10)]
        yield f"2024-01-{1 + hour // 24:02d} {hour % 24:02d}:00,{values[0]:.3f},{values[1]:.3f}"


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """One trained model of each of these tasks, which tests must not change."""
    folder = tmp_path_factory.mktemp("served")
    lines = {
        "translate": (
            ".tsv",
            [f"{source}\t{target}" for source, target in reversals(300, seed=1, longest=6)],
        ),
        "lm": (".txt", _lines(200, seed=1)),
        "classify": (".tsv", [f"{label}\t{' '.join(bits)}" for bits, label in parity(300, seed=1)]),
        "tag": (".conll", _tagged(100, seed=1)),
        "mask": (".txt", _lines(100, seed=2)),
        "forecast": (".csv", _waves(300, seed=1)),
    }
    both = [
        *SIZES.values(),
        "shared=false",
        "source.kind=characters",
        "target.kind=characters",
        "data.max_source=30",
    ]
    sizes = {
        "translate": [
            *both,
            "decode.max_length=12",
            "train.steps=100",
            "train.validate_every=50",
            "train.learning_rate=0.02",
        ],
        "lm": [SIZES["decoder"], "train.bptt=16", "train.batch_rows=4", "decode.max_length=20"],
        "classify": [SIZES["encoder"], "source.min_count=1"],
        "tag": [SIZES["encoder"], "source.min_count=1"],
        "mask": [SIZES["encoder"], "model.encoder.layers=1", "source.size=280"],
        "forecast": [
            SIZES["encoder"],
            "forecast.look_back=16",
            "forecast.horizon=4",
            "forecast.patch=4",
        ],
    }
    for task, (suffix, text) in lines.items():
        data = folder / f"{task}-data{suffix}"
        data.write_text("".join(line + "\n" for line in text), "utf-8")
        recipe = "seq2seq" if task == "translate" else None  # learns enough in few steps
        lab.train(task, data, recipe=recipe, settings=[*SMALL, *sizes[task]], out=folder / task)
    make_pictures("shapes", 24, folder / "caption-data.npz", seed=1)
    lab.train(
        "caption", folder / "caption-data.npz", settings=[*SMALL, *PICTURES], out=folder / "caption"
    )
    return {task: folder / task for task in (*lines, "caption")}


@pytest.fixture(scope="session")
def offline(folders):
    """The same models, as they are used without a server."""
    return {name: lab.load(folder) for name, folder in folders.items()}


@pytest.fixture(scope="session")
def serving():
    """A function that starts a server in a thread; all are stopped at the end."""
    running = []

    def start(folders, *, token=None, host="127.0.0.1", **bounds):
        limits = replace(ServerLimits(), **bounds)
        server = Server(list(folders), host=host, port=0, token=token, limits=limits)
        server.start()
        running.append(server)
        return server

    yield start
    stopping = [threading.Thread(target=server.stop) for server in running]
    for each in stopping:
        each.start()
    for each in stopping:
        each.join(PATIENCE)


@pytest.fixture(scope="session")
def server(serving, folders):
    return serving(folders.values())


@pytest.fixture(scope="session")
def client(server):
    return Client(server.address, timeout=PATIENCE)
