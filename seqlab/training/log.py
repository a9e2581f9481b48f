"""What a run reports while it trains, and the protocol of a reporter."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Estimate:
    """The time and memory of a run, estimated from a few steps before it begins."""

    seconds: float
    bytes: int
    num_steps: int
    num_parameters: int


@dataclass(frozen=True)
class Step:
    """What was measured in one step."""

    step: int
    num_steps: int
    loss: float
    tokens_per_second: float
    seconds_left: float
    gradient_norm: float | None = None  # EM has none
    learning_rate: float | None = None
    climb: int | None = None  # number of the start, if EM has several
    num_tokens: float = 0.0  # in the batch of this step


@runtime_checkable
class Reporter(Protocol):
    """Receives the events of a run; methods that it does not define do nothing."""

    def plan(self, facts: str, choices: Mapping[str, Any]) -> None:
        """Report what the file contains, and the settings that were chosen for it."""
        return

    def say(self, text: str) -> None:
        """Report a step of the preparation."""
        return

    def begin(self, estimate: Estimate, first_step: int) -> None:
        return

    def step(self, step: Step) -> None:
        return

    def validated(self, step: int, metrics: Metrics, *, best: bool) -> None:
        return

    def diverged(self, message: str, action: str) -> None:
        """Report a step without a finite gradient; the action is skip, rollback or stop."""
        return

    def end(self) -> None:
        return


class SilentReporter(Reporter):
    """Reports nothing."""
