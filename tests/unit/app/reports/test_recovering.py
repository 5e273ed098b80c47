"""A start that takes long says how far it is, and not with each record."""

from __future__ import annotations

import logging

import pytest

from gateway.app.reports.recovering import EVERY_SECONDS, Recovering
from gateway.observe.service import ServiceManager


def test_how_far_it_is_is_said_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    recovering = Recovering(ServiceManager({}), lambda: now)
    with caplog.at_level(logging.INFO, "mqgate"):
        for _ in range(1000):
            recovering.read()
        assert not caplog.messages
        now += EVERY_SECONDS
        for _ in range(1000):
            recovering.read()
    assert [text.split(" of ")[0] for text in caplog.messages] == ["1,001 records"]
