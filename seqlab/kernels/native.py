"""The native kernels: C++ against torch's own headers, built once by whoever wants them, and never needed.

What a search asks of logits is here too, by these kernels or by torch.

Each `native/*.cpp` adds operators to `torch.ops.seqlab`. They are compiled for this processor into one library, whose
name in the user's cache is a hash of torch's version, the processor, the flags and the sources: what is there, fits.
"""

import hashlib
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import torch

from seqlab.errors import SeqlabError
from seqlab.types import BestIds, BestScores, Logits, PerRow

TORCH = Path(torch.__file__).parent
SOURCES = Path(__file__).with_suffix("")
FLAGS = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-fvisibility=hidden", "-fopenmp")
LINKED = ("-fopenmp", "-ltorch_cpu", "-lc10")
# How wide ATen's vectors may be, by what the processor must know for it.
WIDE = {"AVX512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"}, "AVX2": {"avx2", "fma"}}
AT_ONCE = 2  # compilers: each wants a gigabyte for torch's headers


def build() -> Path:
    """Compile the library, unless it is there and loads; where it is.

    What the compiler warns of goes to stderr.
    """
    goal = library()
    if goal.exists() and _load():
        return goal
    compiler = _compiler()
    if compiler is None:
        raise SeqlabError(
            "there is no C++ compiler on this machine",
            hint="install g++ or clang++, or name yours in CXX. All works without the kernels, through torch.",
        )
    goal.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=goal.parent) as folder:
        made = [Path(folder) / f"{source.stem}.o" for source in _sources()]
        flags = [*_flags(), "-isystem", str(TORCH / "include"), "-c"]
        compiles = [
            [*flags, str(source), "-o", str(to)]
            for source, to in zip(_sources(), made, strict=True)
        ]
        with ThreadPoolExecutor(AT_ONCE) as workers:
            list(workers.map(partial(_run, compiler), compiles))
        whole = Path(folder) / goal.name
        words = ["-shared", *map(str, made), f"-L{TORCH / 'lib'}", *LINKED, "-o", str(whole)]
        _run(compiler, words)
        version = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, check=False
        ).stdout
        goal.with_suffix(".txt").write_text(version.partition("\n")[0], "utf-8")
        whole.replace(goal)  # at once, so that nobody meets half a library
    _load.cache_clear()
    return goal


def ready() -> bool:
    """Whether `torch.ops.seqlab` can be called: the library is built for this torch, loads, and is wanted.

    Never builds, never raises. SEQLAB_NATIVE=0 says that it is not wanted.
    """
    return os.environ.get("SEQLAB_NATIVE") != "0" and _load()


def log_total(logits: Logits) -> PerRow:
    """log Σ_v e^logit_v: what is taken from a logit to make it a log-probability."""
    if logits.dtype == torch.float32 and ready():
        return torch.ops.seqlab.log_total(logits)
    return logits.logsumexp(-1)


def largest(logits: Logits, keep: int, never: tuple[int, ...] = ()) -> tuple[BestScores, BestIds]:
    """The largest logits of each row, and whose they are, largest first; those of `never` count as -inf."""
    keep = min(keep, logits.shape[-1])
    if logits.dtype == torch.float32 and ready():
        return torch.ops.seqlab.largest(logits, keep, never)
    logits = without(logits, never)
    if keep == 1:
        best = logits.argmax(-1, keepdim=True)
        return logits.gather(-1, best), best
    return logits.topk(keep, dim=-1)


def without(logits: Logits, never: tuple[int, ...]) -> Logits:
    """The same logits, but -inf for those of `never`."""
    return (
        logits.index_fill(-1, torch.tensor(never, dtype=torch.long), -math.inf) if never else logits
    )


def describe() -> str:
    """Which path is in use, and what would give the other, in a few words."""
    if os.environ.get("SEQLAB_NATIVE") == "0":
        return "turned off by SEQLAB_NATIVE=0"
    try:
        built = library().exists()
    except SeqlabError as error:
        return f"not built: {error}"
    if not built:
        return (
            "not built: run `seqlab kernels build`"
            if _compiler()
            else "not built, and there is no C++ compiler"
        )
    if not ready():
        return f"{library()} does not load: run `seqlab kernels build`"
    version = library().with_suffix(".txt")
    return f"built by {version.read_text('utf-8')}" if version.exists() else "built"


def library() -> Path:
    """Where the library is, or would be: in $SEQLAB_CACHE, else in the user's cache.

    Always an absolute path: a relative one would run code from whichever directory the user stands in.
    """
    folder = os.environ.get("SEQLAB_CACHE") or os.path.join(_user_cache(), "seqlab")
    if not os.path.isabs(folder):
        raise SeqlabError(
            f"the native kernels need an absolute directory, and '{folder}' is relative",
            hint="set SEQLAB_CACHE to an absolute path. All works without the kernels, through torch.",
        )
    return Path(folder) / f"kernels-{_key()}.so"


def _user_cache() -> str:
    """$XDG_CACHE_HOME, which its specification says to ignore where it is relative; else ~/.cache."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return named if os.path.isabs(named) else os.path.expanduser("~/.cache")


@cache
def _load() -> bool:
    try:
        if not library().exists():
            return False
        torch.ops.load_library(library())
    except (
        OSError,
        RuntimeError,
        SeqlabError,
    ):  # unreadable, of another torch, loaded already, or in no safe place
        return False
    return True


@cache
def _key() -> str:
    texts = [path.read_text("utf-8") for path in sorted(SOURCES.glob("*.*"))]
    parts = [torch.__version__, _processor(), *_flags(), *LINKED, *texts]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def _processor() -> str:
    """What `-march=native` depends on, without asking a compiler."""
    try:
        match = re.search(
            r"^(?:flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE
        )
    except OSError:
        match = None
    return match[0] if match else f"{platform.machine()} {platform.processor()}"


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("*.cpp"))


def _flags() -> list[str]:
    features = set(_processor().split())
    widest = [name for name, needed in WIDE.items() if needed <= features][:1]
    wide = [f"-DCPU_CAPABILITY{form}{name}" for name in widest for form in ("=", "_")]
    return [*FLAGS, *wide, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]


def _compiler() -> str | None:
    named = os.environ.get("CXX")
    return shutil.which(named) if named else shutil.which("g++") or shutil.which("clang++")


def _run(compiler: str, words: list[str]) -> None:
    done = subprocess.run([compiler, *words], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        message = next(
            (line for line in done.stderr.splitlines() if "error" in line),
            f"exit code {done.returncode}",
        )
        raise SeqlabError(
            f"{compiler} failed: {message}",
            hint=f"torch {torch.__version__} asks for C++20. All works without the kernels, through torch.",
        )
    sys.stderr.write(done.stderr)
