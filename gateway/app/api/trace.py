"""Live trace of one client or topic, as server-sent events. Costs nothing while nobody looks."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gateway.net.api import READ_ONLY, Call, Endpoint, Problem, Stream, endpoint
from gateway.routing.filters import Interest, Subscriptions
from gateway.session.connection import Connection

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway

MAX_READERS = 8
MAX_EVENTS_PER_SECOND = 200


class _Reader:
    def __init__(self, send: Callable[[str, object], None], client: str, topic: str) -> None:
        self.send = send
        self.client = client
        self.filter: Subscriptions[str] | None = None
        if topic:
            self.filter = Subscriptions()
            self.filter.add("reader", topic, Interest(0))
        self.second = 0
        self.sent = 0
        self.missed = 0

    def wants(self, client_id: str, topic: str | None) -> bool:
        if self.client and not fnmatch.fnmatchcase(client_id, self.client):
            return False
        return self.filter is None or (topic is not None and bool(self.filter.match(topic).direct))

    def offer(self, event: dict[str, object]) -> None:
        """Bounded: what a browser cannot show is counted instead."""
        now = int(time.time())
        if now != self.second:
            if self.missed:
                self.send("missed", {"count": self.missed})
            self.second, self.sent, self.missed = now, 0, 0
        if self.sent >= MAX_EVENTS_PER_SECOND:
            self.missed += 1
            return
        self.sent += 1
        self.send("trace", event)


class Tracer:
    """Hands packets to those who look. Installed in the engine only while somebody does."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._readers: list[_Reader] = []

    def begin(self, send: Callable[[str, object], None], client: str, topic: str, seconds: int) -> Callable[[], None]:
        """A reader arrives; the answer takes it away again."""
        reader = _Reader(send, client, topic)
        self._readers.append(reader)
        self._gateway.engine.trace = self.packet
        self._gateway.engine.router.touch()  # cached routes would hide publications from us

        def stop() -> None:
            if reader in self._readers:
                self._readers.remove(reader)
                cancel()
            if not self._readers:
                self._gateway.engine.trace = None
                self._gateway.engine.router.touch()

        def over() -> None:
            send("end", {})
            stop()

        cancel = self._gateway.scheduler.later(seconds, over)
        return stop

    @property
    def full(self) -> bool:
        """No more readers."""
        return len(self._readers) >= MAX_READERS

    def packet(self, connection: Connection, kind: str, packet: Any) -> None:
        """A packet passed."""
        event: dict[str, object] = {
            "time": time.time(),
            "client_id": connection.session.client_id,
            "direction": "in",
            "kind": kind,
        }
        topic = None
        if kind == "PUBLISH":
            first, raw, packet_id, _, payload = packet
            topic = raw.decode("utf-8", "replace")
            event |= {"topic": topic, "qos": first >> 1 & 3, "retain": bool(first & 1), "dup": bool(first & 8),
                      "packet_id": packet_id, "length": len(payload)}  # fmt: skip
        for reader in self._readers:
            if reader.wants(connection.session.client_id, topic):
                reader.offer(event)


def trace_endpoints(gateway: Gateway) -> list[Endpoint]:
    """The endpoints of this module."""

    def trace(call: Call) -> tuple[int, object]:
        client, topic = call.query.get("client", ""), call.query.get("topic", "")
        if not client and not topic:
            raise Problem(400, "Bad request", "give client or topic")
        if gateway.tracer.full:
            raise Problem(429, "Too many", f"{MAX_READERS} traces are running: end one of them")
        seconds = max(1, call.number("seconds", 300, 3600))
        return 200, Stream(lambda send: gateway.tracer.begin(send, client, topic, seconds))

    def journey(call: Call) -> tuple[int, object]:
        del call
        return 200, {"items": []}

    return [endpoint("GET", "/trace", READ_ONLY, trace), endpoint("GET", "/journey", READ_ONLY, journey)]
