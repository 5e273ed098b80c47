"""The queue manager killed in the middle of units of work: committed is there, uncommitted is not, nothing comes
twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from embedded_rig import SMALL, md
from schedulers import ManualScheduler

from gateway.errors import MQError
from gateway.ports.mqi import GetOptions, ObjectDescriptor
from gateway.queue_manager.embedded import EmbeddedQueueManager

KILLS = 60 if os.environ.get("MQGATE_LONG") else 4

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from schedulers import ManualScheduler
from embedded_rig import SMALL, md
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.errors import MQError
from gateway.ports.batch import Puts, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions

scheduler = ManualScheduler()
manager = EmbeddedQueueManager.open(Path({path!r}), "QM1", scheduler, "", store_options=SMALL)
connection = manager.connect(user="mover")
source = connection.open(ObjectDescriptor("IN"), 1).handle
target = connection.open(ObjectDescriptor("OUT"), 16).handle
number = {first}
print("ready", flush=True)
while True:
    for _ in range(3):
        number += 1
        body = b"%d" % number
        done = []
        manager.submit(Unit(puts=[Puts("IN", heads=[md()], bodies=[body])]), lambda unit, outcome: done.append(outcome))
        scheduler.run_until(lambda: bool(done))
        print("in", number, flush=True)
    moved = []
    for _ in range(2):
        try:
            got = connection.get(source, md(), GetOptions(2), 100)
        except MQError:
            break
        connection.put(target, md(persistence=1), PutOptions(2), got.data)
        moved.append(got.data.decode())
    if number % 2:
        connection.back()
    else:
        connection.commit()
        print("out", *moved, flush=True)
"""


@pytest.mark.timeout(1200)
def test_units_of_work_survive_being_killed(tmp_path):
    path = tmp_path / "data"
    manager = EmbeddedQueueManager.open(
        path, "QM1", ManualScheduler(), "DEFINE QLOCAL(IN) MAXDEPTH(999999)\nDEFINE QLOCAL(OUT) MAXDEPTH(999999)",
        store_options=SMALL,
    )  # fmt: skip
    manager.close()
    chance = random.Random(20)
    acknowledged, moved = set(), set()
    for life in range(1, KILLS + 1):
        # Numbers of a life's own: what was put and not acknowledged before the kill may be there too.
        for line in _run_and_kill(path, life * 1_000_000, chance.uniform(0.05, 0.4)):
            word, *numbers = line.split()
            (acknowledged if word == "in" else moved).update(int(number) for number in numbers)
        there = Counter(_all(path, "IN"))
        done = Counter(_all(path, "OUT"))
        assert max((there + done).values(), default=1) == 1
        assert acknowledged <= there.keys() | done.keys()
        assert moved <= done.keys()
    assert moved


def _run_and_kill(path: Path, first: int, seconds: float) -> list[str]:
    program = PROGRAM.format(tests=str(Path(__file__).parents[1] / "support"), path=str(path), first=first)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(seconds)  # the moment of the kill is what is tried out
    process.kill()
    text = process.stdout.read()
    process.wait()
    process.stdout.close()
    return text[: text.rfind("\n") + 1].splitlines()


def _all(path: Path, queue: str) -> list[int]:
    """What is on the queue, by browsing as a program does."""
    manager = EmbeddedQueueManager.open(path, "QM1", ManualScheduler(), store_options=SMALL)
    try:
        connection = manager.connect()
        handle = connection.open(ObjectDescriptor(queue), 8).handle
        found = []
        while True:
            try:
                found.append(int(connection.get(handle, md(), GetOptions(32), 100).data))
            except MQError as error:
                if error.reason != 2033:
                    raise
                return found
    finally:
        manager.close()
