"""gateway.session.registry: when sessions end."""

from __future__ import annotations

from gateway.session.registry import Registry
from gateway.session.session import Session

HOUR = 3600


def test_clients_that_come_and_go_leave_no_times_behind() -> None:
    """This holds however late their sessions end. Each is named when its delayed will is due, and when it ends."""
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


def test_sessions_are_looked_at_some_at_a_time_while_others_come_and_go() -> None:
    registry = Registry()
    sessions = [Session(f"c{number}", 5) for number in range(10_000)]
    for session in sessions:
        registry.add(session)
    seen, longest = set[str](), 0
    for number, some in enumerate(registry.portions()):
        registry.remove(sessions[number])
        registry.add(Session(f"new{number}", 5))
        longest = max(longest, len(some))
        seen.update(session.client_id for session in some)
    assert longest < 500
    assert {f"c{number}" for number in range(1000, 10_000)} <= seen
    assert len(registry) == len(list(registry)) == 10_000


def test_a_session_takes_the_place_of_another_of_its_client() -> None:
    registry, (first, second) = Registry(), (Session("c", 5), Session("c", 5))
    registry.add(first)
    registry.add(second)
    assert (list(registry), registry.get("c")) == ([second], second)
    registry.remove(first)
    assert registry.get("c") is second
    registry.remove(second)
    assert (len(registry), registry.get("c")) == (0, None)
