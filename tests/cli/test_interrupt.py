"""Ctrl-C, in a process of its own: the first saves and stops, the second stops at once."""

import signal
import time

import pytest

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
def test_a_stopped_run_is_usable_and_resumed_it_is_as_if_it_had_never_stopped(
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
    assert f"go on with: python -m seqlab train --resume --out {out}" in stderr
    assert "Traceback" not in stderr
    assert f"model: {out}" in stdout
    assert run("predict", out, "the cat", "--max-length", 3).code == 0
    assert 0 < int(stderr.rsplit("stopped at step ", 1)[1].split(";")[0]) < 300

    resumed = start("train", "--resume", "--out", out)
    said = resumed.communicate(timeout=120)[1].decode()
    assert resumed.returncode == 0, said
    assert "resumed at step" in said
    assert run(*words, "-o", never_stopped, "-q").code == 0
    for file in ("model.safetensors", "recipe.toml", "tokenizer.json"):
        assert (out / file).read_bytes() == (never_stopped / file).read_bytes(), file


def test_the_second_ctrl_c_stops_at_once(start, files, tmp_path):
    slow = ["-s", "model.decoder.size=512", "-s", "train.bptt=128", "-s", "train.batch_rows=24"]  # a second a step
    process = start("train", "lm", files["lm"], "-o", tmp_path / "m", *slow)
    while b"steps: about" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    while b"once more stops at once" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    stdout, stderr = (stream.decode() for stream in process.communicate(timeout=60))
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert stderr.strip() == "interrupted"
    assert not (tmp_path / "m" / "manifest.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_ctrl_c_while_predicting_ends_quietly(start, models):
    process = start("predict", models["lm"], stdin=-1)
    process.stdin.write(b"the\n" * 2000)  # a whole block, so that it answers and then waits for more
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert "Traceback" not in rest
