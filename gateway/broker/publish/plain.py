"""The plain lane: publications one packet at a time, of any kind, to rows of the open batch.

It is the reference for the fast lane (`fast.py`), and the hot loop where nothing is compiled is `Publishing.packets`.
Whether a publication is taken, and what its publisher hears when a subscriber has no room for it, is `Acceptance`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.broker import accounting
from gateway.broker.answers import PUBACKS, PUBRECS
from gateway.broker.publish.route import FastPath, Inbound, Route
from gateway.errors import ProtocolError
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import PUBACK, PUBLISH, V5, Properties
from gateway.ports.counters import DropReason
from gateway.session.connection import CLOSED, Connection, Publisher
from gateway.session.publication import Publication
from gateway.session.record import STORED_IDS

if TYPE_CHECKING:
    from gateway.broker.batch import Released, WaitingWill
    from gateway.broker.engine import Engine
    from gateway.broker.publish.route import Receiver, Shared

_DIRECT, _STAGED, _FAN_OUT = FastPath.DIRECT, FastPath.STAGED, FastPath.FAN_OUT
MAX_CACHED_ROUTES, MAX_CACHED_TOPIC = 4096, 256
"""Routes kept for a connection, and the longest topic they are kept for: a client cannot fill memory with topics."""
_KINDS = {4: "PUBACK", 5: "PUBREC", 6: "PUBREL", 7: "PUBCOMP", 8: "SUBSCRIBE", 10: "UNSUBSCRIBE", 12: "PINGREQ",
          14: "DISCONNECT", 15: "AUTH"}  # fmt: skip
_TEXT_ROOM = 256
"""Clients that take no longer packets are told by the code alone [MQTT-3.4.2-2] [MQTT-3.5.2-2] [MQTT-3.7.2-2]."""
_PUBACK, PUBREL = 0x40, 0x62
"""First byte of a PUBACK and of a PUBREL."""


class Publishing:
    """Publications of devices."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.acceptance = Acceptance(engine)

    def packets(self, connection: Connection, packets: list[Any]) -> None:  # noqa: C901, PLR0912, PLR0915 -- the hot loop
        """The packets of one chunk. A publication whose route has a fast path becomes two appends to columns."""
        engine = self.engine
        batch, session = engine.batch, connection.session
        if connection.generation != engine.router.generation:
            self.forget_routes(connection)
        handlers, pubacks, pubrecs = engine.handlers, PUBACKS, PUBRECS
        packets_in = engine.counters.packets_in
        last_topic, last_first, path = b"", -1, FastPath.NONE
        longest = connection.limits.max_payload or connection.limits.max_packet
        replies = batch.replies.get(connection)
        heads: Any = None
        bodies: Any = None
        staged: Any = None
        inbound = session.inbound
        head = b""
        tails: dict[int, bytes] = {}
        rows = acknowledged = received = done = 0
        for number, packet in enumerate(packets):
            if number < done:  # released with the one before it
                continue
            first = packet[0]
            if 0x30 <= first < 0x40:
                _, topic, packet_id, block, payload = packet
                if topic != last_topic or first != last_first:
                    last_topic, last_first = topic, first
                    route = connection.caches[first & 7].get(topic)
                    if route is None or route.version != route.changes[0]:
                        route = self.route(connection, first, topic)
                    path = route.fast_path
                    if path is _DIRECT:
                        puts = batch.puts_to(route.address)
                        batch.aim(route.address, route.policies[0])
                        batch.contribute(route.address, connection, first & 6)
                        head, tails = route.head, route.tails
                        heads, bodies = puts.heads.append, puts.bodies.append
                    elif path is _STAGED:
                        puts, staged = batch.staging(session)
                        head, tails = engine.staging.head(route, session.client_id), STORED_IDS
                        heads, bodies = puts.heads.append, puts.bodies.append
                if path is _FAN_OUT:
                    done = engine.fan_out.take(connection, route, packets, number)
                    if done > number:
                        replies = batch.replies.get(connection)
                        continue
                elif path and not block and len(payload) <= longest:
                    if packet_id:
                        if replies is None:
                            replies = batch.replies[connection] = []
                        if path is _DIRECT:
                            acknowledged += 1
                            replies.append(pubacks[packet_id])
                        else:
                            received += 1
                            replies.append(pubrecs[packet_id])
                            if packet_id in inbound:  # [MQTT-4.3.3-10]: resent; nothing changes
                                continue
                            staged.append(packet_id)
                            payload = tails[packet_id] + payload
                            inbound[packet_id] = (topic, payload, first)
                            heads(head)
                            bodies(payload)
                            rows += 1
                            continue
                    heads(head)
                    bodies(tails[packet_id] + payload)
                    rows += 1
                    continue
            elif first == PUBREL and (done := engine.staging.release_several(connection, packets, number)) > number:
                replies = batch.replies[connection]
                continue
            elif first == _PUBACK and (done := engine.in_flight.settle_packets(connection, packets, number)) > number:
                continue
            else:
                packets_in[first >> 4] += 1
                if engine.trace is not None:
                    engine.trace(connection, _KINDS.get(first >> 4, "packet"), packet)
            handlers[first >> 4](connection, packet)
            if connection.state == CLOSED:
                break
            if replies is None:
                replies = batch.replies.get(connection)
        packets_in[3] += rows
        session.received += rows - acknowledged  # those of QoS 1 are counted with their commit
        batch.answered[4] += acknowledged
        batch.answered[5] += received
        batch.rows += rows
        if acknowledged:
            connection.inbound_pending += acknowledged
            batch.pending[connection] = batch.pending.get(connection, 0) + acknowledged
        if connection.state != CLOSED:
            self.check_in_flight(connection)

    def check_in_flight(self, connection: Connection) -> None:
        """What a client may have in flight: asked once a chunk."""
        if connection.version == V5:
            self.check_receive_maximum(connection)
        elif len(connection.session.inbound) > connection.unreleased:
            self.engine.staging.check_unreleased(connection)

    def check_receive_maximum(self, connection: Connection) -> None:
        """[MQTT-3.3.4-7]: more than we announced is 0x93."""
        if connection.inbound_pending + len(connection.session.inbound) > connection.limits.receive_maximum:
            self.engine.refuse(
                connection, reasons.RECEIVE_MAXIMUM_EXCEEDED, "protocol_error", "more in flight than Receive Maximum"
            )

    def forget_routes(self, connection: Connection) -> None:
        """Rules, subscriptions or access lists have changed: what was computed from them is void."""
        for cache in connection.caches:
            cache.clear()
        connection.generation = self.engine.router.generation

    def route(self, connection: Connection, first: int, topic: bytes) -> Route:
        """The route of a topic for this client, from the cache or computed."""
        if connection.generation != self.engine.router.generation:
            self.forget_routes(connection)
        cache = connection.caches[first & 7]
        route: Route | None = cache.get(topic)
        if route is None:
            route = self.engine.router.route(connection.publisher, topic, first & 7)
            if len(cache) >= MAX_CACHED_ROUTES:
                cache.clear()
            if len(topic) <= MAX_CACHED_TOPIC:
                cache[topic] = route
        elif route.version != route.changes[0]:
            self.engine.router.find_receivers(route, connection.publisher)
        if connection in self.engine.parking.tied:  # its rows are looked at one by one while something of it waits
            route.fast_path = FastPath.NONE
        return route

    # -- one publication at a time: properties, retained, subscribers, rules that look into the message --

    def publish(self, connection: Connection, packet: Any) -> None:
        """A PUBLISH that is not on the fast path."""
        first, topic, packet_id, block, payload = packet
        engine = self.engine
        engine.counters.packets_in[3] += 1
        qos = first >> 1 & 3
        connection.session.received += qos != 1  # those of QoS 1 are counted with their commit
        try:
            limit = connection.limits.max_user_properties
            properties = prop.decode(block, PUBLISH, max_user_properties=limit) if block else {}
            topic = self.resolve_alias(connection, topic, properties)
        except ProtocolError as error:
            engine.protocol_error(connection, error)
            return
        if not self.allowed(connection, first, qos):
            return
        route = self.route(connection, first, topic)
        if route.error in {reasons.MALFORMED_PACKET, reasons.TOPIC_NAME_INVALID}:
            engine.protocol_error(connection, ProtocolError(route.error_text, route.error))
            return
        if route.error == reasons.NOT_AUTHORIZED:
            engine.counters.mqtt_auth_failures[connection.link.listener, "acl_publish"] += 1
        if engine.trace is not None:
            engine.trace(connection, "PUBLISH", packet)
        publication = self.publication(connection, topic, payload, first, block, properties)
        if qos == 2:
            engine.staging.stage(connection, route, publication, packet_id, properties)
            return
        refused = self.acceptance.refusal(connection, route, publication, properties)
        missed = 0
        if refused is None:
            missed = self.release(connection.publisher, route, publication, packet_id, connection)
        if qos == 1:
            self.answer(connection, PUBACK, packet_id, route, refused, missed)

    def answer(
        self, connection: Connection, packet_type: int, packet_id: int, route: Route, refused: Refusal | None,
        missed: int = 0,
    ) -> None:  # fmt: skip
        """PUBACK or PUBREC when the batch is committed; 3.x knows no reason and gets the plain form. [MQTT-3.3.4-1]
        [MQTT3-4.3.2-2] [MQTT-4.3.2-4] [MQTT-4.3.2-5] [MQTT-3.3.5-2]"""
        told = connection.version == V5
        if refused is not None and refused.withheld and not told:
            return
        if packet_type == PUBACK:
            batch = self.engine.batch
            connection.inbound_pending += 1
            batch.pending[connection] = batch.pending.get(connection, 0) + 1
        reason, text = 0 if route.interested else reasons.NO_MATCHING_SUBSCRIBERS, missed_by(missed)
        if refused is not None:
            reason, text = refused.reason, refused.text
        words = self.acceptance.words(connection, text)
        data = writer.encode_ack(connection.version, packet_type, packet_id, reason if told else 0, words)
        self.engine.batch.reply(connection, data)

    def resolve_alias(self, connection: Connection, topic: bytes, properties: Properties) -> bytes:
        """Topic Alias: learn or use it. [MQTT-3.3.2-9] [MQTT-3.3.2-12] [MQTT-3.2.2-17] [MQTT-3.2.2-18]"""
        alias = properties.get(prop.TOPIC_ALIAS)
        if alias is None:
            if not topic and connection.version == V5:
                raise ProtocolError("an empty topic name without a Topic Alias", reasons.PROTOCOL_ERROR)
            return topic
        if not isinstance(alias, int) or not 0 < alias <= self.engine.limits.topic_aliases:
            raise ProtocolError(
                f"Topic Aliases go up to {self.engine.limits.topic_aliases} here",
                reasons.TOPIC_ALIAS_INVALID,
            )
        if topic:
            connection.aliases[alias] = topic
            return topic
        known = connection.aliases.get(alias)
        if known is None:
            raise ProtocolError("a Topic Alias that was never set", reasons.TOPIC_ALIAS_INVALID)
        return known

    def allowed(self, connection: Connection, first: int, qos: int) -> bool:
        """What CONNACK announced as not available [MQTT-3.2.2-11] [MQTT-3.2.2-14]."""
        limits = self.engine.limits
        if qos > limits.max_qos:
            self.engine.refuse(
                connection, reasons.QOS_NOT_SUPPORTED, "protocol_error", f"QoS {qos} is not offered here"
            )
            return False
        if first & 1 and not limits.retain:
            self.engine.refuse(
                connection, reasons.RETAIN_NOT_SUPPORTED, "protocol_error", "retained messages are off here"
            )
            return False
        return True

    def publication(
        self, connection: Connection, topic: bytes, payload: bytes, first: int, block: bytes, properties: Properties
    ) -> Publication:
        """What subscribers get: the properties that travel, as they are and in their order, without those of this hop.
        [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-20]"""
        expires = 0.0
        if properties:
            expiry = properties.get(prop.MESSAGE_EXPIRY_INTERVAL)
            if isinstance(expiry, int):
                expires = self.engine.now + expiry
            if expiry is not None or prop.TOPIC_ALIAS in properties:
                hop = (prop.MESSAGE_EXPIRY_INTERVAL, prop.TOPIC_ALIAS)
                block = prop.encode({key: value for key, value in properties.items() if key not in hop})
        client_id = connection.session.client_id
        return Publication(topic, payload, first >> 1 & 3, bool(first & 1), block, expires, client_id)

    # -- making it available --

    def release(
        self, publisher: Publisher, route: Route, publication: Publication, packet_id: int,
        connection: Connection | None = None, staged: Released | None = None, will: WaitingWill | None = None,
    ) -> int:  # fmt: skip
        """Make a publication available: retained, on its queues, to local subscribers. How many of these had no room
        for it; for what was staged that was asked before PUBREC."""
        engine = self.engine
        if publication.retain and not publication.handed_over:  # [MQTT3-3.3.1-12] [MQTT5-3.3.1-8]
            engine.retained.keep(publication)
        if route.plan is not None:
            engine.queue_rows.put(
                engine.batch, Inbound(route, publication, packet_id, publisher, connection, staged, will), engine.now
            )
        elif not route.topic.startswith("$"):
            engine.counters.messages_unrouted += 1
        if publication.handed_over or not (publication.retain or route.receivers or route.shared):
            return 0
        if staged is not None:
            engine.batch.fanned[staged] = publication
        publication.promised = staged is not None
        return engine.fan_out.deliver(route, publication)


