"""A worker that meets a defect: somebody is told, because nobody would be answered any more."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.unit_of_work import Marker, marker_key
from gateway.backends.ibm.worker import Worker
from gateway.errors import MQError
from gateway.ports.batch import Puts, Unit


class _Broken:
    """A binding that does what no binding should."""

    can_status = True
    extension = SimpleNamespace(__file__=None)

    def connect(self, _settings: ConnectSettings) -> Any:
        raise TypeError("not what was promised")


def test_a_defect_is_told_and_not_only_the_end_of_a_thread() -> None:
    told: list[str] = []
    heard = threading.Event()

    def ended(text: str) -> None:
        told.append(text)
        heard.set()

    marker = Marker(marker_key(0, "00" * 12))
    worker = Worker(
        cast("Driver", _Broken()), ConnectSettings(), marker, lambda _: bytes(24), lambda *_: None, superseded=ended
    )
    worker.start()
    worker.submit(Unit())
    assert heard.wait(30)
    assert "a defect stopped commits: TypeError('not what was promised')" in told


class _Lost:
    """A connection whose every call says that it is broken."""

    carrier: Any = None
    calls = 0

    def __init__(self) -> None:
        self.put_to: set[str] = set()
        self.session = SimpleNamespace(leave=lambda: None)

    def __getattr__(self, _name: str) -> Any:
        raise MQError(2009, "the connection broke")


class _Away:
    """A queue manager to which no connection can be made any more."""

    can_status = True
    extension = SimpleNamespace(__file__=None)

    def connect(self, _settings: ConnectSettings) -> Any:
        raise MQError(2059, "it is away")


def test_who_is_told_of_a_loss_finds_the_worker_without_a_connection() -> None:
    """A target gives up what is in progress when it is told; otherwise it would have waited for an answer."""
    connected: list[bool] = []
    heard = threading.Event()

    def told(_text: str) -> None:
        connected.append(worker.connected)
        heard.set()

    marker = Marker(marker_key(0, "00" * 12))
    marker.begin = lambda _connection: None  # type: ignore[method-assign]
    worker = Worker(
        cast("Driver", _Away()), ConnectSettings(), marker, lambda _: bytes(24), lambda *_: None, told=told
    )  # fmt: skip
    worker.start(cast("Connection", _Lost()))
    worker.submit(Unit([Puts("Q", heads=[bytes(364)], bodies=[b""])]))
    assert heard.wait(30)
    worker.stop()
    worker.thread.join(30)
    assert connected[0] is False
