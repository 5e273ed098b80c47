"""A worker that meets what it was not made for: somebody hears of it, for nobody would be answered any more."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from gateway.backends.ibm.driver import ConnectSettings, Driver
from gateway.backends.ibm.unit_of_work import Marker, marker_key
from gateway.backends.ibm.worker import Worker
from gateway.ports.batch import Unit


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
