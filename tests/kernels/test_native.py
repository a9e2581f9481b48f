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


def python(code, **environment):
    words = [sys.executable, "-c", f"import torch\nfrom seqlab.kernels import native\n{code}"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_asking_builds_nothing(empty):
    assert not native.ready()
    assert native.describe() == "not built: run `seqlab kernels build`"
    assert not empty.exists()


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
