"""gateway.session.registry: when sessions end."""

from __future__ import annotations

from gateway.session.registry import Registry
from gateway.session.session import Session

HOUR = 3600


def test_clients_that_come_and_go_leave_no_times_behind() -> None:
    """However late their sessions end. Each is named when its delayed will is due, and when it ends."""
    registry = Registry()
    sessions = [Session(f"c{number}", 5) for number in range(3)]
    for session in sessions:
        session.expiry = HOUR
        registry.add(session)
    for second in range(30_000):
        session = sessions[second % len(sessions)]
        session.will_at = second + 60.0
        registry.watch(session, float(second))
    assert len(registry._due) < 2000
    for session in sessions:
        assert session in list(registry.due(session.will_at))
    for session in sessions:
        assert session in list(registry.due(session.ends_at))
