"""Puts with a queue for each row do what puts of each queue do, in memory and on a journal, also when it is opened
again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from embedded_rig import SMALL, md
from hypothesis import given, settings
from hypothesis import strategies as st
from schedulers import ManualScheduler

from gateway.ports.batch import Puts, Unit
from gateway.queue_manager.embedded import EmbeddedQueueManager

OBJECTS = """
DEFINE QLOCAL(D1) MAXDEPTH(5)
DEFINE QLOCAL(D2)
DEFINE QLOCAL(FIFO) MSGDLVSQ(FIFO)
DEFINE QALIAS(ALIAS) TARGET(D2)
DEFINE QLOCAL(SHORT) MAXMSGL(5)
DEFINE QLOCAL(XMIT) USAGE(XMITQ)
DEFINE QREMOTE(FAR) RNAME(THERE) RQMNAME(XMIT)
"""
LOCAL = ["D1", "D2", "FIFO", "SHORT", "XMIT"]
NAMES = ["D1", "D2", "D2", "FIFO", "ALIAS", "SHORT", "FAR", "NONE"]
HEADS = [md(), md(), md(expiry=600), md(report=0x100, reply_to_q=b"D2".ljust(48)), md(priority=3)]
QUEUE = st.sampled_from(["D1", "D2"]) | st.sampled_from(NAMES)
HEAD = st.sampled_from(HEADS[:2]) | st.sampled_from(HEADS)
ROWS = st.lists(st.tuples(QUEUE, HEAD, st.sampled_from([b"x", b"xy", b"123456"])), min_size=1, max_size=6)
CHANGES = st.sampled_from(
    [""] * 4 + ["ALTER QLOCAL(D2) PUT(DISABLED)", "ALTER QLOCAL(D2) DEFPRTY(4)", "CLEAR QLOCAL(D1)"]
)


class Side:
    """A queue manager, and what it was given."""

    def __init__(self, path: Path | None) -> None:
        self.scheduler, self.path = ManualScheduler(), path
        self.manager = EmbeddedQueueManager.open(path, "QM1", self.scheduler, OBJECTS, store_options=SMALL)

    def commit(self, puts: list[Puts]) -> list[int]:
        found = []
        self.manager.submit(Unit(puts=puts), lambda _unit, outcome: found.append(outcome.failures))
        self.scheduler.run_until(lambda: bool(found))
        return sorted({one.reason for one in found[0]})

    def state(self):
        return {name: [(one.md, one.data) for one in self.manager.fetch(name, b"", 99)] for name in LOCAL}, [
            (one.name, one.puts, one.high_depth) for one in self.manager.core.queues.values() if one.name in LOCAL
        ]


def without_ids(state):
    """MsgIds tell in which order messages were put, over all queues; CorrelIds of reports repeat them, and so does the
    descriptor behind a transmission header."""
    queues, counts = state
    kept = {name: [(one[:48] + one[96:], without_id(data)) for one, data in rows] for name, rows in queues.items()}
    return kept, counts


def without_id(data):
    return data[:152] + data[176:] if data[:4] == b"XQH " else data


def compare(units, path: Path | None) -> None:
    sides = [Side(path and path / name) for name in ("mixed", "parted")]
    for rows, priority, change in units:
        queues, heads, bodies = map(list, zip(*rows, strict=True))
        mixed = Puts("", priority=priority, heads=heads, bodies=bodies, queues=queues)
        refused, reasons = sides[0].commit([mixed]), sides[1].commit(mixed.by_queue())
        assert bool(refused) == bool(reasons)
        assert {*refused} <= {*reasons}
        assert without_ids(sides[0].state()) == without_ids(sides[1].state())
        for side in sides:
            side.manager.mqsc(change)
    before = sides[0].state()[0]
    for side in sides:
        side.manager.close()
    if path is not None:
        again = Side(path / "mixed")
        assert again.state()[0] == before
        again.manager.close()


UNITS = st.lists(st.tuples(ROWS, st.integers(0, 5), CHANGES), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None)
@given(UNITS)
def test_in_memory(units):
    compare(units, None)


@settings(max_examples=6, deadline=None)
@given(UNITS)
def test_on_a_journal(units):
    with tempfile.TemporaryDirectory() as folder:
        compare(units, Path(folder))
