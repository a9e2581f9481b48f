"""Several processes for one command (`--workers` or torchrun) give the same output as one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import seqlab
from seqlab import lab

LINES = [
    "abc",
    "",
    "cab",
    "a" * 40,
    "b",
    "bca",
    "ab",
    "c" * 50,
    "acb",
]  # the long ones are cut, one in each half
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
# all models, in one start of two processes; the leader prints what each says
SCRIPT = """
import json, sys
from seqlab import lab

with lab.worker_group() as world:
    for task, model, data in json.loads(sys.argv[1]):
        loaded = lab.load(model, world=world)
        result = [loaded.evaluate(data).to_json()]
        if task not in ("forecast", "caption"):
            result.append(loaded.embed(["a b", "c", "a"]).tolist())
        if world.leads:
            print(json.dumps(result))
"""


def close(one, other):
    """The same words, and numbers that differ by rounding alone."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(close, one, other))
    return (
        one == pytest.approx(other, rel=1e-4, abs=1e-6) if isinstance(one, float) else one == other
    )


def test_two_processes_answer_stdin_like_one(run, models):
    piped = "".join(line + "\n" for line in LINES).encode()
    words = ["predict", models["translate"], "--beam", 2, "--json"]
    one, two = run(*words, stdin=piped), run(*words, "--workers", 2, stdin=piped)
    assert two.code == 0
    answers = [[json.loads(line) for line in result.stdout.splitlines()] for result in (one, two)]
    assert [each["input"] for each in answers[1]] == LINES
    assert close(*answers)
    cut = "tokens, more than the 30 of data.max_source; the rest was not read"
    assert two.stderr == f"warning: line 4: 40 {cut}\nwarning: line 8: 50 {cut}\n"


def test_an_error_of_another_process_is_reported_once_with_its_line(run, files, small, tmp_path):
    strict = ["-s", "data.max_source=6", "-s", "data.too_long=refuse"]
    assert (
        run(
            "train",
            "translate",
            files["translate"],
            *small("translate"),
            *strict,
            "-o",
            tmp_path,
            "-q",
        ).code
        == 0
    )
    result = run("predict", tmp_path, "--workers", 2, stdin=b"abc\nab\na\nabcabcabc\n")
    assert result.code == 1
    assert result.stdout == ""
    assert result.error[0] == "line 4: 9 tokens, more than the 6 of data.max_source"


def test_two_processes_score_like_one(models, files, tmp_path):
    """Under torchrun; one process alone writes."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    jobs = json.dumps([[task, str(models[task]), str(files[task])] for task in models])
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(seqlab.__file__).parent.parent),
    }
    done = subprocess.run(
        [*TORCHRUN, script, jobs],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    result = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(result) == len(models)
    for (task, path), (report, *vectors) in zip(models.items(), result, strict=True):
        model = lab.load(path)
        assert close(report, model.evaluate(files[task]).to_json()), task
        for found in vectors:
            np.testing.assert_allclose(found, model.embed(["a b", "c", "a"]), rtol=1e-4, atol=1e-6)


@pytest.fixture
def working(start, models):
    """A command with a worker, which has answered its first lines and waits for more; the command, and the worker."""
    process = start("predict", models["translate"], "--workers", 2, stdin=-1)
    process.stdin.write(b"abc\n" * 4000)
    process.stdin.flush()
    process.stdout.readline()
    children = subprocess.run(
        ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
    )
    (worker,) = map(int, children.stdout.split())
    return process, worker


def gone(worker):
    try:
        os.kill(worker, 0)
    except ProcessLookupError:
        return True
    with open(f"/proc/{worker}/stat") as file:  # a zombie, where nobody reaps the orphans
        return file.read().rsplit(")", 1)[1].split()[0] == "Z"


def test_ctrl_c_ends_all_workers_even_one_that_hangs(working):
    process, worker = working
    os.kill(worker, signal.SIGSTOP)
    process.stdin.write(b"abc\n" * 4000)
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    result = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert result.strip() == "interrupted"
    assert gone(worker)


def test_a_killed_worker_is_an_error(working):
    process, worker = working
    os.kill(worker, signal.SIGKILL)
    process.stdin.write(b"abc\n" * 4000)
    result = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 1
    assert result.startswith("error: worker 1 has ended unexpectedly (signal 9)\nhint: ")


def test_workers_end_with_the_leader(working):
    process, worker = working
    process.kill()
    process.wait()
    end = time.monotonic() + 60
    while not gone(worker):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_workers_of_torchrun_are_not_started_again(start, models):
    env = {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2"}
    process = start("predict", models["translate"], "abc", "--workers", 2, env=env)
    result = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 2
    assert result == "error: torchrun has already started the workers\nhint: leave out --workers.\n"
