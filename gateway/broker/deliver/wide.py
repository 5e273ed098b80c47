"""A publication that many subscriptions match, in slices: who gets it is found out, and copied for, a little in each
turn of the reactor and each unit of work. Pure.

Publications go one after the other, so that none overtakes another of its publisher on the way to any subscriber, and
nothing of a publisher is taken in before its publication is over. One of QoS 0 or 1 (`begin`) is acknowledged, and put
on its own queues, with the last unit of work: where the process ends before that it is sent again, and some subscribers
get it twice, as they may. What must come once (`promise`: QoS 2, wills, what a queue brings) is stored with the first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from gateway.broker.deliver.fan_out import Prefixes, Run, run_of
from gateway.broker.deliver.promise import Promise, place_of_group, place_of_session, restored_promise, stored_promises
from gateway.broker.publish.route import Receiver, Route
from gateway.broker.publish.router import name_of
from gateway.broker.refused.set_aside import AWAY, Aside, aside_of
from gateway.broker.undo import Undo
from gateway.errors import NewerState, ProtocolError
from gateway.mqtt.packets import V5
from gateway.mqtt.primitives import decode_varint
from gateway.ports.batch import Stored
from gateway.ports.ownership import Owners
from gateway.ports.state_queues import FAN_OUT, OUT
from gateway.routing.filters import Interest, Members, Subscriptions, merged
from gateway.session.connection import ONLINE, Publisher
from gateway.session.record import SHARED, STORED_IDS, encode_prefix, encode_publication

if TYPE_CHECKING:
    from gateway.broker.context import Context
    from gateway.broker.deliver.fan_out import FanOut
    from gateway.broker.publish.route import Shared
    from gateway.broker.publish.router import Router
    from gateway.broker.put_off import PutOff
    from gateway.session.connection import Connection
    from gateway.session.publication import Publication
    from gateway.session.session import Session

    Entries = Sequence[tuple[str, Members[Session]]]
    """Filters that match a topic, with who has subscribed to them."""

_KEY = attrgetter("key")
SLICE_SECONDS = 0.01
MOST_AT_ONCE = 500
"""Copies in one slice: each may be a row of the unit of work, and a write to a socket."""
MOST_WAITING, MOST_BYTES = 1000, 64 << 20
"""Publications that wait for those before them, and bytes of them; each client has one, but it may leave and come."""
MOST_JOINED, MOST_JOINED_BYTES = 15, 256 << 10
"""Publications that go with another one of their publisher, and bytes of them."""
LOOKED_AT = 200
"""Subscriptions that are looked at between two looks at the clock."""
Over = Callable[[int], None]
"""Called with how many subscribers had no room."""


def _nothing(_missed: int) -> None:
    pass


@dataclass(slots=True, eq=False)
class _Under:
    """A publication on its way."""

    publication: Publication
    rule: str
    connection: Connection | None
    """Held until it is over."""
    over: Over
    steps: Iterator[int]
    """One after the other: so many copies, -1 no room for one, 0 neither, but it took time."""
    promise: Promise | None = None
    copies: int = 0
    missed: int = 0
    route: Route | None = None
    """Of one that is not stored."""
    elsewhere: Collection[str] = ()
    """The shared subscriptions that other gateways serve."""
    others: list[_Under] = field(default_factory=list)
    """What its publisher has sent behind it that is like it, and goes with it."""
    is_begun: bool = False
    served: set[Session | str] | None = None
    """Who has a copy, and the shared subscriptions that do, from the moment in which other gateways have it: sessions
    come and go between them. None where there are no others."""
    prefixes: Prefixes = field(default_factory=dict)
    run: Run | None = None
    """It and those that go with it, if some do."""

    @property
    def every(self) -> list[_Under]:
        """It and those that go with it."""
        return [self, *self.others]

    def step(self, *, copied: bool) -> int:
        """One more has its copy, or no room for it."""
        self.missed += not copied
        return 1 if copied else -1


class Wide:
    """Publications that are copied in slices, one after the other."""

    def __init__(self, context: Context, router: Router, fan_out: FanOut, put_off: PutOff) -> None:
        self.context = context
        self.router = router
        self.fan_out = fan_out
        self.put_off = put_off
        self.promises = not isinstance(context.queue_manager, Owners)
        """Whether what must come once can be sliced: not where another gateway may have to go on with it."""
        self._waiting: deque[_Under] = deque()
        self._bytes = 0
        self._number = 0
        self._joined: _Under | None = None
        """What goes with this one is being taken in."""
        self.packet: Callable[[Connection, bytes], None] = lambda _connection, _data: None
        """Takes in one packet; set by the engine."""

    @property
    def is_full(self) -> bool:
        """Whether so much is under way that devices had better wait with more of it."""
        return len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES

    def begin(
        self, connection: Connection | None, route: Route, publication: Publication, over: Over = _nothing
    ) -> None:
        """Copy a publication for everybody whose subscription matches; `over` is called in the turn of the last."""
        if self._joined is not None:
            self._joined.others.append(_Under(publication, "_none", connection, over, iter(())))
            return
        if connection is not None:
            self.put_off.hold(connection)
        under = _Under(publication, "_none", connection, over, iter(()), route=route)
        under.steps = self._steps(route, under)
        self._add(under)

    def promise(
        self, publication: Publication, rule: str = "_none", connection: Connection | None = None,
        over: Over = _nothing,
    ) -> None:  # fmt: skip
        """Store a publication with the open batch, and copy it when that is committed; everybody gets it once."""
        if connection is not None:
            self.put_off.hold(connection)
        self._number += 1
        promise = Promise(self._number, publication, rule)
        promise.store(self.context.batch)
        self.context.batch.after.append(partial(self._keep, promise, connection, over))

    def recover(self, count: dict[str, int]) -> None:
        """Go on with what is stored."""
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
        self._keep(promise, None, _nothing)

    def _keep(self, promise: Promise, connection: Connection | None, over: Over) -> None:
        self._add(_Under(promise.publication, promise.rule, connection, over, self._promised(promise), promise))

    def _add(self, under: _Under) -> None:
        self._waiting.append(under)
        self._bytes += len(under.publication.payload)
        if len(self._waiting) == 1:
            self._later()

    def _later(self) -> None:
        self.context.scheduler.later(0.0, self._go_on)

    # -- a slice --

    def _go_on(self) -> None:
        """A slice of the first."""
        context, under = self.context, self._waiting[0]
        context.now = context.scheduler.now()
        if not under.is_begun:
            under.is_begun = True
            self._join(under)
        if self._copied(under) if under.promise is None else self._kept(under, under.promise):
            self._waiting.popleft()
            self._bytes -= len(under.publication.payload)
            if under.connection is not None:
                self.put_off.let_go(under.connection)
        if self._waiting:
            context.batch.after.append(self._later)
        context.flush()

    def _join(self, under: _Under) -> None:
        """Take in what the publisher has sent behind a publication and is like it but for a payload that is no longer:
        whoever gets a copy of one gets one of each. None of it may be refused, as its answer comes after theirs."""
        connection, route, publication = under.connection, under.route, under.publication
        if connection is None or route is None or publication.properties or publication.expires:
            return
        left = MOST_JOINED_BYTES

        def take(packet: bytes) -> bool:
            nonlocal left
            left -= len(packet)
            is_refusing = self.is_full or self.context.storage_full is not None
            if left < 0 or len(under.others) >= MOST_JOINED or is_refusing or not self._is_valid(connection, route):
                return False
            self.packet(connection, packet)
            return True

        self._joined = under
        try:
            self.put_off.take_alike(connection, partial(_length_alike, publication, connection.version), take)
        finally:
            self._joined = None

    def _is_valid(self, connection: Connection, route: Route) -> bool:
        """Whether a route is what it was."""
        return (
            connection.state == ONLINE
            and connection.generation == self.router.generation
            and route.version == route.changes[0]
            and not self.router.has_walked(route.topic)
        )

    def _copied(self, under: _Under) -> bool:
        """A slice of one that is sent again if it fails. True when it is over."""
        ended: list[bool] = []
        failed: list[Exception] = []

        def work() -> None:
            try:
                ended.append(self._slice(under))
            except Exception as error:
                failed.append(error)
                raise

        done = self.context.set_aside.run("publication", under.publication.client_id, work)
        if failed and under.connection is not None:
            self.context.defect(under.connection, failed[0])
        return not done or ended[0]

    def _kept(self, under: _Under, promise: Promise) -> bool:
        """A slice of one that is stored. What meets a defect in it is found by having each copy be a unit; if that is
        no copy, the publication is set aside, and goes on from where it was when it is replayed."""
        context, batch, ended = self.context, self.context.batch, list[bool]()

        def work() -> None:
            ended.append(self._slice(under))
            if ended[0]:
                promise.drop(batch)
            else:
                promise.note(batch)

        if promise.careful:
            whole = partial(_aside_of_promise, promise)
            return not context.set_aside.run("publication", under.publication.client_id, work, whole) or ended[0]
        before, undo = (promise.place, under.copies, under.missed), Undo(batch)
        try:
            work()
        except Exception:  # noqa: BLE001 -- it is met again, and then known
            undo.take_back(context.batch)
            promise.careful, promise.reached = True, promise.place
            promise.place, under.copies, under.missed = before
            under.steps = self._promised(promise)
            return False
        undo.keep()
        return ended[0]

    def _slice(self, under: _Under) -> bool:
        """True when it is over."""
        monotonic, made = self.context.scheduler.monotonic, 0
        until = monotonic() + SLICE_SECONDS
        for number, copied in enumerate(under.steps):
            made += abs(copied)
            under.copies += max(copied, 0)
            under.missed += copied < 0 and under.promise is not None
            if made >= MOST_AT_ONCE or (not number % 8 and monotonic() > until):
                return False
        if under.copies:
            self.context.counters.mqtt_publish_sent[under.rule, under.publication.qos] += under.copies
        under.over(under.missed)
        for other in under.others:
            other.over(other.missed)
        return True

    # -- who gets it --

    def _steps(self, route: Route, under: _Under) -> Iterator[int]:
        """Of one that is not stored, and those that go with it, in any order of who gets them."""
        if under.connection is not None:  # it has waited for others: who wants it elsewhere may have changed
            self.router.find_elsewhere(route)
        for one in under.every:
            one.elsewhere = self.fan_out.forward(route, one.publication) if route.forwarded else ()
        if under.others:
            under.run = run_of([one.publication for one in under.every])
        served = under.served = None if self.promises else set()
        entries, interests, receiver = yield from self._gathered(route, under.publication)
        for session in interests:
            found = receiver(session) if not served or session not in served else None
            if found is None:
                yield 0
            else:
                yield from self._copies(under, found)
        for name in _groups_of(entries):
            shared = self._group(name, route.topic) if not served or name not in served else None
            if shared is None:
                yield 0
            else:
                yield from self._copies_of_group(under, shared)

    def _copies(self, under: _Under, receiver: Receiver) -> Sequence[int]:
        """For one session."""
        if under.served is not None:
            under.served.add(receiver.session)
        if under.run is not None and self.fan_out.copy_run(receiver, under.run, under.prefixes):
            return (len(under.every),)
        copy, prefixes = self.fan_out.copy, under.prefixes
        return [one.step(copied=copy(receiver, one.publication, prefixes)) for one in under.every]

    def _copies_of_group(self, under: _Under, shared: Shared) -> Sequence[int]:
        """For one shared subscription, of what no other gateway has for it."""
        if under.served is not None:
            under.served.add(shared.name)
        copy, prefixes = self.fan_out.copy_to_member, under.prefixes
        here = [one for one in under.every if shared.name not in one.elsewhere]
        return [one.step(copied=copy(shared, one.publication, prefixes)) for one in here] or (0,)

    # -- sessions of several gateways --

    def came(self, session: Session) -> None:
        """A session has come from another gateway: what others have been put already it has from there."""
        under = self._waiting[0] if self._waiting else None
        if under is not None and under.served is not None:
            under.served.add(session)

    def goes(self, session: Session) -> None:
        """A session goes to another gateway, which gives it nothing of what this one has put for others already: it
        takes its copy along, and that of a shared subscription that has nobody else here."""
        under = self._waiting[0] if self._waiting else None
        if under is None or under.served is None:
            return
        topic, alone = under.publication.topic.decode(), Subscriptions["Session"]()
        for filter_, interest in self.router.subscriptions.of(session).items():
            alone.add(session, filter_, interest)
        matched = alone.match(topic)
        copied: list[int] = []
        if matched.direct and session not in under.served:
            found = self._receiver(under.publication.client_id, session, list(matched.direct.values()), topic)
            copied += () if found is None else self._copies(under, found)
        for name in map(name_of, matched.groups):
            shared = self._group(name, topic) if name not in under.served else None
            if shared is not None and len(shared.sharers) == 1:
                copied += self._copies_of_group(under, shared)
        under.copies += sum(one for one in copied if one > 0)

    def _promised(self, promise: Promise) -> Iterator[int]:
        """Of one that is stored, from its place on."""
        publication, begin = promise.publication, promise.place
        route, prefixes = Route(publication.topic.decode(), publication.topic, publication.first), Prefixes()
        self.router.find_receivers(route, Publisher("", publication.client_id, None, 5), may_be_wide=True)
        entries, interests, receiver = yield from self._gathered(route, publication)
        some: list[list[Session]] = [[] for _ in range(256)]  # sorted one by one, as all together take long
        for number, session in enumerate(interests):
            some[session.key[0]].append(session)
            if not number % LOOKED_AT:
                yield 0
        for sessions in some:
            for session in sorted(sessions, key=_KEY):
                place = place_of_session(session.key)
                found = receiver(session) if place > begin else None
                if found is None:
                    yield 0
                    continue
                copied = self._copy(promise, place, found, prefixes)
                promise.place = place
                yield copied
        for name in sorted(_groups_of(entries)):
            place = place_of_group(name)
            shared = self._group(name, route.topic) if place > begin else None
            member = None if shared is None else self.fan_out.turns.choose(shared, publication)
            if shared is None or member is None:
                yield 0
                continue
            copied = self._copy(promise, place, member, prefixes, shared.name)
            promise.place = place
            yield copied

    def _copy(
        self, promise: Promise, place: bytes, receiver: Receiver, prefixes: Prefixes, share: str = ""
    ) -> int:  # fmt: skip
        """One copy."""
        publication, session = promise.publication, receiver.session
        if not promise.careful:
            return 1 if self.fan_out.copy(receiver, publication, prefixes, share) else -1
        if not min(publication.qos, receiver.qos) and place <= promise.reached:
            return 1  # it has gone already
        done: list[bool] = []
        aside = partial(_aside_of_copy, receiver, publication, share)
        self.context.set_aside.run(
            "stored", session.client_id, lambda: done.append(self.fan_out.copy(receiver, publication, {}, share)),
            aside if session.durable and min(publication.qos, receiver.qos) else None,
        )  # fmt: skip
        return (1 if done[0] else -1) if done else 0

    def _gathered(
        self, route: Route, publication: Publication
    ) -> Generator[int, None, tuple[Entries, dict[Session, list[Interest]], Callable[[Session], Receiver | None]]]:
        """What matches a topic, who has subscribed to that, and as what each of them gets a publication."""
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

        def receiver(session: Session) -> Receiver | None:
            if session.ended or (changes[0] != version and not self._still(session, filters)):
                return None
            return self._receiver(publication.client_id, session, interests[session], route.topic)

        return entries, interests, receiver

    def _still(self, session: Session, filters: list[str]) -> bool:
        """Whether it has one of these subscriptions, now that subscriptions have changed meanwhile."""
        mine = self.router.subscriptions.of(session)
        return any(one in mine for one in filters)

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


def _length_alike(publication: Publication, version: int, data: bytearray, at: int) -> int:
    """How long a whole packet is that has a publication like this one, and no properties; 0: there is none."""
    if not data.startswith(publication.first.to_bytes(1, "big"), at):
        return 0
    try:
        length, begin = decode_varint(bytes(data[at : at + 5]), 1)
    except ProtocolError:
        return 0
    named = len(publication.topic).to_bytes(2, "big") + publication.topic
    end, block = at + begin + length, at + begin + len(named) + 2 * (publication.qos > 0)
    if (
        end > len(data)
        or not data.startswith(named, at + begin)
        or (version == V5 and data[block : block + 1] != b"\0")
    ):
        return 0
    payload = end - block - (version == V5)
    return end - at if 0 <= payload <= len(publication.payload) else 0


def _groups_of(entries: Entries) -> list[str]:
    """The shared subscriptions among them."""
    return [f"$share/{name}/{filter_}" for filter_, members in entries for name in members.shared]


def _aside_of_promise(promise: Promise) -> Aside:
    """A stored publication as it is kept if it meets a defect: its place stays, so that a replay goes on there."""
    return aside_of(FAN_OUT, promise.key, Stored(None, b"", encode_publication(promise.publication, 0)))


def _aside_of_copy(receiver: Receiver, publication: Publication, share: str) -> Aside:
    """A copy, as its session would have stored it."""
    session, qos = receiver.session, min(publication.qos, receiver.qos)
    retain = publication.retain and receiver.retain_as_published
    prefix = encode_prefix(publication, qos, retain, receiver.sub_ids, SHARED if share else 0)
    data = prefix + STORED_IDS[session.outflow.number()] + publication.payload
    return Aside(b"", data, {"queue": OUT, "key": session.key})
