"""`seqlab serve`, `train --watch` and the page of the demo: starting and stopping."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from seqlab.serve.client import Client, ServerError

PATIENCE = 120.0


def spoken(process, pattern):
    """The first line of stderr that has this in it."""
    deadline = time.monotonic() + PATIENCE
    result = []
    while time.monotonic() < deadline:
        line = process.stderr.readline().decode()
        result.append(line)
        if found := re.search(pattern, line):
            return found
        if not line and process.poll() is not None:
            break
    raise AssertionError("".join(result))


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_a_signal(start, models, end):
    process = start("serve", models["translate"], models["lm"], "--port", "0")
    found = spoken(process, r"serving translate, lm at (http://127\.0\.0\.1:\d+) \(Ctrl-C ends\)")
    client = Client(found[1], timeout=PATIENCE)
    assert [model["name"] for model in client.models()] == ["translate", "lm"]
    pieces = client.generate("lm", "the", max_length=300, temperature=1.0)
    next(pieces)
    process.send_signal(end)
    assert len(list(pieces)) > 200  # what is being written is written to its end
    assert process.wait(PATIENCE) == 0
    assert process.stderr.read() == b""


def test_a_public_server_generates_and_prints_a_token(start, models):
    process = start("serve", models["lm"], "--host", "0.0.0.0", "--port", "0")
    token = spoken(process, r"token: (\S+)")[1]
    address = spoken(process, r"at (http://\S+)")[1].replace("0.0.0.0", "127.0.0.1")
    with pytest.raises(ServerError, match="this server needs a token"):
        Client(address).models()
    assert Client(address, token=token, timeout=PATIENCE).models()


def test_models_that_cannot_be_served(run, models, tmp_path):
    assert run("serve", tmp_path / "nothing").error[0].endswith("nothing: there is no such model")
    (tmp_path / "empty").mkdir()
    assert "holds no finished model" in run("serve", tmp_path / "empty").error[0]
    result = run("serve", models["lm"], "--host", "no.such.host.invalid")
    assert result.code == 2
    assert result.error[0].startswith("cannot serve at no.such.host.invalid:8000:")
    assert result.error[1] == "choose another --host or --port."


def test_a_port_in_use(run, start, models):
    process = start("serve", models["lm"], "--port", "0")
    port = spoken(process, r":(\d+) ")[1]
    result = run("serve", models["lm"], "--port", port)
    assert result.error == (
        f"cannot serve at 127.0.0.1:{port}: the port is in use",
        "choose another --host or --port.",
    )


def test_a_missing_package_is_named_with_the_way_to_install_it(models):
    hide = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['seqlab', 'serve', sys.argv[1]]\n"
    )
    script = hide + "from seqlab.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, models["lm"]],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: serving needs the package 'uvicorn', which is not installed\nhint: pip install 'seqlab[serve]'\n"
    )


def test_a_training_can_be_watched(start, files, small, tmp_path):
    words = [
        "train",
        "lm",
        files["lm"],
        "--out",
        tmp_path / "watched",
        "--watch",
        *small("lm", steps=2000),
    ]
    process = start(*words, stdout=subprocess.DEVNULL)
    client = Client(spoken(process, r"watch it at (http://\S+)")[1], timeout=PATIENCE)
    assert [model["name"] for model in client.models()] == ["watched"]
    deadline, rows = time.monotonic() + PATIENCE, []
    while len(rows) < 2:
        assert time.monotonic() < deadline
        seen = client.run("watched", after=len(rows))
        rows += seen["rows"]
        assert seen["next"] == len(rows)
    assert seen["running"]
    assert all("step" in row for row in rows)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130  # the training stops and saves, and the server with it
    assert json.loads((tmp_path / "watched" / "metrics.json").read_text())["steps"] < 2000
    assert not client.healthy()


def test_the_demo_without_the_packages_serves_no_page(models):
    script = "import sys; sys.modules['uvicorn'] = None\nfrom seqlab.cli.serve import serve_demo; serve_demo([])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0
    assert done.stderr == (
        "the page is not served: serving needs the package 'uvicorn', which is not installed\n"
        "hint: pip install 'seqlab[serve]'\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_the_demo_serves_the_page_only_on_a_terminal(terminal, start, tmp_path):
    pytest.importorskip("babel")
    words = ["demo", "--out", tmp_path / "dates", "--steps", "1", "--quiet"]
    if not terminal:
        process = start(*words)
        assert process.wait(PATIENCE) == 0
        assert b"serving" not in process.stderr.read()
        return
    master, slave = pty.openpty()
    process = start(*words, stdout=slave)
    os.close(slave)
    os.set_blocking(master, False)
    found = spoken(process, r"serving dates-attention, dates, (\S+, )*en-fr, .* at (http://\S+)")
    assert [model["name"] for model in Client(found[2], timeout=PATIENCE).models()][:2] == [
        "dates-attention",
        "dates",
    ]
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    os.close(master)
