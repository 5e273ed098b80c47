"""Copies of publications for local sessions: who gets one, whether there is room for it, and the row that stores it for
a durable session. Pure.

`FanOut.deliver` copies one publication. `FanOut.take` does the same for a run of plain publications of one topic: what
is the same for all of a run is done once, for each subscriber too. Whatever is not plain is left to the plain lane, one
at a time and with the same result, which the tests compare.
"""

from __future__ import annotations

from typing import Any

from gateway.broker import books
from gateway.broker.answers import PUBACKS
from gateway.broker.context import Context
from gateway.broker.deliver.expiry import Expiry
from gateway.broker.publish.route import Receiver, Route, Shared
from gateway.broker.publish.router import Router
from gateway.mqtt.packets import V5
from gateway.ports.state_queues import OUT
from gateway.session.connection import ONLINE, Connection
from gateway.session.outflow import Item
from gateway.session.publication import Publication
from gateway.session.record import SHARED, encode_prefix
from gateway.session.session import Session

_MAX_TURNS = 10_000
Prefixes = dict[tuple[int, bool, tuple[int, ...]], bytes]
"""Heads of stored copies by what differs between them: QoS and flags, RETAIN, subscription identifiers."""


class FanOut:
    """The way of a publication to the sessions that are subscribed to it."""

    def __init__(self, context: Context, router: Router, expiry: Expiry) -> None:
        self.context = context
        self.router = router
        self.expiry = expiry
        self._turns: dict[str, int] = {}
        """Whose turn it is, by shared subscription."""

    # -- one publication --

    def deliver(self, route: Route, publication: Publication, rule: str = "_none") -> int:
        """A copy for every receiver [MQTT-4.5.0-1]; QoS 0 at once, the rest when the batch is committed. `rule`: of
        what came from a queue. Returns how many had no room for theirs."""
        copies = len(route.receivers) + len(route.shared)
        if copies:
            self.context.counters.mqtt_publish_sent[rule, publication.qos] += copies
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
        member = self._choose(group, publication)
        return member is None or self.copy(member, publication, prefixes, group.name)

    def _choose(self, group: Shared, publication: Publication) -> Receiver | None:
        """The member whose turn it is; those first that can take the message now, then those that have room."""
        able = [member for member in group.members if member.session.can_take]
        if not able:
            able = [one for one in group.members if one.session.connection is not None or one.session.durable]
            able = [one for one in able if not self.full(one, publication)] or able
        if len(self._turns) > _MAX_TURNS:
            self._turns.clear()
        turn = self._turns[group.name] = self._turns.get(group.name, -1) + 1
        return able[turn % len(able)] if able else None

    def full(self, receiver: Receiver, publication: Publication) -> bool:
        """Whether a session has no room for a copy."""
        session = receiver.session
        if not min(publication.qos, receiver.qos):
            return False  # QoS 0 is never stored
        limits = self.context.limits.at(session.listener)
        if session.durable:
            full = self.context.stored.full(limits, session, len(publication.payload))
        else:
            full = len(session.outflow.pending) >= limits.max_queued
        if full:
            self.context.stored.no_room(session)
        return full

    def copy(self, receiver: Receiver, publication: Publication, prefixes: Prefixes, share: str = "") -> bool:
        """One copy for one session; False when it has no room."""
        session, context = receiver.session, self.context
        qos = min(publication.qos, receiver.qos)  # [MQTT3-3.8.4-6] [MQTT5-3.8.4-8] [MQTT-4.8.2-3]
        retain = publication.retain and receiver.retain_as_published  # [MQTT3-3.3.1-9] [MQTT5-3.3.1-12] [MQTT-3.3.1-13]
        item = Item(publication, qos, retain, receiver.sub_ids)
        item.share = share
        if qos == 0:
            self.send_at_once(session, item)
        elif not session.durable:
            limits = context.limits.at(session.listener)
            if session.connection is None or (
                len(session.outflow.pending) >= limits.max_queued
                and not (publication.promised and limits.refuse_when_full)
            ):
                return self._no_room(session)
            context.batch.deliveries.append((session, [item], None, 0))
        else:
            return self.store(session, item, prefixes)
        return True

    def _no_room(self, session: Session) -> bool:
        """A copy is lost: False, as for whoever asks."""
        self.context.counters.messages_dropped["_none", "session_full"] += 1
        self.context.stored.no_room(session)
        return False

    def store(self, session: Session, item: Item, prefixes: Prefixes | None = None) -> bool:
        """A row on the session's stored queue, in the same unit of work as everything else of the batch
        [MQTT3-3.1.2-5]; False when it has no room."""
        context, batch = self.context, self.context.batch
        size, limits = len(item.publication.payload), context.limits.at(session.listener)
        if context.stored.full(limits, session, size) and not (item.publication.promised and limits.refuse_when_full):
            return self._no_room(session)
        flags = SHARED if item.share else 0
        variant = (item.qos | flags, item.retain, item.sub_ids)
        prefix = prefixes.get(variant) if prefixes is not None else None
        if prefix is None:
            prefix = self.router.state_head(encode_prefix(item.publication, item.qos, item.retain, item.sub_ids, flags))
            if prefixes is not None:
                prefixes[variant] = prefix
        item.packet_id = session.outflow.allot()
        puts = batch.state_puts(OUT, session.key)
        puts.heads.append(prefix)
        puts.bodies.append(item.packet_id.to_bytes(2, "little") + item.publication.payload)
        batch.rows += 1
        context.stored.added(session, size)
        self.expiry.watch(session, item.publication)
        batch.deliveries.append((session, [item], puts, len(puts.heads) - 1))
        return True

    def send_at_once(self, session: Session, item: Item) -> None:
        """QoS 0: to the wire whatever is in flight [MQTT-4.9.0-3] [MQTT-3.3.4-10], unless the client is slow."""
        context, connection = self.context, session.connection
        if connection is None or connection.state != ONLINE:
            return
        if connection.link.buffered() > context.limits.max_outgoing_bytes // 2:
            context.counters.messages_dropped["_none", "qos0_overload"] += 1
            return
        if item.publication.expired(context.now):
            context.counters.messages_dropped["_none", "expired"] += 1
            return
        data = session.outflow.encode(item, context.now)
        if len(data) > session.outflow.max_packet:  # [MQTT-3.1.2-25]
            context.counters.messages_dropped["_none", "too_large"] += 1
            return
        context.send(connection, data)

    # -- several publications for one session --

    def has_room(self, session: Session, size: int, count: int) -> bool:
        """Whether a session has room for so many copies of so many bytes together, none of which may be lost."""
        limits = self.context.limits.at(session.listener)
        if session.durable:
            return not self.context.stored.full(limits, session, size, count)
        return session.connection is not None and len(session.outflow.pending) + count <= limits.max_queued

    def prefix(self, prefixes: Prefixes, item: Item) -> bytes:
        """The head of what a durable session stores of such a copy, remembered; not retained, not through a share."""
        variant = (item.qos, False, item.sub_ids)
        prefix = prefixes.get(variant)
        if prefix is None:
            prefix = self.router.state_head(encode_prefix(item.publication, item.qos, item.retain, item.sub_ids))
            prefixes[variant] = prefix
        return prefix

    def store_all(self, session: Session, items: list[Item], heads: list[bytes], size: int) -> None:
        """Rows on a durable session's stored queue, and what follows when they are committed; there is room for
        them."""
        batch = self.context.batch
        puts = batch.state_puts(OUT, session.key)
        batch.deliveries.append((session, items, puts, len(puts.heads)))
        allot = session.outflow.allot
        for item in items:
            item.packet_id = allot()
        puts.heads += heads
        puts.bodies += [item.packet_id.to_bytes(2, "little") + item.publication.payload for item in items]
        batch.rows += len(items)
        self.context.stored.added(session, size, len(items))

    def send_all_at_once(self, receiver: Receiver, publications: list[Publication]) -> None:
        """QoS 0: to the wire, as one piece where nothing is special."""
        context, session = self.context, receiver.session
        connection = session.connection
        if connection is None or connection.state != ONLINE:
            return
        outflow, version = session.outflow, session.outflow.version
        usual = connection.connack_sent and not (version == V5 and (outflow.takes_aliases or receiver.sub_ids))
        pieces = [b"".join(one.wire(version, 0x30, context.now, ())) for one in publications] if usual else []
        if (
            not usual
            or connection.link.buffered() > context.limits.max_outgoing_bytes // 2
            or max(map(len, pieces)) > outflow.max_packet
        ):
            for publication in publications:
                self.send_at_once(session, Item(publication, 0, False, receiver.sub_ids))  # noqa: FBT003
            return
        context.counters.packets_out[3] += len(pieces)
        context.send_counted(connection, b"".join(pieces))

    # -- runs of plain publications from one client --

    def take(self, connection: Connection, route: Route, packets: list[Any], start: int) -> int:
        """Take in the publications from `start` on that are like the first of them; returns the number of the first
        that is not. Nothing is taken in when somebody has no room for all of them, or may have them refused."""
        context = self.context
        if context.limits.any_refuses or context.trace is not None:
            return start
        first, topic = packets[start][0], packets[start][1]
        longest = connection.limits.max_payload or connection.limits.max_packet
        taken: list[Any] = []
        for number in range(start, len(packets)):
            packet = packets[number]
            if packet[0] != first or packet[1] != topic or packet[3] or len(packet[4]) > longest:
                break
            taken.append(packet)
        qos = first >> 1 & 3
        size = sum([len(packet[4]) for packet in taken])
        if not taken or not all(self._takes_all(one, qos, len(taken), size) for one in route.receivers):
            return start
        self._acknowledge(connection, taken, qos)
        if route.head:
            self._put(connection, route, taken)
        elif not route.topic.startswith("$"):
            context.counters.messages_unrouted += len(taken)
        context.counters.mqtt_publish_sent["_none", qos] += len(taken) * len(route.receivers)
        client_id = connection.session.client_id
        publications = [Publication(topic, packet[4], qos, False, client_id=client_id) for packet in taken]  # noqa: FBT003
        for receiver in route.receivers:
            self._copy_all(route, receiver, publications, min(qos, receiver.qos), size)
        return start + len(taken)

    def _takes_all(self, receiver: Receiver, qos: int, count: int, size: int) -> bool:
        """Whether a session has room for a copy of each."""
        return not min(qos, receiver.qos) or self.has_room(receiver.session, size, count)

    def _acknowledge(self, connection: Connection, taken: list[Any], qos: int) -> None:
        """Count them; their acknowledgements may exist when the batch is committed."""
        batch, count = self.context.batch, len(taken)
        books.took(self.context.counters, batch, connection, count, count if qos else 0)
        if qos:
            batch.replies.setdefault(connection, []).extend([PUBACKS[packet[2]] for packet in taken])

    def _put(self, connection: Connection, route: Route, taken: list[Any]) -> None:
        """Their rows on the queue of their rule."""
        batch, tails = self.context.batch, route.tails
        destination = batch.destination(route.address, route.policies[0])
        destination.contribute(connection, route.first & 6)
        destination.puts.heads += [route.head] * len(taken)
        destination.puts.bodies += [tails[packet[2]] + packet[4] for packet in taken]
        batch.rows += len(taken)

    def _copy_all(self, route: Route, receiver: Receiver, publications: list[Publication], qos: int, size: int) -> None:
        session, sub_ids = receiver.session, receiver.sub_ids
        if qos == 0:
            self.send_all_at_once(receiver, publications)
            return
        items = [Item(publication, qos, False, sub_ids) for publication in publications]  # noqa: FBT003
        if session.durable:
            self.store_all(session, items, [self.prefix(route.stored, items[0])] * len(items), size)
        else:
            self.context.batch.deliveries.append((session, items, None, 0))
