"""Results on stdout, everything else on stderr; a bar on a terminal, plain lines elsewhere."""

import os
import pty
import re
import subprocess

import pytest

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


def everything(master):
    """What was written to a terminal, until the last writer is gone."""
    pieces = []
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # how Linux says that nobody holds the other end any more
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(master)
    return b"".join(pieces).decode()


@pytest.fixture
def on_a_terminal(start):
    """A function that runs a command whose stderr is a terminal, and gives its stdout and what the terminal got."""

    def command(*words, **env):
        master, slave = pty.openpty()
        process = start(
            *words, stderr=slave, env={"TERM": "xterm-256color", "COLUMNS": "100", **env}
        )
        os.close(slave)
        seen = everything(master)
        stdout = process.stdout.read().decode()
        assert process.wait(timeout=60) == 0, seen
        return stdout, seen

    return command


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}], ids=["colours", "no colours"])
def test_a_bar_on_a_terminal(on_a_terminal, files, small, tmp_path, env):
    words = [
        "train",
        "classify",
        files["classify"],
        "-o",
        tmp_path / "m",
        *small("classify", steps=20),
    ]
    stdout, seen = on_a_terminal(*words, **env)
    assert "20/20" in seen
    assert "tok/s" in seen
    assert "held out: loss" in seen
    assert bool(COLOUR.search(seen)) is not bool(env)
    assert "\x1b" not in stdout
    assert "tok/s" not in stdout
    assert "accuracy" in stdout


def test_plain_lines_elsewhere(run, files, small, tmp_path):
    result = run(
        "train", "classify", files["classify"], "-o", tmp_path / "m", *small("classify", steps=20)
    )
    assert "\x1b" not in result.stderr + result.stdout
    assert "\r" not in result.stderr
    lines = result.stderr.splitlines()
    start = next(number for number, line in enumerate(lines) if "parameters" in line)
    plan, lines = lines[:start], lines[start:]
    assert plan[0] == "the file: 300 examples of 6 words, 2 labels"
    assert plan[1].startswith("chosen for it: [")
    assert len(plan) <= 4
    assert max(map(len, plan)) <= 80
    assert re.fullmatch(
        r"[\d.]+ k parameters, 20 steps: about \d+ s and [\d.]+ GB of memory", lines[0]
    )
    assert [line.split()[:4] for line in lines[1:]] == [
        ["step", str(n), "held", "out:"] for n in (10, 20)
    ]


def test_quiet_is_silent(run, files, small, tmp_path):
    result = run(
        "train", "classify", files["classify"], "-o", tmp_path / "m", "--quiet", *small("classify")
    )
    assert result.stderr == ""
    assert "accuracy" in result.stdout


def test_stdout_has_only_answers(on_a_terminal, run, models):
    stdout, seen = on_a_terminal("predict", models["classify"], "0 1 1", "1")
    assert stdout == run("predict", models["classify"], "0 1 1", "1").stdout
    assert seen == ""


def test_a_reader_may_close_the_pipe_early(start, models, tmp_path):
    """As in `seqlab predict ... | head -1`."""
    (tmp_path / "lines").write_text("abc\n" * 60_000)
    process = start("predict", models["classify"], "-i", tmp_path / "lines")
    head = subprocess.run(["head", "-1"], stdin=process.stdout, capture_output=True, check=True)
    process.stdout.close()
    stderr = process.stderr.read().decode()
    assert head.stdout.decode().strip() in ("odd", "even")
    assert process.wait(timeout=60) == 0
    assert stderr == ""


def test_a_reader_may_close_the_pipe_before_the_first_line(start):
    process = start("data", "make", "copies", "-n", 3)
    process.stdout.close()
    assert process.stderr.read().decode() == ""
    assert process.wait(timeout=60) == 0
