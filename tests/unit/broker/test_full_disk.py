"""While the queue manager's disk is full: who is told what, what is kept, and in which order it is taken in."""

from __future__ import annotations

import pytest
from broker_harness import Device, Harness, Queues

from gateway.broker.refused import full_disk
from gateway.mqtt import properties as prop
from gateway.ports.batch import StorageFull

MAPPING = """
version: 1
to_mq:
  - {name: all, topic: "q/#", queue: Q, headers: []}
"""
FULL = StorageFull(1.0, "/data", "No space left on device")
QUOTA_EXCEEDED = 0x97


class Disk(Queues):
    """Queues on a disk that may be full."""

    storage_full: StorageFull | None = None


@pytest.fixture
def bench() -> Harness:
    return Harness(MAPPING, Disk())


def fill(bench: Harness, full: StorageFull | None = FULL) -> None:
    bench.queues.storage_full = full  # type: ignore[attr-defined]
    bench.engine.flush()


def online(bench: Harness, version: int, name: str) -> Device:
    device = bench.device(version, name)
    device.connect()
    device.take()
    return device


def bodies(bench: Harness) -> list[bytes]:
    return [stored.data for _, stored in bench.queues.load("Q")]


def test_publishers_that_know_reason_codes_are_told(bench: Harness) -> None:
    device = online(bench, 5, "new")
    fill(bench)
    device.publish("q/a", b"1", 1, 1)
    device.publish("q/a", b"2", 2, 2)
    device.publish("q/a", b"3", 1, 3, retain=True)
    told = device.take()
    assert [(packet[0] >> 4, packet[1], packet[2]) for packet in told] == [
        (4, 1, QUOTA_EXCEEDED), (5, 2, QUOTA_EXCEEDED), (4, 3, QUOTA_EXCEEDED)
    ]  # fmt: skip
    assert not device.wire.closed
    assert not bodies(bench)
    assert bench.engine.counters.messages_dropped["all", "spool_full"] == 3
    fill(bench, None)
    device.publish("q/a", b"4", 1, 4)
    assert [packet[2] for packet in device.take()] == [0]
    assert bodies(bench) == [b"4"]


def test_publishers_that_do_not_are_acknowledged_when_there_is_room(bench: Harness) -> None:
    device = online(bench, 4, "old")
    device.publish("q/a", b"staged", 2, 9)
    device.take()
    fill(bench)
    for number in range(1, 4):
        device.publish("q/a", b"%d" % number, number % 2 + 1, number)
    device.send(b"\xc0\x00")
    assert [packet[0] >> 4 for packet in device.take()] == [13]
    device.publish("q/a", b"staged", 2, 9)  # resent: it is stored already
    device.ack(6, 9)
    assert [(packet[0] >> 4, packet[1]) for packet in device.take()] == [(5, 9), (7, 9)]
    assert bodies(bench) == [b"staged"]
    fill(bench, None)
    bench.advance(1)
    assert [(packet[0] >> 4, packet[1]) for packet in device.take()] == [(5, 1), (4, 2), (5, 3)]
    device.ack(6, 1)
    assert bodies(bench) == [b"staged", b"2", b"1"]
    assert bench.engine.full_disk.withheld_bytes == 0


def test_what_needs_no_disk_goes_on(bench: Harness) -> None:
    device, other = online(bench, 4, "one"), online(bench, 5, "two")
    fill(bench)
    other.subscribe("local/#", 0)
    device.publish("local/a", b"live")
    device.publish("q/a", b"volatile")
    assert [packet[0] >> 4 for packet in other.take()] == [9, 3]
    assert bodies(bench) == [b"volatile"]
    late = bench.device(5, "late")
    assert late.connect()


def test_beyond_the_limit_nothing_is_kept_nor_acknowledged_out_of_order(
    bench: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_disk, "MAX_WITHHELD_BYTES", 500)
    device, other = online(bench, 4, "one"), online(bench, 4, "two")
    fill(bench)
    device.publish("q/a", b"kept", 1, 1)
    device.publish("q/a", b"x" * 1000, 1, 2)
    device.publish("q/a", b"behind it", 1, 3)
    other.publish("q/a", b"of another", 1, 1)
    other.drop()
    bench.advance(1)
    fill(bench, None)
    bench.advance(1)
    assert [packet[1] for packet in device.take()] == [1]
    assert bodies(bench) == [b"kept"]
    assert device.wire.closed  # 3.x sends it again on a new connection alone
    again = online(bench, 4, "one")
    for number, payload in ((2, b"x" * 1000), (3, b"behind it")):
        again.publish("q/a", payload, 1, number)
    assert [packet[1] for packet in again.take()] == [2, 3]
    assert bodies(bench)[1:] == [b"x" * 1000, b"behind it"]


def test_who_has_all_kept_stays_when_there_is_room_again(bench: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_disk, "MAX_WITHHELD_BYTES", 500)
    device, greedy = online(bench, 4, "one"), online(bench, 4, "two")
    fill(bench)
    device.publish("q/a", b"kept", 1, 1)
    greedy.publish("q/a", b"x" * 1000, 1, 1)
    fill(bench, None)
    bench.advance(1)
    assert (device.wire.closed, greedy.wire.closed) == (False, True)


def test_aliases_are_learned_from_what_is_refused(bench: Harness) -> None:
    device = online(bench, 5, "new")
    fill(bench)
    device.publish("q/a", b"1", 1, 1, properties=prop.encode({prop.TOPIC_ALIAS: 3}))
    fill(bench, None)
    device.publish("", b"2", 1, 2, properties=prop.encode({prop.TOPIC_ALIAS: 3}))
    assert [packet[2] for packet in device.take()] == [QUOTA_EXCEEDED, 0]
    assert bodies(bench) == [b"2"]
