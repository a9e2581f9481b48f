"""How threads that compute together wait for each other. Nothing here imports torch, which reads this when it loads."""

import os

SPIN = "GOMP_SPINCOUNT"
TURNS = 1000  # of a loop; long enough for the next product of a small model, far shorter than a turn of the scheduler


def sleep_while_waiting() -> None:
    """Let waiting threads go to sleep soon, unless the user has decided how they wait. To be called before torch loads.

    By default they spin for milliseconds. Beside other busy processes they then take the cores from the very threads
    that they wait for, and a step takes a hundred times as long.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPIN, str(TURNS))
