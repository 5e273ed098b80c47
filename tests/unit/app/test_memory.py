"""What is freed behind one batch serves the next; what is kept is looked at a little at a time."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.app.memory import memory_limit

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
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", BATCHES], env=environ | variables, capture_output=True, text=True, check=True
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


@pytest.mark.parametrize(
    ("file", "groups"),
    [
        ("sys/fs/cgroup/memory.max", "0::/\n"),
        ("sys/fs/cgroup/system.slice/mqgate.service/memory.max", "0::/system.slice/mqgate.service\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4:memory:/docker/1\n0::/\n"),
        ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "5:cpu,memory:/docker/1\n0::/\n"),
    ],
)
def test_the_limit_of_a_control_group_is_known(tmp_path: Path, file: str, groups: str) -> None:
    said = tmp_path / file
    said.parent.mkdir(parents=True)
    said.write_text("104857600\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    assert memory_limit(tmp_path) == 100 << 20
    said.write_text("max\n")
    assert memory_limit(tmp_path) == memory_limit(tmp_path / "nothing here") > 100 << 20


def test_a_limit_of_the_process_is_known() -> None:
    code = """
import resource
from gateway.app.memory import memory_limit
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
print(memory_limit())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 3 << 30


def test_no_run_of_the_garbage_collector_is_over_many_objects_that_came_at_once() -> None:
    code = """
import gc
from gateway.app.memory import collect_seldom, freeze_what_exists
collect_seldom()
freeze_what_exists()
looked_at = []
def begun(phase, info):
    if phase == "start":
        looked_at.append(sum(len(gc.get_objects(one)) for one in range(info["generation"] + 1)))
gc.callbacks.append(begun)
kept = [[] for _ in range(300_000)]
gc.callbacks.clear()
print(len(looked_at), max(looked_at), sum(looked_at))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    runs, longest, all_of_them = map(int, done.stdout.split())
    assert runs >= 10
    assert longest <= 9_000
    assert all_of_them <= 2 * 300_000
