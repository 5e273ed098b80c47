"""A full disk under the other two journals: the buffer in front of IBM MQ, and the one that the pipeline drains to."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from buffer_rig import Rig, puts
from small_disks import tmpfs

from gateway.errors import StoreUnavailable
from gateway.mq import mqmd
from gateway.mq.constants.mqrc import MQRC_STORAGE_MEDIUM_FULL
from gateway.pipeline.drain.drainer import Drainer
from gateway.pipeline.drain.ibm_queue import GotMessage
from gateway.pipeline.drain.journal_server import LockedJournal
from gateway.ports.batch import Unit
from gateway.queue_manager.journal import Store
from gateway.queue_manager.store.unit import LaneTakes, StoreUnit


class RigOnDisk(Rig):
    """A buffer whose store is a journal."""

    def __init__(self, path: Path, *, max_bytes: int = 1 << 30) -> None:
        self.path = path
        super().__init__(max_bytes=max_bytes)

    def start(self) -> None:
        self.disk = Store.open(self.path, clock=time.time)  # type: ignore[assignment]
        super().start()


def committed_until_full(rig: Rig) -> tuple[list[bytes], str]:
    """IBM MQ goes away; returns what is stored for it, and what is said when there is no more room."""
    rig.run()
    rig.mq.go()
    rig.run()
    stored: list[bytes] = []
    while rig.queue_manager.storage_full is None:
        bodies = [b"%d " % (len(stored) + more) + b"x" * 1000 for more in range(20)]
        failures = rig.commit(Unit([puts("APP.Q", *bodies)])).failures
        if failures:  # the first to find out, unless the thread that prepares segments was
            assert [failure.reason for failure in failures] == [MQRC_STORAGE_MEDIUM_FULL]
            break
        stored += bodies
        assert len(stored) < 100_000
    full = rig.queue_manager.storage_full
    assert full is not None
    return stored, full.why


def test_a_buffer_on_a_full_disk_is_emptied_by_ibm_mq(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "12m") as disk:
        rig = RigOnDisk(disk / "data")
        stored, why = committed_until_full(rig)
        assert why == "No space left on device"
        rig.mq.come()
        for _ in range(200):
            rig.run(0.1)
            if not rig.queue_manager.spool.messages:
                break
        assert rig.mq.bodies("APP.Q") == stored
        assert rig.queue_manager.storage_full is None
        rig.close()
        rig.disk.close()


def test_a_buffer_at_its_limit_says_so_before_it_holds_anything() -> None:
    with closing(Rig(max_bytes=1 << 20)) as rig:
        stored, why = committed_until_full(rig)
        assert "`buffer.max_bytes` is 1048576" in why
        assert not rig.queue_manager.full
        rig.mq.come()
        rig.run()
        assert rig.queue_manager.storage_full is None
        assert rig.mq.bodies("APP.Q") == stored


class Queue:
    """A queue with a unit of work: what was got and not committed comes again."""

    def __init__(self, count: int) -> None:
        self.waiting = [
            GotMessage(mqmd.build(msg_id=at.to_bytes(24, "big")), b"%d " % at + b"x" * 2000) for at in range(1, count)
        ]
        self.open = 0

    def get(self, limit: int, wait: float) -> list[GotMessage]:
        found = self.waiting[:limit]
        self.open = len(found)
        return found

    def get_by_id(self, msg_id: bytes) -> GotMessage | None:
        del msg_id
        return None

    def commit(self) -> None:
        del self.waiting[: self.open]
        self.open = 0

    def back_out(self) -> None:
        self.open = 0


def test_a_drained_journal_on_a_full_disk_is_emptied_by_its_readers(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "10m") as disk:
        queue, found = Queue(6000), Counter[bytes]()
        store = Store.open(disk / "data", clock=time.time)
        journal = LockedJournal(store)
        drainer, times_full = Drainer(queue, journal, "Q", batch=50), 0
        until = time.monotonic() + 120
        while (queue.waiting or store.depth("Q")) and time.monotonic() < until:
            try:
                while drainer.step(0.0):
                    pass
            except StoreUnavailable:
                times_full += 1
            for message in store.fetch("Q", limit=400):
                found[message.body] += 1
                journal.commit(StoreUnit(takes=[LaneTakes("Q", tokens=[message.token])]))
            journal.tidy()
        assert times_full > 0
        assert len(found) == 5999
        assert max(found.values()) == 1
        store.close()
