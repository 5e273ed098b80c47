"""Ten minutes of load in which one message in a thousand is never taken: the files stay below twice what is live plus
six segments. `MQGATE_LONG=1` runs all ten minutes on segments of the usual size; otherwise it is a
second on small ones.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

LONG = bool(os.environ.get("MQGATE_LONG"))
SECONDS = 600.0 if LONG else 1.5
SEGMENT = (64 << 20) if LONG else (256 << 10)
BATCH = 400
WAITING = 20
"""Batches on the queue at a time."""
HEAD = b"M" * 364
BODY = 64


def write(store: Store, prepared: Prepared | None) -> None:
    if prepared is not None:
        store.write(prepared)
        store.apply(prepared)


def commit(store: Store, unit: StoreUnit) -> None:
    write(store, store.prepare(unit, time.time()))
    write(store, store.maintain(time.time()))


def on_disk(path: Path) -> int:
    return sum(each.stat().st_size for each in path.glob("*.segment"))


@pytest.fixture
def place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="mqgate-space-", dir=os.environ.get("MQGATE_BENCH_DIR")))
    yield path / "store"
    shutil.rmtree(path)


@pytest.mark.timeout(SECONDS * 2 + 120)
def test_survivors_do_not_hold_the_disk(place: Path) -> None:
    store = Store.open(place, clock=time.time, options=StoreOptions(segment_bytes=SEGMENT))
    kept: list[bytes] = []
    waiting: deque[list[int]] = deque()
    number = worst = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or number < 200 * BATCH:
        bodies = [b"%0*d" % (BODY, each) for each in range(number, number + BATCH)]
        number += BATCH
        puts = LanePuts("Q", heads=[HEAD] * BATCH, bodies=bodies)
        commit(store, StoreUnit(puts=[puts]))
        waiting.append([token for token, body in zip(puts.tokens, bodies, strict=True) if int(body) % 1000])
        kept += [body for body in bodies if not int(body) % 1000]
        if len(waiting) > WAITING:
            commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=waiting.popleft())]))
        if number % (100 * BATCH) == 0:
            live = sum(extent.live_bytes for extent in store.index.space.by_slot.values())
            worst = max(worst, on_disk(place) - 2 * live)
            assert worst <= 6 * SEGMENT, f"{on_disk(place)} bytes on disk, {live} live"
    while waiting:
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=waiting.popleft())]))
    print(f"{number:,} messages, {len(kept):,} kept, {on_disk(place):,} bytes on disk, at worst twice live + {worst:,}")
    assert [message.body for message in store.fetch("Q", limit=len(kept) + 1)] == kept
    store.close()
    store = Store.open(place, clock=time.time, options=StoreOptions(segment_bytes=SEGMENT))
    assert [message.body for message in store.fetch("Q", limit=len(kept) + 1)] == kept
    store.close()
