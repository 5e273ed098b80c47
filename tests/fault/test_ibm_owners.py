"""Several gateways on one queue manager: every session is one gateway's, and outlives it."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bridge_estate import Talker
from gateways import RunningGateway
from ibm_fleet import LEASE, Fleet, fleet_in, release, stage, stay, until
from patient_device import Device

from gateway.mqtt import client, writer
from gateway.mqtt import packets as p

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
long_runs = pytest.mark.skipif("MQGATE_LONG" not in os.environ, reason="long runs only: each waits for leases to end")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as made:
        yield made


def test_a_session_goes_with_its_device(fleet: Fleet) -> None:
    """Online, offline, and back: subscriptions, stored messages and half-done QoS 2 come along, each once."""
    first = fleet.start()
    device, other = stay("device", first), stay("other", first)
    device.subscribe("news", 1)
    stage(device, b"once")
    second = fleet.start()
    assert other.publish("news", b"1") in {0, 0x10}
    assert device.receive()[1] == b"1"
    moved = stay("device", second)
    assert device.next(p.DISCONNECT)[1].reason == 0x8E
    release(moved)
    assert fleet.bodies("APP.Q") == [b"once"]
    assert fleet.bodies("MQGATE.STAGED") == []
    moved.cut()
    teller = stay("teller", second)
    teller.publish("news", b"2")
    back = stay("device", first)
    assert back.receive()[1] == b"2"
    other.publish("news", b"3")
    assert back.receive()[1] == b"3"
    teller.publish("news", b"4")
    assert back.receive()[1] == b"4"
    assert back.silent()
    assert len(set(fleet.sessions().values())) == 2
    for gateway in (first, second):
        assert gateway.metric("mqgate_mqtt_sessions_taken_over_total") == 1
        until(lambda gateway=gateway: gateway.metric("mqgate_mqtt_sessions_signed_over_total") == 1)
    until(lambda: not fleet.bodies("MQGATE.OUT"))


CLOSED = 0xFF
"""Not told anything: a connection that is taken over before its CONNACK."""


def at_once(fleet: Fleet, client_id: str, *, stays: bool) -> None:
    """Two CONNECTs at each gateway in the same moment, with one identifier: one of them stays."""
    sockets = [socket.create_connection(("127.0.0.1", one.port), 60) for one in fleet.gateways * 2]
    random.shuffle(sockets)
    connect = client.connect(5, client_id, clean_start=not stays)
    connect.properties = {0x11: 3600} if stays else {}
    for one in sockets:
        one.sendall(client.encode_connect(connect))
    readers = {one: client.server_reader(5) for one in sockets}
    alive = set(sockets)
    told = dict.fromkeys(sockets, CLOSED)
    end = time.monotonic() + 40
    while len(alive) > 1 or any(told[one] for one in alive):
        assert alive, [hex(reason) for reason in told.values()]
        assert time.monotonic() < end, f"{len(alive)} of {len(told)} wait: {[hex(told[one]) for one in alive]}"
        for one in select.select(list(alive), [], [], 0.2)[0]:
            data = one.recv(65536)
            for packet in readers[one].feed(data):
                told[one] = packet[1].reason
            if not data:
                alive.remove(one)
    assert {reason for one, reason in told.items() if one not in alive} <= {0x8E, 0x89, CLOSED}
    (stayed,) = alive
    stayed.sendall(client.encode_pingreq())
    assert stayed.recv(10) == writer.PINGRESP_BYTES
    for one in sockets:
        one.close()


def test_a_client_is_at_one_gateway_at_a_time(fleet: Fleet) -> None:
    """Sessions that nobody stores, too; and the will of the one that is replaced is published."""
    first, second = fleet.start(), fleet.start()
    will = p.Will("up/will", b"replaced", 1, retain=False)
    here = Talker(first.port, "same", will=will)
    there = Talker(second.port, "same")
    assert here.next(p.DISCONNECT)[1].reason == 0x8E
    until(lambda: fleet.bodies("APP.Q") == [b"replaced"])
    assert there.publish("up/still") == 0
    again = Talker(first.port, "same")
    assert there.next(p.DISCONNECT)[1].reason == 0x8E
    assert again.publish("up/here") == 0
    fleet.start()
    for number in range(200 if "MQGATE_LONG" in os.environ else 5):
        at_once(fleet, f"rush-{number // 4}", stays=number % 2 == 0)


def named(gateway: RunningGateway, user: str, *, stays: bool = False) -> tuple[Device, int]:
    """A device of a user, with the client identifier that both give; and how it was answered."""
    device = Device("127.0.0.1", gateway.port, "shared-name", version=5)
    connect = client.connect(5, "shared-name", clean_start=not stays)
    connect.username, connect.password = user, b"pw"
    connect.properties = {0x11: 3600} if stays else {}
    device._socket.sendall(client.encode_connect(connect))
    return device, int(device._next(p.CONNACK)[1].reason)


@pytest.mark.parametrize("stays", [False, True], ids=["ends with its connection", "persistent"])
def test_another_user_gets_no_session_from_another_gateway(fleet: Fleet, stays: bool) -> None:
    first, second = fleet.start(), fleet.start()
    alice, reason = named(first, "alice", stays=stays)
    assert reason == 0
    assert named(second, "bob")[1] == 0x85
    alice.publish("up/x", b"still here", 1)
    if stays:
        alice._socket.close()
        assert named(second, "bob")[1] == 0x85
        assert named(first, "bob")[1] == 0x85
    _, reason = named(second, "alice", stays=stays)
    assert reason == 0
    assert second.metric("mqgate_mqtt_sessions_taken_over_total") == stays


def test_what_a_killed_gateway_has_left_is_taken_over_once(fleet: Fleet) -> None:
    """Two live on: together they publish each will once, and a device finds its session at whichever it comes to."""
    fleet.lease = LEASE
    first = fleet.start()
    will = p.Will("up/will", b"gone", 1, retain=False)
    devices = [stay(f"device-{number}", first, will=will) for number in range(6)]
    for device in devices:
        device.subscribe("news", 1)
    stage(devices[0], b"half")
    others = [fleet.start(), fleet.start()]
    devices[5].cut()
    until(lambda: fleet.bodies("APP.Q") == [b"gone"])
    assert devices[1].publish("news", b"for five") == 0
    for device in devices[:5]:
        device.receive()
    first.kill()
    back = [stay(f"device-{number}", others[number % 2]) for number in range(6)]  # some while the lease lasts
    release(back[0])
    assert back[5].receive()[1] == b"for five"
    until(lambda: sorted(fleet.bodies("APP.Q")) == [b"gone"] * 6 + [b"half"])
    until(lambda: len(set(fleet.sessions().values())) == 2)
    assert len(fleet.sessions()) == 6
    assert fleet.bodies("MQGATE.WILLS") == []
    takers = [gateway for gateway in others if "its sessions are taken over" in gateway.log]
    assert len(takers) == 1

    def stayed() -> float:
        """What has come to the two and not gone on; each counts when it hears of its commit."""
        came = sum(gateway.metric("mqgate_mqtt_sessions_taken_over_total") for gateway in others)
        return came - sum(gateway.metric("mqgate_mqtt_sessions_signed_over_total") for gateway in others)

    until(lambda: stayed() == 6)


@long_runs
def test_a_gateway_that_stops_hands_its_sessions_on_at_once(fleet: Fleet) -> None:
    first = fleet.start()
    device = stay("device", first)
    device.subscribe("news", 1)
    second = fleet.start()
    owner = fleet.sessions()["device"]
    assert first.stop() == 0
    until(lambda: fleet.sessions()["device"] != owner)
    teller = stay("teller", second)
    teller.publish("news", b"kept")
    assert stay("device", second).receive()[1] == b"kept"
    assert second.stop() == 0
    third = fleet.start()  # alone: nothing is waited for
    assert sorted(set(fleet.sessions())) == ["device", "teller"]
    assert len(set(fleet.sessions().values())) == 1
    stay("device", third)


def test_one_that_was_only_slow_commits_nothing_any_more(fleet: Fleet) -> None:
    """Stopped for longer than its lease; what its devices have sent meanwhile is not acknowledged by it."""
    fleet.lease = LEASE
    first = fleet.start()
    device = stay("device", first)
    assert device.publish("up/1", b"before") == 0
    second = fleet.start()
    assert first.process is not None
    first.process.send_signal(signal.SIGSTOP)
    device.socket.sendall(writer.encode_publish(5, b"up/2", b"late", 1, packet_id=9, properties=b""))
    until(lambda: "its sessions are taken over" in second.log)
    moved = stay("device", second)
    assert moved.publish("up/2", b"late") == 0
    first.process.send_signal(signal.SIGCONT)
    assert first.wait_killed() == 75
    assert '"superseded"' in first.log
    assert [packet for packet in device.packets if packet[0] >> 4 == p.PUBACK] == []
    assert fleet.bodies("APP.Q") == [b"before", b"late"]


def test_a_late_gateway_leaves_sessions_alone_that_live_elsewhere(fleet: Fleet) -> None:
    """A session of the first is neither expired nor taken by the second; what is told there comes to it by the first,
    once."""
    first = fleet.start()
    device = stay("device", first)
    device.subscribe("news", 1)
    second = fleet.start()
    before = fleet.sessions()
    teller = stay("teller", second)
    teller.publish("news", b"at the second")
    assert bytes(device.next(p.PUBLISH)[4]) == b"at the second"
    assert device.silent()
    assert fleet.sessions() == before | {"teller": fleet.sessions()["teller"]}
    assert fleet.sessions()["teller"] != before["device"]


@long_runs
def test_devices_wander_while_gateways_are_killed(fleet: Fleet) -> None:
    """Nothing acknowledged is lost, and QoS 2 is not doubled."""
    fleet.lease = LEASE
    alive = [fleet.start(), fleet.start()]
    sent: list[bytes] = []
    for turn in range(12):
        alive.append(fleet.start())
        devices = [stay(f"device-{number}", alive[(turn + number) % 3]) for number in range(9)]
        for number, device in enumerate(devices):
            body = b"%d.%d" % (turn, number)
            stage(device, body)
            sent.append(body)
        alive.pop(0).kill()
        moved = [stay(f"device-{number}", alive[number % 2]) for number in range(9)]
        for device in moved:
            release(device)
    assert sorted(fleet.bodies("APP.Q")) == sorted(sent)
    assert fleet.bodies("MQGATE.STAGED") == []
