"""Rates, shares, connections and sessions: a reload changes them for who comes and for who is there; nobody loses a
connection by it.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import RunningGateway

from gateway.mqtt import client, writer

BURST = b"".join(writer.encode_publish(4, b"a", b"x", 1, packet_id=one) for one in range(1, 21))


class World:
    """The gateway, and what its settings say of its listener."""

    def __init__(self, directory: Path) -> None:
        self.gateway = RunningGateway(directory, settings=settings(""))
        self.port = 0
        self.reloads = 0

    def open(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def say(self, listener: str, more: str = "") -> None:
        """Write the settings and have them read again."""
        (self.gateway.directory / "settings.yaml").write_text(settings(listener, more))
        assert self.gateway.process is not None
        self.gateway.process.send_signal(signal.SIGHUP)
        self.reloads += 1
        until = time.monotonic() + 30
        while self.gateway.metric('mqgate_config_reloads_total{result="ok"}') < self.reloads:
            assert time.monotonic() < until, self.gateway.log
            time.sleep(0.02)


def settings(listener: str, more: str = "") -> str:
    return f"listeners:\n  - {{name: only, port: 0{listener}}}\n{more}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("reloaded"))
    with made.gateway:
        made.port = made.gateway.ports()["only"]
        yield made


def answer(sock: socket.socket, name: str, *, clean: bool = True) -> bytes:
    """What CONNECT is answered with; empty when the connection just ends."""
    with contextlib.suppress(OSError):
        sock.sendall(client.encode_connect(client.connect(4, name, clean_start=clean)))
        return sock.recv(4)
    return b""


IN, FULL = b"\x20\x02\x00\x00", b"\x20\x02\x00\x03"


def publish(sock: socket.socket, bursts: int) -> float:
    """Seconds until so many bursts of twenty are acknowledged."""
    begun = time.monotonic()
    for _ in range(bursts):
        sock.sendall(BURST)
        left = 20 * 4
        while left:
            left -= len(sock.recv(left))
    return time.monotonic() - begun


def test_the_rate_of_who_is_connected(world: World) -> None:
    with world.open() as sock:
        assert answer(sock, "sender") == IN
        publish(sock, 4)
        events = world.gateway.metric('mqgate_backpressure_events_total{cause="client_rate"}')
        world.say(", limits: {publishes_per_second: 20}")
        assert publish(sock, 4) > 1.5
        world.say(", limits: {publishes_per_second: 20}", "limits: {total_publishes_per_second: 10}")
        assert publish(sock, 2) > 1.5
        slowed = world.gateway.metric('mqgate_backpressure_events_total{cause="client_rate"}')
        assert slowed > events
        world.say("")
        publish(sock, 4)
        assert world.gateway.metric('mqgate_backpressure_events_total{cause="client_rate"}') <= slowed + 1


def test_the_share_of_an_address_counts_who_is_there(world: World) -> None:
    with world.open() as one, world.open() as two:
        assert (answer(one, "one"), answer(two, "two")) == (IN, IN)
        world.say(", limits: {connections_per_address: 2}")
        with world.open() as three:
            assert answer(three, "three") == b""
        publish(one, 1)
        world.say("", "limits: {connections_per_address: 3}")
        with world.open() as three:
            assert answer(three, "three") == IN
        world.say("")


def test_connections_of_the_listener_and_of_the_process(world: World) -> None:
    with world.open() as one:
        assert answer(one, "one") == IN
        world.say(", max_connections: 1")
        assert world.gateway.metric('mqgate_mqtt_connections_limit{listener="only"}') == 1
        with world.open() as two:
            assert answer(two, "two") == b""
        world.say("", "mqtt: {max_connections: 1}")
        with world.open() as two:
            assert answer(two, "two") == b""
        world.say("")
        with world.open() as two:
            assert answer(two, "two") == IN


def test_sessions_of_the_listener_and_of_the_process(world: World) -> None:
    with world.open() as one:
        assert answer(one, "stays", clean=False) == IN
    world.say(", max_sessions: 1")
    until = time.monotonic() + 30
    while world.gateway.metric('mqgate_mqtt_listener_sessions{listener="only"}') != 1:
        assert time.monotonic() < until, "those of clean sessions are gone when their connections are"
        time.sleep(0.02)
    assert world.gateway.metric('mqgate_mqtt_sessions_limit{listener="only"}') == 1
    with world.open() as two:
        assert answer(two, "two") == FULL
    with world.open() as back:
        assert answer(back, "stays", clean=False) == b"\x20\x02\x01\x00"
    world.say("", "mqtt: {max_sessions: 1}")
    with world.open() as two:
        assert answer(two, "two") == FULL
    world.say("")
    with world.open() as two:
        assert answer(two, "two") == IN
    assert "after a restart" not in world.gateway.log


def test_what_waits_for_a_restart_is_said(world: World) -> None:
    world.say(", max_packet: 4096")
    assert "listeners.0.max_packet: None -> 4096 (after a restart)" in world.gateway.log
    world.say("")
