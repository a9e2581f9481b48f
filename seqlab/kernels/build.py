"""Compile the native kernels: on request, or in the background at the first training or prediction.

The background build is a process of its own with the lowest priority. Whoever builds holds a lock, so nothing is
compiled twice; the system frees the lock of a process that died.
"""

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import cast

from seqlab.errors import SeqlabError
from seqlab.kernels import library, native

AT_ONCE = 2  # compilers: each wants a gigabyte for torch's headers
PACKAGES = Path(__file__).parents[2]
BACKGROUND = "import os; os.nice(19); from seqlab.kernels import build; build.in_background()"


def build(*, at_once: int = AT_ONCE) -> Path:
    """Compile the library, unless it is there and loads; returns its path. Waits where somebody else compiles it.

    Warnings of the compiler go to stderr.
    """
    if _is_usable():
        return library.path()
    compiler = library.compiler()
    if compiler is None:
        raise SeqlabError(
            "there is no C++ compiler on this machine",
            hint=f"install g++ or clang++, or name yours in CXX. {library.WITHOUT}",
        )
    library.make_folder()
    with _locked(wait=True):
        if not _is_usable():
            library.failure().unlink(missing_ok=True)
            _compile(compiler, at_once)
    native.loads.cache_clear()
    return library.path()


@cache
def build_in_background() -> None:
    """Have the library compiled by another process, unless it is there, unwanted, or cannot be built. Returns at once.

    A process asks once. Kernels that are built meanwhile are used by the next process: within one, answers and
    training steps stay the same.
    """
    if not native.wanted() or native.ready() or library.compiler() is None or not sys.executable:
        return
    with suppress(SeqlabError, OSError):
        library.make_folder()
        if library.failure().exists():
            return  # it would fail again
        with _locked(wait=False) as lock:
            if lock is None:
                return  # somebody is at it
            paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
            subprocess.Popen(
                [sys.executable, "-P", "-c", BACKGROUND],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=library.folder(),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # Ctrl-C stops the training, not the build
                pass_fds=[lock],  # the lock is held until this process ends
            )


def in_background() -> None:
    """The body of the background process, which has inherited the lock."""
    try:
        if not _is_usable():  # another process may have built it while this one started
            _compile(cast(str, library.compiler()), at_once=1)
    except (SeqlabError, OSError) as error:
        library.failure().write_text(f"{error}\n", "utf-8")


def _is_usable() -> bool:
    with suppress(SeqlabError, OSError):
        library.check()
        native.loads.cache_clear()  # it may have been built since somebody looked
        return native.loads()
    return False


def _compile(compiler: str, at_once: int) -> None:
    goal, sources = library.path(), sorted(library.SOURCES.glob("*.cpp"))
    with tempfile.TemporaryDirectory(dir=goal.parent) as folder:
        objects = [Path(folder) / f"{source.stem}.o" for source in sources]
        flags = [*library.flags(), "-isystem", str(library.TORCH / "include"), "-c"]
        compiles = [
            [*flags, str(source), "-o", str(to)]
            for source, to in zip(sources, objects, strict=True)
        ]
        with ThreadPoolExecutor(at_once) as workers:
            list(workers.map(partial(_run, compiler), compiles))
        whole, manifest = Path(folder) / goal.name, Path(folder) / "manifest"
        linked = [f"-L{library.TORCH / 'lib'}", *library.LINKED, *library.flags()]
        _run(compiler, ["-shared", *map(str, objects), *linked, "-o", str(whole)])
        whole.chmod(0o600)
        facts = {**library.identity(), "compiler": _version(compiler)}
        facts["sha256"] = library.sha256(whole.read_bytes())
        manifest.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
        manifest.replace(library.manifest())
        whole.replace(goal)  # at once, so that nobody meets half a library


def _version(compiler: str) -> str:
    words = [compiler, "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.partition("\n")[0]


def _run(compiler: str, words: list[str]) -> None:
    done = subprocess.run([compiler, *words], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        message = next(
            (line for line in done.stderr.splitlines() if "error" in line),
            f"exit code {done.returncode}",
        )
        raise SeqlabError(
            f"{compiler} failed: {message}",
            hint=f"torch {library.torch.__version__} asks for C++20. {library.WITHOUT}",
        )
    sys.stderr.write(done.stderr)


@contextmanager
def _locked(*, wait: bool) -> Iterator[int | None]:
    """The open lock of the library, or None if somebody else has it and we do not wait."""
    file = os.open(library.lock(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield file if _takes(file, wait) else None
    finally:
        os.close(file)


def _takes(file: int, wait: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
