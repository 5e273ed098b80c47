"""SUBSCRIBE and UNSUBSCRIBE, and the retained messages that a new subscription brings. Pure.

Many retained messages are sent in pages, and belong to the session: what is left of them when the connection breaks
goes out over its next one, as the client finds its session and does not subscribe again. The session's record names the
filters: after a restart, or at another gateway, what they bring is sent from the beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

from gateway.broker.context import Context
from gateway.broker.deliver.fan_out import FanOut
from gateway.broker.publish.retained import Retained
from gateway.broker.publish.router import Router
from gateway.errors import MalformedPacket, PacketTooLarge
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import V5, V31, Suback, Subscription
from gateway.mqtt.topics import filter_error, is_shared, split_shared
from gateway.ports.counters import SubscribeReason
from gateway.ports.state_queues import SESSIONS
from gateway.routing.filters import Interest
from gateway.routing.trie import has_few_places
from gateway.session.connection import Connection
from gateway.session.outflow import Item, Owed
from gateway.session.publication import Publication
from gateway.session.session import Session
from gateway.session.subscribed import Subscribed

PAGE, PAGE_BYTES, PAGE_SECONDS = 1000, 1 << 20, 0.01
"""Retained messages of one subscription that go out without a look at the others."""
AT_ONCE_SECONDS = 0.001
"""Time for the retained messages of a subscription when it is made: what is not found by then comes in slices."""
MOST_LEFT = 256
"""Sessions without a connection that keep their place in the tree of retained messages, which is a list of the topics
there. To all others everything is sent again."""
PROBED = 1000
"""Places of the tree of retained messages that are looked at before it is said that a SUBSCRIBE may bring some."""
MAX_WAITING = 50
"""SUBSCRIBEs of a connection whose retained messages are still to be sent."""
REFUSED: dict[int, SubscribeReason] = {
    reasons.TOPIC_FILTER_INVALID: "topic_filter",
    reasons.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: "shared",
    reasons.QUOTA_EXCEEDED: "quota",
    reasons.NOT_AUTHORIZED: "not_authorized",
    reasons.IMPLEMENTATION_SPECIFIC_ERROR: "defect",
}
DEEP, LONG = 10, 256
"""Filters of up to this many levels and characters are not counted."""
PLACES = 8192
"""Filters with up to this many places in the tree of filters, together with all filters like them, are not counted:
that allows 13 levels, or three of `+` among 20, two among 35, one among 126."""
ENTANGLED = 50
"""A session may have one filter with more places for each this many subscriptions that it may have."""
_ACK_HEAD = 1 + 4 + 2 + 1
"""Bytes of a SUBACK before its reasons, at most: type, length, packet identifier, no properties."""


class _Room:
    """What the filters of a session have together, counted when it is first asked for."""

    __slots__ = ("_entangled", "_filters", "_length", "_levels")

    def __init__(self, filters: dict[str, Subscribed]) -> None:
        self._filters = filters
        self._levels = self._length = self._entangled = -1

    def _count(self) -> None:
        if self._levels < 0:
            self._levels = sum(one.count("/") + 1 for one in self._filters)
            self._length = sum(map(len, self._filters))
            self._entangled = sum(map(is_entangled, self._filters))

    @property
    def levels(self) -> int:
        self._count()
        return self._levels

    @property
    def length(self) -> int:
        self._count()
        return self._length

    @property
    def entangled(self) -> int:
        self._count()
        return self._entangled

    def take(self, filter_: str) -> None:
        """Count a filter that is about to be added."""
        if self._levels >= 0 and filter_ not in self._filters:
            self._levels += filter_.count("/") + 1
            self._length += len(filter_)
            self._entangled += is_entangled(filter_)


def is_entangled(filter_: str) -> bool:
    """Whether filters like this one, and a topic that resembles them up to a late difference, take long together."""
    if filter_.count("/") < DEEP or "+" not in filter_:
        return False
    levels = split_shared(filter_)[1].split("/")
    return not has_few_places(levels[:-1] if levels[-1] == "#" else levels, PLACES)


class SubscribeHandler:
    """Adds and removes subscriptions of sessions, and sends the retained messages that they bring."""

    def __init__(self, context: Context, router: Router, retained: Retained, fan_out: FanOut) -> None:
        self.context = context
        self.router = router
        self.retained = retained
        self.fan_out = fan_out
        self.when_current: Callable[[Callable[[], None]], None] = self._when_committed
        """Makes a call when all that is retained is known here, and the open batch is committed at the earliest."""
        self.when_known: Callable[[Collection[str], Callable[[], None]], bool] = lambda _filters, _call: False
        """Whether other gateways have to hear of these filters first; then the call is made when they have."""
        self._paged: set[Connection] = set()
        """Connections to which retained messages are being sent."""
        self._left: dict[Session, None] = {}
        """Sessions that lost their connections before they had all of them."""

    def subscribe(self, connection: Connection, packet: Any) -> None:
        """Grant or refuse each filter; SUBACK when durable, then the retained messages. [MQTT-3.8.4-1]
        [MQTT3-3.8.4-4] [MQTT5-3.8.4-4] [MQTT5-3.8.4-5] [MQTT-3.8.4-7]"""
        record = packet[1]
        identifiers = record.properties.get(prop.SUBSCRIPTION_IDENTIFIER)
        identifier = identifiers[0] if identifiers else 0
        context, session = self.context, connection.session
        answers: list[int] = []
        retained: list[tuple[Subscription, int]] = []
        if any(self._malformed(connection, wanted.filter) for wanted in record.subscriptions):
            return  # none of it holds
        if self._unanswerable(connection, len(record.subscriptions)):
            return
        room = _Room(session.subscriptions)
        before = {wanted.filter: session.subscriptions.get(wanted.filter) for wanted in record.subscriptions}
        for wanted in record.subscriptions:
            problem, new = self._granted(connection, wanted, identifier, room)
            if problem:
                context.counters.mqtt_subscriptions_refused[connection.link.listener, REFUSED[problem]] += 1
                answers.append(problem if connection.version == V5 else self._old_refusal(connection, wanted))
                continue
            answers.append(wanted.qos)
            # [MQTT5-3.3.1-9] [MQTT5-3.3.1-10] [MQTT5-3.3.1-11]
            if wanted.retain_handling == 0 or (wanted.retain_handling == 1 and new):
                retained.append((wanted, identifier))
        changed = session.durable and any(session.subscriptions.get(name) != one for name, one in before.items())
        if changed:
            context.batch.change(SESSIONS, session)
        owed = self._promise(session, retained, noted=changed) if retained else None
        suback = writer.encode_suback(connection.version, Suback(record.packet_id, answers))

        def known() -> None:
            context.batch.reply(connection, suback)
            if owed is not None:
                self._when_committed(partial(self._send_retained, connection, owed))

        if self.when_known([wanted.filter for wanted in record.subscriptions], known):
            return
        context.batch.reply(connection, suback)
        if owed is not None:
            self.when_current(partial(self._send_retained, connection, owed))

    def _granted(self, connection: Connection, wanted: Subscription, identifier: int, room: _Room) -> tuple[int, bool]:
        """Make one filter effective. Returns 0 and whether it is new, or the reason why it is refused. A defect that
        one filter meets refuses that filter alone."""
        problem, new = reasons.IMPLEMENTATION_SPECIFIC_ERROR, False

        def grant() -> None:
            nonlocal problem, new
            problem = self._problem(connection, wanted, room)
            if not problem:
                wanted.qos = min(wanted.qos, self.context.limits.max_qos)  # [MQTT-3.2.2-10]
                room.take(wanted.filter)
                new = self.add(connection.session, wanted, identifier)

        whom = f"{wanted.filter} of {connection.publisher.client_id}"
        if not self.context.set_aside.run("subscription", whom, grant):
            return reasons.IMPLEMENTATION_SPECIFIC_ERROR, False
        return problem, new

    def refuse(self, connection: Connection, packet: Any) -> None:
        """Refuse each filter of a SUBSCRIBE that meets a defect as a whole; the connection goes on."""
        record, old = packet[1], connection.version != V5
        refused = self.context.counters.mqtt_subscriptions_refused
        refused[connection.link.listener, "defect"] += len(record.subscriptions)
        answers = [
            self._old_refusal(connection, wanted) if old else reasons.IMPLEMENTATION_SPECIFIC_ERROR
            for wanted in record.subscriptions
        ]
        answer = writer.encode_suback(connection.version, Suback(record.packet_id, answers))
        self.context.batch.reply(connection, answer)

    def _old_refusal(self, connection: Connection, wanted: Subscription) -> int:
        """The return code of a refusal for 3.x: 3.1.1 has 0x80; MQIsdp has no refusal at all, so the grant stands and
        nothing is ever delivered."""
        return wanted.qos if connection.version == V31 else 0x80

    def _problem(self, connection: Connection, wanted: Subscription, room: _Room) -> int:
        """The reason why this filter is refused, or 0."""
        context = self.context
        too_long = len(wanted.filter.encode()) > connection.limits.max_topic_length
        if too_long or filter_error(wanted.filter, connection.limits.max_topic_levels) is not None:
            return reasons.TOPIC_FILTER_INVALID  # too many levels, or a `$share/...` [MQTT-4.8.2-1] [MQTT-4.8.2-2]
        if is_shared(wanted.filter) and not context.limits.shared_subscriptions:
            return reasons.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        if self._too_many(connection, wanted.filter, room):
            return reasons.QUOTA_EXCEEDED
        publisher = connection.publisher
        if not context.access.may_subscribe(publisher.listener, publisher.client_id, publisher.user, wanted.filter):
            context.denied(connection, "subscribe", wanted.filter)
            return reasons.NOT_AUTHORIZED
        return 0

    def _too_many(self, connection: Connection, filter_: str, room: _Room) -> bool:
        """Whether the session, or all together, have as many as they may. Every level of a filter may have to be
        visited for a publication: deep filters are let in only while those of the session have together no more than
        DEEP levels for each subscription it may have; long ones in the same way. Of entangled filters a session may
        have few: what many of them take is looked at in one turn where a publication cannot be sliced, and by all
        gateways."""
        known, most = connection.session.subscriptions, int(connection.limits.max_subscriptions)
        levels = filter_.count("/") + 1
        if filter_ in known:
            return False
        total = connection.limits.max_total_subscriptions
        if len(known) >= most or (total and len(self.router.subscriptions) >= total):
            return True
        if levels > DEEP and room.levels + levels > DEEP * most:
            return True
        if is_entangled(filter_) and room.entangled >= max(1, most // ENTANGLED):
            return True
        return len(filter_) > LONG and room.length + len(filter_) > LONG * most

    def _malformed(self, connection: Connection, filter_: str) -> bool:
        """Whether a filter is invalid, which ends the connection [MQTT3-4.7.1-2] [MQTT5-4.7.1-1]. One that is wrong
        only as a shared subscription is refused in SUBACK, since `$share/...` was an ordinary filter before 5.0."""
        text = filter_error(filter_)
        if text is None or is_shared(filter_):
            return False
        self.context.protocol_error(connection, MalformedPacket(text))
        return True

    def _unanswerable(self, connection: Connection, filters: int) -> bool:
        """Whether the client's Maximum Packet Size leaves no room for the SUBACK or UNSUBACK of this many filters: it
        is told so, and nothing changes [MQTT5-3.1.2-24]."""
        most = connection.session.outflow.max_packet
        if filters + _ACK_HEAD <= most or len(writer.encode_suback(V5, Suback(1, [0] * filters))) <= most:
            return False
        text = "your Maximum Packet Size leaves no room for the answer: name fewer filters at once"
        self.context.protocol_error(connection, PacketTooLarge(text))
        return True

    def add(self, session: Session, wanted: Subscription, identifier: int) -> bool:
        """Make a subscription effective; returns True if the filter is new."""
        before = session.subscriptions.get(wanted.filter)
        self.context.batch.undone_by(self._put_back, session, wanted.filter, before)
        session.subscriptions[wanted.filter] = Subscribed(wanted, identifier)
        interest = Interest(
            wanted.qos, wanted.no_local, wanted.retain_as_published, wanted.retain_handling,
            (identifier,) if identifier else (),
        )  # fmt: skip
        return self.router.subscribe(session, wanted.filter, interest)

    def _end(self, session: Session, filter_: str) -> None:
        """End one subscription."""
        before = session.subscriptions.pop(filter_)
        self.context.batch.undone_by(self._put_back, session, filter_, before)
        self.router.unsubscribe(session, filter_)
        promised = session.outflow.promised or {}
        self.context.batch.noting(promised, filter_)
        for owed in promised.pop(filter_, ()):
            self.context.batch.noting(owed.filters, filter_)
            del owed.filters[filter_]
        for owed in session.outflow.retained or ():
            if filter_ in owed.filters:
                self._when_committed(partial(owed.filters.pop, filter_, None))

    def _put_back(self, session: Session, filter_: str, before: Subscribed | None) -> None:
        """Restore what a session had with a filter before a subscription that is taken back."""
        if before is not None:
            self.add(session, before.options, before.identifier)
        elif session.subscriptions.pop(filter_, None) is not None:
            self.router.unsubscribe(session, filter_)

    def _when_committed(self, call: Callable[[], None]) -> None:
        self.context.batch.after.append(call)

    def _promise(self, session: Session, wanted: list[tuple[Subscription, int]], *, noted: bool) -> Owed:
        """Promise the retained messages that new subscriptions bring. `noted`: the record that is committed with them
        says so, if some of them must arrive; after a kill behind SUBACK the next process sends them."""
        outflow = session.outflow
        noted = noted and self._may_bring(wanted)
        owed = self._owed(session, wanted, noted=noted)
        self.context.batch.undone_by(outflow.settle, owed)
        outflow.promise(owed)
        outflow.owes |= noted
        return owed

    def _may_bring(self, wanted: list[tuple[Subscription, int]]) -> bool:
        """Whether these subscriptions get something retained at more than QoS 0, or that cannot be found out
        quickly."""
        filters = [one.filter for one, _ in wanted if one.qos and not is_shared(one.filter)]
        places = chain.from_iterable(self.retained.matching(filter_, self.context.now) for filter_ in filters)
        looked = list(islice(places, PROBED))
        return len(looked) == PROBED or any(found is not None and found.qos for found in looked)

    def _send_retained(self, connection: Connection, owed: Owed) -> None:
        """Send the last known good values, with RETAIN set and the QoS they were published with, up to the granted one.
        [MQTT3-3.3.1-6] [MQTT3-3.3.1-8]"""
        session = connection.session
        session.outflow.settle(owed)
        if not self._is_here(session):
            return
        if session.outflow.retained is None:
            session.outflow.retained = deque()
        elif len(session.outflow.retained) >= MAX_WAITING:
            text = "too many subscriptions to retained messages at once: wait for what they bring"
            self.context.refuse(connection, reasons.QUOTA_EXCEEDED, "slow_consumer", text)
            return
        session.outflow.retained.append(owed)
        now = session.connection
        if now is None or now.connack_sent:  # else it comes behind CONNACK
            self.send_retained_left(now or connection)
        if session.outflow.retained and not owed.noted:
            self._note(session)

    def owe(self, session: Session, filters: Iterable[str]) -> None:
        """Owe a session the retained messages that these filters bring: all of them, since it is not known which were
        sent."""
        found = [one for name in filters if (one := session.subscriptions.get(name)) is not None]
        wanted = [(one.options, one.identifier) for one in found]
        session.outflow.retained = deque([self._owed(session, wanted, noted=True)])

    def _owed(self, session: Session, wanted: list[tuple[Subscription, int]], *, noted: bool) -> Owed:
        filters = dict.fromkeys(subscription.filter for subscription, _ in wanted)
        return Owed(filters, self._retained_for(session, wanted, self.retained.number, filters), noted)

    def _note(self, session: Session) -> None:
        """Have the session's record say whether retained messages are to come, unless the session has ended or gone by
        now."""
        outflow = session.outflow
        outflow.owes = bool(outflow.retained) or any(True for _ in outflow.noted())
        if session.durable and self._is_here(session):
            self.context.batch.change(SESSIONS, session)

    def _is_here(self, session: Session) -> bool:
        """Whether a session has neither ended nor gone to another gateway."""
        return not session.ended and self.context.sessions.get(session.client_id) is session

    def send_retained_left(self, connection: Connection) -> None:
        """Go on sending the retained messages that the session's subscriptions have not brought yet."""
        self._left.pop(connection.session, None)
        if connection.session.outflow.retained is not None and connection not in self._paged:
            self._paged.add(connection)
            if self._is_slow(connection):
                self._go_on_later(connection)
            else:
                self._send_page(connection)

    def _retained_for(
        self, session: Session, wanted: list[tuple[Subscription, int]], until: int, filters: Collection[str]
    ) -> Iterator[Item | None]:
        """Look in each step at one place where something may be retained, however few places bring something. A
        subscription that has ended brings no more [MQTT-3.10.4-2], even if there is a new one with its filter."""
        for subscription, identifier in wanted:
            if is_shared(subscription.filter):  # [MQTT-4.8.2]: no retained messages for shared subscriptions
                continue
            for publication in self.retained.matching(subscription.filter, self.context.now, until):
                if subscription.filter not in filters or subscription.filter not in session.subscriptions:
                    break
                if publication is None or not self._may_receive(session, publication):
                    yield None
                    continue
                qos = min(publication.qos, subscription.qos)
                yield Item(publication, qos, True, (identifier,) if identifier else ())  # noqa: FBT003 -- RETAIN

    def _may_receive(self, session: Session, publication: Publication) -> bool:
        """Whether a publication has not expired on what may have been a long way to it, and this client may receive
        it."""
        access, topic = self.context.access, publication.topic.decode()
        if publication.expired(self.context.now):
            return False
        return access.may_receive(session.listener, session.client_id, session.user, topic)

    def _send_page(self, connection: Connection) -> None:
        """Send a page of retained messages now, and the next when the client has taken it: however many there are, they
        take no more memory."""
        self.context.slices.run(f"retained {id(connection)}", lambda: self._page(connection), AT_ONCE_SECONDS)

    def _page(self, connection: Connection) -> Iterator[None]:
        context, session = self.context, connection.session
        waiting = session.outflow.retained
        size, each = 0, PAGE_BYTES // max(1, min(PAGE, context.limits.max_queued // 2))
        while waiting and _is_there(connection):
            try:
                for item in waiting[0].items:
                    if item is not None:
                        self._send_one(session, item)
                        size += each + len(item.publication.payload)
                    if size > PAGE_BYTES:
                        context.scheduler.later(PAGE_SECONDS, lambda: self._go_on(connection))
                        return
                    yield
                    if not _is_there(connection):
                        break
                else:
                    waiting.popleft()
            except Exception as error:  # noqa: BLE001 -- it costs what is left of this SUBSCRIBE's retained messages
                waiting.popleft()
                context.set_aside.keep("subscription", connection.publisher.client_id, error)
        self._paused(connection)

    def _paused(self, connection: Connection) -> None:
        """Note that everything has been sent, or that the connection is gone."""
        session = connection.session
        self._paged.discard(connection)
        if not session.outflow.retained:
            session.outflow.retained = None
            if session.outflow.owes:
                self._note(session)
        elif session.connection is None and not session.ended:
            self._left[session] = None
            if len(self._left) > MOST_LEFT:
                oldest = next(iter(self._left))
                del self._left[oldest]
                self.owe(oldest, [name for each in oldest.outflow.retained or () for name in each.filters])

    def _send_one(self, session: Session, item: Item) -> None:
        context = self.context
        if item.qos == 0:
            self.fan_out.send_at_once(session, item)
        elif session.durable:
            self.fan_out.store(session, item, {})
        else:
            context.batch.deliveries.append((session, [item], None, 0, 1))

    def _go_on(self, connection: Connection) -> None:
        context = self.context
        if not _is_there(connection):
            self._paused(connection)
            return
        if self._is_slow(connection):
            self._go_on_later(connection)
            return
        context.now = context.scheduler.now()
        self._send_page(connection)
        context.flush()

    def _is_slow(self, connection: Connection) -> bool:
        """Whether so much waits for the client that another page could be more than may wait."""
        session = connection.session
        unanswered = max(session.outflow.queued, session.stored)
        return connection.link.buffered() > PAGE_BYTES or unanswered > self.context.limits.max_queued // 2

    def _go_on_later(self, connection: Connection) -> None:
        self.context.scheduler.later(5 * PAGE_SECONDS, lambda: self._go_on(connection))

    def unsubscribe(self, connection: Connection, packet: Any) -> None:
        """Answer with UNSUBACK in any case; 5.0 says for each filter whether there was a subscription. What is in
        flight goes on. [MQTT-3.10.4-2] [MQTT-3.10.4-3] [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-3.10.4-6]"""
        record = packet[1]
        context, session = self.context, connection.session
        answers = []
        if any(self._malformed(connection, filter_) for filter_ in record.filters):
            return
        if self._unanswerable(connection, len(record.filters)):
            return
        for filter_ in record.filters:
            subscribed, ended = filter_ in session.subscriptions, True
            if subscribed:
                whom = f"{filter_} of {connection.publisher.client_id}"
                ended = context.set_aside.run("subscription", whom, partial(self._end, session, filter_))
            if not ended and connection.version != V5:  # an UNSUBACK without reasons says that all have ended
                text = "a defect of the gateway"
                context.refuse(connection, reasons.IMPLEMENTATION_SPECIFIC_ERROR, "defect", text)
                return
            failed = reasons.IMPLEMENTATION_SPECIFIC_ERROR
            found = reasons.SUCCESS if subscribed else reasons.NO_SUBSCRIPTION_EXISTED
            answers.append(found if ended else failed)
        if session.durable and reasons.SUCCESS in answers:
            context.batch.change(SESSIONS, session)
        context.batch.reply(connection, writer.encode_unsuback(connection.version, Suback(record.packet_id, answers)))


def _is_there(connection: Connection) -> bool:
    """Whether the session's client is still connected by this connection."""
    return bool(connection.session.connection is connection)
