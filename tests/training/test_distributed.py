"""Two real processes under torchrun learn what one learns: the curve is the same up to rounding."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pytest
import torch
from torch import nn, ones

import seqlab
from seqlab.data.synthetic import reversals
from seqlab.distributed import World
from seqlab.errors import RecipeError
from seqlab.padded import Batch, Padded
from seqlab.recipe import load_recipe, override
from seqlab.training.checkpoint import read_checkpoint
from seqlab.training.loss import own_rows, part, sharded, spread, whole

HOME = str(Path(seqlab.__file__).parent.parent)
# A small run in double precision, of examples or of carried streams; it prints the loss of each step.
SCRIPT = """
import gc, json, sys
from pathlib import Path
import torch
from seqlab.tasks import build_model
from seqlab.codecs.codec import Codec, Nothing
from seqlab.codecs.text import TextTarget
from seqlab.padded import Batch, Padded
from seqlab.recipe import build_recipe
from seqlab.text import Normaliser, learn
from seqlab.training.gradient import GradientLearner
from seqlab.training.log import SilentReporter
from seqlab.training.loss import mean_loss
from seqlab.training.weights import optimizer_tensors
from seqlab.training.run import Run
from seqlab.training.loss import part
from seqlab.distributed import worker_group

folder, steps, kind, dtype = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], getattr(torch, sys.argv[4])

class Batches:
    carries = kind == "streams"

    def num_batches(self, epoch):
        return 5

    def batch(self, epoch, index):
        random = torch.Generator().manual_seed(10 * epoch + index)
        sizes = [9] * 3 if self.carries else torch.randint(3, 9, (1 + index,), generator=random).tolist()
        rows = [[2, *torch.randint(6, 9, (n,), generator=random).tolist(), 3] for n in sizes]
        numbers = torch.arange(len(rows)) + (0 if self.carries else 10 * index)
        return Batch(numbers, target=Padded.from_rows(rows))

class Watch(SilentReporter):
    curve = []

    def step(self, step):
        self.curve.append(step.loss)

def validate():
    # only the first process reads this row, for which its table of positions grows
    mean_loss(model, [Batch(torch.arange(1), target=Padded.from_rows([[2, *[6] * 100, 3]]))], carries=False)
    return {"loss": 1.0}

with worker_group() as world:
    stop = int(sys.argv[5])
    train = {"steps": steps, "validate_every": 7, "warmup": 5, **json.loads(sys.argv[6])}
    layer = {"kind": "lstm", "size": 8} if kind == "streams" else {"kind": "transformer", "size": 8, "heads": 2}
    table = {"embedding": 8, "dropout": 0.2, "tie": True, "decoder": layer}
    table = {"name": "t", "task": "lm", "train": train, "model": table}
    recipe = build_recipe(table, where="test")
    codec = Codec(Nothing(), TextTarget(learn("characters", ["abc"], normaliser=Normaliser())))
    model = build_model(recipe, codec).to(dtype)
    folder.mkdir(exist_ok=True)
    watch = Watch()
    learner = GradientLearner(model, Batches(), recipe.train, world)
    run = Run(learner, recipe.train, validate=validate, folder=folder, report=watch, world=world)
    if (folder / "last.safetensors").exists():
        run.restore()
    run.fit(stop=lambda: world.rank == 0 and run.progress.step >= stop)  # asked in one process alone
    if world.leads:
        remembered = optimizer_tensors(learner.optimizers).values()
        print(json.dumps([sum(part(each).numel() for each in remembered), watch.curve]))
        del remembered

