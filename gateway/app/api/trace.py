"""Live trace of one client or topic, as server-sent events. It costs nothing while none is running."""

from __future__ import annotations

import fnmatch
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from gateway.bridge.message import read_message
from gateway.broker.batch import Batch, Destination
from gateway.broker.engine import Engine
from gateway.errors import Refused
from gateway.mq import mqmd
from gateway.mqtt.client import server_reader
from gateway.net.calls import VIEWER, Call, Endpoint, Problem, Stream, endpoint
from gateway.observe import logs
from gateway.ports.counters import PACKET_TYPES
from gateway.ports.inspection import Inspects
from gateway.routing.filters import Interest, Subscriptions
from gateway.routing.table import is_plain
from gateway.session.connection import Connection

log = logs.get("mqgate.messages")
MAX_READERS = 8
LOOKED_AT = 500
"""How many connections are looked at in each step."""
KEPT_JOURNEYS = 5000
_JOURNEY = ("time", "client_id", "packet_id", "topic", "qos", "rule", "queue", "msg_id")
MAX_EVENTS_PER_SECOND = 200
_ACKNOWLEDGEMENTS = frozenset({"PUBACK", "PUBREC", "PUBREL", "PUBCOMP"})
_FIELDS = {"rule": "route", "length": "bytes"}
_EVENTS = {"in": "message.received", "out": "message.sent", "mq": "message.put"}


