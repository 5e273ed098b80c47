"""A publication that many subscriptions match: who gets it is found out, and copies are made, in slices, a little in
each turn of the reactor and each unit of work. Pure.

Publications go one after the other, so that none overtakes another of its publisher on the way to any subscriber, and
nothing of a publisher is taken in before its publication is over. One of QoS 0 or 1 (`begin`) is acknowledged, and put
on its own queues, with the last unit of work: if the process ends before that it is sent again, and some subscribers
get it twice, as they may. What must come once (`promise`: QoS 2, wills, what a queue brings) is stored with the
first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from gateway.broker.deliver.alike import are_alike, length_alike, length_of_pubrel
from gateway.broker.deliver.fan_out import Prefixes
from gateway.broker.deliver.promise import Promise, place_of_group, place_of_session, restored_promise, stored_promises
from gateway.broker.deliver.under_way import Over, UnderWay
from gateway.broker.publish.qos2 import size_of
from gateway.broker.publish.route import Receiver, Route
from gateway.broker.publish.router import MOST_PLACES, name_of
from gateway.broker.refused.promised_copy import copy_promised
from gateway.broker.refused.set_aside import AWAY, Aside, aside_of
from gateway.broker.undo import Undo
from gateway.errors import NewerState
from gateway.ports.batch import Stored
from gateway.ports.ownership import Owners
from gateway.ports.state_queues import FAN_OUT
from gateway.routing.filters import Group, Interest, Members, Subscriptions, merged
from gateway.session.connection import ONLINE, Publisher
from gateway.session.publication import Publication
from gateway.session.record import encode_publication

if TYPE_CHECKING:
    from gateway.broker.context import Context
    from gateway.broker.deliver.fan_out import FanOut
    from gateway.broker.publish.route import Shared
    from gateway.broker.publish.router import Router
    from gateway.broker.put_off import PutOff
    from gateway.session.connection import Connection
    from gateway.session.session import Session

    Entries = Sequence[tuple[str, Members[Session]]]
    """Filters that match a topic, with who has subscribed to them."""

_KEY = attrgetter("key")
SLICE_SECONDS = 0.01
MOST_AT_ONCE = 500
"""Copies in one slice: each may be a row of the unit of work, and a write to a socket."""
MOST_WAITING, MOST_BYTES = 1000, 64 << 20
"""The most publications that wait for those before them, and their bytes; each client has one, but may leave and come
back."""
LOOKED_AT = 200
"""Subscriptions that are looked at between two looks at the clock."""
_Receiving = Callable[["Session", str, str], "Receiver | None"]
"""The receiver as which a session gets a publication of a client on a topic; None: it does not."""


def _nothing(_missed: int) -> None:
    pass


class Wide:
    """Publications that are copied in slices, one after the other."""

    def __init__(self, context: Context, router: Router, fan_out: FanOut, put_off: PutOff) -> None:
        self.context = context
        self.router = router
        self.fan_out = fan_out
        self.put_off = put_off
        self.promises = not isinstance(context.queue_manager, Owners)
        """Whether what must come once can be sliced: not where another gateway may have to go on with it."""
        self._waiting: deque[UnderWay] = deque()
        self._bytes = 0
        self._number = 0
        self._joined: UnderWay | None = None
        """The publication for which those that go along with it are being taken in."""
        self.packet: Callable[[Connection, bytes], None] = lambda _connection, _data: None
        """Takes in one packet; set by the engine."""

    @property
    def is_full(self) -> bool:
        """Whether so much is under way that devices had better wait before they send more of it."""
        return len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES

    @property
    def is_joining(self) -> bool:
        """Whether what is taken in now goes along with a publication, and not before it."""
        return self._joined is not None

    def begin(
        self, connection: Connection | None, route: Route, publication: Publication, over: Over = _nothing
    ) -> None:
        """Copy a publication for everybody whose subscription matches; `over` is called in the turn of the last
        copy."""
        under = UnderWay(publication, "_none", connection, over, iter(()), route=route)
        under.steps = self._steps(route, under)
        self._note(publication)
        if self._joined is not None:
            self._joined.others.append(under)
            return
        if connection is not None:
            self.put_off.hold(connection)
        self._add(under)

    def promise(
        self, publication: Publication, rule: str = "_none", connection: Connection | None = None,
        over: Over = _nothing, route: Route | None = None,
    ) -> None:  # fmt: skip
        """Store a publication with the open batch, and copy it when that is committed, so that everybody gets it
        once."""
        batch, joined = self.context.batch, self._joined
        self._number += 1
        promise = Promise(self._number, publication, rule)
        promise.store(batch)
        under = self._under(promise, connection, over, route)
        self._note(publication)
        batch.undone_by(self._forget, publication)
        if joined is not None and joined.connection is connection:
            joined.others.append(under)
            batch.undone_by(joined.others.remove, under)
            return
        if connection is not None:
            self.put_off.hold(connection)
        batch.after.append(partial(self._add, under))

    def recover(self, count: dict[str, int]) -> None:
        """Go on with the publications that are stored; counts them."""
        if not self.promises:
            return
        for key, stored, place in stored_promises(self.context.queue_manager):
            restore = partial(self._restore, key, stored, place)
            aside = partial(aside_of, FAN_OUT, key, stored)
            self.context.set_aside.run("publication", key.hex(), restore, aside, (*AWAY, NewerState))
            count["publications"] = count.get("publications", 0) + 1

    def _restore(self, key: bytes, stored: Stored, place: bytes) -> None:
        promise = restored_promise(key, stored, place)
        self._number = max(self._number, promise.number)
        self._note(promise.publication)
        self._add(self._under(promise, None, _nothing, None))

    def _under(self, promise: Promise, connection: Connection | None, over: Over, route: Route | None) -> UnderWay:
        under = UnderWay(promise.publication, promise.rule, connection, over, iter(()), promise, route=route)
        under.steps = self._promised(under, promise)
        return under

    def _note(self, publication: Publication) -> None:
        """Have what comes on this topic wait for this publication."""
        self.fan_out.in_slices[publication.topic] += 1

    def _forget(self, publication: Publication) -> None:
        topics, topic = self.fan_out.in_slices, publication.topic
        topics[topic] -= 1
        if not topics[topic]:
            del topics[topic]

    def _add(self, under: UnderWay) -> None:
        self._waiting.append(under)
        self._bytes += len(under.publication.payload)
        if len(self._waiting) == 1:
            self._later()

    def _later(self) -> None:
        self.context.set_aside.later(0.0, self._go_on)

    # -- a slice --

    def _go_on(self) -> None:
        """Do a slice, and have it committed; what fails in committing takes nothing of the slice back."""
        self.context.now = self.context.scheduler.now()
        self.context.close_full()
        self.context.or_end(self._advance)  # copies are units of their own; else nothing would go on until a restart
        self.context.flush()

    def _advance(self) -> None:
        """Do a slice of the first publication."""
        under = self._waiting[0]
        if not under.is_begun:
            under.is_begun = True
            self._join(under)
        if self._copied(under) if under.promise is None else self._kept(under, under.promise):
            self._remove(0)
            self._let_go(under.every)
        if self._waiting:
            self.context.batch.after.append(self._later)

    def _remove(self, at: int) -> UnderWay:
        under = self._waiting[at]
        del self._waiting[at]
        self._bytes -= len(under.publication.payload)
        return under

    def _let_go(self, unders: list[UnderWay]) -> None:
        """Let the publishers of these publications, which are over, go on, except those of whom more is waiting."""
        for under in unders:
            self._forget(under.publication)
        done = {under.connection for under in unders}
        for connection in done - {under.connection for under in self._waiting}:
            if connection is not None:
                self.put_off.let_go(connection)

    def _join(self, under: UnderWay) -> None:
        """Have publications behind this one that are like it go along with it: whoever gets a copy gets one of each."""
        publication = under.publication
        if publication.properties or publication.expires:
            return
        self._join_of_publisher(under, under)
        while len(self._waiting) > 1 and self._goes_along(under, self._waiting[1]):
            other = self._remove(1)
            under.others.append(other)
            if under.promise is None:
                self._join_of_publisher(under, other)

    def _join_of_publisher(self, under: UnderWay, of: UnderWay) -> None:
        """Take in what the publisher of one of them has sent behind it. None of that may be refused, as its answer
        comes after theirs: at QoS 0 and 1 no payload may be longer; what PUBREL releases has been taken already."""
        publication, connection, route = of.publication, of.connection, of.route
        if connection is None or route is None:
            return
        is_before_others = publication.retain and len(self._waiting) > 1  # what is retained is what comes last
        if is_before_others or any(one.connection is connection for one in islice(self._waiting, 1, None)):
            return
        inbound = connection.session.inbound
        if under.promise is None:
            length_of = partial(length_alike, publication, connection.version)
        else:
            length_of = partial(length_of_pubrel, publication, inbound)

        def take(packet: bytes) -> bool:
            size = len(packet) if under.promise is None else size_of(inbound[int.from_bytes(packet[2:])])
            is_refusing = under.promise is None and (self.is_full or self.context.storage_full is not None)
            if is_refusing or not under.has_room(size) or not self._is_valid(connection, route):
                return False
            self.packet(connection, packet)
            return True

        self._joined = under
        try:
            self.put_off.take_alike(connection, length_of, take)
        finally:
            self._joined = None

    def _goes_along(self, under: UnderWay, other: UnderWay) -> bool:
        """Whether the next publication, whoever has published it, is like this one and has come as far. Its topic may
        be another one where nothing has to be put for other gateways before it is known who gets it."""
        promise, also = under.promise, other.promise
        if promise is None or also is None:
            has_come_as_far = promise is also and (self.promises or under.publication.topic == other.publication.topic)
        else:
            has_come_as_far = promise.place == also.place and under.rule == other.rule
        is_alike = has_come_as_far and are_alike(under.publication, other.publication)
        return is_alike and under.has_room(len(other.publication.payload))

    def _part(self, under: UnderWay, at: int = 0) -> None:
        """Put publications that went along, from one on, behind this one again."""
        for other in reversed(under.others[at:]):
            self._waiting.insert(1, other)
            self._bytes += len(other.publication.payload)
        del under.others[at:]

    def _part_unlike(self, under: UnderWay, topic: str, entries: Entries) -> Iterator[int]:
        """Keep those that go along whose topics the same filters match, up to the first that differs."""
        filters, known = {filter_ for filter_, _ in entries}, {topic}
        for at, other in enumerate(under.others):
            topic = other.publication.topic.decode()
            if topic not in known:
                found = self.router.subscriptions.entries_among(topic, MOST_PLACES)
                if found is None or {filter_ for filter_, _ in found} != filters:
                    self._part(under, at)
                    return
                known.add(topic)
                yield 0

    def _is_valid(self, connection: Connection, route: Route) -> bool:
        """Whether a route is still what it was."""
        return (
            connection.state == ONLINE
            and connection.generation == self.router.generation
            and route.version == route.changes[0]
            and not (route.wide and self.router.has_walked(route.topic))
        )

    def _copied(self, under: UnderWay) -> bool:
        """Do a slice of a publication that is sent again if it fails. Returns True when it is over."""
        ended: list[bool] = []
        failed: list[Exception] = []

        def work() -> None:
            try:
                ended.append(self._slice(under))
            except Exception as error:
                failed.append(error)
                raise

        done = self.context.set_aside.run("publication", under.publication.client_id, work)
        for connection in dict.fromkeys(one.connection for one in under.every) if failed else ():
            if connection is not None:  # nobody can tell whose publication it was
                self.context.defect(connection, failed[0])
        return not done or ended[0]

    def _kept(self, under: UnderWay, promise: Promise) -> bool:
        """Do a slice of a publication that is stored; returns True when it is over. If it meets a defect, each copy is
        made a unit to find which one; if it is no copy, the publication is set aside, and a replay goes on from where
        it was."""
        context, batch, ended = self.context, self.context.batch, list[bool]()

        def work() -> None:
            ended.append(self._slice(under))
            for one in [each.promise for each in under.every if each.promise is not None]:  # some may have parted
                one.place = promise.place
                if ended[0]:
                    one.drop(batch)
                else:
                    one.note(batch)

        if promise.careful:
            whole = partial(_aside_of_promise, promise)
            return not context.set_aside.run("publication", under.publication.client_id, work, whole) or ended[0]
        place, undo = promise.place, Undo(batch)
        counts = [(one, one.copies, one.missed) for one in under.every]
        try:
            work()
        except Exception:  # noqa: BLE001 -- it is met again, and then known
            undo.take_back(context.batch)
            reached = promise.place
            for one, copies, missed in counts:
                one.copies, one.missed = copies, missed
            for one in under.every:  # some may have parted
                self._be_careful(one, place, reached)
                one.is_begun = True  # each by itself
            self._part(under)
            return False
        undo.keep()
        return ended[0]

    def _be_careful(self, under: UnderWay, place: bytes, reached: bytes) -> None:
        """Go on from a place with each copy as a unit, as a copy beyond that has met a defect."""
        promise = under.promise
        if promise is not None:
            promise.careful, promise.place, promise.reached = True, place, reached
            under.steps = self._promised(under, promise)

    def _slice(self, under: UnderWay) -> bool:
        """Make copies until time is up. Returns True when the publication is over."""
        monotonic, made, bounds = self.context.scheduler.monotonic, 0, self.context.bounds
        most = MOST_AT_ONCE if bounds is None else min(MOST_AT_ONCE, bounds.enough)
        longest = max(len(one.publication.payload) for one in under.every)
        most = min(most, max(1, self.context.most_copied // max(1, longest)))
        until = monotonic() + SLICE_SECONDS
        for number, copies in enumerate(under.steps):
            made += copies
            if made >= most or (not number % 8 and monotonic() > until):
                return False
        copies = sum(one.copies for one in under.every)
        if copies:
            self.context.counters.mqtt_publish_sent[under.rule, under.publication.qos] += copies
        for one in under.every:
            one.over(one.missed)
        return True

    # -- who gets it --

    def _steps(self, route: Route, under: UnderWay) -> Iterator[int]:
        """The steps of a publication that is not stored, and of those that go along with it, in any order of
        receivers."""
        routes = [one.route or route for one in under.every]
        for each in dict.fromkeys(routes) if under.connection is not None else ():
            self.router.find_elsewhere(each)  # it has waited for others: who wants it there may have changed
        for one, own in zip(under.every, routes, strict=True):
            one.elsewhere = self.fan_out.forward(own, one.publication) if own.forwarded else ()
        served = under.served = None if self.promises else set()
        under.set_out()  # a session may go before it is found out who gets it
        entries, interests, receiver = yield from self._gathered(route)
        yield from self._part_unlike(under, route.topic, entries)
        under.set_out()
        for session in interests:
            yield 0 if served and session in served else self._copies(under, session, receiver)
        for name, group in _groups_of(entries):
            shared = (
                self.router.shared(group, route.topic) if group.members and not (served and name in served) else None
            )
            yield 0 if shared is None else self._copies_of_group(under, shared)

    def _copies(self, under: UnderWay, session: Session, receiver: _Receiving, place: bytes = b"") -> int:
        """Make the copies for one session; returns their number."""
        every, runs, topics, prefixes, several, publishers = under.together
        if under.served is not None:
            under.served.add(session)
        found = receiver(session, under.publication.client_id, topics[0])
        is_alike = len(publishers) == 1 or session.client_id not in publishers
        if several and is_alike:
            is_alike = all(self.router.may_receive(session, topic) for topic in several)
        if found and is_alike and not under.is_careful and self.fan_out.copy_run(found, runs.part(0, 1), prefixes[0]):
            return under.step(copied=True, of=len(every))
        made = 0
        for one, topic, heads in zip(every, topics, prefixes, strict=True):
            if not is_alike:
                found = receiver(session, one.publication.client_id, topic)
            made += self._copy(one, place, found, heads) if found else 0
        return made

    def _copies_of_group(self, under: UnderWay, shared: Shared, place: bytes = b"") -> int:
        """Make the copies for one shared subscription, of what no other gateway serves for it; returns their number."""
        every, runs, topics, prefixes, several, _ = under.together
        if under.served is not None:
            under.served.add(shared.name)
        groups = [self._group(shared.name, topic) or shared for topic in topics] if several else [shared] * len(every)
        is_here = [shared.name not in one.elsewhere for one in every]
        if all(is_here) and not several and not under.is_careful:
            members = self.fan_out.members_in_turn(shared, runs, len(every))
            for member, run in members:
                self.fan_out.copy_run(member, run, prefixes[0], shared.name)
            if members:
                return under.step(copied=True, of=len(every))
        here = zip(is_here, every, groups, prefixes, strict=True)
        return sum(self._copy_to_member(one, place, group, heads) for is_one, one, group, heads in here if is_one)

    # -- sessions of several gateways --

    def came(self, session: Session) -> None:
        """Note that a session has come from another gateway: what others have been put already, it has from there."""
        under = self._waiting[0] if self._waiting else None
        if under is not None and under.served is not None:
            under.served.add(session)

    def goes(self, session: Session) -> None:
        """A session goes to another gateway, which gives it nothing of what this one has put for others already: make
        its copy, and that of a shared subscription that has nobody else here."""
        under = self._waiting[0] if self._waiting else None
        if under is None or under.served is None:
            return
        topic, alone = under.publication.topic.decode(), Subscriptions["Session"]()
        for filter_, interest in self.router.subscriptions.of(session).items():
            alone.add(session, filter_, interest)
        matched = alone.match(topic)
        if matched.direct and session not in under.served:
            found = list(matched.direct.values())
            self._copies(under, session, lambda one, publisher, named: self._receiver(publisher, one, found, named))
        for name in map(name_of, matched.groups):
            shared = self._group(name, topic) if name not in under.served else None
            if shared is not None and len(shared.sharers) == 1:
                self._copies_of_group(under, shared)

    def _promised(self, under: UnderWay, promise: Promise) -> Iterator[int]:
        """The steps, from its place on, of a publication that is stored, and of those that go along with it."""
        publication, begin = promise.publication, promise.place
        route = Route(publication.topic.decode(), publication.topic, publication.first)
        self.router.find_receivers(route, Publisher("", publication.client_id, None, 5), may_be_wide=True)
        entries, interests, receiver = yield from self._gathered(route)
        yield from self._part_unlike(under, route.topic, entries)
        under.set_out()
        for session in _in_order(interests):
            place = place_of_session(session.key) if session is not None else b""
            if session is None or place <= begin:
                yield 0
                continue
            made = self._copies(under, session, receiver, place)
            promise.place = place
            yield made
        for name, group in sorted(_groups_of(entries), key=itemgetter(0)):
            place = place_of_group(name)
            if not group.members or place <= begin:
                yield 0
                continue
            made = self._copies_of_group(under, self.router.shared(group, route.topic), place)
            promise.place = place
            yield made

    def _copy_to_member(self, under: UnderWay, place: bytes, group: Shared, prefixes: Prefixes) -> int:
        """Copy a publication for the member whose turn it is; returns the number of copies."""
        member = self.fan_out.turns.choose(group, under.publication)
        return 0 if member is None else self._copy(under, place, member, prefixes, group.name)

    def _copy(self, under: UnderWay, place: bytes, receiver: Receiver, prefixes: Prefixes, share: str = "") -> int:
        """Make one copy; returns the number of copies."""
        promise, publication = under.promise, under.publication
        if promise is None or not promise.careful:
            return under.step(copied=self.fan_out.copy(receiver, publication, prefixes, share))
        if not min(publication.qos, receiver.qos) and place <= promise.reached:
            return under.step(copied=True)  # it has gone already
        return under.step(copied=copy_promised(self.fan_out, receiver, publication, share))

    def _gathered(
        self, route: Route
    ) -> Generator[int, None, tuple[Entries, dict[Session, list[Interest]], _Receiving]]:
        """Find what matches a topic and who has subscribed to it. Returns both, and a function that tells as what each
        session gets a publication."""
        version, changes = route.changes[0], route.changes
        entries: list[tuple[str, Members[Session]]] = []
        interests: dict[Session, list[Interest]] = {}
        for place, entry in enumerate(self.router.subscriptions.walk(route.topic)):
            if entry is not None:
                entries.append(entry)
            if not place % LOOKED_AT:
                yield 0
        self.router.keep_walked(route, version, entries)
        for _, members in entries:
            for number, (session, interest) in enumerate(list(members.direct.items())):
                interests.setdefault(session, []).append(interest)
                if not number % LOOKED_AT:
                    yield 0
        filters = [filter_ for filter_, _ in entries]

        def receiver(session: Session, publisher: str, topic: str) -> Receiver | None:
            if session.ended:
                return None
            found = interests[session] if changes[0] == version else self._still(session, filters)
            return self._receiver(publisher, session, found, topic) if found else None

        return entries, interests, receiver

    def _still(self, session: Session, filters: list[str]) -> list[Interest]:
        """What a session still wants with these subscriptions, now that subscriptions have changed [MQTT-3.8.4-3]."""
        mine = self.router.subscriptions.of(session)
        return [mine[one] for one in filters if one in mine]

    def _receiver(self, publisher: str, session: Session, found: list[Interest], topic: str) -> Receiver | None:
        interest = found[0] if len(found) == 1 else merged(found)
        if session.client_id == publisher:
            if interest.no_local:
                return None
            interest = interest.echoed or interest
        if not self.router.may_receive(session, topic):
            return None
        return Receiver(session, interest.qos, interest.retain_as_published, interest.identifiers)

    def _group(self, name: str, topic: str) -> Shared | None:
        group = self.router.subscriptions.group(name)
        return None if group is None else self.router.shared(group, topic)


def _in_order(sessions: Iterable[Session]) -> Iterator[Session | None]:
    """Sessions in the order of their keys, sorted in portions, as sorting all together takes long; None: that has taken
    time."""
    some: list[list[Session]] = [[] for _ in range(256)]
    for number, session in enumerate(sessions):
        some[session.key[0]].append(session)
        if not number % LOOKED_AT:
            yield None
    for alike in some:
        yield from sorted(alike, key=_KEY)


def _groups_of(entries: Entries) -> list[tuple[str, Group[Session]]]:
    """The shared subscriptions among the entries, by name."""
    return [
        (f"$share/{share}/{filter_}", Group(share, filter_, sharers))
        for filter_, members in entries
        for share, sharers in members.shared.items()
    ]


def _aside_of_promise(promise: Promise) -> Aside:
    """A stored publication to be set aside if it meets a defect: its place stays, so that a replay goes on there."""
    return aside_of(FAN_OUT, promise.key, Stored(None, b"", encode_publication(promise.publication, 0)))
