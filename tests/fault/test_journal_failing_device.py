"""A device that fails under a real file system, writes direct and synchronous as in production: nothing of the failed
unit of work appears later, nothing acknowledged is lost, and the store goes on when the device does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_calls import commit, listed
from small_disks import FailingDevice, failing_device

from gateway.errors import StoreUnavailable
from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364
OPTIONS = StoreOptions(segment_bytes=1 << 20, spare_segments=3, background=False, cache_bytes=0)
BODY = 4000


@pytest.fixture
def device(tmp_path: Path) -> Iterator[FailingDevice]:
    with failing_device(tmp_path) as made:
        yield made


def put(store: Store, body: bytes) -> Prepared:
    return store.prepare(StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[body])]), 1.0)


def test_writes_that_fail_below_the_file_system(device: FailingDevice) -> None:
    path = device.disk / "store"
    store = Store.open(path, clock=lambda: 1.0, options=OPTIONS)
    commit(store, put(store, b"%0*d" % (BODY, 0)))
    spare = store.ring._spares[0]
    number = 1
    current = store.ring.current
    assert current is not None
    while current.end + 64 * 1024 < current.size:
        commit(store, put(store, b"%0*d" % (BODY, number)))
        number += 1
    expected = [b"%0*d" % (BODY, each) for each in range(number)]
    device.fail_writes_to(f"store/{spare.path.name}")

    failures: list[str] = []
    for body in range(number, number + 40):  # the rest of this segment is whole, the next one is not there
        try:
            commit(store, put(store, b"%0*d" % (BODY, body)))
            expected.append(b"%0*d" % (BODY, body))
        except StoreUnavailable as error:
            failures.append(str(error))
    assert re.search("Input/output error|No space left", failures[0])
    assert listed(store) == expected

    device.recover()
    step = store.maintain(1.0)
    if step is not None:
        commit(store, step)
    commit(store, put(store, b"after"))
    expected.append(b"after")
    first = store.fetch("Q", limit=1)[0]
    commit(store, store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=[first.token])]), 1.0))
    assert listed(store) == expected[1:]
    store.ring.close()
    assert store._lock is not None
    store._lock.release()
    store = Store.open(path, clock=lambda: 1.0, options=OPTIONS)
    assert listed(store) == expected[1:]
    store.close()
