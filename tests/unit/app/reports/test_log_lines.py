"""gateway.app.reports.log_lines: a defect costs what met it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Harness

from gateway.app.reports import log_lines
from gateway.app.reports.log_lines import guarded


def test_what_is_called_every_second_goes_on_after_a_defect() -> None:
    called = []

    def call() -> None:
        called.append(1)
        if len(called) == 1:
            raise ValueError("a defect")

    kept_on = guarded(call)
    kept_on()
    kept_on()
    assert len(called) == 2


class Lines:
    """A log that is read."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def warning(self, event: str, said: str, **fields: Any) -> None:
        self.lines.append((event, said, fields))

    info = debug = warning


@pytest.mark.parametrize(("version", "client_id", "reason", "counted"), [
    (3, "x" * 24, "bad_client_id", "refused"), (4, "", "bad_client_id", "refused"),
    (9, "x", "bad_protocol", "protocol_error"),
])  # fmt: skip
def test_why_a_connect_was_refused_is_said_as_it_is_counted(
    monkeypatch: pytest.MonkeyPatch, version: int, client_id: str, reason: str, counted: str
) -> None:
    log = Lines()
    monkeypatch.setattr(log_lines, "log", log)
    bench = Harness()
    bench.engine.context.on_end = log_lines.ended
    device = bench.device(4 if version == 9 else version, client_id)
    if version == 9:
        device.send(b"\x10\x0d\x00\x04MQTT\x09\x02\x00\x00\x00\x01x")
    else:
        device.connect(clean=False)
    ((event, said, fields),) = log.lines
    assert (event, fields["reason"]) == ("client.refused", reason)
    if version != 9:  # of that CONNECT nothing is read
        assert fields["client_id"] == (client_id or None)
        assert said.endswith("; it gave no client identifier") is (not client_id)
    assert bench.engine.counters.mqtt_disconnects["bench", counted] == 1
