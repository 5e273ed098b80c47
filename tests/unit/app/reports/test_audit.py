"""gateway.app.reports.audit: what is asked of the administration port becomes records."""

from __future__ import annotations

import time

import pytest
from broker_harness import Queues

from gateway.app.reports.audit import AuditTrail
from gateway.net.calls import Act
from gateway.people.audit import REFUSED_A_MINUTE
from gateway.ports.people import Caller
from gateway.ports.state_queues import AUDIT


def test_refused_requests_are_recorded_again_a_minute_later_whatever_the_time_of_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queues, stranger = Queues(), Caller("", "", "")
    trail = AuditTrail(queues, 3600.0)  # type: ignore[arg-type]
    day, passed = time.time(), time.monotonic()
    for seconds, jump in ((0.0, 0.0), (61.0, -86_400.0)):
        monkeypatch.setattr(time, "monotonic", lambda now=passed + seconds: now)
        monkeypatch.setattr(time, "time", lambda now=day + seconds + jump: now)
        for _ in range(REFUSED_A_MINUTE + 5):
            trail.add(Act(stranger, "10.0.0.9", "GET /queues", {}, {}, 401))
    assert queues.depth(AUDIT) == 2 * REFUSED_A_MINUTE
