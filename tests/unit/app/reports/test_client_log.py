"""gateway.app.reports.client_log: what a client's connections are in the log."""

from __future__ import annotations

import logging

import pytest
from broker_harness import Harness

from gateway.app.reports.client_log import ClientLog
from gateway.app.reports.take_overs import LINES


def test_connections_that_end_each_other_all_the_time_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Two devices with one identifier that both connect again at once; what else ends a connection is told."""
    caplog.set_level(logging.INFO, "mqgate")
    bench, clients = Harness(), ClientLog()
    clients.connections = True
    bench.engine.context.on_connected, bench.engine.context.on_end = clients.connected, clients.ended
    for _ in range(100):
        device = bench.device(5, "same").connect(clean=False)
    bench.device(5, "another").connect()
    device.drop()
    written = [(record.levelname, record.event, record.fields["client_id"]) for record in caplog.records]  # type: ignore[attr-defined]
    of_same = [(level, event) for level, event, client_id in written if client_id == "same"]
    assert of_same.count(("INFO", "disconnected")) == LINES + 1
    assert of_same.count(("WARNING", "client.contended")) == 1
    assert of_same.count(("INFO", "connected")) <= LINES + 1
    assert ("INFO", "connected", "another") in written
    assert of_same[-1] == ("INFO", "disconnected"), "as nobody has taken that one over"
    assert "two devices" in next(one.getMessage() for one in caplog.records if one.levelname == "WARNING")
