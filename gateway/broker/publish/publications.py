"""What both lanes and QoS 2 do with a publication: find its route, decide whether it is accepted, hand it to queues and
subscribers, and answer its publisher. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.broker import books
from gateway.broker.publish.kept_routes import MAX_CACHED_ROUTES, emptied, make_way
from gateway.broker.publish.queue_rows import Inbound, QueueRows
from gateway.broker.publish.route import FastPath, Receiver, Route
from gateway.broker.publish.router import Router
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import PUBACK, V5, Properties, Will
from gateway.ports.counters import DropReason
from gateway.session.connection import Connection, Publisher
from gateway.session.publication import Publication

if TYPE_CHECKING:
    from gateway.broker.context import Context
    from gateway.broker.deliver.fan_out import FanOut
    from gateway.broker.deliver.wide import Wide
    from gateway.broker.marks import Released, WaitingWill
    from gateway.broker.publish.retained import Retained
    from gateway.broker.refused.parking import Parking

MAX_CACHED_TOPIC = 256
"""The longest topic for which a route is kept, so that a client cannot fill memory with topics."""
_TEXT_ROOM = 256
"""Clients that take only shorter packets are told by the reason code alone [MQTT-3.4.2-2] [MQTT-3.5.2-2]
[MQTT-3.7.2-2]."""


class Refusal(NamedTuple):
    """Why a publication is not accepted."""

    reason: int
    counted: DropReason
    text: str = ""
    withheld: bool = False
    """Whether clients that know no reason codes get no acknowledgement: they send it again when they come back."""


_TOO_MANY = Refusal(reasons.QUOTA_EXCEEDED, "other", "too many publications for very many clients", withheld=True)


class Publications:
    """Handles publications of devices, and wills."""

    def __init__(
        self, context: Context, router: Router, queue_rows: QueueRows, retained: Retained, fan_out: FanOut,
        parking: Parking,
    ) -> None:  # fmt: skip
        self.context = context
        self.router = router
        self.queue_rows = queue_rows
        self.retained = retained
        self.fan_out = fan_out
        self.parking = parking
        self.wide: Wide
        """Copies publications for very many subscribers; set by the engine."""

    # -- routes --

    def forget_routes(self, connection: Connection) -> None:
        """Drop the routes of a connection: rules or access lists have changed."""
        connection.caches = emptied(self.context, connection.caches) or tuple({} for _ in range(8))
        listener, client_id, user, _ = connection.publisher
        connection.decisions = self.router.access.decisions(listener, client_id, user)
        connection.generation = self.router.generation

    def route(self, connection: Connection, first: int, topic: bytes) -> Route:
        """The route of a topic for this client, from the cache or computed."""
        if connection.generation != self.router.generation:
            self.forget_routes(connection)
        cache = connection.caches[first & 7]
        route: Route | None = cache.get(topic)
        if route is None:
            route = self.router.shared_route(
                connection.publisher, topic, first & 7, connection.decisions
            ) or self.router.route(
                connection.publisher, topic, first & 7, may_be_wide=self._may_be_wide(connection, first)
            )
            if len(cache) >= MAX_CACHED_ROUTES:
                make_way(cache)
            if len(topic) <= MAX_CACHED_TOPIC:
                cache[topic] = route
        elif route.version != route.changes[0] or (route.wide and self.router.has_walked(route.topic)):
            self.router.find_receivers(route, connection.publisher, may_be_wide=self._may_be_wide(connection, first))
        if connection in self.parking.linked:  # its rows are put one by one while a publication of it is parked
            route.fast_path = FastPath.NONE
        return route

    def _may_be_wide(self, connection: Connection, first: int) -> bool:
        """Whether a connection's publications may be copied in slices; not while they are looked at one by one after a
        defect."""
        return self.may_promise(first) and not self.context.set_aside.is_suspect(connection)

    def may_promise(self, first: int = 4) -> bool:
        """Whether the effects of a publication of this kind may take more than one unit of work: not where a full
        session has it refused for all, nor at QoS 2 where other gateways share the state."""
        return not self.context.limits.any_refuses and (self.wide.promises or not first & 4)

    def is_wide(
        self, route: Route, publication: Publication, connection: Connection | None, *, once: bool = False
    ) -> bool:
        """Whether a publication is copied in slices, because very many get it, its copies are very many bytes, or it
        would overtake one on its topic. `once`: it must come once, though its QoS does not say so."""
        if route.wide or self.wide.is_joining:
            return True
        ways = len(route.receivers) + len(route.shared)
        is_long = ways > 1 and len(publication.payload) * ways > self.context.most_copied
        if not (is_long or publication.topic in self.fan_out.in_slices):
            return False
        is_suspect = connection is not None and self.context.set_aside.is_suspect(connection)
        return not is_suspect and self.may_promise(4 if once else publication.first)

    # -- the publication of a packet --

    def publication(
        self, connection: Connection, topic: bytes, payload: bytes, first: int, block: bytes, properties: Properties
    ) -> Publication:
        """The publication as subscribers get it: properties unchanged and in their order, without those that are for
        the server alone. [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-20]"""
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

    # -- whether it is taken --

    def refusal(
        self, connection: Connection, route: Route, publication: Publication, properties: Properties
    ) -> Refusal | None:
        """Why a publication is not accepted, counted as such; None if it is accepted."""
        found = (
            (Refusal(route.error, "denied") if route.error else None)
            or (self._of_disk(route, publication) if self.context.storage_full is not None else None)
            or _of_payload(connection, publication.payload, properties)
            or self._of_queue(route, publication.payload)
            or (_TOO_MANY if self.wide.is_full and self.is_wide(route, publication, connection) else None)
            or self._of_sessions(route, publication)
        )
        if found is not None:
            books.refused(
                self.context.counters, route.rule, publication.qos, found.counted,
                client_id=connection.session.client_id, topic=route.topic,
            )  # fmt: skip
        return found

    def _of_disk(self, route: Route, publication: Publication) -> Refusal | None:
        """Refuse, on a full disk, what would be stored there."""
        if not (publication.qos or publication.retain):
            rows = route.rows if route.plan is not None else None
            if not any(address.persistent for address, *_ in rows or ()):
                return None
        return Refusal(reasons.QUOTA_EXCEEDED, "spool_full", "the gateway's disk is full", withheld=True)

    def _of_queue(self, route: Route, payload: bytes) -> Refusal | None:
        """Refuse what is longer than its queue takes, for a rule with `too_long: reject`."""
        longest = self.router.too_long(route, payload)
        if longest < 0:
            return None
        return Refusal(reasons.QUOTA_EXCEEDED, "too_large" if len(payload) > longest else "oversized_header")

    # -- sessions without room --

    def _of_sessions(self, route: Route, publication: Publication) -> Refusal | None:
        """Refuse a publication when sessions are full. One full session has it refused for all if its listener says so
        (`when_full: refuse`); else that session goes without, and the publication is refused only if no other session
        or queue gets it either."""
        if not publication.qos or not (route.receivers or route.shared) or self.wide.is_joining:
            return None  # what goes along with another one would be answered before it
        if self.context.limits.any_refuses and self._is_refused_by_one(route, publication):
            return Refusal(reasons.QUOTA_EXCEEDED, "session_full", "a subscriber's queue is full", withheld=True)
        plan, dead_letters = route.plan, self.context.dead_letter_queue
        elsewhere = publication.retain or route.forwarded
        if elsewhere or (plan is not None and (plan.may_match or (plan.dead_letter and dead_letters))):
            return None
        if all(self.fan_out.full(one, publication) for one in route.receivers) and all(
            self.fan_out.turns.is_full(group, publication) for group in route.shared
        ):
            return Refusal(reasons.QUOTA_EXCEEDED, "session_full", "the queues of all subscribers are full")
        return None

    def _is_refused_by_one(self, route: Route, publication: Publication) -> bool:
        alone = any(self._refuses(one) and self.fan_out.full(one, publication) for one in route.receivers)
        return alone or any(
            any(map(self._refuses, group.members())) and self.fan_out.turns.is_full(group, publication)
            for group in route.shared
        )

    def _refuses(self, receiver: Receiver) -> bool:
        return self.context.limits.at(receiver.session.listener).refuse_when_full

    # -- the answer to its publisher --

    def answer(
        self, connection: Connection, packet_type: int, packet_id: int, route: Route, refused: Refusal | None,
        missed: int = 0,
    ) -> None:  # fmt: skip
        """Have PUBACK or PUBREC sent when the batch is committed; 3.x knows no reason and gets the plain form.
        [MQTT-3.3.4-1] [MQTT3-4.3.2-2] [MQTT-4.3.2-4] [MQTT-4.3.2-5] [MQTT-3.3.5-2]"""
        told = connection.version == V5
        if refused is not None and refused.withheld and not told:
            return
        if packet_type == PUBACK:
            batch = self.context.batch
            connection.inbound_pending += 1
            batch.pending[connection] = batch.pending.get(connection, 0) + 1
        reason, text = 0 if route.interested else reasons.NO_MATCHING_SUBSCRIBERS, missed_by(missed)
        if refused is not None:
            reason, text = refused.reason, refused.text
            if refused.counted == "session_full" and not told:
                self._skip(route)
        words = reason_string(connection, text)
        data = writer.encode_ack(connection.version, packet_type, packet_id, reason if told else 0, words)
        self.context.batch.reply(connection, data)

    def _skip(self, route: Route) -> None:
        """Count the copies that are lost because no subscriber has room, and the publisher, which cannot be told, takes
        the publication for delivered."""
        without = [one.session for one in route.receivers]
        without += [next(iter(group.members())).session for group in route.shared if group.members()]
        for session in without:
            self.context.stored.skip(session, self.context.now)

    # -- making it available --

    def release(
        self, publisher: Publisher, route: Route, publication: Publication, packet_id: int,
        connection: Connection | None = None, staged: Released | None = None, will: WaitingWill | None = None,
        *, copied: bool = False,
    ) -> int:  # fmt: skip
        """Make a publication available: retain it, put it on its queues, and give it to local subscribers, except for
        retaining and subscribers if that is done already (`copied`). Returns how many subscribers had no room for it;
        at QoS 2 they were asked before PUBREC."""
        context = self.context
        if publication.retain and not (publication.handed_over or copied):  # [MQTT3-3.3.1-12] [MQTT5-3.3.1-8]
            self.retained.keep(publication)
        if route.plan is not None:
            self.queue_rows.put(
                context.batch, Inbound(route, publication, packet_id, publisher, connection, staged, will), context.now
            )
        else:
            context.counters.messages_unrouted += 1
        wanted = publication.retain or route.receivers or route.shared or route.forwarded or route.wide
        if publication.handed_over or copied or not wanted:
            return 0
        if staged is not None:
            context.batch.fanned[staged] = publication
        publication.promised = staged is not None
        if self.is_wide(route, publication, connection, once=True):
            self.wide.promise(publication, connection=connection, route=route)
            return 0
        return self.fan_out.deliver(route, publication)

    def publish_will(self, publisher: Publisher, will: Will, waiting: WaitingWill, *, handed_over: bool) -> None:
        """Publish a will [MQTT-3.1.2-8]: access lists, rules and retention apply to it as to any publication.
        [MQTT3-3.1.2-16] [MQTT3-3.1.2-17] [MQTT5-3.1.2-14] [MQTT5-3.1.2-15] [MQTT5-3.1.3-10]"""
        context = self.context
        first = will.qos << 1 | (1 if will.retain else 0)
        route = self.router.route(publisher, will.topic.encode(), first, may_be_wide=self.may_promise())
        if route.error:
            context.counters.messages_dropped["_none", "denied"] += 1
            context.counters.examples.note(
                "messages_dropped", ("_none", "denied"), publisher.client_id, topic=will.topic, user=publisher.user
            )
            return
        properties = prop.decode(will.raw_properties, prop.WILL) if will.raw_properties else {}
        expiry = properties.pop(prop.MESSAGE_EXPIRY_INTERVAL, None)
        properties.pop(prop.WILL_DELAY_INTERVAL, None)
        expires = context.now + expiry if isinstance(expiry, int) else 0.0
        block = prop.encode(properties) if properties and publisher.version == V5 else b""
        publication = Publication(
            will.topic.encode(), will.payload, will.qos, will.retain, block, expires, publisher.client_id
        )
        publication.handed_over = handed_over
        self.release(publisher, route, publication, 0, will=waiting)


def reason_string(connection: Connection, text: str) -> Properties:
    """The properties that carry a text as Reason String; empty for clients that did not ask for it [MQTT-3.1.2-29]."""
    wanted = text and connection.version == V5 and connection.problem_information
    return {prop.REASON_STRING: text} if wanted and connection.session.outflow.max_packet >= _TEXT_ROOM else {}


def missed_by(count: int) -> str:
    """The text for a publication that was taken and did not reach all subscribers."""
    if not count:
        return ""
    return f"{count} of its subscribers did not get it: {'its queue is' if count == 1 else 'their queues are'} full"


def _of_payload(connection: Connection, payload: bytes, properties: Properties) -> Refusal | None:
    longest = connection.limits.max_payload
    if longest and len(payload) > longest:
        # 0x95 is not among the codes of PUBACK and PUBREC [MQTT-3.4.2-1] [MQTT-3.5.2-1].
        return Refusal(reasons.QUOTA_EXCEEDED, "too_large", f"its payload is longer than {longest} bytes")
    if properties.get(prop.PAYLOAD_FORMAT_INDICATOR) == 1:
        try:
            payload.decode()
        except UnicodeDecodeError:
            return Refusal(reasons.PAYLOAD_FORMAT_INVALID, "payload_format")
    return None
