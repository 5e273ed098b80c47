"""A gateway dies in the middle of taking sessions over, or of giving one away: somebody has each, once, and all of it.

The place is a failpoint. Afterwards a gateway that starts alone finds what the dead ones have left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mqi_clients
import pytest
from bridge_estate import Talker
from gateways import RunningGateway
from ibm_rig import OBJECTS, served

from gateway.backends.embedded.queue_manager import EmbeddedQueueManager
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.session.record import decode_json

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(300)]
LONG = "MQGATE_LONG" in os.environ
DEVICES = 60 if LONG else 6
SETTINGS = """
queue_manager:
  ibm: {name: QM1, connection: "localhost(1414)", channel: C, user: app, password_file: pw, driver: ibmmq,
        connections: 2, reconnect_from: 100ms, reconnect_to: 500ms, lease: 3s}
mqtt: {connect_timeout: 60s}
mappings: [map.yaml]
"""
MAPPING = 'version: 1\nto_mq:\n  - {name: up, topic: "up/#", queue: APP.Q, headers: []}\n'
HEIR = ["before-inherit", "after-inherit", "signing", "taken-over", *(["slice"] if LONG else [])]
GIVER, TAKER = ["asked", "answered"], ["receiving", "received"]
SHORT = {"signing", "answered"}


def _places(names: list[str]) -> list[str]:
    return [name for name in names if LONG or name in SHORT]


class Fleet:
    """Gateways on one queue manager; some are to die at a place."""

    def __init__(self, directory: Path, queue_manager: EmbeddedQueueManager) -> None:
        self.directory = directory
        self.queue_manager = queue_manager
        self.gateways: list[RunningGateway] = []

    def start(self, dies_at: str = "") -> RunningGateway:
        edge = self.directory / f"g{len(self.gateways)}"
        edge.mkdir()
        (edge / "map.yaml").write_text(MAPPING)
        (edge / "pw").write_text("pw\n")
        (edge / "pw").chmod(0o600)
        environ = mqi_clients.program_environment(str(self.directory / "s"), *mqi_clients.BINDINGS)
        environ["MQGATE_FAILPOINT"] = f"owners.{dies_at}" if dies_at else ""
        self.gateways.append(RunningGateway(edge, settings=SETTINGS, environ=environ))
        return self.gateways[-1].start()

    def bodies(self, queue: str) -> list[bytes]:
        return [stored.data for _, stored in self.queue_manager.load(queue)]

    def owners(self) -> dict[str, str]:
        """By client; each has one record."""
        records = [decode_json(body) for body in self.bodies("MQGATE.SESSIONS")]
        assert len({record["client"] for record in records}) == len(records)
        return {record["client"]: record["owner"] for record in records}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "s", OBJECTS) as queue_manager:
        made = Fleet(tmp_path, queue_manager)
        yield made
        for gateway in made.gateways:
            if gateway.process is not None and gateway.process.poll() is None:
                gateway.kill()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def stay(name: str, gateway: RunningGateway, **named: object) -> Talker:
    return Talker(gateway.port, name, clean=False, **named)


def stage(device: Talker, body: bytes) -> None:
    """A QoS 2 publication up to its PUBREC."""
    device.socket.sendall(writer.encode_publish(5, b"up/q2", body, 2, packet_id=7, properties=b""))
    assert device.next(p.PUBREC)[1] == 7


def release(device: Talker) -> None:
    device.socket.sendall(writer.encode_acks(p.PUBREL, [7]))
    assert device.next(p.PUBCOMP)[1] == 7


def furnish(gateway: RunningGateway) -> list[str]:
    """Devices with a subscription, a message that waits, half a QoS 2 publication; they are offline."""
    names = [f"device-{number}" for number in range(DEVICES)]
    for name in names:
        with stay(name, gateway) as device:
            device.subscribe("news", 1)
            stage(device, name.encode())
    with Talker(gateway.port, "teller") as teller:
        assert teller.publish("news", b"kept") == 0
    return names


def all_is_there(fleet: Fleet, gateway: RunningGateway, names: list[str], *before: str) -> None:
    """Each device finds what it left, once; beside what was on the queue before."""
    for name in names:
        with stay(name, gateway) as device:
            assert device.receive()[1] == b"kept"
            release(device)
            assert device.silent(0.05)
    assert sorted(fleet.bodies("APP.Q")) == sorted(name.encode() for name in [*names, *before])
    assert {*names} <= fleet.owners().keys()
    until(lambda: not fleet.bodies("MQGATE.OUT") and not fleet.bodies("MQGATE.STAGED"))


def test_one_gateway_by_itself_comes_back_to_what_it_left(fleet: Fleet) -> None:
    """Retained messages are there again, newest of each topic, and a will is published once."""
    first = fleet.start()
    with Talker(first.port, "mortal", will=p.Will("up/will", b"gone", 1, retain=False)) as mortal:
        for topic, body in (
            ("kept/1", b"old"),
            ("kept/1", b"new"),
            ("kept/2", b"two"),
            ("kept/3", b"no"),
            ("kept/3", b""),
        ):
            assert mortal.publish(topic, body, retain=True) in {0, 0x10}
        first.kill()
    second = fleet.start()
    with Talker(second.port, "reader") as reader:
        reader.subscribe("kept/#", 1)
        assert sorted(reader.receive()[:2] for _ in range(2)) == [("kept/1", b"new"), ("kept/2", b"two")]
        assert reader.silent(0.1)
    until(lambda: fleet.bodies("APP.Q"))
    assert stay("later", second).publish("up/after", b"after") == 0
    assert fleet.bodies("APP.Q") == [b"gone", b"after"]


@pytest.mark.parametrize("place", _places(HEIR))
def test_an_heir_dies_while_it_takes_over(fleet: Fleet, place: str) -> None:
    first = fleet.start()
    names = furnish(first)
    with Talker(first.port, "mortal", will=p.Will("up/will", b"gone", 1, retain=False)):
        heir = fleet.start(place)
        first.kill()
    assert heir.wait_killed() == -9
    third = fleet.start()
    until(lambda: b"gone" in fleet.bodies("APP.Q"))
    assert fleet.bodies("APP.Q") == [b"gone"]
    all_is_there(fleet, third, names, "gone")
    assert len(set(fleet.owners().values())) == 1


@pytest.mark.parametrize("place", _places(GIVER))
def test_an_owner_dies_while_it_gives_a_session_away(fleet: Fleet, place: str) -> None:
    first = fleet.start(place)
    names = furnish(first)
    second = fleet.start()
    moved = stay(names[0], second)
    assert first.wait_killed() == -9
    assert moved.receive()[1] == b"kept"
    release(moved)
    moved.close()
    assert fleet.bodies("APP.Q") == [names[0].encode()]
    until(lambda: len(set(fleet.owners().values())) == 1)
    all_is_there(fleet, second, names[1:], names[0])


@pytest.mark.parametrize("place", _places(TAKER))
def test_a_gateway_dies_while_it_receives_a_session(fleet: Fleet, place: str) -> None:
    first = fleet.start()
    names = furnish(first)
    second = fleet.start(place)
    with pytest.raises((OSError, AssertionError)):
        stay(names[0], second)
    assert second.wait_killed() == -9
    all_is_there(fleet, first, names)
