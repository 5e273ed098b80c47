"""Copies of publications for local sessions: who gets one, whether there is room for it, and the row that stores it for
a durable session. Pure.

`FanOut.deliver` copies one publication. `FanOut.relay` does the same for a run of plain publications on one topic: what
is the same for all of a run is done once, for each subscriber too. Its copies wait for `FanOut.hand_on`, which gives
each session as one run what several clients have published. Whatever is not plain is left to the plain lane, one at a
time and with the same result, which the tests compare.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from gateway.broker.context import Context
from gateway.broker.deliver.expiry import Expiry
from gateway.broker.deliver.share_turns import Chosen, ShareTurns
from gateway.broker.publish.columns import length_of
from gateway.broker.publish.route import Receiver, Route, Shared
from gateway.broker.publish.router import Router
from gateway.mqtt.primitives import MAX_REMAINING_LENGTH
from gateway.ports.counters import DropReason
from gateway.ports.state_queues import OUT
from gateway.session import copy_columns
from gateway.session.connection import ONLINE
from gateway.session.copies import STORED_ID, Copies
from gateway.session.outflow import Item, singles
from gateway.session.publication import Publication
from gateway.session.record import RETAIN, SHARED, encode_front, encode_prefix, encode_sub_ids
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.publish.route import Sent

Prefixes = dict[tuple[int, bool, tuple[int, ...]], bytes]
"""Heads of stored copies by what differs between them: QoS and flags, RETAIN, subscription identifiers."""


_KIND = itemgetter(0)
Kind = tuple[int, bool, tuple[int, ...], str, object]
"""What is equal for copies that are one run: QoS, RETAIN, subscription identifiers, shared subscription, and whatever
else must be equal."""
Relayed = tuple[Publication, list[bytes], list[bytes] | None, int, Prefixes, tuple[bytes, float] | None]
"""Publications on one topic: what they have in common, their payloads, the properties of each where these differ, the
number of bytes, the heads of stored copies, and properties and time of expiry of all, if they have any."""
Note = tuple[Kind, Publication, list[bytes], list[bytes] | None, int, Prefixes]


class Run(NamedTuple):
    """Publications that are alike but for their payloads."""

    like: Publication
    payloads: list[bytes]
    size: int
    likes: list[Publication] | None
    """One for each publication where they are of several clients or topics; else None."""
    heads: dict[tuple[int, bool, tuple[int, ...]], list[bytes]]
    """In that case, the heads of their stored copies."""


class Runs:
    """Makes runs of publications that the same filters match: of one, or of several without properties."""

    __slots__ = ("_publications", "_runs")

    def __init__(self, publications: Sequence[Publication]) -> None:
        self._publications = publications
        self._runs: dict[tuple[int, int], Run] = {}

    def part(self, at: int, every: int) -> Run:
        """The run of those publications, beginning `at`, that a member gets who takes turns with others, every so many;
        a member alone gets all of them."""
        run = self._runs.get((at, every))
        if run is None:
            some = self._publications[at::every]
            payloads = [one.payload for one in some]
            known = dict[tuple[str, bytes], Publication]()
            for one in some:
                like = Publication(one.topic, b"", one.qos, one.retain, one.properties, one.expires, one.client_id)
                known.setdefault((one.client_id, one.topic), like)
            likes = [known[one.client_id, one.topic] for one in some] if len(known) > 1 else None
            run = self._runs[at, every] = Run(next(iter(known.values())), payloads, length_of(payloads), likes, {})
        return run


class Room:
    """The number of copies, and of their bytes, for which a session has room beside what is relayed to it."""

    __slots__ = ("count", "size")

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size


class FanOut:
    """Copies publications for the sessions that are subscribed to them."""

    def __init__(self, context: Context, router: Router, expiry: Expiry) -> None:
        self.context = context
        self.router = router
        self.expiry = expiry
        self.forward: Callable[[Route, Publication], Collection[str]] = lambda _route, _publication: ()
        """Puts a publication for other gateways; returns the shared subscriptions that are served there."""
        self.forward_all: Callable[[list[Sent]], None] = lambda _sent: None
        """Does the same for several publications, which the fast lane has taken."""
        self.relayed: dict[Session, list[Note]] = {}
        """What is relayed to sessions and not handed on yet."""
        self.rooms: dict[Session | None, Room] = {}
        """The room of each session until then; under None that of all sessions together."""
        self.in_slices: Counter[bytes] = Counter()
        """The topics of publications that are copied in slices, and how many of each: no other may overtake these."""
        self.turns = ShareTurns(context, self.full, self.full_from)

    # -- one publication --

    def deliver(self, route: Route, publication: Publication, rule: str = "_none") -> int:
        """Copy a publication for every receiver [MQTT-4.5.0-1], here and at other gateways; QoS 0 at once, the rest
        when the batch is committed. `rule`: the rule for what came from a queue. Returns how many receivers had no
        room."""
        shared = route.shared
        if route.forwarded:
            served = self.forward(route, publication)
            shared = tuple(group for group in shared if group.name not in served)
        return self.deliver_to(route, route.receivers, shared, publication, rule)

    def deliver_to(
        self, route: Route, receivers: Collection[Receiver], shared: Collection[Shared], publication: Publication,
        rule: str = "_none",
    ) -> int:  # fmt: skip
        """Like `deliver`, for some of a route's receivers here."""
        plain = not publication.properties and not publication.expires
        prefixes: Prefixes = route.prefixes if plain else {}
        missed = 0
        for receiver in receivers:
            missed += not self.copy(receiver, publication, prefixes)
        for group in shared:
            missed += not self.copy_to_member(group, publication, prefixes)
        copies = len(receivers) + len(shared) - missed
        if copies:
            self.context.counters.mqtt_publish_sent[rule, publication.qos] += copies
        return missed

    def copy_to_member(self, group: Shared, publication: Publication, prefixes: Prefixes) -> bool:
        """Copy a publication for one member of a shared subscription. Returns False if it has no room."""
        member = self.turns.choose(group, publication)
        return member is None or self.copy(member, publication, prefixes, group.name)

    def full(self, receiver: Receiver, publication: Publication) -> bool:
        """Whether a session has no room for a copy."""
        session = receiver.session
        if not min(publication.qos, receiver.qos):
            return False  # QoS 0 is never stored
        limits = self.context.limits.at(session.listener)
        if session.durable:
            full = self.context.stored.full(limits, session, len(publication.payload))
        else:
            full = session.outflow.queued >= limits.max_queued
        if full:
            self.context.stored.no_room(session)
        return full

    def full_from(self, session: Session, size: int) -> int | None:
        """As `StoredCount.full_from`, for a session that has no room for a payload of this size."""
        if not session.durable:
            return None if session.can_take else 0  # what waits goes out in a moment
        return self.context.stored.full_from(self.context.limits.at(session.listener), session, size)

    def copy(self, receiver: Receiver, publication: Publication, prefixes: Prefixes, share: str = "") -> bool:
        """Copy a publication for one session. Returns False if it has no room."""
        session, context = receiver.session, self.context
        qos = min(publication.qos, receiver.qos)  # [MQTT3-3.8.4-6] [MQTT5-3.8.4-8] [MQTT-4.8.2-3]
        retain = publication.retain and receiver.retain_as_published  # [MQTT3-3.3.1-9] [MQTT5-3.3.1-12] [MQTT-3.3.1-13]
        item = Item(publication, qos, retain, receiver.sub_ids)
        item.share = share
        if qos == 0:
            self.send_at_once(session, item)
        elif not session.durable:
            limits = context.limits.at(session.listener)
            if session.connection is None:
                return True  # it ends just now, and this may be its own will: nobody misses anything
            if session.outflow.queued >= limits.max_queued and not (publication.promised and limits.refuse_when_full):
                return self._no_room(session)
            context.batch.deliveries.append((session, [item], None, 0, 1))
            context.batch.copied += len(publication.payload)
        else:
            return self.store(session, item, prefixes)
        return True

    def _no_room(self, session: Session) -> bool:
        """Count a copy as lost; returns False for the caller to return."""
        self.context.counters.messages_dropped["_none", "session_full"] += 1
        self.context.counters.examples.note("messages_dropped", ("_none", "session_full"), session.client_id)
        self.context.stored.skip(session, self.context.now)
        return False

    def store(self, session: Session, item: Item, prefixes: Prefixes) -> bool:
        """Append a row to the session's stored queue, in the same unit of work as everything else of the batch
        [MQTT3-3.1.2-5]. Returns False if it has no room."""
        context, batch = self.context, self.context.batch
        size, limits = len(item.publication.payload), context.limits.at(session.listener)
        if context.stored.full(limits, session, size) and not (item.publication.promised and limits.refuse_when_full):
            return self._no_room(session)
        flags = SHARED if item.share else 0
        prefix = self._prefix(prefixes, item.publication, item.qos, item.sub_ids, flags, retain=item.retain)
        item.packet_id = session.outflow.number()
        puts = batch.state_puts(OUT, session.key)
        puts.heads.append(prefix)
        puts.bodies.append(item.packet_id.to_bytes(2, "little") + item.publication.payload)
        batch.rows += 1
        batch.copied += size
        context.stored.added(session, size)
        if batch.undo is not None:
            batch.undo.step(context.stored.taken, session, size)
        self.expiry.watch(session, item.publication)
        batch.deliveries.append((session, [item], puts, len(puts.heads) - 1, 1))
        return True

    def send_at_once(self, session: Session, item: Item) -> None:
        """Send a copy of QoS 0 at once, whatever is in flight [MQTT-4.9.0-3] [MQTT-3.3.4-10], unless the client is
        slow."""
        context, connection = self.context, session.connection
        if connection is None or connection.state != ONLINE:
            return
        if context.is_overloaded(connection):
            self._lost(session, item, "qos0_overload")
            return
        if item.publication.expired(context.now):
            self._lost(session, item, "expired")
            return
        data = session.outflow.encode(item, context.now)
        if len(data) > session.outflow.max_packet:  # [MQTT-3.1.2-25]
            self._lost(session, item, "too_large")
            return
        context.send(connection, data)

    def _lost(self, session: Session, item: Item, reason: DropReason) -> None:
        """Count a copy that does not reach its client."""
        counters = self.context.counters
        counters.messages_dropped["_none", reason] += 1
        topic = item.publication.topic.decode()
        counters.examples.note("messages_dropped", ("_none", reason), session.client_id, topic=topic)

    # -- several publications for one session --

    def have_room(self, wanted: Sequence[tuple[Session, int, int]]) -> bool:
        """Whether each of these sessions, and all together, have room for this many copies of this many bytes, none of
        which may be lost."""
        count, size = sum(count for _, count, _ in wanted), sum(size for *_, size in wanted)
        return self.context.stored.room(self.context.limits, size, count) and all(
            self._has_room(session, count, size) for session, count, size in wanted
        )

    def _has_room(self, session: Session, count: int, size: int) -> bool:
        limits = self.context.limits.at(session.listener)
        if session.durable:
            return not self.context.stored.full(limits, session, size, count)
        return session.connection is not None and session.outflow.queued + count <= limits.max_queued

    def members_in_turn(self, group: Shared, runs: Runs, count: int) -> list[tuple[Receiver, Run]]:
        """The members of a shared subscription that take these publications in turn, each with what it takes; the turn
        then passes to those behind. Empty if each publication has to be looked at, so that they stay in order."""
        chosen = self.turns.in_turn(group, count)
        if chosen is None or any(one.session.outflow.max_packet <= MAX_REMAINING_LENGTH for one in chosen.members):
            return []
        members = [(one, runs.part(at, len(chosen.members))) for at, one in enumerate(chosen.members)]
        wanted = [(one.session, len(run.payloads), run.size) for one, run in members if min(run.like.qos, one.qos)]
        if not self.have_room(wanted):
            return []
        self.turns.take(group, chosen.last)
        return members

    def copy_run(self, receiver: Receiver, run: Run, prefixes: Prefixes, share: str = "") -> bool:
        """Copy a run for one session. Returns False, with nothing done, if it has no room for all of it."""
        (like, payloads, size, likes, _), session = run, receiver.session
        qos, retain = min(like.qos, receiver.qos), like.retain and receiver.retain_as_published
        if not qos:
            copies = Copies(like, 0, receiver.sub_ids, payloads, share=share, likes=likes, retain=retain)
            self.send_all_at_once(session, copies)
            return True
        if not self._has_room(session, len(payloads), size):
            return False
        copies = Copies(like, qos, receiver.sub_ids, payloads, share=share, likes=likes, retain=retain)
        heads = self._heads_of(run, copies) if likes is not None and session.durable else ()
        self.copy_all(session, copies, size, prefixes, heads)
        return True

    def _heads_of(self, run: Run, copies: Copies) -> list[bytes]:
        """The heads under which copies of several clients are stored."""
        flags = SHARED if copies.share else 0
        variant = copies.qos | flags, copies.retain, copies.sub_ids
        heads = run.heads.get(variant)
        if heads is None:
            heads = [
                self._prefix({}, like, copies.qos, copies.sub_ids, flags, retain=copies.retain)
                for like in run.likes or ()
            ]
            run.heads[variant] = heads
        return heads

    def copy_all(
        self, session: Session, copies: Copies, size: int, prefixes: Prefixes, heads: Sequence[bytes] = ()
    ) -> None:
        """Append copies of this many bytes for a session that has room for them. `heads`: those under which they are
        stored, where these differ."""
        self.context.batch.copied += size
        if not session.durable:
            self.context.batch.deliveries.append((session, copies, None, 0, len(copies)))
            return
        payloads, blocks = copies.bodies, copies.blocks
        first = session.outflow.allot_several(len(payloads))
        if not first:
            items = singles(copies)
            heads = heads or [self.prefix(prefixes if blocks is None else {}, item) for item in items]
            self.copy_items(session, items, heads, size)
            return
        copies.first = first
        if blocks is None:
            heads = heads or [self.prefix(prefixes, copies)] * len(payloads)
            bodies = copies.bodies = copy_columns.numbered(payloads, first)
            copies.width = STORED_ID
        else:  # in what is stored, too, these are with the payload
            flags = (SHARED if copies.share else 0) | (RETAIN if copies.retain else 0)
            front = encode_front(copies.like, copies.qos, flags)
            heads = [self.router.state_head(front)] * len(payloads)
            bodies = copy_columns.numbered(payloads, first, blocks, encode_sub_ids(copies.sub_ids))
        away = session.connection is None and session not in self.context.sessions.ending
        self._store(session, None if away else copies, heads, bodies, size)
        if copies.like.expires:
            self.expiry.watch(session, copies.like)

    def copy_items(self, session: Session, items: list[Item], heads: Sequence[bytes], size: int) -> None:
        """Like `copy_all`, for copies that are less alike."""
        self.context.batch.copied += size
        if not session.durable:
            self.context.batch.deliveries.append((session, items, None, 0, len(items)))
            return
        number = session.outflow.number
        for item in items:
            item.packet_id = number()
            self.expiry.watch(session, item.publication)
        bodies = [item.packet_id.to_bytes(2, "little") + item.publication.payload for item in items]
        self._store(session, items, heads, bodies, size)

    def _store(
        self,
        session: Session,
        items: list[Item] | Copies | None,
        heads: Sequence[bytes],
        bodies: list[bytes],
        size: int,
    ) -> None:
        """Append rows to a durable session's stored queue, and note what follows when they are committed."""
        batch, count = self.context.batch, len(bodies)
        puts = batch.state_puts(OUT, session.key)
        batch.deliveries.append((session, items, puts, len(puts.heads), count))
        puts.heads += heads
        puts.bodies += bodies
        batch.rows += count
        self.context.stored.added(session, size, count)
        if batch.undo is not None:
            batch.undo.step(self.context.stored.added, session, -size, -count)

    def prefix(self, prefixes: Prefixes, one: Item | Copies) -> bytes:
        """The head of what a durable session stores of such a copy; remembered."""
        like = one.like if isinstance(one, Copies) else one.publication
        return self._prefix(prefixes, like, one.qos, one.sub_ids, SHARED if one.share else 0, retain=one.retain)

    def _prefix(
        self, prefixes: Prefixes, like: Publication, qos: int, sub_ids: tuple[int, ...], flags: int, *, retain: bool
    ) -> bytes:  # fmt: skip
        variant = (qos | flags, retain, sub_ids)
        prefix = prefixes.get(variant)
        if prefix is None:
            prefix = self.router.state_head(encode_prefix(like, qos, retain, sub_ids, flags))
            prefixes[variant] = prefix
        return prefix

    def send_all_at_once(self, session: Session, copies: Copies) -> None:
        """Send copies of QoS 0 at once, as one piece where nothing is special."""
        context, connection = self.context, session.connection
        if connection is None or connection.state != ONLINE:
            return
        outflow = session.outflow
        usual = (
            connection.connack_sent
            and not outflow.takes_aliases
            and not copies.like.expired(context.now)
            and not context.is_overloaded(connection)
        )
        data, end = None, len(copies)
        if usual:
            data = copy_columns.packets_of(copies, 0, 0, end, outflow.version, context.now, outflow.max_packet)
        if data is None:
            for item in singles(copies):
                self.send_at_once(session, item)
            return
        context.counters.packets_out[3] += end
        context.send_counted(connection, data)

    # -- several publications of one client and topic --

    def admits(self, route: Route, count: int, size: int) -> bool:
        """Whether every subscriber, and the open batch, has room for this many publications of this many bytes, none
        may have them refused, and they overtake none that is copied in slices; otherwise each is looked at by
        itself."""
        if self.in_slices and route.wire_topic in self.in_slices:
            return False
        receivers, rooms, qos = route.receivers, self.rooms, route.first & 6
        together = rooms.get(None) or self._room(None)
        ways = len(receivers) + len(route.shared)
        if not qos:  # sent at once, nothing is stored; what is large is copied in slices
            return together.count >= 0 and size * ways <= self.context.most_copied * count
        if together.count < count * ways or together.size < size * ways:
            return False
        for session, highest, _, _ in receivers:
            if highest:
                room = rooms.get(session) or self._room(session)
                if room.count < count or room.size < size:
                    return False
        return True

    def _room(self, session: Session | None) -> Room:
        """The room of a session, or of all together, which is not known yet."""
        context = self.context
        limits, stored = context.limits, context.stored
        if session is None:
            count, size = stored.left(limits) if not limits.any_refuses else (-1, 0)
            size = min(size, context.copies_left)
        elif session.durable:
            limits = limits.at(session.listener)
            count, size = limits.max_queued - session.stored, limits.max_queued_bytes - session.stored_bytes
        else:
            limits, size = limits.at(session.listener), sys.maxsize
            count = limits.max_queued - session.outflow.queued if session.connection is not None else -1
        room = self.rooms[session] = Room(count, size)
        return room

    def choose_several(self, route: Route, count: int, size: int) -> list[Chosen] | None:
        """The members of each shared subscription that take this many publications of this many bytes in turn. None if
        somebody can take none of them now, has no room, or has a Maximum Packet Size: then each publication is looked
        at by itself."""
        chosen: list[Chosen] = []
        if not route.shared:
            return chosen
        taken = dict.fromkeys([one.session for one in route.receivers], count)
        """How many of them each session takes; a session may take some more than once."""
        for group in route.shared:
            found = self.turns.in_turn(group, count)
            if found is None:
                return None
            for place, member in enumerate(found.members):
                session = member.session
                if session.outflow.max_packet <= MAX_REMAINING_LENGTH:
                    return None
                theirs = taken[session] = taken.get(session, 0) + len(range(place, count, len(found.members)))
                ways = -(-theirs // count)
                room = self.rooms.get(session) or self._room(session)
                if route.first & 6 and member.qos and (room.count < theirs or room.size < size * ways):
                    return None
            chosen.append(found)
        return chosen

    def relay(
        self, route: Route, client_id: str, payloads: list[bytes], size: int, blocks: list[bytes] | None = None,
        expires: float = 0.0, chosen: Sequence[Chosen] = (),
    ) -> None:  # fmt: skip
        """Copy, for every subscriber, admitted publications that differ in payload, packet identifier and properties
        alone. `blocks`: what subscribers get of their properties, if they have any; `expires`: when all of them do;
        `chosen`: the members of shared subscriptions that take them. Those of QoS 0 are sent at once, the others wait
        for `hand_on`."""
        like = route.like
        if like is None or like.client_id != client_id:
            qos, retain = route.first >> 1 & 3, bool(route.first & 1)
            like = route.like = Publication(route.wire_topic, b"", qos, retain, client_id=client_id)
        receivers, prefixes, same = route.receivers, route.prefixes, None
        if blocks is not None or expires:
            block = b""
            if blocks is not None and blocks.count(blocks[0]) == len(blocks):  # nearly always, where there are any
                block, blocks = blocks[0], None
            if block or expires:
                prefixes, same = {}, (block, expires)
                like = Publication(like.topic, b"", like.qos, like.retain, block, expires, client_id)
        ways = len(receivers) + len(chosen)
        if ways:
            self.context.counters.mqtt_publish_sent["_none", like.qos] += len(payloads) * ways
        what = like, payloads, blocks, size, prefixes, same
        given: list[tuple[Sequence[Receiver], str, Relayed]] = [(receivers, "", what)]
        for group, members, last in chosen:
            self.turns.take(group, last)
            for at, member in enumerate(members):
                every = slice(at, None, len(members))
                some, theirs = payloads[every], None if blocks is None else blocks[every]
                given.append(((member,), group.name, (like, some, theirs, length_of(some), prefixes, same)))
        for to, share, (_, some, theirs, *_) in given:
            for receiver in to:
                if not (like.qos and receiver.qos):
                    retain = like.retain and receiver.retain_as_published
                    copies = Copies(like, 0, receiver.sub_ids, some, blocks=theirs, share=share, retain=retain)
                    self.send_all_at_once(receiver.session, copies)
        for one in given if like.qos else ():
            self._note(*one)

    def _note(self, receivers: Sequence[Receiver], share: str, what: Relayed) -> None:
        """Note copies for sessions, beside those that they get already; nothing fails here."""
        like, payloads, blocks, size, prefixes, same = what
        relayed, rooms, qos, count = self.relayed, self.rooms, like.qos, len(payloads)
        for session, highest, as_published, sub_ids in receivers:
            if not highest:
                continue
            apart: object = same
            if blocks is not None or (count >= session.outflow.window and session.connection is not None):
                apart = object()  # nothing is like it, or its client takes it, and no more, at once
            notes = relayed.get(session)
            if notes is None:
                notes = relayed[session] = []
            kind = 1 if qos == 1 else highest, like.retain and as_published, sub_ids, share, apart
            notes.append((kind, like, payloads, blocks, size, prefixes))
            room = rooms[session]
            room.count -= count
            room.size -= size
        together, copies = rooms[None], len(receivers)
        together.count -= count * copies
        together.size -= size * copies

    def hand_on(self) -> None:
        """Give what was relayed to its sessions, as one run for each where it is alike."""
        relayed, self.relayed = self.relayed, {}
        self.rooms.clear()
        for session, notes in relayed.items():
            for kind, alike in groupby(notes, _KIND):
                self._hand_to(session, kind, list(alike))

    def _hand_to(self, session: Session, kind: Kind, notes: list[Note]) -> None:
        (qos, retain, sub_ids, share, _), (_, first, payloads, blocks, size, prefixes) = kind, notes[0]
        if len(notes) == 1:
            copies = Copies(first, qos, sub_ids, payloads, blocks=blocks, share=share, retain=retain)
            self.copy_all(session, copies, size, prefixes)
            return
        flags = SHARED if share else 0
        variant = qos | flags, retain, sub_ids
        payloads, likes, heads, total, differ = [], list[Publication](), list[bytes](), 0, False
        for _, like, some, _, size, prefixes in notes:
            payloads += some
            likes += [like] * len(some)
            total += size
            differ = differ or like is not first
            if session.durable:
                head = prefixes.get(variant) or self._prefix(
                    prefixes, like, qos, sub_ids, flags, retain=retain
                )  # fmt: skip
                heads += [head] * len(some)
        copies = Copies(first, qos, sub_ids, payloads, share=share, likes=likes if differ else None, retain=retain)
        self.copy_all(session, copies, total, {}, heads)
