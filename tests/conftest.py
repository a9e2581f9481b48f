"""Shared by all tests: capped threads, the command line, and where the optional real data lies."""

import io
import os
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SEQLAB_PRODUCTS", "torch")  # the same numbers on every machine
os.environ.setdefault("SEQLAB_NATIVE", "0")  # except where a test asks for the native kernels

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("seqlab", derandomize=True, deadline=None)
settings.load_profile("seqlab")
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_configure(config):
    """Warnings of Seqlab itself are expected. pyproject.toml would import them before the hook that enforces shapes."""
    config.addinivalue_line("filterwarnings", "ignore::seqlab.errors.SeqlabWarning")


@pytest.fixture
def shared_data():
    """A function from a name to a real data file; skips where the optional data is not beside the project."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"needs the optional data file {name} in {SHARED.name}/ beside the project")
        return path

    return find


def pytest_terminal_summary(terminalreporter):
    """What tests have measured is said at the end, whoever ran them."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "measured":
                terminalreporter.line(value)


@pytest.fixture(scope="session")
def built(request):
    """A cache with the native kernels, kept between runs: the library's name tells what it was built from."""
    from seqlab.kernels import library  # not before the shapes in signatures are enforced
    from seqlab.kernels.build import build

    if library.compiler() is None:
        pytest.skip("the native kernels need a C++ compiler")
    folder = request.config.cache.mkdir("kernels")
    folder.chmod(0o700)  # from another nothing is loaded
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQLAB_CACHE", str(folder))
        for path in folder.glob("kernels-*"):
            if path.stem != library.path().stem:
                path.unlink(missing_ok=True)
        build()
    return folder


@pytest.fixture
def kernels(built, monkeypatch):
    """The native kernels, in use for the time of a test."""
    from seqlab.kernels import native

    monkeypatch.setenv("SEQLAB_CACHE", str(built))
    monkeypatch.setenv("SEQLAB_NATIVE", "1")
    native.loads.cache_clear()  # another test may have looked into another cache
    assert native.ready()
    return built


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
