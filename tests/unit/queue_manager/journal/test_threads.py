"""One thread prepares, reads and applies while another waits for a slow disk: the way a gateway uses the store."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue

from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364
OPTIONS = StoreOptions(segment_bytes=256 * 1024, spare_segments=2, cache_bytes=100_000)


class Writer(threading.Thread):
    """Writes what it is given, in order, with pauses now and then."""

    def __init__(self, store: Store) -> None:
        super().__init__(daemon=True)
        self.store = store
        self.work: SimpleQueue[Prepared | None] = SimpleQueue()
        self.done: deque[Prepared] = deque()

    def run(self) -> None:
        dice = random.Random(2)
        while (prepared := self.work.get()) is not None:
            if dice.random() < 0.05:
                time.sleep(0.002)
            self.store.write(prepared)
            self.done.append(prepared)


def test_preparing_and_reading_while_another_thread_writes(tmp_path: Path) -> None:
    store = Store.open(tmp_path, clock=lambda: 1.0, options=OPTIONS)
    writer = Writer(store)
    writer.start()
    dice = random.Random(1)
    put = taken = flying = carried = 0
    deadline = time.monotonic() + 60
    while put < 30_000 and time.monotonic() < deadline:
        unit = StoreUnit()
        count = dice.choice([1, 5, 50])
        bodies = [b"%d" % number * 30 for number in range(put, put + count)]
        unit.puts.append(LanePuts("Q", heads=[HEAD] * count, bodies=bodies))
        put += count
        messages = store.fetch("Q", limit=dice.choice([1, 20, 60]))
        for message in messages:
            assert message.body == b"%d" % taken * 30, "first in, first out, and nothing twice"
            taken += 1
        if messages:
            unit.takes.append(LaneTakes("Q", tokens=[message.token for message in messages]))
        submitted = [store.prepare(unit, 1.0)]
        assert submitted[0].missing == []
        step = store.maintain(1.0)
        if step is not None:
            submitted.append(step)
            carried += 1
        for prepared in submitted:
            writer.work.put(prepared)
            flying += 1
        while writer.done or flying > 6:
            if writer.done:
                store.apply(writer.done.popleft())
                flying -= 1
            else:
                time.sleep(0.0005)
    writer.work.put(None)
    writer.join()
    for prepared in writer.done:
        store.apply(prepared)
    rest = [message.body for message in store.fetch("Q", limit=100_000)]
    assert rest == [b"%d" % number * 30 for number in range(taken, put)]
    assert store.ring.next_serial > 10, "segments were used and used again meanwhile"
    store.close()
    store = Store.open(tmp_path, clock=lambda: 1.0, options=OPTIONS)
    assert [message.body for message in store.fetch("Q", limit=100_000)] == rest
    assert [(key, message.body) for key, message in store.load("Q")] == [(b"", body) for body in rest]
    store.close()
