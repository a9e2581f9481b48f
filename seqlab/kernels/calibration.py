"""How fast this machine is: each way to multiply matrices, and its memory. Measured once, in about a second.

The figures are kept in the user's cache, under a name that depends on torch, the processor and the settings that limit
which of its instructions are used. The choice between the ways follows from them by a rule, so it is the same for all
trainings on a machine until the file is deleted.
"""

import hashlib
import json
import math
import os
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from seqlab.errors import SeqlabError, UsageError, nearest
from seqlab.kernels import library
from seqlab.kernels.products import WAYS, Way, has_onednn, linear, multiplying

Precision = Literal["float32", "bfloat16", "auto"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

FORCED = "SEQLAB_PRODUCTS"  # names a way, whatever is the fastest
EXACT: tuple[Way, ...] = ("torch", "onednn")
SHAPES = (
    (2048, 192, 768),
    (512, 512, 2048),
)  # rows, inputs, outputs: a small Transformer, and the paper's
GAIN = {
    "torch": 1.0,
    "onednn": 1.1,
    "bfloat16": 1.25,
}  # how much faster than `torch` a way must be to be taken
SAME = 1e-5  # by how much float32 products may differ, as a share of the largest
REPEATS = 5
HOPELESS = 2.5  # times as slow as another way
BYTES = 1 << 28  # that are copied to measure the memory
LIMITS = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
    "DNNL_MAX_CPU_ISA",
)


@dataclass(frozen=True)
class Speeds:
    """Floating-point operations a second of a linear layer, forward and back, in each way; bytes a second of a copy.

    A way that does not exist here, or that is not exact where it should be, has the speed 0.
    """

    torch: float
    onednn: float
    bfloat16: float
    copy: float

    def fastest(self, ways: tuple[Way, ...]) -> Way:
        """Of some ways the fastest; the first one unless another is clearly faster."""
        candidates = [way for way in ways if getattr(self, way) >= GAIN[way] * self.torch]
        return max(candidates, key=lambda way: getattr(self, way) / GAIN[way], default="torch")


def choose(precision: Precision) -> Way:
    """The way in which a training of this precision multiplies on this machine."""
    forced = os.environ.get(FORCED)
    if forced:
        if forced not in WAYS:
            raise UsageError(
                f"{FORCED}={forced}: there is no such way to multiply", hint=nearest(forced, WAYS)
            )
        return forced
    if precision == "bfloat16":
        return "bfloat16"
    return speeds().fastest(EXACT if precision == "float32" else WAYS)


def can(way: Way, precision: Precision) -> bool:
    """Whether a run of this precision can go on in this way here; where `auto` chose, it must not be slow."""
    if way == "bfloat16" and precision == "auto" and not os.environ.get(FORCED):
        return speeds().bfloat16 >= speeds().torch
    return way != "onednn" or has_onednn()


@cache
def speeds() -> Speeds:
    """The figures of this machine: those of the cache, or measured now and put there."""
    try:
        path = _path()
    except (SeqlabError, OSError):
        return measure()  # for this process alone
    try:
        return Speeds(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return _first(path, measure())


def measure() -> Speeds:
    """Time each way at shapes that matter, in turns, and a copy."""
    ways = [way for way in WAYS if way != "onednn" or _is_exact()]
    found = dict.fromkeys(WAYS, 0.0)
    operations = sum(6.0 * rows * inputs * outputs for rows, inputs, outputs in SHAPES)
    times = {way: [0.0] * len(SHAPES) for way in ways}
    for place, shape in enumerate(SHAPES):
        steps: dict[str, Callable[[], object]] = {way: _layer(way, *shape) for way in ways}
        for way, seconds in _seconds(steps).items():
            times[way][place] = seconds
    found |= {way: operations / sum(each) for way, each in times.items()}
    block = torch.ones(BYTES // 4)
    target = torch.empty_like(block)
    (seconds,) = _seconds({"copy": lambda: target.copy_(block)}).values()
    return Speeds(**found, copy=2 * BYTES / seconds)


def _layer(way: Way, rows: int, inputs: int, outputs: int) -> Callable[[], object]:
    """A linear layer, forward and back."""
    shapes = (rows, inputs), (outputs, inputs), (outputs,)
    x, weight, bias = (torch.ones(*shape, requires_grad=True) for shape in shapes)
    gradient = torch.ones(rows, outputs)

    def step() -> object:
        with multiplying(way):
            y = linear(x, weight, bias)
        return torch.autograd.grad(y, (x, weight, bias), gradient)

    return step


def _is_exact() -> bool:
    """Whether oneDNN computes in float32 what it is given in float32."""
    if not has_onednn():
        return False
    rows, inputs, outputs = SHAPES[0]
    draw = torch.Generator().manual_seed(1)
    x, weight = (torch.randn(n, inputs, generator=draw) for n in (rows, outputs))
    exact = linear(x, weight, None)
    with multiplying("onednn"):
        other = linear(x, weight, None)
    return bool((exact - other).abs().max() <= SAME * exact.abs().max())


def _seconds(acts: Mapping[str, Callable[[], object]]) -> dict[Any, float]:
    """The shortest of some times of each, in turns, after a first time that only prepares.

    What is several times as slow as another is timed only once.
    """
    best = dict.fromkeys(acts, math.inf)
    for turn in range(-1, REPEATS):
        for name, act in acts.items():
            if turn > 0 and best[name] > HOPELESS * min(best.values()):
                continue
            began = time.perf_counter()
            act()
            if turn >= 0:
                best[name] = min(best[name], time.perf_counter() - began)
    return best


def _path() -> Path:
    """Where the figures are kept: in a folder that is the user's alone."""
    folder = library.folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    if facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o022:
        raise SeqlabError(
            f"{folder}: others may write here, so that measured speeds are not kept in it",
            hint=f"chmod 700 {folder}, or set SEQLAB_CACHE to a directory of your own.",
        )
    parts = [torch.__version__, library.processor(), *(os.environ.get(name, "") for name in LIMITS)]
    return folder / f"speeds-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}.json"


def _first(path: Path, found: Speeds) -> Speeds:
    """Keep these figures, unless another process was first: then those."""
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            whole = Path(folder) / path.name
            whole.write_text(json.dumps(asdict(found)), "utf-8")
            os.link(whole, path)
    except FileExistsError:
        try:
            return Speeds(**json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            whole_text = json.dumps(asdict(found))
            path.write_text(whole_text, "utf-8")  # what was there is no file of ours
    except OSError:
        pass  # a full disk: this process goes on with what it has measured
    return found
