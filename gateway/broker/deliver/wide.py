"""A publication that many subscriptions match, in slices: who gets it is found out, and copied for, a little in each
turn of the reactor and each unit of work. Pure.

Nothing of its publisher is taken in before it is over, so that nothing overtakes it on the way to any subscriber; what
others publish goes on. Its own rows on queues and its acknowledgement come with the last unit of work. Where the
process ends before that, the publication is sent again: at QoS 1 some subscribers get it twice, as they may. What must
not come twice is not sliced: QoS 2, wills, and what a queue brings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gateway.broker.publish.route import Receiver
from gateway.routing.filters import Interest, merged

if TYPE_CHECKING:
    from gateway.broker.context import Context
    from gateway.broker.deliver.fan_out import FanOut, Prefixes
    from gateway.broker.publish.route import Route
    from gateway.broker.publish.router import Router
    from gateway.broker.put_off import PutOff
    from gateway.session.connection import Connection
    from gateway.session.publication import Publication
    from gateway.session.session import Session

SLICE_SECONDS = 0.01
MOST_AT_ONCE = 500
"""Copies in one slice: each may be a row of the unit of work, and a write to a socket."""
LOOKED_AT = 200
"""Subscriptions that are looked at between two looks at the clock."""


class _Under(NamedTuple):
    """A publication on its way."""

    connection: Connection
    steps: Iterator[int]
    """One after the other: 1 a copy, -1 no room for one, 0 neither, but it took time."""
    over: Callable[[int], None]
    """Called with how many subscribers had no room."""
    counted: list[int]
    """Copies, and subscribers without room."""
    qos: int


class Wide:
    """Publications that are copied in slices, one after the other."""

    def __init__(self, context: Context, router: Router, fan_out: FanOut, put_off: PutOff) -> None:
        self.context = context
        self.router = router
        self.fan_out = fan_out
        self.put_off = put_off
        self._waiting: deque[_Under] = deque()

    def begin(
        self, connection: Connection, route: Route, publication: Publication, over: Callable[[int], None]
    ) -> None:
        """Copy a publication for everybody whose subscription matches; `over` is called in the turn of the last."""
        self.put_off.hold(connection)
        steps = self._steps(connection.session.client_id, route, publication)
        self._waiting.append(_Under(connection, steps, over, [0, 0], publication.qos))
        if len(self._waiting) == 1:
            self._later()

    def _later(self) -> None:
        self.context.scheduler.later(0.0, self._go_on)

    def _go_on(self) -> None:
        """A slice of the first."""
        context, under = self.context, self._waiting[0]
        context.now = context.scheduler.now()
        ended: list[bool] = []
        failed: list[Exception] = []

        def work() -> None:
            try:
                ended.append(self._slice(under))
            except Exception as error:
                failed.append(error)
                raise

        done = context.set_aside.run("publication", under.connection.publisher.client_id, work)
        if not done or ended[0]:
            self._waiting.popleft()
            self.put_off.let_go(under.connection)
        if failed:
            context.defect(under.connection, failed[0])
        if self._waiting:
            context.batch.after.append(self._later)
        context.flush()

    def _slice(self, under: _Under) -> bool:
        """True when it is over."""
        monotonic, made = self.context.scheduler.monotonic, 0
        until = monotonic() + SLICE_SECONDS
        for number, copied in enumerate(under.steps):
            made += copied != 0
            if copied:
                under.counted[copied < 0] += 1
            if made >= MOST_AT_ONCE or (not number % 8 and monotonic() > until):
                return False
        copies, missed = under.counted
        if copies:
            self.context.counters.mqtt_publish_sent["_none", under.qos] += copies
        under.over(missed)
        return True

    # -- who gets it --

    def _steps(self, publisher: str, route: Route, publication: Publication) -> Iterator[int]:
        shared_elsewhere = self.fan_out.forward(route, publication) if route.forwarded else ()
        prefixes: Prefixes = {}
        version, changes = route.changes[0], route.changes
        entries = self.router.subscriptions.entries(route.topic)
        interests: dict[Session, list[Interest]] = {}
        for _, members in entries:
            for number, (session, interest) in enumerate(list(members.direct.items())):
                interests.setdefault(session, []).append(interest)
                if not number % LOOKED_AT:
                    yield 0
        filters = [filter_ for filter_, _ in entries]
        for session, found in interests.items():
            changed = changes[0] != version
            if session.ended or (changed and not self._still(session, filters)):
                yield 0
                continue
            receiver = self._receiver(publisher, session, found, route.topic)
            if receiver is None:
                yield 0
            else:
                yield 1 if self.fan_out.copy(receiver, publication, prefixes) else -1
        for filter_, members in entries:
            for name in list(members.shared):
                group = self.router.subscriptions.group(f"$share/{name}/{filter_}")
                shared = None if group is None else self.router.shared(group, route.topic)
                if shared is None or shared.name in shared_elsewhere:
                    yield 0
                else:
                    yield 1 if self.fan_out.copy_to_member(shared, publication, prefixes) else -1

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
