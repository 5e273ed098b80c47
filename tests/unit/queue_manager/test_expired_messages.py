"""The search for expired messages: a little at a time, however large they are."""

from __future__ import annotations

import pytest
from embedded_rig import MqiRig, md

from gateway.queue_manager.descriptor import integer
from gateway.queue_manager.inspection import Inspection
from gateway.queue_manager.objects.expired_messages import AT_ONCE_BYTES, AT_ONCE_SECONDS, EVERY

LARGE = 256 << 10


@pytest.mark.parametrize("where", ["memory", "journal"])
def test_large_messages_are_looked_at_a_few_at_a_time(where, tmp_path) -> None:
    rig = MqiRig(None if where == "memory" else tmp_path / "data", "DEFINE QLOCAL(Q)")
    count = 3 * AT_ONCE_BYTES // LARGE
    for number in range(count):
        rig.put("Q", bytes(LARGE), descriptor=md(expiry=1 if number % 2 else 9000))
    depths = []
    rig.scheduler.advance(EVERY + 0.01)
    queue = rig.queue_manager.core.queues["Q"]
    while not depths or rig.queue_manager.core.depth(queue) < depths[-1]:
        depths.append(rig.queue_manager.core.depth(queue))
        rig.scheduler.advance(0.06)
    assert depths[0] >= count - AT_ONCE_BYTES // LARGE
    assert depths[-1] == count // 2
    assert len(depths) > 2
    rig.queue_manager.close()


def test_messages_that_take_long_to_read_are_looked_at_a_few_at_a_time(monkeypatch) -> None:
    """Messages that lie far from each other in the journal."""
    rig = MqiRig(None, "DEFINE QLOCAL(Q)")
    for number in range(100):
        rig.put("Q", b"", descriptor=md(expiry=1 if number % 2 else 9000))
    core, expirer, step, took = rig.queue_manager.core, rig.queue_manager._expirer, 0.001, []
    fetch, search = core.store.fetch, expirer._step

    def slowly(*named):
        found = fetch(*named)
        rig.scheduler.time += step * len(found)
        return found

    def timed(*named):
        begun = rig.scheduler.time
        more = search(*named)
        took.append(rig.scheduler.time - begun)
        return more

    monkeypatch.setattr(core.store, "fetch", slowly)
    monkeypatch.setattr(expirer, "_step", timed)
    rig.scheduler.advance(EVERY + 2)
    assert core.depth(core.queues["Q"]) == 50
    assert max(took) <= AT_ONCE_SECONDS + 2 * step
    rig.queue_manager.close()


def test_large_messages_in_a_unit_of_work_are_not_all_read(tmp_path, monkeypatch) -> None:
    rig = MqiRig(tmp_path / "data", "DEFINE QLOCAL(Q)")
    count = 3 * AT_ONCE_BYTES // LARGE
    for _ in range(count):
        rig.put("Q", bytes(LARGE), descriptor=md(expiry=100))
    handle, store = rig.open("Q"), rig.queue_manager.core.store
    for _ in range(count):
        rig.get(handle, 2)
    read, looked = store.read, []
    monkeypatch.setattr(store, "read", lambda *named: looked.append(named) or read(*named))
    rig.scheduler.advance(EVERY + 0.01)
    assert 0 < len(looked) <= AT_ONCE_BYTES // LARGE + 1
    rig.connection.back()
    rig.scheduler.advance(EVERY + 2)
    assert rig.queue_manager.core.depth(rig.queue_manager.core.queues["Q"]) == 0
    rig.queue_manager.close()


def test_an_operator_sees_what_is_left_of_the_expiry() -> None:
    rig = MqiRig(None, "DEFINE QLOCAL(Q)")
    rig.put("Q", b"", descriptor=md(expiry=100))
    rig.scheduler.advance(4)
    (seen,) = Inspection(rig.queue_manager).browse("Q")
    assert integer(seen.md, "expiry") == 60, "so that it is not moved with all of it again"
    rig.queue_manager.close()
