"""What local sessions get: fan-out, the stored queue of durable sessions, their acknowledgements, redelivery. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from gateway.broker.deliver import fetching
from gateway.broker.deliver.expiry import Expiry
from gateway.broker.deliver.reporting import Reporting
from gateway.broker.deliver.requests import Requests
from gateway.broker.deliver.waiting import Waiting
from gateway.broker.publish.route import Receiver, Route, Shared
from gateway.errors import ProtocolError
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import PUBREL, V5
from gateway.ports.batch import Puts, Stored
from gateway.ports.state_queues import OUT
from gateway.rules.feedback import Feedback
from gateway.session.connection import ONLINE, Connection
from gateway.session.outflow import Item
from gateway.session.publication import Publication
from gateway.session.record import RELEASED, SHARED, Decoding, encode_prefix
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

"""One key a durable session: what it has not acknowledged yet."""
_PAGE = 200
_MAX_TURNS = 10_000
Prefixes = dict[tuple[int, bool, tuple[int, ...]], bytes]
"""Heads of stored copies by what differs between them: QoS and flags, RETAIN, subscription identifiers."""


class Delivery:
    """The way to subscribers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting = Waiting()
        self.reporting = Reporting(engine)
        self.expiry = Expiry(engine)
        self.requests = Requests(engine)
        self._turns: dict[str, int] = {}
        """Whose turn it is, by shared subscription."""

    # -- fan-out -------------------------------------------------------------------------------------------------------

    def fan_out(self, route: Route, publication: Publication, rule: str = "_none") -> int:
        """A copy for every receiver [MQTT-4.5.0-1]; QoS 0 at once, the rest when the turn is committed. `rule`: of what
        came from a queue. How many had no room for theirs."""
        copies = len(route.receivers) + len(route.shared)
        if copies:
            self.engine.counters.mqtt_publish_sent[rule, publication.qos] += copies
        plain = not publication.properties and not publication.expires
        prefixes: Prefixes = route.stored if plain else {}
        missed = 0
        for receiver in route.receivers:
            missed += not self.copy(receiver, publication, prefixes)
        for group in route.shared:
            missed += not self.copy_to_member(group, publication, prefixes)
        return missed

    def copy_to_member(self, group: Shared, publication: Publication, prefixes: Prefixes) -> bool:
        """One copy for one member of a shared subscription; False when it has no room."""
        chosen = self.choose(group, publication)
        return chosen is None or self.copy(chosen, publication, prefixes, group.name)

    def choose(self, group: Shared, publication: Publication) -> Receiver | None:
        """The member whose turn it is; those first that can take the message now, then those that have room."""
        able = [member for member in group.members if member.session.can_take]
        if not able:
            able = [one for one in group.members if one.session.connection is not None or one.session.durable]
            full = self.engine.publishing.acceptance.full
            able = [one for one in able if not full(one, publication)] or able
        if len(self._turns) > _MAX_TURNS:
            self._turns.clear()
        turn = self._turns[group.name] = self._turns.get(group.name, -1) + 1
        return able[turn % len(able)] if able else None

    def copy(self, receiver: Receiver, publication: Publication, prefixes: Prefixes, share: str = "") -> bool:
        """One copy for one session; False when it has no room."""
        session, engine = receiver.session, self.engine
        qos = min(publication.qos, receiver.qos)  # [MQTT3-3.8.4-6] [MQTT5-3.8.4-8] [MQTT-4.8.2-3]
        retain = publication.retain and receiver.retain_as_published  # [MQTT3-3.3.1-9] [MQTT5-3.3.1-12] [MQTT-3.3.1-13]
        item = Item(publication, qos, retain, receiver.sub_ids)
        item.share = share
        if qos == 0:
            self.send_at_once(session, item)
        elif not session.durable:
            limits = engine.limits.at(session.listener)
            if session.connection is None or (
                len(session.outflow.pending) >= limits.max_queued
                and not (publication.promised and limits.refuse_when_full)
            ):
                return self.no_room(session)
            engine.turn.deliveries.append((session, [item], None, 0))
        else:
            return self.store(session, item, prefixes)
        return True

    def no_room(self, session: Session) -> bool:
        """A copy is lost: False, as for whoever asks."""
        self.engine.counters.messages_dropped["_none", "session_full"] += 1
        self.waiting.no_room(session)
        return False

    def store(self, session: Session, item: Item, prefixes: Prefixes | None = None) -> bool:
        """A row on the session's stored queue, in the same unit of work as everything else of the turn
        [MQTT3-3.1.2-5]; False when it has no room."""
        engine = self.engine
        size, limits = len(item.publication.payload), engine.limits.at(session.listener)
        if self.waiting.full(limits, session, size) and not (item.publication.promised and limits.refuse_when_full):
            return self.no_room(session)
        flags = SHARED if item.share else 0
        variant = (item.qos | flags, item.retain, item.sub_ids)
        prefix = prefixes.get(variant) if prefixes is not None else None
        if prefix is None:
            prefix = engine.router.state_head(self.prefix(item, flags))
            if prefixes is not None:
                prefixes[variant] = prefix
        item.packet_id = session.outflow.allot()
        puts = engine.turn.run((OUT, "", 0, True, session.key, True, False))
        puts.heads.append(prefix)
        puts.bodies.append(item.packet_id.to_bytes(2, "little") + item.publication.payload)
        engine.turn.rows += 1
        self.waiting.added(session, size)
        self.expiry.watch(session, item.publication)
        engine.turn.deliveries.append((session, [item], puts, len(puts.heads) - 1))
        return True

    def prefix(self, item: Item, flags: int = 0) -> bytes:
        """The stored record of an item up to its packet id."""
        return encode_prefix(item.publication, item.qos, item.retain, item.sub_ids, flags)

    def send_at_once(self, session: Session, item: Item) -> None:
        """QoS 0: to the wire whatever is in flight [MQTT-4.9.0-3] [MQTT-3.3.4-10], unless the client is far behind."""
        connection = session.connection
        if connection is None or connection.state != ONLINE:
            return
        if connection.link.buffered() > self.engine.limits.max_outgoing_bytes // 2:
            self.engine.counters.messages_dropped["_none", "qos0_overload"] += 1
            return
        if item.publication.expired(self.engine.now):
            self.engine.counters.messages_dropped["_none", "expired"] += 1
            return
        data = session.outflow.encode(item, self.engine.now)
        if len(data) > session.outflow.max_packet:  # [MQTT-3.1.2-25]
            self.engine.counters.messages_dropped["_none", "too_large"] += 1
            return
        self.engine.send(connection, data)

    def deliver(self, deliveries: list[tuple[Session, list[Item], Puts | None, int]]) -> None:
        """The turn is committed: hand the copies to their sessions, then fill each window once."""
        sessions: dict[Session, None] = {}
        endings, far = self.engine.connecting.endings, self.engine.far is not None
        for session, items, puts, row in deliveries:
            outflow = session.outflow
            if puts is not None:
                tokens = puts.tokens[row : row + len(items)]
                if session.over:  # it ended while this was being committed
                    self.engine.turn.taken(OUT, session.key).extend(tokens)
                    continue
                if session.connection is None or outflow.behind or len(outflow.pending) >= 4 * _PAGE:
                    outflow.behind = outflow.missed = True
                    if session.connection is not None and far:
                        sessions[session] = None  # nothing else may ask for it
                    elif endings.under_way:
                        endings.added(session, puts, row, len(items))
                    continue
                for item, token in zip(items, tokens, strict=True):
                    item.token = token
            elif session.connection is None:
                continue
            outflow.offer(items)
            sessions[session] = None
        for session in sessions:
            self.fill(session)

    def fill(self, session: Session) -> None:
        """Send what the session's window allows, fetching stored messages when memory has run out of them."""
        connection = session.connection
        if connection is None or connection.state != ONLINE or not session.outflow.resumed:
            return
        outflow = session.outflow
        out: list[bytes] = []
        while True:
            for item in outflow.fill(self.engine.now, out):
                self.unsent(item)
                self.settle(session, item)
            if not outflow.behind or outflow.pending or len(outflow.inflight) >= outflow.window:
                break
            if not fetching.more(self.engine, session, out):
                break
        if out:
            self.engine.send_all(connection, out)

    def unsent(self, item: Item) -> None:
        """What is over before it was sent: its time has passed, or it is larger than the client takes."""
        expired = item.publication.expired(self.engine.now)
        self.engine.counters.messages_dropped["_none", "expired" if expired else "too_large"] += 1
        if expired:
            self.reporting.expired(item.publication)
        else:
            self.reporting.negative(item.publication, Feedback.TOO_LONG)

    def restore(self, stored: Stored, decoding: Decoding | None = None) -> Item:
        """An item from its stored row."""
        publication, packet_id, sub_ids, released = (decoding or Decoding()).decode(stored.data)
        item = Item(publication, publication.qos, publication.retain, sub_ids, packet_id, stored.token)
        item.released = released
        return item

    def allowed(self, session: Session, item: Item) -> bool:
        """Whether the access list, as it is now, lets the session have what was stored for it; if not it goes."""
        if self.engine.router.may_receive(session, item.publication.topic.decode()):
            return True
        self.engine.counters.messages_dropped["_none", "denied"] += 1
        self.reporting.negative(item.publication, Feedback.NOT_AUTHORISED)
        self.settle(session, item)
        return False

    def check_rights(self) -> None:
        """The access list has changed: what waits in memory is asked about again, what is stored when it is fetched.
        What a connected client already has in flight takes its course."""
        for session in self.engine.sessions:
            outflow = session.outflow
            if outflow.pending:
                outflow.pending = deque(item for item in outflow.pending if self.allowed(session, item))
            if session.connection is None:
                for packet_id, item in list(outflow.inflight.items()):
                    if not item.released and not self.allowed(session, item):
                        del outflow.inflight[packet_id]
        self.engine.flush()

    def settle(self, session: Session, item: Item) -> None:
        """An item is over: its row goes with the open turn."""
        if item.token is not None:
            self.engine.turn.take(OUT, session.key, item.token)
            self.waiting.taken(session, len(item.publication.payload))

    def forget(self, session: Session, stored: Stored) -> None:
        """A stored message goes with its session."""
        self.engine.turn.take(OUT, session.key, stored.token)
        self.reporting.forgotten(stored)

    # -- what the client answers --

    def puback(self, connection: Connection, packet: Any) -> None:
        """QoS 1 is over, also with a failure [MQTT-4.4.0-2] [MQTT-4.8.2-6]. An id that is not in flight is ignored: it
        may answer what an earlier connection was sent."""
        session = connection.session
        inflight = session.outflow.inflight
        item = inflight.get(packet[1])
        if item is None or item.qos != 1:
            if item is not None:
                self.unexpected(connection, "PUBACK", packet[1])
            return
        del inflight[packet[1]]
        session.delivered += 1
        if item.token is not None:
            self.engine.turn.take(OUT, session.key, item.token)
            self.waiting.taken(session, len(item.publication.payload))
        if item.publication.report:
            self.answered(item, packet[2])
        self.engine.refill[session] = None

    def answered(self, item: Item, reason: int) -> None:
        """The device's word on a message that an application wants to hear about."""
        if reason >= 0x80:
            self.reporting.negative(item.publication, Feedback.REJECTED)
        else:
            self.reporting.positive(item.publication)

    def pubrec(self, connection: Connection, packet: Any) -> None:
        """QoS 2, first half. For a durable session the release is stored before PUBREL exists, so that a crash between
        cannot send the message again to a client that has already let go of its identifier."""
        _, packet_id, reason, _block = packet
        session, engine = connection.session, self.engine
        refused = reason >= 0x80
        item = session.outflow.received(packet_id, refused)
        if item is None and packet_id in session.outflow.inflight:
            self.unexpected(connection, "PUBREC", packet_id)
            return
        if item is None:
            answer = reasons.PACKET_IDENTIFIER_NOT_FOUND if connection.version == V5 else 0
            if not refused:
                engine.send(connection, writer.encode_ack(connection.version, PUBREL, packet_id, answer, {}))
            return
        if refused:  # [MQTT-4.4.0-2]: over
            self.settle(session, item)
            self.answered(item, reason)
            self.fill(session)
            return
        if item.token is not None and not item.released:
            self.mark_released(session, item)
        item.released = True
        engine.turn.reply(connection, b"\x62\x02" + packet_id.to_bytes(2, "big"))  # [MQTT-4.3.3-4]

    def mark_released(self, session: Session, item: Item) -> None:
        """Replace the stored row by one that says `released` and needs no payload any more [MQTT-4.3.3-5]."""
        engine = self.engine
        engine.turn.take(OUT, session.key, item.token)
        puts = engine.turn.run((OUT, "", 9, True, session.key, True, False))
        puts.heads.append(engine.router.state_head(self.prefix(item, RELEASED)))
        puts.bodies.append(item.packet_id.to_bytes(2, "little"))
        engine.turn.rows += 1
        row = len(puts.heads) - 1
        item.token = None

        def stored() -> None:
            item.token = puts.tokens[row]
            if session.over or session.outflow.inflight.get(item.packet_id) is not item:  # PUBCOMP overtook the commit
                engine.turn.take(OUT, session.key, item.token)

        engine.turn.after.append(stored)

    def pubcomp(self, connection: Connection, packet: Any) -> None:
        """QoS 2 is over."""
        item = connection.session.outflow.completed(packet[1])
        if item is not None:
            connection.session.delivered += 1
            self.settle(connection.session, item)
            self.answered(item, 0)
            self.engine.refill[connection.session] = None
        elif packet[1] in connection.session.outflow.inflight:
            self.unexpected(connection, "PUBCOMP", packet[1])

    # -- reconnect and retry --

    def resume(self, session: Session) -> None:
        """A session found its client again: what is in flight first, then what waited [MQTT-4.4.0-1]."""
        connection = session.connection
        if connection is None:
            return
        out: list[bytes] = []
        session.outflow.resend(self.engine.now, out)
        session.outflow.resumed = True
        if out:
            self.engine.send_all(connection, out)
        self.fill(session)

    def tick(self, now: float) -> None:
        """Stored messages expire. MQIsdp, and 3.1.1 where the settings say so: what is not acknowledged after the retry
        interval is sent again with DUP; never in 5.0 [MQTT-4.4.0-1]."""
        self.waiting.tick(self.engine.limits)
        self.expiry.tick(self.engine.now)
        self.requests.tick(self.engine.now)
        interval, versions = self.engine.limits.retry_interval, self.engine.limits.retry_versions
        if not interval:
            return
        for connection in list(self.engine.connections):
            if connection.version not in versions or not connection.session.outflow.inflight:
                continue
            if now - max(connection.last_retry, connection.connected_at) < interval:
                continue
            connection.last_retry = now
            out: list[bytes] = []
            connection.session.outflow.resend(self.engine.now, out)
            self.engine.send_all(connection, out)

    def unexpected(self, connection: Connection, kind: str, packet_id: int) -> None:
        """What is in flight is answered by the acknowledgement of another quality of service, or of another step."""
        text = f"{kind} does not answer what was sent with packet identifier {packet_id}: acknowledge by its QoS"
        self.engine.protocol_error(connection, ProtocolError(text))
