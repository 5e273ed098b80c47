"""What waits in the buffer's store: similar heads take little space there and come back whole, a page of them stays
within memory, and a release that does not know packed heads leaves them alone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from buffer_rig import Mq, Rig
from schedulers import ManualScheduler

from gateway.backends.buffer import spool as spools
from gateway.backends.buffer.spool import ENTRIES, Spool
from gateway.errors import StoreCorrupt
from gateway.mq import mqmd
from gateway.ports.batch import Puts, Unit
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal import StoreOptions
from gateway.queue_manager.store import rows
from gateway.queue_manager.store.memory import MemoryStore

compiled = pytest.mark.skipif(not rows.compiled(), reason="heads are packed where there was a compiler")
DESCRIPTOR = mqmd.build(persistence=1)
OPTIONS = StoreOptions(segment_bytes=64 * 1024, spare_segments=1, direct=False, background=False)


def heads(count: int, length: int = 0) -> list[bytes]:
    """Messages of devices that each have a topic of their own."""
    rest = b"<clientId>%d</clientId>" + bytes(200 + length)
    return [DESCRIPTOR + b"<Top>plant/device/%d/temperature</Top>" % n + rest % n for n in range(count)]


def put(spool: Spool, made: list[bytes], queue: str = "APP.Q") -> None:
    unit = Unit([Puts(queue, heads=made, bodies=[b"%d" % n for n in range(len(made))])])
    numbered = spool.records_of(unit, ["rule"], 1.0)
    puts = spool.puts_of(numbered)
    spool.commit_now(Unit([puts]))
    spool.added(numbered, puts)


def read(spool: Spool) -> list[tuple[bytes, bytes]]:
    """Returns everything that waits, page by page; afterwards nothing is counted."""
    found: list[tuple[bytes, bytes]] = []
    while spool.main.entries:
        page = spool.page(spool.main)
        for entry in page:
            for puts in entry.record.unit.puts:
                found += zip(puts.heads, puts.bodies, strict=True)
        spool.done(spool.main, page)
    return found


def opened(folder: Path) -> tuple[EmbeddedQueueManager, Spool]:
    store = EmbeddedQueueManager.open(folder, "BUFFER", ManualScheduler(), store_options=OPTIONS)
    return store, Spool(store)


@compiled
def test_messages_with_heads_of_their_own_take_little(tmp_path: Path) -> None:
    store, spool = opened(tmp_path)
    made = heads(400)
    put(spool, made)
    assert spool.bytes < 60 * 400 < sum(map(len, made)) // 10
    waiting = (spool.messages, spool.bytes)
    store.close()
    store, spool = opened(tmp_path)
    assert (spool.messages, spool.bytes) == waiting, "what it counts is what lies there"
    assert [head for head, _ in read(spool)] == made
    store.close()


def test_so_does_one_that_comes_by_itself(tmp_path: Path) -> None:
    store, spool = opened(tmp_path)
    for head in heads(20):
        put(spool, [head])
    assert spool.bytes < 180 * 20 < len(heads(1)[0]) * 20 // 3
    assert [head for head, _ in read(spool)] == heads(20)
    store.close()


@compiled
def test_a_page_stays_within_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed heads of 20 kB each: the size that counts for a page is the unpacked one."""
    store = EmbeddedQueueManager("BUFFER", MemoryStore("BUFFER"), ManualScheduler())
    store.start()
    spool = Spool(store)
    made = heads(1000, 20_000)
    put(spool, made)
    assert spool.bytes < 1 << 20
    pages = []
    while spool.main.entries:
        pages.append(spool.page(spool.main))
        spool.done(spool.main, pages[-1])
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [head for page in pages for one in page for head in one.record.unit.puts[0].heads] == made
    monkeypatch.setattr(spools, "_PAGE_MESSAGES", 600)
    put(spool, heads(1000))
    assert sum(entry.messages for entry in spool.page(spool.main)) == 600


def test_records_of_another_format_are_refused_and_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, spool = opened(tmp_path)
    put(spool, heads(1) * 100)
    put(spool, heads(50))
    written = [stored.data for _, stored in store.load(ENTRIES)]
    assert {data[4:6] for data in written} == {b"\1\0", b"\1\1"}
    store.close()
    store = EmbeddedQueueManager.open(tmp_path, "BUFFER", ManualScheduler(), store_options=OPTIONS)
    with monkeypatch.context() as patched:
        patched.setattr("gateway.backends.buffer.record.VERSION", 2)
        with pytest.raises(StoreCorrupt, match="has format 1, flags 0; this program reads format 2: use the release"):
            Spool(store)
    assert [stored.data for _, stored in store.load(ENTRIES)] == written
    assert [head for head, _ in read(Spool(store))] == [*heads(1) * 100, *heads(50)]
    store.close()


@pytest.mark.parametrize("aside", [False, True])
def test_they_are_whole_on_ibm_mq_after_a_restart(*, aside: bool) -> None:
    with closing(Rig(Mq())) as rig:
        rig.run()
        if aside:
            rig.mq.queue_manager.mqsc("ALTER QLOCAL(OTHER.Q) PUT(DISABLED)")
        rig.mq.go()
        rig.run()
        made = heads(450)
        bodies = [b"%d" % number for number in range(len(made))]
        unit = Unit([Puts(queue, heads=list(made), bodies=list(bodies)) for queue in ("OTHER.Q", "APP.Q")])
        assert not rig.commit(unit).failures
        rig.kill()
        rig.mq.come()
        rig.run(60.0)
        rig.kill()
        rig.run(60.0)
        rig.mq.queue_manager.mqsc("ALTER QLOCAL(OTHER.Q) PUT(ENABLED)")
        rig.run(60.0)
        rig.run(60.0)
        wanted = [head[len(DESCRIPTOR) :] + body for head, body in zip(made, bodies, strict=True)]
        assert rig.mq.bodies("APP.Q") == rig.mq.bodies("OTHER.Q") == wanted
        assert (rig.queue_manager.spool.messages, rig.queue_manager.spool.bytes) == (0, 0)
