"""Failures of the machine during a run: each gives a message and leaves a usable state."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

from seqlab.training.checkpoint import read_checkpoint

from .test_interrupt import VALIDATE, is_logged, wait_for


def limited(*words, most_bytes):
    """A command whose files may not grow beyond a size, as on a disk that is full."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    command = [sys.executable, "-m", "seqlab", *map(str, words)]
    return subprocess.run(
        command, preexec_fn=limit, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_full_disk_keeps_the_last_checkpoint(run, files, small, tmp_path):
    out = tmp_path / "m"
    words = ["train", "lm", files["lm"], *small("lm", steps=40), "-o", out, "-q"]
    assert run(*words).code == 0
    last = out / "run" / "last.safetensors"
    whole = last.read_bytes()
    full = limited(
        "train", "--resume", "--out", out, "-s", "train.steps=80", most_bytes=len(whole) // 2
    )
    assert full.returncode == 1
    assert "Traceback" not in full.stderr
    assert ".safetensors: writing failed: File too large" in full.stderr
    assert "use --resume" in full.stderr
    assert last.read_bytes() == whole
    assert not list(out.rglob("*.part"))
    assert run("predict", out, "the", "--max-length", 3).code == 0
    assert run("train", "--resume", "--out", out, "-s", "train.steps=80", "-q").code == 0


def test_a_second_training_in_the_same_directory_is_refused(run, start, files, small, tmp_path):
    out = tmp_path / "m"
    first = start("train", "lm", files["lm"], *small("lm", steps=100_000), *VALIDATE, "-o", out)
    try:
        wait_for(first, lambda: is_logged(out))
        for again in (["--overwrite", "lm", files["lm"]], ["--resume"]):
            result = run("train", *again, "--out", out)
            assert result.code == 1
            assert result.error[0] == f"{out}: process {first.pid} is training in this directory"
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert run("train", "--resume", "--out", out, "-s", "train.steps=20", "-q").code in (0, 1)
    assert not (tmp_path / ".m.lock").exists()


def test_a_data_file_may_change_during_training(run, start, files, small, tmp_path):
    """What a run reads is copied when it begins."""
    text = tmp_path / "text.txt"
    text.write_bytes(files["lm"].read_bytes())
    words = [*small("lm", steps=400), *VALIDATE]
    process = start("train", "lm", text, *words, "-o", tmp_path / "changed")
    wait_for(process, lambda: is_logged(tmp_path / "changed"))
    text.write_text("something else entirely\n" * 100)
    assert process.wait(timeout=120) == 0
    assert run("train", "lm", files["lm"], *words, "-o", tmp_path / "same", "-q").code == 0
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("changed", "same")]
    assert weights[0] == weights[1]


def test_a_directory_that_cannot_be_written_to(run, files, small, tmp_path):
    if os.geteuid() == 0:
        place = "/proc/runs/m"  # root may write anywhere but here
    else:
        tmp_path.chmod(0o500)
        place = tmp_path / "m"
    result = run("train", "lm", files["lm"], *small("lm"), "-o", place)
    assert result.code == 1
    assert "check the path, its permissions and the free disk space" in result.error[1]


def logged(out):
    """What a run has logged, timings aside."""
    timings = ("seconds", "tokens_per_second")
    rows = map(json.loads, (out / "run" / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if name not in timings} for row in rows]


def test_a_run_killed_before_its_first_checkpoint_starts_again(run, start, files, small, tmp_path):
    words = ["train", "lm", files["lm"], *small("lm", steps=200), *VALIDATE, "-o"]
    process = start(*words, tmp_path / "killed")
    wait_for(process, lambda: is_logged(tmp_path / "killed"))
    process.kill()
    process.wait()
    assert not (tmp_path / "killed" / "run" / "last.safetensors").exists()
    assert run("train", "--resume", "-o", tmp_path / "killed", "-q").code == 0
    assert run(*words, tmp_path / "whole", "-q").code == 0
    assert logged(tmp_path / "killed") == logged(tmp_path / "whole")


@pytest.mark.parametrize("ends", ["train.steps=40", "train.patience=1"])
def test_a_run_killed_between_its_last_step_and_its_model_writes_the_model(
    run, files, small, tmp_path, ends
):
    """With the model of an earlier stop in its place, and with none; at its last step, and when patience was lost."""
    out, settings = tmp_path / "m", ["-s", "train.learning_rate=1e-30", "-s", ends]
    words = [
        "train",
        "translate",
        files["translate"],
        *small("translate", steps=200),
        *settings,
        "-o",
        out,
        "-q",
    ]
    assert run(*words).code == 0
    model = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    log, scores = logged(out), json.loads(model["metrics.json"])
    earlier = {
        **model,
        "metrics.json": json.dumps({**scores, "steps": scores["steps"] - 10}).encode(),
    }
    for left in (earlier, {}):
        for name in model:
            (out / name).unlink()
        for name, content in left.items():
            (out / name).write_bytes(content)
        assert run("train", "--resume", "-o", out, "-q").code == 0
        assert (out / "model.safetensors").read_bytes() == model["model.safetensors"]
        assert json.loads((out / "metrics.json").read_bytes())["steps"] == scores["steps"]
        assert logged(out) == log


ATTENTIVE = ["model.attention.score=additive", "model.attention.wiring=bahdanau"]
HEADS = [
    f"model.{side}.{key}"
    for side in ("encoder", "decoder")
    for key in ("kind=transformer", "heads=2")
]
# settings, and steps enough for all kills to come before the last one on a quick machine too
KILLED = {
    "lm": ("lm", [], 6000),
    "seq2seq": ("translate", ATTENTIVE, 1500),
    "transformer": ("translate", HEADS, 1500),
}
KILLS = 17  # of each: 51 in all


@pytest.mark.slow
@pytest.mark.parametrize("kind", KILLED)
def test_a_run_killed_repeatedly_equals_one_never_killed(
    run, start, files, small, tmp_path, record_property, kind
):
    """SIGKILL at any moment, while a checkpoint is written too: it is written every third step."""
    task, extra, num_steps = KILLED[kind]
    draw, out, whole = random.Random(kind), tmp_path / "killed", tmp_path / "whole"
    settings = [
        *extra,
        "train.validate_every=3",
        "train.average=ema",
        "model.dropout=0.2",
        "train.batch_tokens=100",
    ]
    settings += ["train.bptt=16", "train.batch_rows=4", "model.embedding=64"]
    words = [
        "train",
        task,
        files[task],
        *small(task, steps=num_steps),
        *(w for each in settings for w in ("-s", each)),
    ]
    assert run(*words, "-o", whole, "-q").code == 0
    last, again, steps, writing = out / "run" / "last.safetensors", False, [0], 0
    for _ in range(KILLS):
        process = start(
            *(["train", "--resume"] if again else words), "-o", out, stdout=subprocess.DEVNULL
        )
        while b"steps: about" not in process.stderr.readline():
            assert process.poll() is None, process.stderr.read()
        time.sleep(draw.random())
        process.kill()
        assert process.wait() == -signal.SIGKILL, process.stderr.read()
        again = (out / "run" / "recipe.toml").exists()
        writing += bool([*out.rglob("*.part")])
        steps.append(read_checkpoint(last)[0].step if last.exists() else 0)
    assert steps == sorted(steps)
    assert run("train", "--resume", "-o", out, "-q").code == 0
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert logged(out) == logged(whole)
    figures = f"{KILLS} kills, {writing} of them while a file was written, the last at step {steps[-1]} of {num_steps}"
    record_property("measured", f"{kind}: {figures}; weights and log as if there had been none")
