"""Device events: one a second for each client and kind; the last one is kept, in order, within limits."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe import device_events
from gateway.observe.device_events import DeviceEvent, DeviceEvents
from gateway.ports.counters import DeviceEventKind

KINDS: list[DeviceEventKind] = ["connected", "disconnected", "denied"]


def make() -> tuple[DeviceEvents, Counter[tuple[str, str]]]:
    counts: Counter[tuple[str, str]] = Counter()

    def counted(kind: str, result: str, count: int) -> None:
        counts[kind, result] += count

    return DeviceEvents(counted), counts


def event(kind: DeviceEventKind, time: float = 0.0, **fields: object) -> DeviceEvent:
    return DeviceEvent(kind, time, fields)


def test_the_first_goes_at_once_and_the_last_of_the_others_with_their_number() -> None:
    events, counts = make()
    for at in range(5):
        events.add(at / 10, "c1", event("connected", at / 10))
    assert [one.count for one in events.take(0.5, 100)] == [1]
    assert events.take(0.9, 100) == []
    [last] = events.take(1.1, 100)
    assert (last.count, last.time) == (4, 0.4)
    assert counts == {("connected", "thinned"): 3}
    events.take(2.2, 100)
    assert not events, "nothing is kept of a client that is quiet"


@given(
    happened=st.lists(st.tuples(st.floats(0, 0.7), st.sampled_from(["a", "b"]), st.sampled_from(KINDS)), max_size=60),
    look=st.floats(0.05, 0.6),
)
def test_none_is_lost_none_overtakes_and_none_comes_twice_in_a_second(
    happened: list[tuple[float, str, DeviceEventKind]], look: float
) -> None:
    events, _ = make()
    now, taken = 0.0, []
    for wait, client, kind in happened:
        for _ in range(int(wait / look) + 1):
            taken += [(now, one) for one in events.take(now, 100)]
            now += look
        events.add(now, client, event(kind, now, client_id=client))
    for _ in range(int(4 / look)):
        now += look
        taken += [(now, one) for one in events.take(now, 100)]
    assert not events
    for client in "ab":
        own = [(at, one) for at, one in taken if one.fields["client_id"] == client]
        assert [one.time for _, one in own] == sorted(one.time for _, one in own)
        for kind in KINDS:
            of_kind = [(at, one) for at, one in own if one.kind == kind]
            assert sum(one.count for _, one in of_kind) == happened_of(happened, client, kind)
            times = [one.time for _, one in of_kind]
            windows = [at for at, _ in of_kind]
            assert all(later - before > 1 - look - 1e-6 for before, later in pairwise(windows))
            assert len(set(times)) == len(times)


def happened_of(happened: list[tuple[float, str, DeviceEventKind]], client: str, kind: str) -> int:
    return sum((one[1], one[2]) == (client, kind) for one in happened)


def test_waiting_is_bounded_and_what_is_lost_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_events, "MOST_WAITING", 10)
    events, counts = make()
    for at in range(15):
        events.add(0.0, f"c{at}", event("connected"))
    assert len(events.take(0.0, 100)) == 10
    assert counts == {("connected", "lost"): 5}
    events.take(1.0, 100)
    for at in range(15):
        events.add(2.0, f"c{at}", event("connected"))
    assert len(events.take(2.0, 4)) == 4, "so many at a time"


def test_strangers_fill_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_events, "MOST_REFUSED", 3)
    events, counts = make()
    for at in range(10):
        events.add(0.0, f"made up {at}", event("refused"))
    events.add(0.0, "c1", event("connected"))
    assert [one.kind for one in events.take(0.0, 100)] == ["refused"] * 3 + ["connected"]
    assert counts == {("refused", "lost"): 7}
    events.add(1.0, "made up", event("refused"))
    assert len(events.take(1.0, 100)) == 1


def test_at_the_end_what_is_held_goes_too() -> None:
    events, _ = make()
    for at in range(3):
        events.add(at / 10, "c1", event("connected", at / 10))
    assert [one.count for one in events.take_all()] == [1, 2]
    assert not events


def test_a_body_is_bounded_json() -> None:
    long: dict[str, Any] = {"client_id": "c\u00e9", "user": None, "text": "x" * 5000, "topic": "\ud800"}
    said = json.loads(event("denied", 1.5, **long).body("gw").decode("utf-8"))
    assert said["time"] == "1970-01-01T00:00:01.500Z"
    assert "user" not in said
    assert said["client_id"] == "c\u00e9"
    assert len(said["text"]) == device_events.LONGEST_TEXT
