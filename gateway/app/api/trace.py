"""Live trace of one client or topic, as server-sent events. Costs nothing while nobody looks."""

from __future__ import annotations

import fnmatch
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gateway.bridge.message import read_message
from gateway.broker.turn import Turn
from gateway.errors import Refused
from gateway.mq import mqmd
from gateway.net.api import READ_ONLY, Call, Endpoint, Problem, Stream, endpoint
from gateway.routing.filters import Interest, Subscriptions
from gateway.session.connection import Connection

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway

MAX_READERS = 8
KEPT_JOURNEYS = 5000
_JOURNEY = ("time", "client_id", "packet_id", "topic", "qos", "rule", "queue", "msg_id")
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
        self._journeys: deque[dict[str, object]] = deque(maxlen=KEPT_JOURNEYS)

    def begin(self, send: Callable[[str, object], None], client: str, topic: str, seconds: int) -> Callable[[], None]:
        """A reader arrives; the answer takes it away again."""
        reader = _Reader(send, client, topic)
        self._readers.append(reader)
        self._gateway.engine.trace = self.packet
        self._gateway.engine.trace_commit = self.committed
        self._gateway.engine.router.touch()  # cached routes would hide publications from us

        def stop() -> None:
            if reader in self._readers:
                self._readers.remove(reader)
                cancel()
            if not self._readers:
                self._gateway.engine.trace = None
                self._gateway.engine.trace_commit = None
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

    def committed(self, turn: Turn) -> None:
        """A batch is on its queues: which messages of it somebody follows, and the MsgIds they got."""
        budget = MAX_EVENTS_PER_SECOND
        for run, puts in turn.runs.items():
            if run not in turn.targets:
                continue
            for row, (head, body, token) in enumerate(zip(puts.heads, puts.bodies, puts.tokens, strict=False)):
                if not budget:
                    return
                budget -= 1
                self._put(turn.policy((run, row)).rule, puts.queue, head, body, token)

    def _put(self, rule: str, queue: str, head: bytes, body: bytes, token: object) -> None:
        try:
            message = read_message(head[: mqmd.LENGTH], head[mqmd.LENGTH :] + body)
        except Refused:
            return
        client, topic = str(message.property("mqtt", "clientId") or ""), message.property("mqps", "Top")
        wanting = [one for one in self._readers if one.wants(client, None if topic is None else str(topic))]
        if not wanting:
            return
        inspection = self._gateway.inspection
        identifier = (
            inspection.msg_id_of(token, head) if inspection is not None else bytes(head[mqmd.MSG_ID]).hex().upper()
        )
        event: dict[str, object] = {
            "time": time.time(), "client_id": client, "direction": "mq", "kind": "PUT", "topic": topic or "",
            "rule": rule, "queue": queue, "msg_id": identifier, "length": len(head) + len(body) - mqmd.LENGTH,
            "packet_id": int(message.property("mqtt", "msgId") or 0), "qos": int(message.property("mqtt", "qos") or 0),
        }  # fmt: skip
        self._journeys.append(event)
        for reader in wanting:
            reader.offer(event)

    def journeys(self, client: str, packet_id: int, msg_id: str) -> list[dict[str, object]]:
        """Messages of traced clients, the newest first, by what is given."""
        return [
            {**{key: each[key] for key in _JOURNEY},
             "state": "acknowledged" if each["qos"] else "committed", "reason": 0}
            for each in reversed(self._journeys)
            if (not client or each["client_id"] == client)
            and (not packet_id or each["packet_id"] == packet_id)
            and (not msg_id or each["msg_id"] == msg_id.upper())
        ]  # fmt: skip


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
        query = call.query
        packet_id = call.number("packet_id", 0, 65535)
        found = gateway.tracer.journeys(query.get("client_id", ""), packet_id, query.get("msg_id", ""))
        return 200, {"items": [*found, *_in_doubt(gateway, query.get("client_id", ""), packet_id)][:100]}

    return [endpoint("GET", "/trace", READ_ONLY, trace), endpoint("GET", "/journey", READ_ONLY, journey)]


def _in_doubt(gateway: Gateway, client: str, packet_id: int) -> list[dict[str, object]]:
    """QoS 2 publications of one client that wait for their release."""
    session = gateway.engine.sessions.get(client) if client else None
    if session is None:
        return []
    return [
        {"time": time.time(), "client_id": client, "packet_id": number, "topic": "", "qos": 2, "rule": None,
         "queue": None, "msg_id": None, "state": "staged", "reason": 0}
        for number in session.inbound
        if not packet_id or number == packet_id
    ]  # fmt: skip
