"""The trace of one run of a model: the values at its taps by name, with their tokens; saved and loaded."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seqlab.errors import DataError
from seqlab.layers.tap import listening

SCHEMA = 1
# the taps of a recurrence, which record one value a time step
STEPWISE = ("enters", "i", "f", "g", "o", "c", "h", "r", "u", "z", "n")


@dataclass
class Trace:
    """Recorded values by name, in the order of the computation, and the tokens that they belong to.

    A layer that computes step by step records a name many times; `trace[name]` concatenates the steps in time, and
    reverses those of a backward layer.
    """

    tokens: dict[str, tuple[str, ...]] = field(default_factory=dict)  # source, written and answered
    parts: dict[str, list[Tensor]] = field(default_factory=dict)

    def names(self) -> list[str]:
        return list(self.parts)

    def __contains__(self, name: str) -> bool:
        return name in self.parts

    def __getitem__(self, name: str) -> Tensor:
        parts = self.parts[name]
        # the only step of a sequence of length one
        is_step = parts[0].dim() == 2 and name.rpartition(".")[2] in STEPWISE
        if len(parts) == 1 and not is_step:
            return parts[0]
        steps = torch.stack(parts, dim=1) if parts[0].dim() == 2 else torch.cat(parts, dim=1)
        return steps.flip(1) if ".backward." in f"{name}." and parts[0].dim() == 2 else steps

    @contextmanager
    def recording(self) -> Iterator["Trace"]:
        """Record the values at all taps within the context."""

        def record(name: str, value: Tensor) -> Tensor:
            self.parts.setdefault(name, []).append(value.detach())
            return value

        with listening(record):
            yield self

    def to_json(self) -> dict[str, Any]:
        """Return tokens, and shape and values of each name: weights as bytes (u8, 255 is 1), others as f16."""
        values = {name: _as_json(name, self[name]) for name in self.names()}
        return {"schema": SCHEMA, **self.tokens, "values": values}

    def to_bytes(self) -> bytes:
        """Return the trace as safetensors, a sixth of the size of the JSON."""
        tensors = {
            name: _compressed(name, self[name]).contiguous().clone() for name in self.names()
        }
        return save(tensors, metadata={"schema": str(SCHEMA), "tokens": json.dumps(self.tokens)})

    def save(self, path: Path) -> None:
        path.write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: Path) -> "Trace":
        """Load a saved trace, with the precision of bytes and half floats."""
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tokens = json.loads(metadata.get("tokens", "null"))
                if metadata.get("schema") != str(SCHEMA) or not isinstance(tokens, dict):
                    raise DataError(
                        f"{path}: not a trace of Seqlab",
                        hint="`seqlab explain --trace FILE` writes one.",
                    )
                parts = {name: [_as_floats(file.get_tensor(name))] for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError) as error:
            raise DataError(
                f"{path}: not a readable trace: {error}",
                hint="write it again with `seqlab explain --trace FILE`.",
            ) from None
        return cls({side: tuple(map(str, names)) for side, names in tokens.items()}, parts)


def _compressed(name: str, value: Tensor) -> Tensor:
    if name.endswith(".weights"):
        return (value * 255).round().to(torch.uint8)
    return value.to(torch.float16) if value.is_floating_point() else value


def _as_floats(value: Tensor) -> Tensor:
    return value.float() / 255 if value.dtype == torch.uint8 else value.float()


def _as_json(name: str, value: Tensor) -> dict[str, Any]:
    array = _compressed(name, value).numpy()
    return {
        "shape": list(array.shape),
        "type": f"{array.dtype.kind}{8 * array.dtype.itemsize}",
        "data": base64.b64encode(array.tobytes()).decode(),
    }
