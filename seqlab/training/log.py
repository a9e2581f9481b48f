"""What a run tells about itself to whoever watches it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Estimate:
    """What a run will take, measured on a few batches before it begins."""

    seconds: float
    bytes: int
    num_steps: int
    num_parameters: int


@dataclass(frozen=True)
class Step:
    """One step, as it is seen from outside."""

    step: int
    num_steps: int
    loss: float
    tokens_per_second: float
    seconds_left: float
    gradient_norm: float | None = None  # EM has none
    learning_rate: float | None = None
    climb: int | None = None  # of EM from several starts
    num_tokens: float = 0.0  # that this step alone was made with


@runtime_checkable
class Reporter(Protocol):
    """Somebody who watches a run; what it does not write itself does nothing."""

    def plan(self, facts: str, choices: Mapping[str, Any]) -> None:
        """What the file is, and the settings that were chosen because of it."""
        return

    def say(self, text: str) -> None:
        """A sentence about what is done before the run begins."""
        return

    def begin(self, estimate: Estimate, first_step: int) -> None:
        return

    def step(self, step: Step) -> None:
        return

    def validated(self, step: int, metrics: Metrics, *, best: bool) -> None:
        return

    def diverged(self, told: str, what: str) -> None:
        """A step had no finite gradient, and what the recipe says is then done."""
        return

    def end(self) -> None:
        return


class Silence(Reporter):
    """Nobody watches."""
