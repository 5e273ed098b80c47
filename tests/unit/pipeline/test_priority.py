"""How far a job steps back: read back from the kernel, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.pipeline.jobs.spark.priority import AUTOGROUP, steps_back_here

STEP = """
import os, subprocess, sys
from gateway.pipeline.jobs.spark.priority import AUTOGROUP, step_back

step_back(int(sys.argv[1]))
child = subprocess.run([sys.executable, "-c", "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"],
                       capture_output=True, check=True, text=True).stdout.strip()
group = AUTOGROUP.read_text().rpartition(" ")[2].strip() if AUTOGROUP.exists() else ""
print(os.getpriority(os.PRIO_PROCESS, 0), child, group)
"""


def stepped(nice: int, *, own_session: bool) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", STEP, str(nice)], capture_output=True, text=True, check=True, timeout=60,
        start_new_session=own_session, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    return done.stdout.split()


def test_a_job_and_what_it_starts_step_back() -> None:
    wanted = str(min(19, os.getpriority(os.PRIO_PROCESS, 0) + 3))
    own, child, *group = stepped(int(wanted), own_session=True)
    assert (own, child) == (wanted, wanted)
    if AUTOGROUP.exists() and group:
        assert group == [wanted]


def test_it_never_comes_forward_and_leaves_the_group_of_others_alone() -> None:
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert stepped(min(0, mine), own_session=True)[:2] == [str(mine), str(mine)]
    if AUTOGROUP.exists():
        before = AUTOGROUP.read_text()
        stepped(min(19, mine + 3), own_session=False)
        assert AUTOGROUP.read_text() == before


@pytest.mark.parametrize(
    ("settings", "environment", "here"),
    [
        ({}, {}, True),
        ({"spark.master": "local[8]"}, {}, True),
        ({"spark.master": "spark://cluster:7077"}, {}, False),
        ({}, {"PYSPARK_GATEWAY_PORT": "1"}, False),
    ],
)
def test_only_where_the_tasks_run(settings: dict[str, str], environment: dict[str, str], here: bool) -> None:
    assert steps_back_here(settings, environment) is here
