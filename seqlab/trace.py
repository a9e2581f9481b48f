"""What the taps of a model recorded in one run: by name, with the tokens it belongs to; written and read back."""

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
STEPWISE = (
    "enters",
    "i",
    "f",
    "g",
    "o",
    "c",
    "h",
    "r",
    "u",
    "z",
    "n",
)  # what a recurrence passes once a step


@dataclass
class Trace:
    """Named values in the order in which they came, and the tokens that they belong to.

    A layer that works step by step passes the same name many times; `trace[name]` puts the steps side by side in time,
    and turns what was read from the right to the left round again.
    """

    tokens: dict[str, tuple[str, ...]] = field(default_factory=dict)  # source, written and answered
    parts: dict[str, list[Tensor]] = field(default_factory=dict)

    def names(self) -> list[str]:
        return list(self.parts)

    def __contains__(self, name: str) -> bool:
        return name in self.parts

    def __getitem__(self, name: str) -> Tensor:
        parts = self.parts[name]
        one_step = (
            parts[0].dim() == 2 and name.rpartition(".")[2] in STEPWISE
        )  # of a sequence of one
        if len(parts) == 1 and not one_step:
            return parts[0]
        steps = torch.stack(parts, dim=1) if parts[0].dim() == 2 else torch.cat(parts, dim=1)
        return steps.flip(1) if ".backward." in f"{name}." and parts[0].dim() == 2 else steps

    @contextmanager
    def recording(self) -> Iterator["Trace"]:
        """Within this block, everything that passes a tap is kept here."""

        def keep(name: str, value: Tensor) -> Tensor:
            self.parts.setdefault(name, []).append(value.detach())
            return value

        with listening(keep):
            yield self

    def to_json(self) -> dict[str, Any]:
        """Names, shapes, tokens, and the values: weights as bytes (u8, 255 is 1), all else as half floats (f16)."""
        values = {name: _packed(name, self[name]) for name in self.names()}
        return {"schema": SCHEMA, **self.tokens, "values": values}

    def to_bytes(self) -> bytes:
        """The same as safetensors, a sixth of the size."""
        tensors = {name: _small(name, self[name]).contiguous().clone() for name in self.names()}
        return save(tensors, metadata={"schema": str(SCHEMA), "tokens": json.dumps(self.tokens)})

    def save(self, path: Path) -> None:
        path.write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: Path) -> "Trace":
        """A trace that was saved; its numbers are as exact as bytes and half floats are."""
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tokens = json.loads(metadata.get("tokens", "null"))
                if metadata.get("schema") != str(SCHEMA) or not isinstance(tokens, dict):
                    raise DataError(
                        f"{path}: not a trace of Seqlab's",
                        hint="`seqlab explain --trace FILE` writes one.",
                    )
                parts = {name: [_large(file.get_tensor(name))] for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError) as error:
            raise DataError(
                f"{path}: not a trace that can be read: {error}", hint="write it anew."
            ) from None
        return cls({side: tuple(map(str, names)) for side, names in tokens.items()}, parts)


def _small(name: str, value: Tensor) -> Tensor:
    if name.endswith(".weights"):
        return (value * 255).round().to(torch.uint8)
    return value.to(torch.float16) if value.is_floating_point() else value


def _large(value: Tensor) -> Tensor:
    return value.float() / 255 if value.dtype == torch.uint8 else value.float()


def _packed(name: str, value: Tensor) -> dict[str, Any]:
    small = _small(name, value).numpy()
    kind = f"{small.dtype.kind}{8 * small.dtype.itemsize}"
    return {
        "shape": list(small.shape),
        "type": kind,
        "data": base64.b64encode(small.tobytes()).decode(),
    }
