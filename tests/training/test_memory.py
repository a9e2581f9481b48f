"""Memory is kept from step to step, and given back when it is tidied. In a process of its own: it changes malloc."""

import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
from seqlab.machine import keep_freed_memory, release_memory

def held():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

keep_freed_memory()
before = held()
blocks = [np.ones(2_000_000) for _ in range(20)]  # 320 MB
last = np.ones(1000)
del blocks
kept = held() - before
release_memory()
print(kept, held() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt and malloc_trim are glibc's")
def test_freed_memory_is_kept_until_it_is_released():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    kept, left = map(float, done.stdout.split())
    assert kept > 200
    assert left < 50
