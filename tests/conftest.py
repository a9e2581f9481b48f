"""Shared by all tests: capped threads, the command line, and where the optional real data lies."""

import io
import os
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("seqlab", derandomize=True, deadline=None)
settings.load_profile("seqlab")
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def shared_data():
    """A function from a name to a real data file; skips where the optional data is not beside the project."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"needs the optional data file {name} in {SHARED.name}/ beside the project")
        return path

    return find


@dataclass(frozen=True)
class Said:
    """What a command left behind: its exit code and what it wrote."""

    code: int
    stdout: str
    stderr: str

    @property
    def error(self):
        """The sentence and the hint of a failure, which are all there is to it."""
        assert "Traceback" not in self.stderr
        told = [line for line in self.stderr.splitlines() if line.startswith(("error: ", "hint: "))]
        assert [line.split(":")[0] for line in told] == ["error", "hint"], self.stderr
        return tuple(line.partition(": ")[2] for line in told)


def typed(*words, stdin=b""):
    """Run a command in this process, as `main` would."""
    from seqlab.cli import main  # not before the hook that enforces shapes

    out, err, before = io.StringIO(), io.StringIO(), (sys.argv, sys.stdin)
    code = 0
    with warnings.catch_warnings(), redirect_stdout(out), redirect_stderr(err):
        sys.argv, sys.stdin = ["seqlab", *map(str, words)], io.TextIOWrapper(io.BytesIO(stdin))
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            sys.argv, sys.stdin = before
    return Said(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def run():
    return typed
