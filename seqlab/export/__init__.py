"""Export of models to the formats of other programs, which compute the same; other models are refused.

export(seqlab.load("runs/en-fr"), "ctranslate2", "en-fr-ct2")
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from seqlab.bundle import Bundle, refuse_existing
from seqlab.errors import UsageError, nearest
from seqlab.model import Model

FORMATS = ("ctranslate2", "huggingface", "onnx")


def export(model: Model, to: str, out: str | Path) -> Path:
    """Write a model into the new directory `out`, in one of FORMATS."""
    if to not in FORMATS:
        raise UsageError(f"there is no format '{to}'", hint=nearest(to, FORMATS))
    refuse_existing(Path(out))
    write: Callable[[Bundle, Path], None] = import_module(f"seqlab.export.{to}").write
    write(model.bundle, Path(out))
    return Path(out)
