"""The time of day jumps by hours, forward and back: nothing stands still, is lost, or ends early for it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from bridge_estate import Talker, wait
from cryptography.hazmat.primitives.asymmetric import ec
from gateways import RunningGateway
from patient_device import Device

from gateway.mqtt import client, writer
from gateway.mqtt import packets as p

HOUR = 3600
MAPPING = """
version: 1
to_mq:
  - {name: up, topic: "up/#", queue: UP.Q, headers: [],
     on_failure: {retry: {times: 1000, from: 100ms, to: 200ms}, then: hold}}
  - {name: short lived, topic: "short", queue: SHORT.Q, headers: [], descriptor: {expiry: 30m}}
"""
OBJECTS = "DEFINE QLOCAL(UP.Q) REPLACE\nDEFINE QLOCAL(SHORT.Q) REPLACE\n"
SETTINGS = """
mappings: [map.yaml]
queue_manager: {embedded: {objects: objects.mqsc}}
security: {anonymous: true, jwt: {jwks_file: keys.json}}
"""
KEY = ec.generate_private_key(ec.SECP256R1())


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
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "k1", "use": "sig", "alg": "ES256"}]}))
    clock = Clock(tmp_path / "clock")
    root = Path(__file__).parents[2]
    environ = {"MQGATE_CLOCK": str(clock.path), "PYTHONPATH": str(root)}
    gateway = RunningGateway(tmp_path, settings=SETTINGS, environ=environ)
    gateway.program, gateway.launch = [str(Path(__file__).parent / "clock_gateway.py")], subprocess.Popen
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
    away(gateway, "stays")
    with Talker(gateway.port, "dev") as device:
        device.publish("short", b"x")
        clock.set(-HOUR)
        device.publish("short", b"y")
        device.publish("up/x", b"for both")
    assert gateway.bodies("SHORT.Q") == ["x", "y"]
    with Talker(gateway.port, "stays", clean=False) as stays:
        assert stays.receive()[1] == b"for both"


WILL_DELAY, MESSAGE_EXPIRY = 0x18, 0x02


def test_what_is_due_comes_or_goes_after_a_jump_forward_and_no_earlier(world: tuple[RunningGateway, Clock]) -> None:
    gateway, clock = world
    with Talker(gateway.port, "sees") as sees, Talker(gateway.port, "dev") as device:
        sees.subscribe("gone/#")
        delayed = p.Will("gone/delayed", b"farewell", 1, retain=False, properties={WILL_DELAY: 1800})
        Talker(gateway.port, "mortal", clean=False, will=delayed).cut()
        Talker(gateway.port, "stored", clean=False).close()
        away(gateway, "mortal", "stored")
        device.publish("kept", b"for an hour", retain=True, properties={MESSAGE_EXPIRY: 1800})
        clock.set(-HOUR)
        assert sees.silent(2.0)
        assert retained(gateway) == b"for an hour"
        clock.set(0)
        assert sees.silent(2.0)
        with Talker(gateway.port, "stored", clean=False) as stored:
            assert stored.connack.session_present
        away(gateway, "stored")
        clock.set(2 * HOUR)
        assert sees.receive()[:2] == ("gone/delayed", b"farewell")
        assert retained(gateway) == b""
        wait(lambda: all(one["client_id"] != "stored" for one in gateway.api("GET", "/clients")["items"]))
        clock.set(0)
        with Talker(gateway.port, "stored", clean=False) as stored:
            assert not stored.connack.session_present
        device.publish("up/x", b"still here")


def test_a_token_is_over_when_the_clock_says_so_and_counts_again_when_it_is_right(
    world: tuple[RunningGateway, Clock],
) -> None:
    gateway, clock = world
    token = jwt.encode({"sub": "bearer", "exp": time.time() + HOUR}, KEY, "ES256", {"kid": "k1"}).encode()
    with Device("127.0.0.1", gateway.port, "bearer", version=5) as device:
        assert device.connect("bearer", token) == 0
        clock.set(-HOUR)
        device.publish("up/x", b"set back", 1)
        clock.set(2 * HOUR)
        assert device._next(14)[1].reason == 0x87
    clock.set(0)
    with Device("127.0.0.1", gateway.port, "bearer", version=5) as device:
        assert device.connect("bearer", token) == 0
        device.publish("up/x", b"right", 1)


def away(gateway: RunningGateway, *clients: str) -> None:
    """Once the gateway has seen that they left: from then on their wills and sessions end by its clock."""
    wait(lambda: not any(gateway.api("GET", f"/clients/{one}")["connected"] for one in clients))


def retained(gateway: RunningGateway) -> bytes:
    """What a new subscriber gets."""
    with Talker(gateway.port, "late") as late:
        late.subscribe("kept")
        late.socket.sendall(client.encode_pingreq())
        late.next(p.PINGRESP)  # however slow the machine is, what is retained has come by then
        return b"" if late.silent(0.5) else late.receive()[1]
