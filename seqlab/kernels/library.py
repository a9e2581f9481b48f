"""The library of native kernels on disk: its path, what it was built for, and whether it is safe to load.

Its name in the user's cache is a hash of torch's version, the processor, the flags and the sources, so a library that
fits is found by its name. A manifest beside it holds its checksum: loading half a file would end the process.
"""

import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import stat
from functools import cache
from pathlib import Path

import torch

from seqlab.errors import SeqlabError

TORCH = Path(torch.__file__).parent
SOURCES = Path(__file__).parent / "native"
FLAGS = ("-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-fopenmp")
LINKED = ("-fopenmp", "-ltorch_cpu", "-lc10")
# How wide ATen's vectors may be, by what the processor must know for it.
WIDE = {"AVX512": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma"}, "AVX2": {"avx2", "fma"}}
WITHOUT = "All works without the kernels, through torch."
PARTS = {
    "torch": "another version of torch",
    "processor": "another processor",
    "flags": "other flags of the compiler",
    "sources": "other sources",
}


def folder() -> Path:
    """$SEQLAB_CACHE, else a folder in the user's cache.

    Always an absolute path: a relative one would run code from whichever directory the user stands in.
    """
    chosen = os.environ.get("SEQLAB_CACHE") or os.path.join(_user_cache(), "seqlab")
    if not os.path.isabs(chosen):
        raise SeqlabError(
            f"the native kernels need an absolute directory, and '{chosen}' is relative",
            hint=f"set SEQLAB_CACHE to an absolute path. {WITHOUT}",
        )
    return Path(chosen)


def path() -> Path:
    """Where the library is, or would be."""
    key = sha256("\0".join(identity().values()).encode())[:16]
    return folder() / f"kernels-{key}.so"


def manifest() -> Path:
    """What the library was built from, and its checksum."""
    return path().with_suffix(".json")


def lock() -> Path:
    """Held by whoever compiles the library."""
    return path().with_suffix(".lock")


def failure() -> Path:
    """Why a build in the background failed: it is not tried again."""
    return path().with_suffix(".failed")


def compiler() -> str | None:
    """$CXX, else the compiler that is there."""
    named = os.environ.get("CXX")
    return shutil.which(named) if named else shutil.which("g++") or shutil.which("clang++")


def check_folder() -> None:
    """Refuse a folder in which somebody else could place code that we would run."""
    place = folder()
    facts = place.stat()
    _check_owner(place, facts)
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise SeqlabError(
            f"{place}: others may enter this directory (mode {stat.S_IMODE(facts.st_mode):o}), and kernels are "
            "loaded only from one that nobody else can enter",
            hint=f"chmod 700 {shlex.quote(str(place))}, if nobody else has written to it. {WITHOUT}",
        )


def make_folder() -> None:
    """A folder for this user alone. The default one of earlier versions, which others could read, is closed."""
    place = folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    facts = place.stat()
    writable = stat.S_IMODE(facts.st_mode) & 0o022
    if not os.environ.get("SEQLAB_CACHE") and facts.st_uid == os.geteuid() and not writable:
        place.chmod(0o700)
    check_folder()


def check() -> None:
    """Refuse a library that is somebody else's, half written, or built for something else."""
    check_folder()
    file = path()
    facts = file.lstat()
    _check_owner(file, facts)
    if not stat.S_ISREG(facts.st_mode) or stat.S_IMODE(facts.st_mode) & 0o022:
        raise _refused("is not a file that only its owner may write")
    try:
        recorded = json.loads(manifest().read_text("utf-8"))
        checksum, built_for = recorded["sha256"], {name: recorded[name] for name in PARTS}
    except (OSError, ValueError, KeyError, TypeError):
        raise _refused("has no manifest, so its build was not finished") from None
    for name, value in identity().items():
        if built_for[name] != value:
            raise _refused(f"was built for {PARTS[name]}")
    if checksum != sha256(file.read_bytes()):
        raise _refused("is not whole: its checksum differs from that of its manifest")


def identity() -> dict[str, str]:
    """What a library must have been built for, so that it fits here."""
    sources = "\0".join(file.read_text("utf-8") for file in sorted(SOURCES.glob("*.*")))
    return {
        "torch": torch.__version__,
        "processor": sha256(processor().encode()),
        "flags": " ".join([*flags(), *LINKED]),
        "sources": sha256(sources.encode()),
    }


def flags() -> list[str]:
    """Flags of the compiler for this processor.

    ATEN_CPU_CAPABILITY, which limits torch's own vectors, limits these too. SEQLAB_CXXFLAGS adds flags.
    """
    widest, architecture = _vectors()
    wide = [f"-DCPU_CAPABILITY{form}{widest}" for form in ("=", "_")] if widest else []
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    more = shlex.split(os.environ.get("SEQLAB_CXXFLAGS", ""))
    return [*FLAGS, f"-march={architecture}", *wide, abi, *more]


@cache
def processor() -> str:
    """What `-march=native` depends on, without asking a compiler."""
    try:
        match = re.search(
            r"^(?:flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE
        )
    except OSError:
        match = None
    return match[0] if match else f"{platform.machine()} {platform.processor()}"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _vectors() -> tuple[str | None, str]:
    """How wide ATen's vectors are, and the architecture to compile for."""
    features, limit = (
        set(processor().split()),
        os.environ.get("ATEN_CPU_CAPABILITY", "").upper(),
    )
    known = [name for name, needed in WIDE.items() if needed <= features]
    if limit == "AVX2" and "AVX2" in known:
        return "AVX2", "x86-64-v3"
    if limit == "DEFAULT" and known:
        return None, "x86-64-v2"
    return (known[0] if known else None), "native"


def _user_cache() -> str:
    """$XDG_CACHE_HOME, which its specification says to ignore where it is relative; else ~/.cache."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return named if os.path.isabs(named) else os.path.expanduser("~/.cache")


def _check_owner(place: Path, facts: os.stat_result) -> None:
    if facts.st_uid != os.geteuid():
        raise SeqlabError(
            f"{place}: it belongs to user {facts.st_uid}, and kernels are loaded only from files of your own "
            f"(user {os.geteuid()})",
            hint=f"set SEQLAB_CACHE to a directory of your own. {WITHOUT}",
        )


def _refused(reason: str) -> SeqlabError:
    return SeqlabError(
        f"{path()} {reason}, so it is not loaded",
        hint=f"`seqlab kernels build` compiles it anew. {WITHOUT}",
    )
