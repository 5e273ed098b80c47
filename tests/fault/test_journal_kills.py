"""Processes killed at every named point and at random: what was committed is there, the rest is not, and nothing is
there twice.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from gateway.queue_manager.journal import Store, StoreOptions

CHILD = Path(__file__).with_name("journal_child.py")
FAILPOINTS = [
    "journal.before-write:40",
    "journal.after-write:40",
    "journal.after-apply:40",
    "journal.before-header:2",
    "journal.after-header:3",
    "journal.carry:1",
    "journal.recycle:1",
]
SHORT_KILLS = 10
LONG_KILLS = 200
QUEUES = ["A", "B", "C"]


class Ledger:
    """What the children said, and which of it must be in the store."""

    def __init__(self) -> None:
        self.queues: dict[str, set[int]] = {queue: set() for queue in QUEUES}
        self.settled = 0
        self.doubtful = Counter[str]()

    def settle(self, lines: list[dict[str, list[list[object]]]], store: Store) -> None:
        """Count everything that was done; what was only announced counts if the store says that it was committed."""
        done = {line["done"] for line in lines if "done" in line}
        last = int(store.state().get(b"last") or b"0")
        for line in lines:
            if "n" not in line:
                continue
            number: int = line["n"]  # type: ignore[assignment]
            assert number <= last or number not in done, f"commit {number} was acknowledged, the store ends at {last}"
            if number not in done:
                self.doubtful["found" if number <= last else "absent"] += 1
            if number <= last:
                self.count(line)
                self.settled += 1

    def count(self, line: dict[str, list[list[object]]]) -> None:
        for queue, number in line.get("put", ()):
            self.queues[queue].add(number)  # type: ignore[index, arg-type]
        for queue, number in line.get("take", ()):
            self.queues[queue].remove(number)  # type: ignore[index, arg-type]
        for queue, to, number in line.get("move", ()):
            self.queues[queue].remove(number)  # type: ignore[index, arg-type]
            self.queues[to].add(number)  # type: ignore[index, arg-type]

    def compare(self, store: Store) -> None:
        for queue, expected in self.queues.items():
            found = [int(message.body[:12]) for message in store.fetch(queue, limit=1_000_000, locked=True)]
            assert len(found) == len(set(found)), f"{queue}: something is there twice"
            assert set(found) == expected
            assert store.depth(queue) == len(expected)


def life(path: Path, seed: int, failpoint: str, seconds: float) -> list[dict[str, list[list[object]]]]:
    """One child, to its death; what it said."""
    environment = {**os.environ, "MQGATE_FAILPOINT": failpoint}
    command = [sys.executable, str(CHILD), str(path), str(seed)]
    said = path.with_name("said")
    with said.open("wb") as output, subprocess.Popen(command, stdout=output, env=environment) as child:
        try:
            while child.poll() is None and not said.stat().st_size:
                time.sleep(0.005)
            child.wait(20 if failpoint else seconds)
        except subprocess.TimeoutExpired:
            child.kill()
        assert child.wait() == -9
    return [json.loads(line) for line in said.read_bytes().split(b"\n") if line.endswith(b"}")]


@pytest.mark.timeout(900)
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    kills = LONG_KILLS if os.environ.get("MQGATE_LONG") else SHORT_KILLS
    dice = random.Random(os.environ.get("MQGATE_SEED", "1"))
    path = tmp_path / "data"
    ledger = Ledger()
    points = [*FAILPOINTS, *[""] * 3]
    for kill in range(kills):
        failpoint = points[kill % len(points)]
        lines = life(path, dice.randrange(1 << 30), failpoint, dice.uniform(0.01, 0.3))
        store = Store.open(path, clock=lambda: 1.0, options=StoreOptions(segment_bytes=256 * 1024, background=False))
        ledger.settle(lines, store)
        ledger.compare(store)
        if dice.random() < 0.5:
            store.close()
        else:
            store.ring.close()
            assert store._lock is not None
            store._lock.release()
    assert ledger.settled > kills


@pytest.mark.parametrize("text", ["a", "a:1", "x:3,a:2"])
def test_failpoints_are_parsed(text: str) -> None:
    from gateway.queue_manager.journal.failpoint import parse

    assert parse(text)["a"] in {1, 2}