class _Reader:
    def __init__(self, send: Callable[[str, object], None], client: str, topic: str) -> None:
        self.send = send
        self.client = client
        self.sure = re.split(r"[*?\[]", client, maxsplit=1)[0].encode()
        """The prefix of all client identifiers that it wants."""
        self.filter: Subscriptions[str] | None = None
        if topic:
            self.filter = Subscriptions()
            self.filter.add("reader", topic, Interest(0))
        self.second = 0
        self.sent = 0
        self.missed = 0

    def wants_topic(self, topic: str | None) -> bool:
        return self.filter is None or (topic is not None and bool(self.filter.match(topic).direct))

    def wants_client(self, client_id: str) -> bool:
        """Whether it wants what this client does, on any topic."""
        return not self.client or fnmatch.fnmatchcase(client_id, self.client)

    def offer(self, event: dict[str, object]) -> None:
        """Send the event, unless this second's events are used up; then it is counted."""
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
    """Shows packets and puts to the running traces. It is installed in the engine only while there are any."""

    def __init__(self, engine: Engine, inspection: Inspects | None) -> None:
        self._engine = engine
        self._inspection = inspection
        self._readers: list[_Reader] = []
        self._logged: list[_Reader] = []
        """Readers that write to the log: `log.clients` of the settings."""
        self._named: dict[str, list[_Reader]] = {}
        """These readers by the one client that they want; the settings may name a thousand."""
        self._wide: list[_Reader] = []
        self._journeys: deque[dict[str, object]] = deque(maxlen=KEPT_JOURNEYS)
        self._installed = count(1)

    def follow(self, patterns: list[str]) -> None:
        """Log every message of these clients, which the settings name; at start and on reload."""
        self._logged = [_Reader(_logging(), pattern, "") for pattern in patterns]
        self._install()

    def _install(self) -> None:
        """Install the tracer in the engine only while a trace is running. Clients that no trace is about are not slowed
        down by it."""
        readers = (*self._readers, *self._logged)
        self._wide = [one for one in readers if not one.client or not is_plain(one.client)]
        self._named = {}
        for one in readers:
            if one.client and is_plain(one.client):
                self._named.setdefault(one.client, []).append(one)
        context, looking = self._engine.context, bool(readers)
        context.trace = self.packet if looking else None
        context.trace_commit = self.committed if looking else None
        context.trace_out = self.sent if looking else None
        context.traces = self.traces
        context.slices.run(f"traces {next(self._installed)}", self._look_at_all)

    def _look_at_all(self) -> Iterator[None]:
        """Find the connected clients that a trace wants, in steps: there may be a hundred thousand."""
        for at, connection in enumerate(list(self._engine.context.connections), 1):
            connection.traced = self.traces(connection.session.client_id)
            if at % LOOKED_AT == 0:
                yield

    def traces(self, client_id: str) -> bool:
        """Whether any trace may want what this client sends and receives."""
        return client_id in self._named or any(one.wants_client(client_id) for one in self._wide)

    def _of_client(self, client: str) -> list[_Reader]:
        return [*self._named.get(client, ()), *(one for one in self._wide if one.wants_client(client))]

    def _wanting(self, client: str, topic: str | None) -> list[_Reader]:
        return [one for one in self._of_client(client) if one.wants_topic(topic)]

    def _of_destination(self, destination: Destination) -> list[_Reader]:
        """Returns the readers that may want something of those whose publications were put here. For wills, and for
        what came from a queue, it is not known whose they are."""
        known = (*destination.contributors, *destination.unanswered)
        if destination.has_wills or not known:
            return [*self._readers, *self._logged]
        traced = (one.session.client_id for one in known if one.traced)
        return list(dict.fromkeys(reader for client in traced for reader in self._of_client(client)))

    def begin(self, send: Callable[[str, object], None], client: str, topic: str, seconds: int) -> Callable[[], None]:
        """Begin a trace that sends to one reader; returns what ends it."""
        reader = _Reader(send, client, topic)
        self._readers.append(reader)
        self._install()

        def stop() -> None:
            if reader in self._readers:
                self._readers.remove(reader)
                cancel()
                self._install()

        def over() -> None:
            send("end", {})
            stop()

        cancel = self._engine.scheduler.later(seconds, over)
        return stop

    @property
    def full(self) -> bool:
        """Whether as many traces are running as may run at a time."""
        return len(self._readers) >= MAX_READERS

    def packet(self, connection: Connection, kind: str, packet: Any) -> None:
        """A client has sent a packet."""
        self._offer(connection.session.client_id, "in", kind, packet)

    def sent(self, connection: Connection, data: bytes) -> None:
        """Packets were sent to a client; they are decoded as the client decodes them if a trace wants them."""
        client = connection.session.client_id
        for packet in server_reader(connection.version).feed(data):
            self._offer(client, "out", PACKET_TYPES[packet[0] >> 4].upper(), packet)

    def _offer(self, client: str, direction: str, kind: str, packet: Any) -> None:
        event: dict[str, object] = {"time": time.time(), "client_id": client, "direction": direction, "kind": kind}
        topic = None
        if kind == "PUBLISH":
            first, raw, packet_id, _, payload = packet
            topic = raw.decode("utf-8", "replace")
            event |= {"topic": topic, "qos": first >> 1 & 3, "retain": bool(first & 1), "dup": bool(first & 8),
                      "packet_id": packet_id, "length": len(payload)}  # fmt: skip
        elif kind in _ACKNOWLEDGEMENTS:
            event |= {"packet_id": packet[1], "reason": packet[2]}
        for reader in self._wanting(client, topic):
            reader.offer(event)

    def committed(self, batch: Batch) -> None:
        """A batch is committed: offer those of its messages that a trace wants, with their MsgIds."""
        budget = MAX_EVENTS_PER_SECOND
        for destination in batch.destinations.values():
            readers = self._of_destination(destination)
            if not readers:
                continue
            puts, hinted = destination.puts, _hints(readers)
            for row, (head, body, token) in enumerate(zip(puts.heads, puts.bodies, puts.tokens, strict=False)):
                if hinted and not any(hint in head for hint in hinted):
                    continue  # heads are shared by what one client publishes: most are skipped at a glance
                if not budget:
                    return
                budget -= 1
                self._put(destination.policy(row).rule, puts.queue, head, body, token)

    def _put(self, rule: str, queue: str, head: bytes, body: bytes, token: object) -> None:
        try:
            message = read_message(head[: mqmd.LENGTH], head[mqmd.LENGTH :] + body)
        except Refused:
            return
        client, topic = str(message.property("mqtt", "clientId") or ""), message.property("mqps", "Top")
        wanting = self._wanting(client, None if topic is None else str(topic))
        if not wanting:
            return
        inspection = self._inspection
        if inspection is not None:
            identifier = inspection.msg_id_of(token, head)
        else:  # on IBM MQ the token is the MsgId
            identifier = (token if isinstance(token, bytes) else bytes(head[mqmd.MSG_ID])).hex().upper()
        event: dict[str, object] = {
            "time": time.time(), "client_id": client, "direction": "mq", "kind": "PUT", "topic": topic or "",
            "rule": rule, "queue": queue, "msg_id": identifier, "length": len(head) + len(body) - mqmd.LENGTH,
            "packet_id": int(message.property("mqtt", "msgId") or 0), "qos": int(message.property("mqtt", "qos") or 0),
        }  # fmt: skip
        self._journeys.append(event)
        for reader in wanting:
            reader.offer(event)

    def journeys(self, client: str, packet_id: int, msg_id: str) -> list[dict[str, object]]:
        """Returns messages of traced clients that match what is given, the newest first."""
        return [
            {**{key: each[key] for key in _JOURNEY},
             "state": "acknowledged" if each["qos"] else "committed", "reason": 0}
            for each in reversed(self._journeys)
            if (not client or each["client_id"] == client)
            and (not packet_id or each["packet_id"] == packet_id)
            and (not msg_id or each["msg_id"] == msg_id.upper())
        ]  # fmt: skip


def _hints(readers: list[_Reader]) -> list[bytes]:
    """Returns byte strings of which a head contains at least one if a reader may want it; empty if every head has to be
    decoded."""
    sure = [one.sure for one in readers]
    return sure if all(sure) else []


def _logging() -> Callable[[str, object], None]:
    """Returns a function that writes events as log lines, with the usual fields."""

    def send(name: str, event: Any) -> None:
        if name == "missed":
            log.info("message.missed", "messages were not logged: too many per second", count=event["count"])
            return
        fields = {_FIELDS.get(key, key): value for key, value in event.items() if key not in {"time", "kind"}}
        log.info(_EVENTS[event["direction"]], event["kind"], **fields)

    return send


def trace_endpoints(tracer: Tracer) -> list[Endpoint]:
    """Returns the endpoints of this module."""

    def trace(call: Call) -> tuple[int, object]:
        client, topic = call.query.get("client", ""), call.query.get("topic", "")
        if not client and not topic:
            raise Problem(400, "Bad request", "give client or topic")
        if tracer.full:
            raise Problem(429, "Too many", f"{MAX_READERS} traces are running: end one of them")
        seconds = max(1, call.number("seconds", 300, 3600))
        return 200, Stream(lambda send: tracer.begin(send, client, topic, seconds))

    return [endpoint("GET", "/trace", VIEWER, trace)]
