"""What the embedded queue manager costs beside its store: `python tests/bench/queue_manager.py [DIRECTORY]`.

Microseconds of CPU and messages a second, in memory and over a journal in DIRECTORY (a temporary one by default):
the batch port in batches of 400, MQI calls one by one and 100 to a unit of work, programs on 1 and 16 threads (group
commit), and gets at a depth of 500,000 beside 1,000.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from embedded_rig import md
from schedulers import ManualScheduler

from gateway.ports.batch import Puts, Takes, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler

BODY = b"x" * 64
HEAD = md(persistence=1) + b"R" * 200
BATCH = 400


class Clock(ManualScheduler):
    """Real time; calls run when told."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def measured(what: str, messages: int, run: Callable[[], None]) -> None:
    """Run once and say what it took."""
    begin, cpu = time.perf_counter(), time.process_time()
    run()
    seconds, spent = time.perf_counter() - begin, time.process_time() - cpu
    print(f"  {what:44}{messages / seconds:12,.0f}/s {spent / messages * 1e6:9.2f} us CPU")


def fill(manager: EmbeddedQueueManager, clock: Clock, messages: int) -> None:
    """Puts in batches, many on their way at once."""
    there = [0]

    def done(unit: Unit, outcome: object) -> None:
        assert not outcome.failures  # type: ignore[attr-defined]
        there[0] += len(unit.puts[0].heads)

    for _ in range(messages // BATCH):
        manager.submit(Unit(puts=[Puts("A", heads=[HEAD] * BATCH, bodies=[BODY] * BATCH)]), done)
        clock.run()
    clock.run_until(lambda: there[0] == messages // BATCH * BATCH)


def drain(manager: EmbeddedQueueManager, clock: Clock) -> None:
    """Fetch and take in batches, one after the other."""
    while page := manager.fetch("A", b"", BATCH):
        ended: list[int] = []
        unit = Unit(takes=[Takes("A", b"", [one.token for one in page])])
        manager.submit(unit, lambda _unit, _outcome, ended=ended: ended.append(1))
        clock.run_until(lambda ended=ended: bool(ended))


def calls(manager: EmbeddedQueueManager, persistence: int) -> None:
    """MQI calls on one thread."""
    connection = manager.connect(user="bench")
    handle = connection.open(ObjectDescriptor("A"), 1 | 16).handle
    descriptor, count = md(persistence=persistence), 2000

    def puts(options: int, unit: int) -> None:
        for number in range(1, count + 1):
            connection.put(handle, descriptor, PutOptions(options), BODY)
            if unit and number % unit == 0:
                connection.commit()

    def gets(options: int, unit: int) -> None:
        for number in range(1, count + 1):
            connection.get(handle, md(), GetOptions(options), 1000)
            if unit and number % unit == 0:
                connection.commit()

    kind = "persistent" if persistence else "non-persistent"
    measured(f"MQPUT {kind}, each its own", count, lambda: puts(4, 0))
    measured(f"MQGET {kind}, each its own", count, lambda: gets(4, 0))
    measured(f"MQPUT {kind}, 100 a unit of work", count, lambda: puts(2, 100))
    measured(f"MQGET {kind}, 100 a unit of work", count, lambda: gets(2, 100))
    connection.disconnect()


def at_depth(manager: EmbeddedQueueManager, clock: Clock, messages: int) -> None:
    """Gets when this many are there."""
    fill(manager, clock, messages)
    connection = manager.connect(user="bench")
    handle = connection.open(ObjectDescriptor("A"), 1).handle
    ids: list[bytes] = []

    def in_order() -> None:
        ids.extend(connection.get(handle, md(), GetOptions(2), 1000).md[48:72] for _ in range(500))

    measured(f"MQGET in order, depth {messages:,}", 500, in_order)
    connection.back()
    connection.get(handle, md(msg_id=ids.pop()), GetOptions(2), 1000)  # the first makes the index

    def by_id() -> None:
        for msg_id in ids[:200]:
            connection.get(handle, md(msg_id=msg_id), GetOptions(2), 1000)

    measured(f"MQGET by MsgId, depth {messages:,}", 200, by_id)
    connection.disconnect(commit=False)
    manager.mqsc("CLEAR QLOCAL(A)")


def programs(path: Path) -> None:
    """Persistent puts outside syncpoint from several threads."""
    with ThreadScheduler() as scheduler:
        manager = EmbeddedQueueManager.open(path, "QM1", scheduler, "DEFINE QLOCAL(A) REPLACE MAXDEPTH(999999999)")
        for threads in (1, 16):
            each = 2000 // threads

            def work(each: int = each) -> None:
                connection = manager.connect(user="bench")
                handle = connection.open(ObjectDescriptor("A"), 16).handle
                for _ in range(each):
                    connection.put(handle, md(persistence=1), PutOptions(4), BODY)
                connection.disconnect()

            frames = manager.core.committer.frames
            several = [threading.Thread(target=work) for _ in range(threads)]

            def run(several: list[threading.Thread] = several) -> None:
                for thread in several:
                    thread.start()
                for thread in several:
                    thread.join()

            measured(f"MQPUT persistent, {threads} threads", each * threads, run)
            print(f"    {each * threads / (manager.core.committer.frames - frames):.1f} messages a frame")
        manager.close()


def main(folder: Path) -> None:
    """Everything, in memory and on disk."""
    for name, path in (("memory", None), ("journal", folder / "store")):
        clock = Clock()
        manager = EmbeddedQueueManager.open(path, "QM1", clock, "DEFINE QLOCAL(A) REPLACE MAXDEPTH(999999999)")
        print(name)
        measured("batch port, puts, 400 a unit", 100_000, lambda m=manager, c=clock: fill(m, c, 100_000))
        measured("batch port, fetch and take, 400 a unit", 100_000, lambda m=manager, c=clock: drain(m, c))
        calls(manager, 0)
        if path is not None:
            calls(manager, 1)
            at_depth(manager, clock, 1200)
            at_depth(manager, clock, 500_000)
        manager.close()
    programs(folder / "threads")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path)
    given = parser.parse_args()
    if given.directory:
        main(given.directory)
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
