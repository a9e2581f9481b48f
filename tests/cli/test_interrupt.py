"""Ctrl-C: the first one saves and stops, the second one stops at once."""

import json
import random
import signal
import time
from pathlib import Path

import pytest

from seqlab.training.checkpoint import read_checkpoint

LM = ["-s", "train.bptt=16", "-s", "train.batch_rows=4"]
TRANSLATE = ["-s", "train.average=ema", "-s", "model.dropout=0.2", "-s", "train.batch_tokens=200"]
VALIDATE = ["-s", "train.validate_every=100"]


def wait_for(process, condition, seconds=60):
    """Until a condition holds, while the process is alive."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


def is_logged(out):
    metrics = out / "run" / "metrics.jsonl"
    return metrics.exists() and metrics.read_text().count("\n") > 0


@pytest.mark.parametrize(
    ("task", "name", "extra"), [("lm", signal.SIGINT, LM), ("translate", signal.SIGTERM, TRANSLATE)]
)
def test_a_stopped_run_is_usable_and_resuming_equals_never_stopping(
    run, start, files, small, tmp_path, task, name, extra
):
    words = ["train", task, files[task], *small(task, steps=300), *extra, *VALIDATE]
    out, never_stopped = tmp_path / "stopped", tmp_path / "never-stopped"
    process = start(*words, "-o", out)
    wait_for(process, lambda: is_logged(out))
    process.send_signal(name)
    stdout, stderr = (stream.decode() for stream in process.communicate(timeout=60))

    assert process.returncode == 130
    assert "stopping after this step and saving" in stderr
    assert f"to continue: python -m seqlab train --resume --out {out}" in stderr
    assert "Traceback" not in stderr
    assert f"model: {out}" in stdout
    assert "score" not in stdout
    assert run("predict", out, "the cat", "--max-length", 3).code == 0
    assert 0 < int(stderr.rsplit("stopped at step ", 1)[1].split(";")[0]) < 300

    resumed = start("train", "--resume", "--out", out)
    result = resumed.communicate(timeout=120)[1].decode()
    assert resumed.returncode == 0, result
    assert "resumed at step" in result
    assert run(*words, "-o", never_stopped, "-q").code == 0
    for file in ("model.safetensors", "recipe.toml", "tokenizer.json"):
        assert (out / file).read_bytes() == (never_stopped / file).read_bytes(), file


def test_the_second_ctrl_c_stops_at_once(start, files, tmp_path):
    slow = [
        "-s",
        "model.decoder.size=512",
        "-s",
        "train.bptt=128",
        "-s",
        "train.batch_rows=24",
    ]  # a second a step
    process = start("train", "lm", files["lm"], "-o", tmp_path / "m", *slow, "--score")
    while b"steps: about" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    while b"again stops at once" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    stdout, stderr = (stream.decode() for stream in process.communicate(timeout=60))
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert stderr.strip() == "interrupted"
    assert not (tmp_path / "m" / "manifest.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def answers(process, number):
    """Send a signal; the seconds until the process has ended, and what it wrote to stderr."""
    began = time.monotonic()
    process.send_signal(number)
    result = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130, result
    assert "Traceback" not in result
    return time.monotonic() - began, result


SOON = 3.0  # seconds; two are promised, and a machine that runs tests is busy
PREPARED = "interrupted before the training began; nothing was written"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_preparation_leaves_no_files(start, tmp_path, number):
    """It waits for standard input, and has made a folder for it."""
    process = start("train", "lm", "-", "-o", tmp_path / "runs" / "m", stdin=-1)
    wait_for(process, lambda: (tmp_path / "runs" / ".m.part").exists())
    seconds, result = answers(process, number)
    assert seconds < SOON
    assert result.strip() == PREPARED
    assert list(tmp_path.iterdir()) == []


def test_learning_a_tokenizer_can_be_interrupted(start, tmp_path):
    """The library that learns it does not return to Python: the process is ended from another thread."""
    draw, text = random.Random(1), tmp_path / "text.txt"
    text.write_text("\n".join("".join(draw.choices("abcdefgh ", k=400)) for _ in range(10_000)))
    bpe = [
        word
        for each in ("data.unit=line", "target.kind=bpe", "target.size=8000")
        for word in ("-s", each)
    ]
    process = start("train", "lm", text, *bpe, "-o", tmp_path / "m")
    wait_for(process, lambda: (tmp_path / ".m.part").exists())
    time.sleep(4)
    assert (tmp_path / ".m.part").exists(), "this machine is too quick for this test"
    seconds, result = answers(process, signal.SIGINT)
    assert seconds < SOON
    assert result.strip() == PREPARED
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


def test_importing_torch_can_be_interrupted(start, files, tmp_path):
    process = start("train", "lm", files["lm"], "-o", tmp_path / "m")
    libraries = Path(f"/proc/{process.pid}/maps")
    if not libraries.exists():
        pytest.skip("needs to see which libraries a process has loaded")
    wait_for(process, lambda: "libtorch" in libraries.read_text())
    seconds, result = answers(process, signal.SIGINT)
    assert seconds < SOON
    assert result.strip() == PREPARED
    assert list(tmp_path.iterdir()) == []


def test_a_long_step_is_interrupted_and_earlier_steps_are_saved(start, files, tmp_path):
    slow = ["-s", "model.decoder.size=512", "-s", "train.bptt=256", "-s", "train.batch_rows=32"]
    process = start("train", "lm", files["lm"], "-o", tmp_path / "m", *slow)
    while b"steps: about" not in process.stderr.readline():
        assert process.poll() is None
    time.sleep(1)
    seconds, result = answers(process, signal.SIGTERM)
    assert seconds < SOON
    assert f"to continue: python -m seqlab train --resume --out {tmp_path / 'm'}" in result
    assert read_checkpoint(tmp_path / "m" / "run" / "last.safetensors")[0].step >= 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


@pytest.mark.parametrize("phase", ["validation", "scoring"])
def test_interrupted_validation_and_scoring_are_made_on_resume(
    run, start, files, small, tmp_path, phase
):
    out, beam = (
        tmp_path / "m",
        ["-s", "decode.method=beam", "-s", "decode.beam=40", "-s", "decode.max_length=150"],
    )
    steps = [
        "-s",
        "train.steps=6",
        "-s",
        f"train.validate_every={2 if phase == 'validation' else 6}",
    ]
    words = [
        "train",
        "translate",
        files["translate"],
        *small("translate"),
        *steps,
        *beam,
        "-s",
        "data.validation=0.4",
    ]
    process = start(*words, "-o", out)
    last = out / "run" / "last.safetensors"

    def reached():
        place = read_checkpoint(last)[0] if last.exists() else None
        return place is not None and (
            place.pending if phase == "validation" else place.finished and not place.pending
        )

    wait_for(process, reached)
    seconds, result = answers(process, signal.SIGINT)
    assert seconds < SOON
    assert f"to continue: python -m seqlab train --resume --out {out}" in result
    assert read_checkpoint(last)[0].finished == (phase == "scoring")
    resumed = run("train", "--resume", "-o", out, "-q")
    assert resumed.code == 0, resumed.stderr
    assert "exact" in resumed.stdout
    assert run(*words, "-o", tmp_path / "whole", "-q").code == 0
    assert (out / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()
    assert logged(out) == logged(tmp_path / "whole")


def test_with_score_a_stopped_run_is_scored(start, files, small, tmp_path):
    process = start(
        "train",
        "lm",
        files["lm"],
        *small("lm", steps=3000),
        *LM,
        *VALIDATE,
        "--score",
        "-o",
        tmp_path / "m",
    )
    wait_for(process, lambda: is_logged(tmp_path / "m"))
    process.send_signal(signal.SIGINT)
    stdout, stderr = (stream.decode() for stream in process.communicate(timeout=60))
    assert process.returncode == 130, stderr
    assert "held out" in stdout
    assert "to continue:" in stderr


def test_an_interrupted_comparison_continues(start, files, tmp_path):
    settings = [
        word
        for each in ("model.embedding=8", "source.min_count=1", "train.steps=2000")
        for word in ("-s", each)
    ]
    words = [
        "compare",
        "tag",
        files["tag"],
        "-r",
        "bilstm",
        *settings,
        "-s",
        "train.validate_every=50",
        "-o",
        tmp_path,
    ]
    process = start(*words)
    run = tmp_path / "bilstm-tagger-1"
    wait_for(process, lambda: (run / "run" / "last.safetensors").exists())
    seconds, result = answers(process, signal.SIGINT)
    assert seconds < SOON
    assert "interrupted; run the same command to continue" in result
    step = read_checkpoint(run / "run" / "last.safetensors")[0].step
    again = start(*words)
    wait_for(again, lambda: read_checkpoint(run / "run" / "last.safetensors")[0].step > step)
    assert answers(again, signal.SIGTERM)[0] < SOON


def logged(out):
    """What a run has logged, timings aside."""
    timings = ("seconds", "tokens_per_second")
    rows = map(json.loads, (out / "run" / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if name not in timings} for row in rows]


def test_ctrl_c_while_predicting_ends_quietly(start, models):
    process = start("predict", models["lm"], stdin=-1)
    process.stdin.write(
        b"the\n" * 2000
    )  # a whole block, so that it answers and then waits for more
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert "Traceback" not in rest
