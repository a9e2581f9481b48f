"""A time limit for a run: how many steps fit into it, given the measured time of a step.

The run stores each decision in its progress, with the step from which it holds, so that a resumed run keeps it.
"""

from collections import deque
from statistics import fmean

SHARE = 0.1  # largest share of the time for validations, and for the scores at the end
FIRST = 0.02  # share of the time for the first validation
SCORING = 30.0  # most seconds for the scores at the end
WINDOW = 20  # steps whose mean is the time of a step
CHANGE = 0.05  # a plan is kept if the remaining steps would change by less than this share
PLANS = 100  # how often a plan may change


class Budget:
    """The time limit of a run, from its first step to its scores."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.training = seconds - min(SHARE * seconds, SCORING)
        self.validation = FIRST * seconds  # seconds of the last one, or allowed for the first one
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._planned_at = 0.0

    @property
    def step_seconds(self) -> float:
        """The mean seconds of the last steps."""
        return fmean(self._steps) if self._steps else 0.0

    def measured(self, seconds: float) -> None:
        """Record the seconds of a step."""
        self._steps.append(seconds)

    def is_over(self, elapsed: float) -> bool:
        """Return whether there is no time for another step and a last validation."""
        return elapsed + self.step_seconds + self.validation > self.training

    def plan(
        self, step: int, elapsed: float, interval: int | None, validations: int
    ) -> tuple[int, int]:
        """Return the number of steps of the whole run, and that between two validations.

        The latter is `interval`, or chosen for so many `validations` if that is None; validations that take long are
        made less often.
        """
        self._planned_at = elapsed
        each = max(self.step_seconds, 1e-6)
        left = max(0.0, self.training - elapsed - self.validation)
        # so many steps take (1 - SHARE) / SHARE times as long as a validation
        at_least = int((1 - SHARE) / SHARE * self.validation / each) + 1
        every = max(at_least, interval or (step + int(left / each)) // validations)
        return step + max(1, int(left / (each + self.validation / every))), every

    def may_change(self, elapsed: float) -> bool:
        """Return whether enough time has passed since the last plan."""
        return elapsed - self._planned_at >= self.training / PLANS
