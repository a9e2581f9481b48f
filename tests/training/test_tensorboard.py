"""Curves for TensorBoard, read again by TensorBoard itself."""

import json
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import seqlab
from seqlab.data.synthetic import reversals
from seqlab.errors import UsageError
from seqlab.training.checkpoint import MetricsFile

SMALL = [
    "model.embedding=8",
    "model.encoder.size=8",
    "model.decoder.size=8",
    "source.size=300",
    "train.validate_every=20",
]
COUNTED = ["train.tensorboard=true", "source.min_count=1"]


def scalars(folder):
    """(curve, step) -> number, as TensorBoard reads them."""
    read = EventAccumulator(str(folder)).Reload()
    return {
        (name, each.step): each.value
        for name in read.Tags()["scalars"]
        for each in read.Scalars(name)
    }


def logged(path):
    """The same of metrics.jsonl."""
    curves = {}
    for row in map(json.loads, path.read_text().splitlines()):
        step, validation = row.pop("step"), row.pop("validation", {})
        row.pop("best", None)
        groups = {"train": row, "validation": validation}
        curves |= {
            (f"{group}/{name}", step): v
            for group, part in groups.items()
            for name, v in part.items()
        }
    return curves


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in reversals(60, seed=1)))
    settings = [*SMALL, "train.steps=40", "train.tensorboard=true"]
    seqlab.train(
        "translate", folder / "pairs.tsv", recipe="seq2seq", settings=settings, out=folder / "run"
    )
    seqlab.train(settings=["train.steps=60"], out=folder / "run", resume=True)
    return folder / "run" / "run"


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.conll"
    path.write_text("the\tD\ndog\tN\n\na\tD\ncat\tN\n\n" * 3)
    return path


def test_the_curves_equal_the_log_of_a_resumed_run(run):
    read, known = scalars(run), logged(run / "metrics.jsonl")
    assert read.keys() == known.keys()
    assert {step for _, step in known} == {20, 40, 60}
    assert {"train/loss", "train/learning_rate", "validation/loss", "validation/exact"} <= {
        name for name, _ in read
    }
    for key, value in known.items():
        assert read[key] == np.float32(value)


def test_repeated_steps_replace_the_old_ones(tmp_path):
    metrics = MetricsFile(tmp_path / "metrics.jsonl", tensorboard=True)
    for step in (20, 40, 300):
        metrics.append(step, loss=step / 10)
    metrics = MetricsFile(tmp_path / "metrics.jsonl", tensorboard=True)
    metrics.truncate(40)  # as after a kill: step 300 is done again
    metrics.append(300, loss=-1.0)
    assert scalars(tmp_path) == {
        ("train/loss", 20): 2.0,
        ("train/loss", 40): 4.0,
        ("train/loss", 300): -1.0,
    }


def test_without_the_package_no_training_starts(words, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        with pytest.raises(UsageError, match="needs the package tensorboard") as caught:
            seqlab.train("tag", words, recipe="hmm-tagger", settings=COUNTED, out=tmp_path / "run")
    assert caught.value.hint.startswith('pip install "seqlab[tensorboard]"')
    assert not (tmp_path / "run" / "run" / "metrics.jsonl").exists()
    assert not seqlab.train(out=tmp_path / "run", resume=True).stopped  # once it is installed


def test_event_files_are_off_by_default(tmp_path):
    MetricsFile(tmp_path / "metrics.jsonl").append(20, loss=1.0)
    silent = MetricsFile(tmp_path / "other.jsonl", writes=False, tensorboard=True)
    silent.append(20, loss=1.0)
    silent.truncate(10)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_counted_model_has_curves(words, tmp_path):
    seqlab.train("tag", words, recipe="hmm-tagger", settings=COUNTED, out=tmp_path / "run")
    assert (
        scalars(tmp_path / "run" / "run").keys()
        == logged(tmp_path / "run" / "run" / "metrics.jsonl").keys()
    )
