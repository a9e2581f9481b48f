"""Event files, read again by a few lines that know the format, and by TensorBoard itself where it is installed."""

import json
import struct

import numpy as np
import pytest

import seqlab
from seqlab.data.synthetic import reversals
from seqlab.training.log import MetricsFile

SMALL = [
    "model.embedding=8",
    "model.encoder.size=8",
    "model.decoder.size=8",
    "source.size=300",
    "train.validate_every=20",
]


def crc32c(content):
    """Bit by bit, by the reversed polynomial."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def fields(message):
    """Field numbers and values of a protobuf message."""
    place = 0

    def varint():
        nonlocal place
        value = shift = 0
        while True:
            byte, place = message[place], place + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while place < len(message):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
            continue
        length = {1: 8, 5: 4}.get(wire) or varint()
        content, place = message[place : place + length], place + length
        yield number, struct.unpack({1: "<d", 5: "<f"}[wire], content)[0] if wire in (1, 5) else content


def events(folder):
    """All events of a folder, their check sums checked."""
    for path in sorted(folder.glob("*tfevents*")):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            record, content = content[: length + 16], content[length + 16 :]
            for part, check in ((record[:8], record[8:12]), (record[12:-4], record[-4:])):
                crc = crc32c(part)
                turned = (crc >> 15 | crc << 17) & 0xFFFFFFFF
                assert struct.pack("<I", (turned + 0xA282EAD8) & 0xFFFFFFFF) == check
            yield dict(fields(record[12:-4]))


def scalars(folder):
    """(curve, step) -> number."""
    found = {}
    for event in events(folder):
        for _, value in fields(event.get(5, b"")):
            parts = dict(fields(value))
            found[parts[1].decode(), event[2]] = parts[2]
    return found


def logged(path):
    """The same of metrics.jsonl."""
    found = {}
    for row in map(json.loads, path.read_text().splitlines()):
        step, validation = row.pop("step"), row.pop("validation", {})
        row.pop("best", None)
        groups = {"train": row, "validation": validation}
        found |= {(f"{group}/{name}", step): v for group, part in groups.items() for name, v in part.items()}
    return found


def test_the_check_sum_is_the_one_that_is_published():
    assert crc32c(b"123456789") == 0xE3069283


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in reversals(60, seed=1)))
    wanted = [*SMALL, "train.steps=40", "train.tensorboard=true"]
    seqlab.train("translate", folder / "pairs.tsv", recipe="seq2seq", settings=wanted, out=folder / "run")
    seqlab.train(settings=["train.steps=60"], out=folder / "run", resume=True)
    return folder / "run" / "run"


def test_the_curves_are_the_numbers_of_the_log_through_a_resumed_run(run):
    read, known = scalars(run), logged(run / "metrics.jsonl")
    assert read.keys() == known.keys()
    assert {step for _, step in known} == {20, 40, 60}
    assert {"train/loss", "train/learning_rate", "validation/loss", "validation/exact"} <= {name for name, _ in read}
    for key, value in known.items():
        assert read[key] == np.float32(value)


def test_each_file_says_what_it_is_and_when(run):
    files = sorted(run.glob("*tfevents*"))
    assert len(files) == 2  # a run, and the same gone on with
    first, *others = events(run)
    assert first[3] == b"brain.Event:2"
    times = [event[1] for event in (first, *others)]
    assert times == sorted(times)


def test_tensorboard_reads_the_same(run, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = accumulator.EventAccumulator(str(run)).Reload()
    for (name, step), value in logged(run / "metrics.jsonl").items():
        assert np.float32(value) in [each.value for each in read.Scalars(name) if each.step == step]
    metrics = MetricsFile(tmp_path / "metrics.jsonl", tensorboard=True)
    for step in (20, 40, 300):
        metrics.append(step, loss=step / 10)
    metrics = MetricsFile(tmp_path / "metrics.jsonl", tensorboard=True)
    metrics.cut_back(40)  # as after a kill: step 300 is done again
    metrics.append(300, loss=-1.0)
    read = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(each.step, each.value) for each in read.Scalars("train/loss")] == [(20, 2.0), (40, 4.0), (300, -1.0)]


def test_nobody_who_did_not_ask_gets_event_files(tmp_path):
    MetricsFile(tmp_path / "metrics.jsonl").append(20, loss=1.0)
    silent = MetricsFile(tmp_path / "other.jsonl", writes=False, tensorboard=True)
    silent.append(20, loss=1.0)
    silent.cut_back(10)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_model_that_is_counted_has_curves_too(tmp_path):
    (tmp_path / "words.conll").write_text("the\tD\ndog\tN\n\na\tD\ncat\tN\n\n" * 3)
    wanted = ["train.tensorboard=true", "source.min_count=1"]
    seqlab.train("tag", tmp_path / "words.conll", recipe="hmm-tagger", settings=wanted, out=tmp_path / "run")
    assert scalars(tmp_path / "run" / "run").keys() == logged(tmp_path / "run" / "run" / "metrics.jsonl").keys()