# What FSDP has wrapped must be gone before Python ends, where torch else aborts in about one of twelve times.
del model, learner, run
gc.collect()
"""


MUON = {"average": "ema", "optimizer": "muon"}


def curve(*args, **options):
    return ran(*args, **options)[1]


def ran(folder, *, processes, steps, kind="rows", dtype="float64", stop=10**9, train=MUON):
    """How many numbers the first process's optimiser remembers, and the loss of each step."""
    script = folder.parent / "script.py"
    script.write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    words = [
        *(launch if processes > 1 else [sys.executable]),
        script,
        folder,
        steps,
        kind,
        dtype,
        stop,
        json.dumps(train),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": HOME}
    done = subprocess.run(
        [*map(str, words)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("dtype", "steps", "apart"), [("float64", 200, 1e-9), ("float32", 20, 1e-5)]
)
def test_two_processes_learn_like_one(tmp_path, dtype, steps, apart):
    """Batches of one row too, where a process has nothing to do."""
    one = curve(tmp_path / "one", processes=1, steps=steps, dtype=dtype)
    two = curve(tmp_path / "two", processes=2, steps=steps, dtype=dtype)
    assert len(one) == steps
    assert max(abs(a - b) for a, b in zip(one, two, strict=True)) < apart
    assert one[0] > one[-1]


def test_a_run_resumes_with_another_number_of_processes(tmp_path):
    """Streams of an odd number of rows, whose states are carried from batch to batch."""
    whole = curve(tmp_path / "whole", processes=1, steps=40, kind="streams")
    first = curve(tmp_path / "parts", processes=2, steps=40, kind="streams", stop=23)
    rest = curve(tmp_path / "parts", processes=1, steps=40, kind="streams")
    assert len(first) == 23
    assert max(abs(a - b) for a, b in zip(whole, [*first, *rest], strict=True)) < 1e-9


@pytest.mark.parametrize("average", ["ema", "last"])
def test_sharded_weights_learn_the_same_and_are_saved_whole(tmp_path, average):
    """FSDP2, stopped and resumed; then the same run goes on in one process."""
    train = {"average": average, "average_last": 2, "shard": True, "keep": 1}
    numbers, whole = ran(tmp_path / "whole", processes=1, steps=40, train=train)
    stops = ((2, 10), (2, 23), (1, 99))
    held, parts = zip(
        *(ran(tmp_path / "parts", processes=n, steps=40, train=train, stop=s) for n, s in stops),
        strict=True,
    )
    assert [len(part) for part in parts] == [10, 13, 17]
    assert max(abs(a - b) for a, b in zip(whole, chain(*parts), strict=True)) < 1e-9
    assert held[0] == held[1] < 0.6 * numbers
    assert held[2] == numbers
    for file in ("last", "best", "kept/00000040"):
        tensors, expected = (
            read_checkpoint(tmp_path / name / f"{file}.safetensors")[1]
            for name in ("parts", "whole")
        )
        assert tensors.keys() == expected.keys()
        for group in expected:
            torch.testing.assert_close(tensors[group], expected[group], atol=1e-9, rtol=1e-9)


def test_the_processes_share_all_rows():
    batch = Batch(torch.arange(5), target=Padded.from_rows([[i] * (i + 1) for i in range(5)]))
    shares = [batch.rows_at(World(rank, 3).own_rows(5)) for rank in range(3)]
    assert [share.rows.tolist() for share in shares] == [[0, 3], [1, 4], [2]]
    assert [row.tolist() for row in shares[1].target.rows()] == [[1, 1], [4] * 5]
    assert own_rows((torch.arange(5),), World(2, 3))[0].tolist() == [2]


def test_a_scalar_weight_is_not_sharded():
    model = nn.Module()
    model.gain = nn.Parameter(ones(()))
    with pytest.raises(RecipeError, match="weight 'gain' is a single number"):
        sharded(model, 2)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            ["train.optimizer=muon"],
            "'muon' needs complete matrices; with 'shard', use the optimizer 'adamw' or 'sgd'",
        ),
        (
            ["train.steps=none", "train.epochs=none", "train.minutes=1"],
            "with 'shard', give 'steps' or 'epochs'",
        ),
    ],
)
def test_incompatible_settings_are_refused(settings, told):
    with pytest.raises(RecipeError) as caught:
        override(load_recipe("char-lstm"), ["train.optimizer=adamw", "train.shard=true", *settings])
    assert told in str(caught.value)


def test_a_single_process_needs_no_communication():
    weight = ones(3)
    assert whole(weight) is part(weight) is spread(weight, weight) is weight


@pytest.mark.slow
def test_a_run_with_a_killed_and_restarted_worker_gives_the_same_result(tmp_path):
    data = tmp_path / "pairs.tsv"
    data.write_text("".join(f"{a}\t{b}\n" for a, b in reversals(400, seed=1, longest=6)))
    settings = [
        "train.steps=600",
        "train.validate_every=20",
        "model.encoder.size=16",
        "model.decoder.size=16",
    ]
    words = [
        "-m",
        "seqlab",
        "train",
        "translate",
        data,
        "--recipe",
        "dates",
        *(w for s in settings for w in ("-s", s)),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": HOME}

    def launch(out):
        torchrun = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node=2",
            "--max-restarts=3",
        ]
        command = [*map(str, [*torchrun, *words, "--out", out])]
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    with launch(tmp_path / "whole") as whole:
        assert whole.wait(timeout=600) == 0
    log = tmp_path / "killed" / "run" / "metrics.jsonl"
    with launch(tmp_path / "killed") as killed:
        while not log.exists() or '"step": 100' not in log.read_text():
            assert killed.poll() is None
            time.sleep(0.05)
        children = subprocess.run(
            ["pgrep", "-P", str(killed.pid)], capture_output=True, text=True, check=True
        )
        os.kill(int(children.stdout.split()[-1]), signal.SIGKILL)
        output, _ = killed.communicate(timeout=600)
    assert killed.returncode == 0, output
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]
