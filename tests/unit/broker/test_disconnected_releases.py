"""QoS 2 for a queue that refuses with `then: disconnect`, where what is staged has to be read from afar: a PUBREL that
comes again meanwhile is not answered as if nothing were known of it.
"""

from __future__ import annotations

import pytest
from broker_harness import BoundedQueues, Device, FarQueues, Harness

from gateway.mqtt import packets as p
from gateway.ports.state_queues import STAGED

MAPPING = """
version: 1
to_mq:
  - {name: q, topic: "q/#", queue: Q, headers: [], on_failure: {retry: {times: 0}, then: disconnect}}
"""


@pytest.fixture
def bench() -> Harness:
    return Harness(MAPPING, FarQueues())


def heard(bench: Harness) -> None:
    """All questions are read, and answered."""
    queues = bench.queues
    assert isinstance(queues, FarQueues)
    while queues.look() or queues.answer():
        bench.clock.run()


def back(bench: Harness, version: int) -> Device:
    device = bench.device(version, "device").connect(clean=False, keep_alive=0)
    heard(bench)
    return device


def kinds(device: Device) -> list[int]:
    return [packet[0] >> 4 for packet in device.take()]


def is_released_once(bench: Harness, version: int) -> None:
    """The queue takes it again: the next PUBREL puts it."""
    del bench.queues.refusing["Q"]
    heard(bench)
    last = back(bench, version)
    last.ack(p.PUBREL, 7)
    assert kinds(last) == [p.CONNACK, p.PUBCOMP]
    assert [row[3] for row in bench.queues.rows["Q"].values()] == [b"once"]


@pytest.mark.parametrize("version", [4, 5])
def test_a_release_that_is_undone_is_never_said_to_be_unknown(bench: Harness, version: int) -> None:
    device = back(bench, version)
    device.publish("q/a", b"once", 2, 7)
    assert kinds(device) == [p.CONNACK, p.PUBREC]
    bench.queues.refusing["Q"] = 2053
    device.ack(p.PUBREL, 7)
    assert device.wire.closed
    assert p.PUBCOMP not in kinds(device)
    again = bench.device(version, "device").connect(clean=False, keep_alive=0)
    again.ack(p.PUBREL, 7)  # before what is staged was read
    assert again.wire.closed
    assert p.PUBCOMP not in kinds(again)
    is_released_once(bench, version)


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_is_back_before_its_queue_refuses_hears_nothing_wrong(bench: Harness, version: int) -> None:
    device = back(bench, version)
    device.publish("q/a", b"once", 2, 7)
    bench.queues.refusing["Q"] = 2053
    bench.queues.automatic = False
    device.ack(p.PUBREL, 7)
    device.drop()
    again = bench.device(version, "device").connect(clean=False, keep_alive=0)
    again.ack(p.PUBREL, 7)
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    assert p.PUBCOMP not in kinds(again)
    is_released_once(bench, version)


class BoundedFarQueues(FarQueues, BoundedQueues):
    """One that is asked, and commits only so much at once."""


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("queues", [FarQueues, BoundedFarQueues])
def test_a_client_that_is_back_and_gone_again_hears_nothing_wrong(queues: type[FarQueues], version: int) -> None:
    bench = Harness(MAPPING, queues())
    device = back(bench, version)
    device.publish("q/a", b"once", 2, 7)
    bench.queues.refusing["Q"] = 2053
    bench.queues.automatic = False
    device.ack(p.PUBREL, 7)
    device.drop()
    again = bench.device(version, "device").connect(clean=False, keep_alive=0)
    again.ack(p.PUBREL, 7)
    again.disconnect()  # it is told all the same what it has done
    other = bench.device(version, "other").connect()
    for number in range(1, 100):
        other.publish("q/b", b"more", 2, number)
    assert len(bench.engine.context.waiting) > (queues is BoundedFarQueues)
    bench.queues.automatic = True
    while bench.queues.commit():
        pass
    assert p.PUBCOMP not in kinds(again)
    is_released_once(bench, version)


def test_a_session_that_ends_while_a_release_is_undone_leaves_nothing_staged(bench: Harness) -> None:
    assert isinstance(bench.queues, FarQueues)
    device = back(bench, 5)
    device.publish("q/a", b"once", 2, 7)
    bench.queues.refusing["Q"] = 2053
    device.ack(p.PUBREL, 7)
    assert bench.queues.depth(STAGED) == 1
    bench.queues.away = True
    heard(bench)  # what is staged is read again later
    bench.queues.away = False
    again = bench.device(5, "device").connect(clean=True, keep_alive=0)
    heard(bench)
    assert kinds(again)[0] == p.CONNACK
    bench.advance(10)
    heard(bench)
    assert bench.queues.depth(STAGED) == 0
