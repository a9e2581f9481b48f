"""What the taps of a model recorded in one run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from seqlab.layers.tap import listening


@dataclass
class Trace:
    """Named values in the order in which they came, and the tokens that they belong to.

    A layer that works step by step passes the same name many times; `trace[name]` puts the steps side by side in time.
    """

    source: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)
    parts: dict[str, list[Tensor]] = field(default_factory=dict)

    def names(self) -> list[str]:
        return list(self.parts)

    def __contains__(self, name: str) -> bool:
        return name in self.parts

    def __getitem__(self, name: str) -> Tensor:
        parts = self.parts[name]
        if len(parts) == 1:
            return parts[0]
        return torch.stack(parts, dim=1) if parts[0].dim() == 2 else torch.cat(parts, dim=1)

    @contextmanager
    def recording(self) -> Iterator["Trace"]:
        """Within this block, everything that passes a tap is kept here."""

        def keep(name: str, value: Tensor) -> Tensor:
            self.parts.setdefault(name, []).append(value.detach())
            return value

        with listening(keep):
            yield self
