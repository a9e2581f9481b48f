"""The build of the native kernels, which libraries are refused, and that nobody needs them."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqlab.errors import SeqlabError, SeqlabWarning
from seqlab.kernels import library, native
from seqlab.kernels.build import build


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A cache in which nothing has been built, in a process that wants the kernels."""
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SEQLAB_NATIVE", raising=False)
    native.loads.cache_clear()
    yield tmp_path / "cache"
    native.loads.cache_clear()


@pytest.fixture
def copied(built, empty):
    """A cache of this test's own with the kernels in it."""
    shutil.copytree(built, empty)
    empty.chmod(0o700)
    return empty


def refusal():
    """The sentence with which the library is refused, by whoever wants it and by `seqlab kernels`."""
    native.loads.cache_clear()
    with pytest.warns(SeqlabWarning) as caught:
        assert not native.ready()
    (sentence,) = [str(each.message) for each in caught]
    assert "All works without the kernels" in sentence
    return sentence


def python(code, *, cwd=None, **environment):
    """What this code prints in a process of its own; a variable that is None is unset there."""
    words = [
        sys.executable,
        "-c",
        f"import torch\nfrom seqlab.kernels import library, native\n{code}",
    ]
    kept = {
        name: value for name, value in {**os.environ, **environment}.items() if value is not None
    }
    done = subprocess.run(words, capture_output=True, text=True, env=kept, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_asking_builds_nothing(empty):
    assert not native.ready()
    assert native.describe().startswith("not built yet: the next training or prediction compiles")
    assert not empty.exists()


@pytest.mark.parametrize("xdg", ["cache", "", None])
def test_the_cache_is_absolute_whatever_the_environment_says(tmp_path, xdg):
    code = "print(library.path().is_absolute(), native.ready(), native.describe(), sep='\\n')"
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
    native.loads.cache_clear()
    assert "is relative" in refusal()
    assert native.describe().startswith(
        "not built: the native kernels need an absolute directory, and '"
    )
    with pytest.raises(SeqlabError, match="is relative") as caught:
        build()
    assert caught.value.hint.startswith("set SEQLAB_CACHE to an absolute path")
    assert list(tmp_path.iterdir()) == []


def test_without_a_compiler_the_message_says_that_nothing_is_lost(empty, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert native.describe() == "not built, and there is no C++ compiler"
    with pytest.raises(SeqlabError, match=r"there is no C\+\+ compiler on this machine") as caught:
        build()
    assert "All works without the kernels" in caught.value.hint
    assert not empty.exists()


def test_what_the_compiler_fails_on_is_said(empty, monkeypatch, tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'some.cpp:1: fatal error: no such header' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(SeqlabError, match=r"failed: some\.cpp:1: fatal error: no such header"):
        build()
    assert [path.suffix for path in empty.iterdir()] == [".lock"]


def test_what_was_not_built_to_its_end_is_refused(empty):
    empty.mkdir(mode=0o700)
    library.path().write_bytes(b"half a library")
    library.path().chmod(0o600)
    sentence = refusal()
    assert f"{library.path()} has no manifest, so its build was not finished" in sentence
    assert native.describe().startswith(f"{library.path()} has no manifest")


def test_half_a_library_is_refused_and_built_anew(copied):
    whole = library.path().read_bytes()
    library.path().write_bytes(whole[: len(whole) // 2])
    assert "is not whole: its checksum differs" in refusal()
    library.path().write_bytes(whole)
    native.loads.cache_clear()
    assert native.ready()


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("processor", "another processor"),
        ("sources", "other sources"),
        ("torch", "another version of torch"),
    ],
)
def test_a_library_for_something_else_is_refused(copied, part, reason):
    recorded = json.loads(library.manifest().read_text())
    library.manifest().write_text(json.dumps(recorded | {part: "something else"}))
    assert f"was built for {reason}, so it is not loaded" in refusal()


def test_a_folder_that_others_may_enter_is_refused(copied):
    copied.chmod(0o755)
    assert f"{copied}: others may enter this directory (mode 755)" in refusal()
    with pytest.raises(SeqlabError, match="others may enter") as caught:
        build()
    assert caught.value.hint.startswith(f"chmod 700 {copied}")
    copied.chmod(0o700)
    library.path().chmod(0o666)
    assert "is not a file that only its owner may write" in refusal()


def test_a_folder_of_somebody_else_is_refused(copied, monkeypatch):
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    assert f"{copied}: it belongs to user {me}" in refusal()
    with pytest.raises(SeqlabError, match="files of your own"):
        build()


def test_the_default_folder_is_closed_to_others(tmp_path, monkeypatch):
    monkeypatch.delenv("SEQLAB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "seqlab").mkdir(mode=0o755)
    library.make_folder()
    assert library.folder().stat().st_mode & 0o777 == 0o700


BACKGROUND = """
from seqlab.kernels.build import build_in_background
build_in_background()
print(native.describe())
"""


@pytest.fixture
def slow_compiler(tmp_path):
    """A compiler that takes its time and fails, and a file with the process that called it, a line for each call."""
    calls, compiler = tmp_path / "calls", tmp_path / "c++"
    compiler.write_text(
        f"#!/bin/sh\necho $PPID >> {calls}\nsleep 3\necho 'error: full' >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    return {"CXX": str(compiler), "SEQLAB_NATIVE": "1"}, calls


def test_the_background_build_does_not_wait_and_is_not_made_twice(tmp_path, slow_compiler):
    environment, calls = slow_compiler
    environment["SEQLAB_CACHE"] = str(tmp_path / "cache")
    for _ in range(2):  # the second comes while the first is at it
        assert python(BACKGROUND, **environment).startswith("not built yet")
    limit = time.monotonic() + 250  # the lowest priority has to wait on a busy machine
    while not list((tmp_path / "cache").glob("*.failed")) and time.monotonic() < limit:
        time.sleep(0.1)
    made = calls.read_text().split()
    assert len(set(made)) == 1
    assert "failed: error: full" in python(BACKGROUND, **environment)  # and is not tried again
    assert calls.read_text().split() == made
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_nothing_is_built_for_those_who_refuse(tmp_path, slow_compiler):
    environment, calls = slow_compiler
    environment |= {"SEQLAB_CACHE": str(tmp_path / "cache"), "SEQLAB_NATIVE": "0"}
    assert python(BACKGROUND, **environment) == "turned off by SEQLAB_NATIVE=0"
    assert not calls.exists()
    assert not (tmp_path / "cache").exists()


def test_without_a_folder_of_ones_own_nothing_is_built_and_nobody_is_disturbed(
    tmp_path, slow_compiler
):
    environment, calls = slow_compiler
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    python(BACKGROUND, SEQLAB_CACHE=str(shared), **environment)
    assert not calls.exists()
    assert list(shared.iterdir()) == []


def test_what_is_built_is_used_from_then_on(kernels):
    """In a process of its own, as a user meets it."""
    code = "print(native.ready(), native.describe(), len(dir(torch.ops.seqlab)) > 0, sep='\\n')"
    ready, state, loaded = python(code, SEQLAB_CACHE=str(kernels), SEQLAB_NATIVE="1").splitlines()
    assert (ready, loaded) == ("True", "True")
    assert state.startswith("built by ")
    suffixes = [path.suffix for path in sorted(kernels.iterdir())]
    assert suffixes == [".json", ".lock", ".so"]


def test_it_is_not_built_twice(kernels):
    before = library.path().stat().st_mtime_ns
    assert build() == library.path()
    assert library.path().stat().st_mtime_ns == before


def test_they_can_be_turned_off(kernels):
    code = "print(native.ready(), native.describe(), sep='\\n')"
    assert python(code, SEQLAB_NATIVE="0") == "False\nturned off by SEQLAB_NATIVE=0"


def test_within_a_block_they_can_be_left_out(kernels):
    with native.without_kernels():
        assert not native.ready()
    assert native.ready()


@pytest.mark.slow
def test_the_sanitizers_find_nothing_in_the_kernels(tmp_path):
    """The tests of the kernels, with a library compiled for the address and undefined-behaviour sanitizers."""
    compiler = library.compiler()
    if compiler is None:
        pytest.skip("the native kernels need a C++ compiler")
    words = [compiler, "-print-file-name=libasan.so"]
    runtime = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    if not os.path.isabs(runtime):
        pytest.skip("this compiler has no address sanitizer")
    flags = (
        "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1"
    )
    environment = {
        **os.environ,
        "SEQLAB_CXXFLAGS": flags,
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
        "OMP_NUM_THREADS": "1",
    }
    files = ["test_decoder.py", "test_recurrent.py", "../layers/test_linear.py"]
    paths = [str(Path(__file__).parent / file) for file in files]
    cache = ["-o", f"cache_dir={tmp_path}"]  # with a library of its own
    words = [sys.executable, "-m", "pytest", "-x", "--timeout=3000", *cache, *paths]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
