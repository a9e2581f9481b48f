"""The build of the native kernels, and that nobody needs it."""

import os
import subprocess
import sys

import pytest

from seqlab.errors import SeqlabError
from seqlab.kernels import native


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A cache in which nothing has been built, in a process that wants the kernels."""
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SEQLAB_NATIVE", raising=False)
    native._load.cache_clear()
    yield tmp_path / "cache"
    native._load.cache_clear()


def python(code, *, cwd=None, **environment):
    """What this code prints in a process of its own; a variable that is None is unset there."""
    words = [sys.executable, "-c", f"import torch\nfrom seqlab.kernels import native\n{code}"]
    kept = {
        name: value for name, value in {**os.environ, **environment}.items() if value is not None
    }
    done = subprocess.run(words, capture_output=True, text=True, env=kept, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_asking_builds_nothing(empty):
    assert not native.ready()
    assert native.describe() == "not built: run `seqlab kernels build`"
    assert not empty.exists()


@pytest.mark.parametrize("xdg", ["cache", "", None])
def test_the_cache_is_absolute_whatever_the_environment_says(tmp_path, xdg):
    code = "print(native.library().is_absolute(), native.ready(), native.describe(), sep='\\n')"
    environment = {"HOME": None, "SEQLAB_CACHE": None, "SEQLAB_NATIVE": "1", "XDG_CACHE_HOME": xdg}
    absolute, *_ = python(code, cwd=tmp_path, **environment).splitlines()
    assert absolute == "True"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "relative",
    [{"SEQLAB_CACHE": "cache"}, {"SEQLAB_CACHE": None, "XDG_CACHE_HOME": "cache", "HOME": "home"}],
)
def test_without_an_absolute_directory_nothing_is_loaded_or_built(tmp_path, monkeypatch, relative):
    for name, value in relative.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(
            name, value
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEQLAB_NATIVE", raising=False)
    native._load.cache_clear()
    assert not native.ready()
    native._load.cache_clear()
    assert native.describe().startswith(
        "not built: the native kernels need an absolute directory, and '"
    )
    with pytest.raises(SeqlabError, match="is relative") as caught:
        native.build()
    assert caught.value.hint.startswith("set SEQLAB_CACHE to an absolute path")
    assert list(tmp_path.iterdir()) == []


def test_without_a_compiler_the_message_says_that_nothing_is_lost(empty, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert native.describe() == "not built, and there is no C++ compiler"
    with pytest.raises(SeqlabError, match=r"there is no C\+\+ compiler on this machine") as caught:
        native.build()
    assert "All works without the kernels" in caught.value.hint
    assert not empty.exists()


def test_what_the_compiler_fails_on_is_said(empty, monkeypatch, tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'some.cpp:1: fatal error: no such header' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(SeqlabError, match=r"failed: some\.cpp:1: fatal error: no such header"):
        native.build()
    assert list(empty.iterdir()) == []


def test_a_library_that_does_not_load_is_a_state_and_no_crash(empty):
    empty.mkdir()
    native.library().write_bytes(b"not a library")
    assert not native.ready()
    assert native.describe() == f"{native.library()} does not load: run `seqlab kernels build`"


def test_what_is_built_is_used_from_then_on(kernels):
    """In a process of its own, as a user meets it."""
    code = "print(native.ready(), native.describe(), len(dir(torch.ops.seqlab)) > 0, sep='\\n')"
    ready, state, loaded = python(code, SEQLAB_CACHE=str(kernels), SEQLAB_NATIVE="1").splitlines()
    assert (ready, loaded) == ("True", "True")
    assert state.startswith("built by ")
    assert [path.suffix for path in sorted(kernels.iterdir())] == [".so", ".txt"]


def test_it_is_not_built_twice(kernels):
    before = native.library().stat().st_mtime_ns
    assert native.build() == native.library()
    assert native.library().stat().st_mtime_ns == before


def test_they_can_be_turned_off(kernels):
    code = "print(native.ready(), native.describe(), sep='\\n')"
    assert python(code, SEQLAB_NATIVE="0") == "False\nturned off by SEQLAB_NATIVE=0"
