"""What happens to devices, as messages for programs: thinned, in order, bounded. Pure.

For each client, one event of a kind becomes a message at once in each second. Those that follow within the second
become one message at its end: the last of them, with the number of all, so that whoever reads the queue always knows
the current state.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gateway.mq import mqmd
from gateway.ports.counters import DeviceEventKind, DeviceEventResult

EACH_SECONDS = 1.0
MOST_WAITING = 20_000
"""Events that wait for the queue manager, some 10 MB; more are lost, and counted."""
MOST_REFUSED = 200
"""How many refusals become messages in a second: strangers choose their client identifiers. More are lost, and
counted."""
LONGEST_TEXT = 200
_LONGEST_EXPIRY = 999_999_999


@dataclass(slots=True)
class DeviceEvent:
    """One thing that happened, or the last of several."""

    kind: DeviceEventKind
    time: float
    fields: dict[str, object]
    count: int = 1

    def body(self, gateway: str) -> bytes:
        """Returns the event as JSON."""
        time = datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        shown = {
            name: value[:LONGEST_TEXT] if isinstance(value, str) and name != "client_id" else value
            for name, value in self.fields.items()
            if value is not None
        }
        record = {"event": self.kind, "time": time, "gateway": gateway, **shown, "count": self.count}
        return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")


@dataclass(slots=True)
class _Recent:
    """What has happened to a client within its last second."""

    sent: dict[str, float] = field(default_factory=dict)
    """When the last event of each kind became a message."""
    held: dict[str, DeviceEvent] = field(default_factory=dict)
    """The last event of each kind since then, in the order in which they happened."""
    ends: int = 0
    """How many of the seconds that its messages began are not over."""


Counted = Callable[[DeviceEventKind, DeviceEventResult, int], None]


class DeviceEvents:
    """Events that wait to be put. Times are those of a clock that never jumps."""

    def __init__(self, counted: Counted) -> None:
        self._counted = counted
        self._recent: dict[str, _Recent] = {}
        self._ends: deque[tuple[float, str]] = deque()
        """When the seconds of clients end: one entry for each event that became a message."""
        self._ready: deque[DeviceEvent] = deque()
        self._held = 0
        self._refused_since, self._refused = 0.0, 0

    def __bool__(self) -> bool:
        return bool(self._ready or self._recent)

    def add(self, now: float, client: str, event: DeviceEvent) -> None:
        """Add something that has happened to a client; for an unknown client, `client` is its address."""
        recent = self._recent.get(client)
        before = recent.held.pop(event.kind, None) if recent is not None else None
        if before is not None and recent is not None:
            event.count += before.count
            recent.held[event.kind] = event
            self._counted(event.kind, "thinned", 1)
            return
        if not self._room(now, event.kind):
            self._counted(event.kind, "lost", 1)
            return
        if recent is None:
            recent = self._recent[client] = _Recent()
        last = recent.sent.get(event.kind)
        if recent.held or (last is not None and now - last < EACH_SECONDS):
            recent.held[event.kind] = event
            self._held += 1
            return
        self._send(recent, now, client, event)

    def _send(self, recent: _Recent, now: float, client: str, event: DeviceEvent) -> None:
        recent.sent[event.kind] = now
        recent.ends += 1
        self._ends.append((now + EACH_SECONDS, client))
        self._ready.append(event)

    def _room(self, now: float, kind: DeviceEventKind) -> bool:
        """Whether one more event is kept."""
        if len(self._ready) + self._held >= MOST_WAITING or len(self._recent) >= MOST_WAITING:
            return False
        if kind != "refused":
            return True
        if now - self._refused_since >= EACH_SECONDS:
            self._refused_since, self._refused = now, 0
        self._refused += 1
        return self._refused <= MOST_REFUSED

    def take(self, now: float, most: int) -> list[DeviceEvent]:
        """Returns the next events to be put."""
        for _ in range(most):
            if not self._ends or self._ends[0][0] > now:
                break
            self._end(now, self._ends.popleft()[1])
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    def _end(self, now: float, client: str) -> None:
        """End a second of a client. What is held for it is released when its last second has ended, so that nothing
        overtakes what happened before."""
        recent = self._recent[client]
        recent.ends -= 1
        if recent.ends:
            return
        held, recent.held = recent.held, {}
        self._held -= len(held)
        for event in held.values():
            self._send(recent, now, client, event)
        if not held:
            del self._recent[client]

    def take_all(self) -> list[DeviceEvent]:
        """Returns all events, including those whose second is not over: the gateway ends."""
        taken = [*self._ready, *(event for recent in self._recent.values() for event in recent.held.values())]
        self._ready.clear()
        self._recent.clear()
        self._ends.clear()
        self._held = 0
        return taken


def descriptor_of_events(expiry: float) -> bytes:
    """Returns the descriptor of all events; `expiry` in seconds, 0: none."""
    return mqmd.build(
        format="MQSTR", persistence=1, coded_char_set_id=1208, put_appl_name="mqgate device events", put_appl_type=6,
        expiry=max(1, min(int(expiry * 10), _LONGEST_EXPIRY)) if expiry else -1,
    )  # fmt: skip