class Refusal(NamedTuple):
    """Why a publication is not taken."""

    reason: int
    counted: DropReason
    text: str = ""
    withheld: bool = False
    """Clients that know no reason codes get no acknowledgement for it: they send it again when they come back."""


class Acceptance:
    """What is asked of every publication that is not on the fast path."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def refusal(
        self, connection: Connection, route: Route, publication: Publication, properties: Properties
    ) -> Refusal | None:
        """Why it is not taken, and counted as such; None: it is."""
        found = (
            _of_route(route)
            or _of_payload(connection, publication.payload, properties)
            or self._of_queue(route, publication.payload)
            or self._of_sessions(route, publication)
        )
        if found is not None:
            accounting.refused(self.engine.counters, route.rule, publication.qos, found.counted)
        return found

    def _of_queue(self, route: Route, payload: bytes) -> Refusal | None:
        """A rule with `too_long: reject` whose queue would not take it."""
        longest = self.engine.router.too_long(route, payload)
        if longest < 0:
            return None
        return Refusal(reasons.QUOTA_EXCEEDED, "too_large" if len(payload) > longest else "oversized_header")

    # -- sessions without room --

    def _of_sessions(self, route: Route, publication: Publication) -> Refusal | None:
        """A session that is full has it refused for everybody, where its listener says so (`when_full: refuse`). Else
        it goes without; but when nobody else wants it either, that is the answer."""
        if not publication.qos or not (route.receivers or route.shared):
            return None
        if self.engine.limits.any_refuses and self._somebody_refuses(route, publication):
            return Refusal(reasons.QUOTA_EXCEEDED, "session_full", "a subscriber's queue is full", withheld=True)
        plan, dead_letters = route.plan, self.engine.dead_letter_queue
        if publication.retain or (plan is not None and (plan.prepared or (plan.dead_letter and dead_letters))):
            return None
        if all(self.engine.fan_out.full(one, publication) for one in route.receivers) and all(
            self._group_is_full(group, publication) for group in route.shared
        ):
            return Refusal(reasons.QUOTA_EXCEEDED, "session_full", "the queues of all subscribers are full")
        return None

    def _somebody_refuses(self, route: Route, publication: Publication) -> bool:
        alone = any(self._refuses(one) and self.engine.fan_out.full(one, publication) for one in route.receivers)
        return alone or any(
            any(map(self._refuses, group.members)) and self._group_is_full(group, publication) for group in route.shared
        )

    def _refuses(self, receiver: Receiver) -> bool:
        return self.engine.limits.at(receiver.session.listener).refuse_when_full

    def _group_is_full(self, group: Shared, publication: Publication) -> bool:
        """Whether no member of a shared subscription has room."""
        return bool(group.members) and all(self.engine.fan_out.full(one, publication) for one in group.members)

    # -- the words --

    @staticmethod
    def words(connection: Connection, text: str) -> Properties:
        """The text as Reason String, for those who want to hear it [MQTT-3.1.2-29]."""
        wanted = text and connection.version == V5 and connection.problem_information
        return {prop.REASON_STRING: text} if wanted and connection.session.outflow.max_packet >= _TEXT_ROOM else {}


def missed_by(count: int) -> str:
    """What is said of a publication that was taken and did not reach all."""
    if not count:
        return ""
    return f"{count} of its subscribers did not get it: {'its queue is' if count == 1 else 'their queues are'} full"


def _of_route(route: Route) -> Refusal | None:
    return Refusal(route.error, "denied") if route.error else None


def _of_payload(connection: Connection, payload: bytes, properties: Properties) -> Refusal | None:
    longest = connection.limits.max_payload
    if longest and len(payload) > longest:
        return Refusal(reasons.PACKET_TOO_LARGE, "too_large")
    if properties.get(prop.PAYLOAD_FORMAT_INDICATOR) == 1:
        try:
            payload.decode()
        except UnicodeDecodeError:
            return Refusal(reasons.PAYLOAD_FORMAT_INVALID, "other")
    return None
