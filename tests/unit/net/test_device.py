from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.errors import ProtocolError
from gateway.net import device
from gateway.net.device import Device

CONNACK = b"\x20\x02\x00\x00"
PINGREQ = b"\xc0\x00"


class Peer:
    """The gateway's end of the connection, byte for byte."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.file = connection.makefile("rb")

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def packet(self) -> bytes:
        """The next packet, of fewer than 128 bytes."""
        head = self.file.read(2)
        return head + self.file.read(head[1]) if head else b""


@contextmanager
def peer(answers: Callable[[Peer], None]) -> Iterator[int]:
    """A port at which one client is answered in this way; what goes wrong there fails the test."""
    wrong: list[BaseException] = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                answers(Peer(connection))
            except BaseException as error:  # noqa: BLE001 -- said below, in the test's thread
                wrong.append(error)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(60)
    assert not wrong, wrong


def test_who_only_listens_says_that_he_is_there() -> None:
    """[MQTT5-3.1.2-20]; the time is the one that the server gives [MQTT-3.2.2-21]."""

    def answers(one: Peer) -> None:
        one.packet()
        one.send(b"\x20\x06\x00\x00\x03\x13\x00\x01")
        assert one.packet() == PINGREQ
        one.send(b"\xd0\x00")
        assert one.packet() == PINGREQ
        one.send(b"\xd0\x00\x30\x05\x00\x01a\x00x")

    with peer(answers) as port, Device("127.0.0.1", port, "d", version=5) as device:
        assert device.connect() == 0
        assert device.receive(60) == ("a", b"x")


def test_a_server_that_does_not_answer_is_gone() -> None:
    def answers(one: Peer) -> None:
        one.packet()
        one.send(b"\x20\x06\x00\x00\x03\x13\x00\x01")
        while one.packet():
            pass

    with peer(answers) as port, Device("127.0.0.1", port, "d", version=5) as device:
        device.connect()
        with pytest.raises(ConnectionError, match="PINGREQ"):
            device.receive(600)


def test_publications_before_another_answer_are_kept() -> None:
    def answers(one: Peer) -> None:
        one.packet()
        one.send(CONNACK)
        one.packet()
        one.send(b"\x30\x04\x00\x01ax" + b"\x90\x03\x00\x01\x00")

    with peer(answers) as port, Device("127.0.0.1", port, "d") as device:
        device.connect()
        assert device.subscribe("a") == 0
        assert device.receive() == ("a", b"x")


def test_qos_2_is_taken_once() -> None:
    """[MQTT-4.3.3-8] to [MQTT-4.3.3-12]."""

    def answers(one: Peer) -> None:
        one.packet()
        one.send(CONNACK)
        one.send(b"\x34\x06\x00\x01a\x00\x07x")
        assert one.packet() == b"\x50\x02\x00\x07"
        one.send(b"\x3c\x06\x00\x01a\x00\x07x")
        assert one.packet() == b"\x50\x02\x00\x07"
        one.send(b"\x62\x02\x00\x07")
        assert one.packet() == b"\x70\x02\x00\x07"
        one.send(b"\x34\x06\x00\x01a\x00\x07y")
        assert one.packet() == b"\x50\x02\x00\x07"

    with peer(answers) as port, Device("127.0.0.1", port, "d") as device:
        device.connect()
        assert [device.receive(), device.receive()] == [("a", b"x"), ("a", b"y")]


def test_why_the_server_ends_it_is_said() -> None:
    def answers(one: Peer) -> None:
        one.packet()
        one.send(b"\x20\x03\x00\x00\x00" + b"\xe0\x02\x98\x00")

    with peer(answers) as port, Device("127.0.0.1", port, "d", version=5) as device:
        device.connect()
        with pytest.raises(ProtocolError, match="Administrative action"):
            device.receive()


class Timed(Device):
    """A clock whose time passes when the test says so."""

    def __init__(self, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.busy = 0.0, threading.Event()
        monkeypatch.setattr(device, "time", SimpleNamespace(monotonic=lambda: self.now, perf_counter=lambda: self.now))
        super().__init__("127.0.0.1", port, "stopped", timeout=2)


class Stopped(Timed):
    """A clock that stands still for a minute in the middle of waiting, until more data has arrived."""

    def _aside(self, packet: Any) -> None:
        super()._aside(packet)
        self.busy.set()
        select.select([self._socket], [], [], 60)
        self.now += 61


def test_an_answer_that_came_while_this_process_stood_still_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(one: Peer) -> None:
        one.packet()
        one.send(CONNACK)
        one.packet()
        one.send(b"\x30\x04\x00\x01ax")
        assert stopped.busy.wait(60)
        one.send(b"\x40\x02\x00\x01")
        one.packet()

    with peer(answers) as port, Stopped(port, monkeypatch) as stopped:
        assert stopped.connect(keep_alive=0) == 0
        assert stopped.publish("t", b"x", 1) == 61


def test_an_answer_to_pingreq_that_came_meanwhile_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def answers(one: Peer) -> None:
        one.packet()
        one.send(CONNACK)
        assert one.packet() == PINGREQ
        assert asked.wait(60)
        one.send(b"\xd0\x00")
        assert one.packet() == PINGREQ
        one.packet()

    with peer(answers) as port, Timed(port, monkeypatch) as one:
        assert one.connect(keep_alive=60) == 0
        one.now += 61
        with pytest.raises(TimeoutError):
            one.receive(0)
        asked.set()
        select.select([one._socket], [], [], 60)
        one.now += 61
        with pytest.raises(TimeoutError):
            one.receive(0)


def test_a_refusal_says_why() -> None:
    def answers(one: Peer) -> None:
        one.packet()
        one.send(b"\x20\x03\x00\x00\x00")
        one.packet()
        one.send(b"\x40\x0b\x00\x01\x97\x07\x1f\x00\x04full")

    with peer(answers) as port, Device("127.0.0.1", port, "d", version=5) as device:
        device.connect()
        with pytest.raises(ProtocolError, match=r"refused the publication: Quota exceeded \(full\)"):
            device.publish("a", b"x")


@pytest.mark.parametrize(
    ("version", "code", "named"),
    [(4, 5, "Not authorized, return code 5"), (4, 9, "return code 9"), (5, 0x87, "Not authorized")],
)
def test_what_the_answer_to_connect_means(version: int, code: int, named: str) -> None:
    with peer(lambda one: None) as port, Device("127.0.0.1", port, "d", version=version) as device:
        assert device.named(code) == named
