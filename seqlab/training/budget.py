"""A limited time for a run: how many steps fit into it, by measuring the steps themselves.

The run notes each decision in its progress, with the step from which it holds, so that a resumed run goes on with it.
"""

from collections import deque
from statistics import fmean

SHARE = 0.1  # of a limited time, at most, is for validations, and another for scoring at the end
FIRST = 0.02  # of a limited time is for the first validation
SCORING = 30.0  # seconds, at most, for scoring at the end
WINDOW = 20  # steps whose mean says how long a step takes
CHANGE = (
    0.05  # a plan that would change the steps that are left by less than this share stays as it is
)
PLANS = 100  # how often a plan may change


class Budget:
    """A limited time for a run, from its first step to its scores."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.training = seconds - min(SHARE * seconds, SCORING)
        self.validation = FIRST * seconds  # that the last one took, or the first one may take
        self._steps: deque[float] = deque(maxlen=WINDOW)
        self._planned_at = 0.0

    @property
    def step(self) -> float:
        """The seconds that a step takes now."""
        return fmean(self._steps) if self._steps else 0.0

    def measured(self, seconds: float) -> None:
        """Take note of the seconds that a step has taken."""
        self._steps.append(seconds)

    def is_over(self, elapsed: float) -> bool:
        """Whether there is no time for another step and a last validation."""
        return elapsed + self.step + self.validation > self.training

    def plan(
        self, step: int, elapsed: float, wish: int | None, validations: int
    ) -> tuple[int, int]:
        """The steps of the whole run, and those between two validations.

        Between them there should be `wish` steps, or without a wish as many as lead to so many `validations`.
        """
        self._planned_at = elapsed
        each = max(self.step, 1e-6)
        left = max(0.0, self.training - elapsed - self.validation)
        # so many steps that they take (1 - SHARE) / SHARE times as long as the validation that follows them
        rarely = int((1 - SHARE) / SHARE * self.validation / each) + 1
        every = max(rarely, wish or (step + int(left / each)) // validations)
        return step + max(1, int(left / (each + self.validation / every))), every

    def may_change(self, elapsed: float) -> bool:
        """Whether enough time has passed since the last plan."""
        return elapsed - self._planned_at >= self.training / PLANS
