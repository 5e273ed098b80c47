"""What is freed behind one batch serves the next."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

BATCHES = """
import resource, sys
from gateway.app.memory import keep_what_is_freed
said = keep_what_is_freed()
def batch():
    rows = [bytes(20_000) for _ in range(100)]
    frame = b"".join(rows)
    del rows
    return b"".join((frame, b"x"))
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    batch()
before = faults()
for _ in range(50):
    batch()
print(said, faults() - before)
"""


def run(**variables: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", BATCHES], env=os.environ | variables, capture_output=True, text=True, check=True
    )
    said, faults = done.stdout.split()
    return said, int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory its own way")
def test_a_batch_asks_the_system_for_no_memory_that_the_last_one_had() -> None:
    said, faults = run()
    assert said == "True"
    assert faults < 50 * 100, "a page or so for each row would be ten times as many"
    said, more = run(MALLOC_TRIM_THRESHOLD_="131072")
    assert said == "False", "the operator's word counts"
    assert more > 5 * faults
