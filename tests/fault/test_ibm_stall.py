"""A gateway that stands still while messages from a queue wait in it, read ahead: their order is kept."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge_estate import Talker
from ibm_fleet import Fleet, fleet_in, until

from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.batch import Puts, Unit

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
MESSAGES = 900
MARK_SECONDS = 1.5


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as made:
        made.mapping += "to_mqtt:\n  - {name: down, queue: APP.Q, topic: news, qos: 1}\n"
        made.settings = made.settings.replace("mqtt: {", "mqtt: {max_queued: 250, max_inflight: 20, ")
        made.queue_manager.mqsc(f"ALTER QMGR MARKINT({int(MARK_SECONDS * 1000)})")
        yield made


def put(fleet: Fleet, first: int, count: int) -> None:
    done: list[object] = []
    bodies = [b"%d" % number for number in range(first, first + count)]
    unit = Unit(puts=[Puts("APP.Q", heads=[mqmd.build(persistence=1)] * count, bodies=bodies)])
    fleet.queue_manager.submit(unit, lambda _unit, outcome: done.append(outcome))
    until(lambda: done)


@pytest.mark.parametrize("part", [0.8, 1.6], ids=["marks are old", "marks have run out"])
def test_what_was_read_ahead_before_a_stall_comes_in_its_order(fleet: Fleet, part: float) -> None:
    """The device acknowledges nothing for a moment, so that its session is full and messages wait."""
    gateway = fleet.start()
    device = Talker(gateway.port, "device")
    device.subscribe("news", 1)
    put(fleet, 0, MESSAGES // 2)
    assert not device.silent(20)
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    until(lambda: time.monotonic() > stopped + part * MARK_SECONDS)
    put(fleet, MESSAGES // 2, MESSAGES // 2)
    gateway.process.send_signal(signal.SIGCONT)
    got: list[int] = []
    while len(got) < MESSAGES:
        packet = device.next(p.PUBLISH)
        device.socket.sendall(writer.encode_acks(p.PUBACK, [packet[2]]))
        got.append(int(packet[4]))
    assert got == list(range(MESSAGES))
    device.close()
    until(lambda: not fleet.bodies("APP.Q"))
