"""What can go wrong on a machine while a run is going on: each a clear message and a usable state."""

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
    return subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False, timeout=120)


def test_a_full_disk_ends_the_run_with_a_message_and_the_last_checkpoint_whole(run, files, small, tmp_path):
    out = tmp_path / "m"
    words = ["train", "lm", files["lm"], *small("lm", steps=40), "-o", out, "-q"]
    assert run(*words).code == 0
    last = out / "run" / "last.safetensors"
    whole = last.read_bytes()
    full = limited("train", "--resume", "--out", out, "-s", "train.steps=80", most_bytes=len(whole) // 2)
    assert full.returncode == 1
    assert "Traceback" not in full.stderr
    assert ".safetensors: it could not be written: File too large" in full.stderr
    assert "go on with --resume" in full.stderr
    assert last.read_bytes() == whole
    assert not list(out.rglob("*.part"))
    assert run("predict", out, "the", "--max-length", 3).code == 0
    assert run("train", "--resume", "--out", out, "-s", "train.steps=80", "-q").code == 0


def test_a_second_training_into_the_same_directory_is_refused_with_the_process_of_the_first(
    run, start, files, small, tmp_path
):
    out = tmp_path / "m"
    first = start("train", "lm", files["lm"], *small("lm", steps=100_000), *VALIDATE, "-o", out)
    try:
        wait_for(first, lambda: is_logged(out))
        for again in (["--overwrite", "lm", files["lm"]], ["--resume"]):
            said = run("train", *again, "--out", out)
            assert said.code == 1
            assert said.error[0] == f"{out}: process {first.pid} is training into this directory"
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert run("train", "--resume", "--out", out, "-s", "train.steps=20", "-q").code in (0, 1)
    assert not (tmp_path / ".m.lock").exists()


def test_a_data_file_that_changes_during_training_changes_nothing(run, start, files, small, tmp_path):
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
    said = run("train", "lm", files["lm"], *small("lm"), "-o", place)
    assert said.code == 1
    assert "look at the path, its rights and the disk" in said.error[1]


ATTENTIVE = ["model.attention.score=additive", "model.attention.wiring=bahdanau"]
HEADS = [f"model.{side}.{key}" for side in ("encoder", "decoder") for key in ("kind=transformer", "heads=2")]
KILLED = {"lm": ("lm", []), "seq2seq": ("translate", ATTENTIVE), "transformer": ("translate", HEADS)}
KILLS = 17  # of each: 51 in all


@pytest.mark.slow
@pytest.mark.parametrize("kind", KILLED)
def test_a_run_killed_again_and_again_ends_as_if_nothing_had_happened(run, start, files, small, tmp_path, kind):
    """SIGKILL at any moment, while a checkpoint is written too: it is written every third step."""
    task, extra = KILLED[kind]
    draw, out, whole = random.Random(kind), tmp_path / "killed", tmp_path / "whole"
    settings = [*extra, "train.validate_every=3", "train.average=ema", "model.dropout=0.2", "train.batch_tokens=100"]
    settings += ["train.bptt=16", "train.batch_rows=4", "model.embedding=64"]
    words = ["train", task, files[task], *small(task, steps=4000), *(w for each in settings for w in ("-s", each))]
    assert run(*words, "-o", whole, "-q").code == 0
    kills, again = 0, []
    while True:
        process = start(*(["train", "--resume"] if again else words), "-o", out, stdout=subprocess.DEVNULL)
        if kills < KILLS:
            while b"steps: about" not in process.stderr.readline():
                assert process.poll() is None
            time.sleep(draw.random())
            process.kill()
            kills += 1
        said = process.communicate(timeout=600)[1].decode()
        again = (out / "run" / "recipe.toml").exists()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, said
        if (out / "run" / "last.safetensors").exists():
            assert read_checkpoint(out / "run" / "last.safetensors")[0].step >= 3
    assert kills == KILLS
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
