"""A gateway dies in the middle of taking sessions over, or of giving one away: somebody has each, once, and all of it.

The place is a failpoint. Afterwards a gateway that starts alone finds what the dead ones have left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge_estate import Talker
from gateways import RunningGateway
from ibm_fleet import LEASE, Fleet, fleet_in, release, stage, stay, until

from gateway.mqtt import packets as p

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(300)]
LONG = "MQGATE_LONG" in os.environ
DEVICES = 60 if LONG else 6
HEIR = ["before-inherit", "after-inherit", "signing", "taken-over", *(["slice"] if LONG else [])]
GIVER, TAKER = ["asked", "answered"], ["receiving", "received"]
SHORT = {"signing", "answered", "received"}


def _places(names: list[str]) -> list[str]:
    return [name for name in names if LONG or name in SHORT]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as made:
        made.lease = LEASE
        yield made


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
    assert {*names} <= fleet.sessions().keys()
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
    assert len(set(fleet.sessions().values())) == 1


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
    until(lambda: len(set(fleet.sessions().values())) == 1)
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
