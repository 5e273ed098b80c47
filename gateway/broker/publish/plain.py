"""The plain lane: publications one packet at a time, of any kind, to rows of the open batch.

It is the reference for the fast lane (`fast.py`); the hot loop where nothing is compiled is `PlainLane.packets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.broker import books
from gateway.broker.answers import PUBACKS, PUBRECS
from gateway.broker.publish.qos2 import PUBREL
from gateway.broker.publish.route import FastPath
from gateway.errors import ProtocolError
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.mqtt.packets import PUBACK, PUBLISH, V5, Properties
from gateway.session.connection import CLOSED, Connection
from gateway.session.publication import Publication
from gateway.session.record import STORED_IDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.broker.context import Context
    from gateway.broker.deliver.fan_out import FanOut
    from gateway.broker.deliver.in_flight import InFlight
    from gateway.broker.publish.publications import Publications
    from gateway.broker.publish.qos2 import Staging

_DIRECT, _STAGED, _FAN_OUT = FastPath.DIRECT, FastPath.STAGED, FastPath.FAN_OUT
_KINDS = {4: "PUBACK", 5: "PUBREC", 6: "PUBREL", 7: "PUBCOMP", 8: "SUBSCRIBE", 10: "UNSUBSCRIBE", 12: "PINGREQ",
          14: "DISCONNECT", 15: "AUTH"}  # fmt: skip
_PUBACK = 0x40
"""The first byte of a PUBACK."""


class PlainLane:
    """Packets of connections that are online."""

    def __init__(
        self, context: Context, publications: Publications, staging: Staging, fan_out: FanOut, in_flight: InFlight
    ) -> None:
        self.context = context
        self.router = publications.router
        self.publications = publications
        self.staging = staging
        self.fan_out = fan_out
        self.in_flight = in_flight
        self.handlers: list[Callable[[Connection, Any], None]] = []
        """What handles a packet, by its type; set by the engine."""

    def packets(self, connection: Connection, packets: list[Any]) -> None:  # noqa: C901, PLR0912, PLR0915 -- the hot loop
        """The packets of one chunk. A publication whose route has a fast path becomes two appends to columns."""
        context = self.context
        batch, session = context.batch, connection.session
        if connection.generation != self.router.generation:
            self.publications.forget_routes(connection)
        handlers, pubacks, pubrecs = self.handlers, PUBACKS, PUBRECS
        packets_in = context.counters.packets_in
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
            if number < done:  # taken together with an earlier one
                continue
            first = packet[0]
            if 0x30 <= first < 0x40:
                _, topic, packet_id, block, payload = packet
                if topic != last_topic or first != last_first:
                    last_topic, last_first = topic, first
                    route = connection.caches[first & 7].get(topic)
                    if route is None or route.version != route.changes[0]:
                        route = self.publications.route(connection, first, topic)
                    path = route.fast_path
                    if path is _DIRECT:
                        destination = batch.destination(route.address, route.policies[0])
                        destination.contribute(connection, first & 6)
                        head, tails, puts = route.head, route.tails, destination.puts
                        heads, bodies = puts.heads.append, puts.bodies.append
                    elif path is _STAGED:
                        puts, staged = batch.staging(session)
                        head, tails = self.staging.head(route, session.client_id), STORED_IDS
                        heads, bodies = puts.heads.append, puts.bodies.append
                if path is _FAN_OUT:
                    done = self.fan_out.take(connection, route, packets, number)
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
            elif first == PUBREL and (done := self.staging.release_several(connection, packets, number)) > number:
                replies = batch.replies[connection]
                continue
            elif first == _PUBACK and (done := self.in_flight.settle_packets(connection, packets, number)) > number:
                continue
            else:
                packets_in[first >> 4] += 1
                if context.trace is not None:
                    context.trace(connection, _KINDS.get(first >> 4, "packet"), packet)
            handlers[first >> 4](connection, packet)
            if connection.state == CLOSED:
                break
            if replies is None:
                replies = batch.replies.get(connection)
        books.took(context.counters, batch, connection, rows, acknowledged)
        batch.answered[5] += received
        batch.rows += rows
        if connection.state != CLOSED:
            self.check_in_flight(connection)

    def check_in_flight(self, connection: Connection) -> None:
        """Refuse a client with more in flight than it may have; checked once a chunk."""
        if connection.version == V5:
            self.check_receive_maximum(connection)
        elif len(connection.session.inbound) > connection.unreleased:
            self.staging.check_unreleased(connection)

    def check_receive_maximum(self, connection: Connection) -> None:
        """More than the announced Receive Maximum is refused with 0x93 [MQTT-3.3.4-7]."""
        if connection.inbound_pending + len(connection.session.inbound) > connection.limits.receive_maximum:
            self.context.refuse(
                connection, reasons.RECEIVE_MAXIMUM_EXCEEDED, "protocol_error", "more in flight than Receive Maximum"
            )

    # -- one publication at a time: properties, retained, subscribers, rules that look into the message --

    def publish(self, connection: Connection, packet: Any) -> None:
        """A PUBLISH that takes no fast path."""
        first, topic, packet_id, block, payload = packet
        context = self.context
        context.counters.packets_in[3] += 1
        qos = first >> 1 & 3
        connection.session.received += qos != 1  # those of QoS 1 are counted with their commit
        try:
            limit = connection.limits.max_user_properties
            properties = prop.decode(block, PUBLISH, max_user_properties=limit) if block else {}
            topic = self.resolve_alias(connection, topic, properties)
        except ProtocolError as error:
            context.protocol_error(connection, error)
            return
        if not self.allowed(connection, first, qos):
            return
        route = self.publications.route(connection, first, topic)
        if route.error in {reasons.MALFORMED_PACKET, reasons.TOPIC_NAME_INVALID}:
            context.protocol_error(connection, ProtocolError(route.error_text, route.error))
            return
        if route.error == reasons.NOT_AUTHORIZED:
            context.counters.mqtt_auth_failures[connection.link.listener, "acl_publish"] += 1
        if context.trace is not None:
            context.trace(connection, "PUBLISH", packet)
        publication = self.publication(connection, topic, payload, first, block, properties)
        if qos == 2:
            self.staging.stage(connection, route, publication, packet_id, properties)
            return
        refused = self.publications.refusal(connection, route, publication, properties)
        missed = 0
        if refused is None:
            missed = self.publications.release(connection.publisher, route, publication, packet_id, connection)
        if qos == 1:
            self.publications.answer(connection, PUBACK, packet_id, route, refused, missed)

    def resolve_alias(self, connection: Connection, topic: bytes, properties: Properties) -> bytes:
        """Set or use a Topic Alias. [MQTT-3.3.2-9] [MQTT-3.3.2-12] [MQTT-3.2.2-17] [MQTT-3.2.2-18]"""
        alias = properties.get(prop.TOPIC_ALIAS)
        if alias is None:
            if not topic and connection.version == V5:
                raise ProtocolError("an empty topic name without a Topic Alias", reasons.PROTOCOL_ERROR)
            return topic
        if not isinstance(alias, int) or not 0 < alias <= self.context.limits.topic_aliases:
            raise ProtocolError(
                f"Topic Aliases go up to {self.context.limits.topic_aliases} here",
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
        """Whether CONNACK allowed this QoS and RETAIN [MQTT-3.2.2-11] [MQTT-3.2.2-14]."""
        limits = self.context.limits
        if qos > limits.max_qos:
            self.context.refuse(
                connection, reasons.QOS_NOT_SUPPORTED, "protocol_error", f"QoS {qos} is not offered here"
            )
            return False
        if first & 1 and not limits.retain:
            self.context.refuse(
                connection, reasons.RETAIN_NOT_SUPPORTED, "protocol_error", "retained messages are off here"
            )
            return False
        return True

    def publication(
        self, connection: Connection, topic: bytes, payload: bytes, first: int, block: bytes, properties: Properties
    ) -> Publication:
        """What subscribers get: properties unchanged and in their order, without those that are for the server alone.
        [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-20]"""
        expires = 0.0
        if properties:
            expiry = properties.get(prop.MESSAGE_EXPIRY_INTERVAL)
            if isinstance(expiry, int):
                expires = self.context.now + expiry
            if expiry is not None or prop.TOPIC_ALIAS in properties:
                hop = (prop.MESSAGE_EXPIRY_INTERVAL, prop.TOPIC_ALIAS)
                block = prop.encode({key: value for key, value in properties.items() if key not in hop})
        client_id = connection.session.client_id
        return Publication(topic, payload, first >> 1 & 3, bool(first & 1), block, expires, client_id)
