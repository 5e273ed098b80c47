"""The time of day jumps by hours, forward and back: nothing stands still, is lost, or ends early for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge_estate import Talker
from gateways import RunningGateway

from gateway.mqtt import packets as p
from gateway.mqtt import writer

HOUR = 3600
MAPPING = """
version: 1
to_mq:
  - {name: up, topic: "up/#", queue: UP.Q, headers: [],
     on_failure: {retry: {times: 1000, from: 100ms, to: 200ms}, then: hold}}
  - {name: short lived, topic: "short", queue: SHORT.Q, headers: [], descriptor: {expiry: 30m}}
"""
OBJECTS = "DEFINE QLOCAL(UP.Q) REPLACE\nDEFINE QLOCAL(SHORT.Q) REPLACE\n"
SETTINGS = "mappings: [map.yaml]\nqueue_manager: {embedded: {objects: objects.mqsc}}\n"


class Clock:
    """The time of day as the gateway sees it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0)

    def set(self, seconds: int) -> None:
        staged = self.path.with_suffix(".new")
        staged.write_text(str(seconds))
        staged.replace(self.path)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[RunningGateway, Clock]]:
    (tmp_path / "map.yaml").write_text(MAPPING)
    (tmp_path / "objects.mqsc").write_text(OBJECTS)
    clock = Clock(tmp_path / "clock")
    root = Path(__file__).parents[2]
    environ = {"MQGATE_CLOCK": str(clock.path), "PYTHONPATH": str(root)}
    gateway = RunningGateway(tmp_path, settings=SETTINGS, environ=environ)
    gateway.program = [str(Path(__file__).parent / "clock_gateway.py")]
    with gateway:
        yield gateway, clock


def test_what_waits_for_its_queue_is_tried_again_whatever_the_time_of_day(world: tuple[RunningGateway, Clock]) -> None:
    gateway, clock = world
    with Talker(gateway.port, "dev") as device:
        for before, after in ((HOUR, -HOUR), (-HOUR, HOUR), (0, -24 * HOUR)):
            clock.set(before)
            device.publish("up/x", b"goes", 2)
            gateway.api("POST", "/mqsc", {"text": "ALTER QLOCAL(UP.Q) PUT(DISABLED)"})
            device.socket.sendall(writer.encode_publish(5, b"up/x", b"waits", 1, packet_id=99))
            time.sleep(0.3)  # long enough to be refused; nothing is asserted about it
            clock.set(after)
            gateway.api("POST", "/mqsc", {"text": "ALTER QLOCAL(UP.Q) PUT(ENABLED)"})
            assert device.next(p.PUBACK)[1:3] == (99, 0)
            device.publish("up/x", b"behind")
    assert gateway.bodies("UP.Q") == ["goes", "waits", "behind"] * 3


def test_connections_outlive_the_jump_and_their_keep_alive_still_counts(world: tuple[RunningGateway, Clock]) -> None:
    gateway, clock = world
    silent = Talker(gateway.port, "silent", keep_alive=1)
    with Talker(gateway.port, "dev") as device:
        for offset in (HOUR, -HOUR, 0):
            clock.set(offset)
            device.publish("up/x", b"here")
        clock.set(-24 * HOUR)
        assert silent.next(p.DISCONNECT)[1].reason == 0x8D  # 1.5 s without a word
        device.publish("up/x", b"still here")
    assert len(gateway.bodies("UP.Q")) == 4


def test_nothing_expires_early_when_the_clock_is_set_back(world: tuple[RunningGateway, Clock]) -> None:
    gateway, clock = world
    clock.set(HOUR)
    with Talker(gateway.port, "stays", clean=False) as stays:
        stays.subscribe("up/#")
    with Talker(gateway.port, "dev") as device:
        device.publish("short", b"x")
        clock.set(-HOUR)
        device.publish("short", b"y")
        device.publish("up/x", b"for both")
    assert gateway.bodies("SHORT.Q") == ["x", "y"]
    with Talker(gateway.port, "stays", clean=False) as stays:
        assert stays.receive()[1] == b"for both"
