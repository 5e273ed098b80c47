"""sd_notify over a real datagram socket: what is sent, and that its absence is harmless."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.observe.service import ServiceManager


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        receiver.settimeout(2)
        yield path, receiver


def test_states_are_sent_as_systemd_reads_them(listening: tuple[str, socket.socket]) -> None:
    path, receiver = listening
    manager = ServiceManager({"NOTIFY_SOCKET": path})
    manager.starting("2 records", 60)
    manager.ready("1883, 8883")
    manager.stopping()
    manager.alive()
    received = [receiver.recv(500).decode() for _ in range(4)]
    assert received == [
        "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=2 records", "READY=1\nSTATUS=1883, 8883", "STOPPING=1", "WATCHDOG=1"
    ]  # fmt: skip


def test_an_abstract_address_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0mqgate-test-{os.getpid()}")
        receiver.settimeout(2)
        ServiceManager({"NOTIFY_SOCKET": f"@mqgate-test-{os.getpid()}"}).ready()
        assert receiver.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens(tmp_path: Path) -> None:
    ServiceManager({}).ready()
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()


def test_the_watchdog_is_for_this_process_only() -> None:
    assert ServiceManager({"WATCHDOG_USEC": "30000000"}).watchdog_seconds() == 30
    assert ServiceManager({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}).watchdog_seconds() == 30
    assert ServiceManager({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}).watchdog_seconds() is None
    assert ServiceManager({"WATCHDOG_USEC": "soon"}).watchdog_seconds() is None
