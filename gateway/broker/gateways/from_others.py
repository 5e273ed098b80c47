"""Publications that other gateways have put for this one on `MQGATE.FORWARD`, and those put for a gateway that is no
more. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf

from gateway.broker.context import Context
from gateway.broker.deliver.fan_out import FanOut
from gateway.broker.gateways.addressed import Addressed
from gateway.broker.gateways.forwarded import Forwarded, Usual, UsualRecords, decode_forwarded, groups_of
from gateway.broker.gateways.incoming import Incoming, Part, parts
from gateway.broker.gateways.places import Has
from gateway.broker.gateways.session_moves import SessionMoves
from gateway.broker.publish.route import Receiver, Route, Shared
from gateway.broker.publish.router import Router
from gateway.broker.steps import Steps
from gateway.broker.undo import Undo
from gateway.errors import MQError
from gateway.ports.batch import Stored, Token
from gateway.ports.ownership import WHO_GETS_IT, Forwards, forward_key
from gateway.ports.state_queues import FORWARD, PAGE, SESSIONS, rows_of
from gateway.session.connection import Publisher
from gateway.session.publication import Publication
from gateway.session.record import Front, decode_json, key_of
from gateway.session.session import Session

_BATCH = 200
SLICE_SECONDS = 0.01
"""Time in one turn for publications that are looked at alone: each may be for thousands of shared subscriptions."""
_PAUSE = 0.05
_PATIENCE, _LOOK_AGAIN = 10.0, 1.0
"""Seconds for which a session is waited for before its record is looked up to see whether it is on its way, and between
later looks."""
_MOST_LOOKS = 3
_MOST_ROWS = 5000
"""With this many rows in the open batch, or waiting for sessions, nothing more is read."""
_REMEMBERED = 4 * _MOST_ROWS
"""More than can have been read ahead and be waiting together."""
_NOBODY = Publisher("", "", None, 5)


@dataclass(slots=True, eq=False)
class _Waiting:
    """What is for one client and has to wait, in order."""

    look_at: float
    """When to look up whether the session may still come."""
    rows: dict[Token, tuple[Stored, Forwarded]] = field(default_factory=dict)
    looks: int = 0
    """How often nothing was found; a record that is being replaced cannot be seen for a moment."""


class FromOthers:
    """Hands over what other gateways have put for this one."""

    def __init__(self, context: Context, router: Router, fan_out: FanOut, forwards: Forwards) -> None:
        self.context = context
        self.router = router
        self.fan_out = fan_out
        self.forwards = forwards
        self.moves: SessionMoves
        """Set by whoever makes both."""
        self.addressed: Addressed
        """Likewise."""
        self.instance = forwards.instance
        self.key = forward_key(self.instance)
        self._waiting: dict[str, _Waiting] = {}
        """By client: what is for a session that is on its way here, or of which it is not known what comes from
        where."""
        self._number_waiting = 0
        self._handed_over: dict[Token, None] = {}
        """The messages handed over last: what has waited, or is committed late, may have been read ahead once more."""
        self._routes: dict[tuple[bytes, int, str], Route] = {}
        """Routes by topic, QoS and publishing client."""
        self.incoming = Incoming(context, fan_out, self._route)
        self._records = UsualRecords()
        self._running = self._more = False
        self._left: list[Stored] = []
        """What has been read and is handed over in the next turn."""

    def start(self) -> None:
        """Begin to read what is put for this gateway."""
        self.forwards.receive(self.key, self.arrived)

    def arrived(self) -> None:
        """Read what is put for this gateway, as there may be something."""
        if self._running:
            self._more = True
            return
        self._running, self._more = True, False
        self.context.scheduler.soon(self._pump)

    def _pump(self) -> None:
        context = self.context
        context.now = context.scheduler.now()
        leaving = context.draining and not context.connections  # others take over what is left
        if leaving or context.is_full or context.batch.rows > _MOST_ROWS:
            context.scheduler.later(_PAUSE, self._pump)
            return
        handed = self._hand_over_late()
        if self._number_waiting < _MOST_ROWS:
            found = self._left or self.forwards.claim(FORWARD, self.key, _BATCH)
            handed += len(found)
            self._left = self._sort_all([stored for stored in found if stored.token not in self._handed_over])
        if handed:
            context.batch.after.append(lambda: context.scheduler.soon(self._pump))
            context.flush()
            return
        context.flush()
        self._running = False
        if self._more:
            self.arrived()
        elif self._waiting:
            context.scheduler.later(_PAUSE, self.arrived)

    def _sort_all(self, found: list[Stored]) -> list[Stored]:
        """Hand over usual publications together, and the others alone. Returns what is left when time is up, or the
        open batch is full."""
        monotonic = self.context.scheduler.monotonic
        usual, until, copies, bounds = list[Usual](), monotonic() + SLICE_SECONDS, 0, self.context.bounds
        for at, stored in enumerate(found):
            one = self._usual(stored)
            more = 0 if one is None or bounds is None else 1 + len(self._route(one.front).receivers)
            if one is None or (bounds is not None and usual and copies + more > bounds.enough):
                left = self._hand_over_all(found[at - len(usual) : at], usual, until)
                if left:
                    return left + found[at:]
                usual, copies = [], 0
            if one is not None:
                usual.append(one)
                copies += more
                continue
            self._sort(stored)
            self.context.close_full()
            if self.context.is_full or monotonic() > until:
                return found[at + 1 :]
        return self._hand_over_all(found[len(found) - len(usual) :], usual, until)

    def _usual(self, stored: Stored) -> Usual | None:
        """The decoded publication if it is usual; None if it has to be looked at alone."""
        one = self._records.decode(stored.data)
        try:
            concerned = one is None or self.moves.concern(self._route(one.front))
        except Exception:  # noqa: BLE001 -- a defect is found there
            return None
        return None if concerned else one

    def _hand_over_all(self, found: list[Stored], usual: list[Usual], until: float) -> list[Stored]:
        """Hand over in parts; if one of them cannot be handed over together, each of its publications is looked at
        alone. Returns what is left when time for that is up, or the open batch is full."""
        context = self.context
        begin = 0
        for part in parts(usual):
            some = found[begin : begin + len(part.found)]
            if context.is_full:
                return found[begin:]
            context.close_full()
            if self._hand_over_part(part, [stored.token for stored in some]):
                begin += len(some)
                continue
            for stored in some:
                self._sort(stored)
                begin += 1
                if context.is_full or context.scheduler.monotonic() > until:
                    return found[begin:]
        return []

    def _hand_over_part(self, part: Part, tokens: list[Token]) -> bool:
        batch = self.context.batch
        undo = Undo(batch)
        try:
            if not self.incoming.hand_over(part):
                return False
            batch.taken(FORWARD, self.key).extend(tokens)
        except Exception:  # noqa: BLE001 -- the one that meets a defect is found when they are looked at alone
            undo.take_back(batch)
            return False
        finally:
            undo.keep()
        for one, token in zip(part.found, tokens, strict=True):
            self.moves.last[one.origin] = one.number
            self._remember(token)
        return True

    def _sort(self, stored: Stored) -> None:
        """Hand a publication over, or keep it until its session has come; what is for others does not wait."""
        try:
            forwarded = decode_forwarded(stored.data)
        except (ValueError, KeyError, TypeError):
            self._record(stored, partial(decode_forwarded, stored.data))  # it is set aside
            return
        client = forwarded.client
        if client and not forwarded.fence:
            waiting = self._waiting.get(client)
            if waiting is not None or self.moves.waits(forwarded, self.context.sessions.get(client)):
                if waiting is None:
                    waiting = self._waiting[client] = _Waiting(self.context.scheduler.monotonic() + _PATIENCE)
                self._number_waiting += stored.token not in waiting.rows
                waiting.rows[stored.token] = stored, forwarded
                if not forwarded.device and not forwarded.groups and not forwarded.left:
                    self.moves.was_sent_on(client, forwarded)
                return
        self._record(stored, partial(self._hand_over, stored, forwarded))

    def _record(self, stored: Stored, call: Callable[[], object]) -> None:
        if self.context.set_aside.record("queue_message", FORWARD, self.key, stored, call):
            self._remember(stored.token)

    def _remember(self, token: Token) -> None:
        self._handed_over[token] = None
        if len(self._handed_over) > _REMEMBERED:
            del self._handed_over[next(iter(self._handed_over))]

    def _hand_over_late(self) -> int:
        """Hand over some of what has waited and need not wait any more; returns how much that was."""
        now, handed = self.context.scheduler.monotonic(), 0
        for client, waiting in list(self._waiting.items()):
            session = self.context.sessions.get(client)
            lost = session is None and waiting.looks >= _MOST_LOOKS  # it has ended meanwhile, or is elsewhere
            for token, (stored, forwarded) in list(waiting.rows.items()):
                if handed == _BATCH or self.context.is_full or (not lost and self.moves.waits(forwarded, session)):
                    break
                del waiting.rows[token]
                handed += 1
                self._record(stored, partial(self._hand_over, stored, forwarded))
                self.context.close_full()
            if not waiting.rows:
                del self._waiting[client]
            elif session is None and not lost and now >= waiting.look_at:
                self._look_for(client, waiting)
        self._number_waiting -= handed
        return handed

    def _look_for(self, client: str, waiting: _Waiting) -> None:
        """Look up whether a session may still come: one whose record names this gateway does, however long it takes."""
        context = self.context
        waiting.look_at = inf

        def found(records: list[Stored] | MQError) -> None:
            again = _LOOK_AGAIN
            if isinstance(records, MQError):
                pass
            elif any(_owner_of(stored) in {self.instance, *self.moves.unread_here()} for stored in records):
                again, waiting.looks = _PATIENCE, 0
            else:
                waiting.looks += 1
            waiting.look_at = context.scheduler.monotonic() + again

        context.ask(lambda: context.queue_manager.fetch(SESSIONS, key_of(client), 1), found)

    def _hand_over(self, stored: Stored, forwarded: Forwarded) -> None:
        self.context.batch.take(FORWARD, self.key, stored.token)
        if forwarded.fence:
            self.moves.fence_is_back(forwarded.client, forwarded.fence)
            return
        if forwarded.device:
            self.addressed.arrived(forwarded, self.key, stored.token, self._again)
            return
        route = self._route(forwarded.publication)
        if forwarded.left and not forwarded.held:
            self._for_those_who_left(route, forwarded)
        elif forwarded.groups and forwarded.client:
            self._deliver(route, forwarded, groups=self._served(route, forwarded))
        elif forwarded.client:
            self._for_one(route, forwarded)
        else:
            self.moves.last[forwarded.origin] = forwarded.number
            receivers = self._receivers(route, forwarded) if forwarded.direct else ()
            self._deliver(route, forwarded, receivers, self._served(route, forwarded))
            if forwarded.direct:
                self.moves.send_all_on(forwarded)

    def _for_those_who_left(self, route: Route, forwarded: Forwarded) -> None:
        """Deliver what is for sessions that had just moved on from a gateway that is no more. Some of them may have
        been at others that are no more either, and whose sessions are still to be read here: those get it with what
        lies for these."""
        moves, unread = self.moves, sorted(self.moves.unread_here())
        theirs = self._had_left(route, forwarded)
        self._deliver(route, forwarded, [one for one in theirs if not moves.was_last_at(one.session, unread)])
        told = unread if len(unread) > 1 and moves.to_others.all_read(WHO_GETS_IT) else []
        moves.to_others.put(unread, forwarded._replace(whose=told))

    def _had_left(self, route: Route, forwarded: Forwarded) -> list[Receiver]:
        """The receivers that had just moved on from a gateway that is no more. If that had put a publication aside for
        one session, that one alone: the others got it there."""
        some = [one for one in route.receivers if forwarded.client in {"", one.session.client_id}]
        return [one for one in some if self.moves.had_left(one.session, forwarded)]

    def _again(self, token: Token) -> None:
        """Have a message read once more that could not be handed over."""
        self._handed_over.pop(token, None)
        self.arrived()

    def _served(self, route: Route, forwarded: Forwarded) -> list[Shared]:
        """The shared subscriptions that are served here. If the last member has gone meanwhile, or none takes the
        publication now, it is passed on; if no gateway has a member that does, the last one keeps it. A subscription
        whose members have too much to do passes on only what comes from its publisher, so that a message does not go
        round where all of them have."""
        others, publication = self.moves.to_others, forwarded.publication
        tried = () if forwarded.number else forwarded.to
        here = {group.name: group for group in groups_of(route, forwarded)}
        served: list[Shared] = []
        for name in forwarded.groups:
            group = here.get(name)
            if group is None:
                others.give(name, publication, tried, forwarded.redirects)
            elif group.takes(anyhow=bool(tried)) or not others.pass_on(
                name, publication, tried, max(1, forwarded.redirects)
            ):
                served.append(group)
        return served

    def _deliver(
        self, route: Route, forwarded: Forwarded, receivers: Collection[Receiver] = (), groups: Collection[Shared] = ()
    ) -> None:
        """Deliver a publication. What was published at QoS 0 goes out only when its taking is committed: at most once,
        whoever is killed, and after what its publisher had been acknowledged before."""
        publication = forwarded.publication
        deliver = partial(self.fan_out.deliver_to, route, receivers, groups, publication)
        if publication.qos:
            deliver()
        else:
            self.context.batch.after.append(deliver)

    def _receivers(self, route: Route, forwarded: Forwarded) -> Collection[Receiver]:
        """The receivers that do not get a publication from a gateway where they were."""
        moves = self.moves
        if not moves.any_came:
            return route.receivers
        found = []
        for one in route.receivers:
            has = moves.has(one.session.client_id, one.session.epoch, forwarded)
            if has is Has.NO:
                found.append(one)
            elif has is Has.UNKNOWN:
                moves.hold(one.session, forwarded)
        return found

    def _for_one(self, route: Route, forwarded: Forwarded) -> None:
        """Deliver what is for a session that was elsewhere when it was published, or whose gateway was not known."""
        client, moves = forwarded.client, self.moves
        if moves.has_moved(client):
            if moves.is_for(client, forwarded.epoch, forwarded):
                moves.send_on(client, forwarded)
            return
        session = self.context.sessions.get(client)
        if session is not None and moves.is_for(client, session.epoch, forwarded):
            self._deliver(route, forwarded, [one for one in route.receivers if one.session is session])

    def _route(self, publication: Publication | Front) -> Route:
        key = publication.topic, publication.qos, publication.client_id
        route = self._routes.get(key)
        if route is None:
            if len(self._routes) >= _MOST_ROWS:
                self._routes.clear()
            route = Route(publication.topic.decode(), publication.topic, publication.qos << 1)
            self._routes[key] = route
        if route.version != route.changes[0] or route.version < 0:
            self.router.find_receivers(route, _NOBODY)
        return route

    # -- what a gateway that is no more has left --

    def left(self, owner: str) -> Iterator[Stored]:
        """What was put for a gateway that is no more, in order; to be called while nobody puts more and none of it is
        taken for good."""
        return rows_of(self.context.queue_manager, FORWARD, forward_key(owner))

    def pages_left(
        self, owner: str, hand_over: Callable[[list[Stored]], None], committed: Callable[[], Steps[None]]
    ) -> Steps[None]:
        """Have what is left for a gateway handed over page by page. Several gateways have put it: once a message has
        been taken, nobody can tell what lay behind it. So each page is read from the beginning when what was handed
        over before is gone; what is still there, because it could not be taken, is passed over."""
        read = partial(self.context.queue_manager.fetch, FORWARD, forward_key(owner))
        handed_over: set[Token] = set()
        limit = PAGE
        while True:
            found: list[Stored] = yield partial(read, limit)
            some = [stored for stored in found if stored.token not in handed_over]
            if some:
                hand_over(some)
                handed_over.update(stored.token for stored in some)
                yield from committed()
            elif len(found) < limit:
                return
            limit = PAGE + len(found) - len(some)

    def inherited(self, owner: str, found: Iterable[Stored], peers: Collection[str]) -> None:
        """Hand over what was put for a gateway that is no more: to the sessions that were its own (this gateway's other
        sessions have it from what was put for this one), and to sessions that had just moved on from there, wherever
        they are."""
        key = forward_key(owner)
        for stored in found:
            call = partial(self._inherit, owner, peers, stored)
            self.context.set_aside.record("queue_message", FORWARD, key, stored, call)

    def _inherit(self, owner: str, peers: Collection[str], stored: Stored) -> None:
        self.context.batch.take(FORWARD, forward_key(owner), stored.token)
        forwarded = decode_forwarded(stored.data)
        if forwarded.fence:
            return
        if forwarded.device:
            again = forwarded._replace(client="", to=[])  # that one could have said where the session has gone
            self.moves.to_others.put([self.instance], again)
            return
        route = self._route(forwarded.publication)
        if forwarded.left and not forwarded.held:
            whose = forwarded.whose or [owner]
            theirs = self._had_left(route, forwarded)
            self._deliver(
                route, forwarded, [one for one in theirs if self.moves.was_last_at(one.session, whose) == owner]
            )
        elif forwarded.client and forwarded.groups:
            self._deliver(route, forwarded, groups=self._served(route, forwarded))
        elif forwarded.client:
            self._inherit_for_one(owner, peers, route, forwarded)
        elif forwarded.unread:
            unread = [one for one in route.receivers if self._is_unread(one.session, owner, forwarded)]
            self._deliver(route, forwarded, unread)
        else:
            self._inherit_for_all(owner, peers, route, forwarded)

    def _inherit_for_one(self, owner: str, peers: Collection[str], route: Route, forwarded: Forwarded) -> None:
        """Hand over what was sent on to a session, or held for it."""
        session = self.context.sessions.get(forwarded.client)
        if session is not None and session.epoch >= forwarded.epoch:
            gave = self.moves.gave(session.client_id, session.epoch, forwarded)
            self.moves.was_sent_on(session.client_id, forwarded._replace(epoch=session.epoch))
            if self._lacks(session, forwarded.left or owner, forwarded) if forwarded.held else not gave:
                self._deliver(route, forwarded, [one for one in route.receivers if one.session is session])
        elif session is None and peers:  # it had moved on: who has it knows what was sent on to it
            left = forwarded.left or (owner if forwarded.held else "")
            self.moves.to_others.put(sorted(peers), forwarded._replace(held=False, left=left))

    def _inherit_for_all(self, owner: str, peers: Collection[str], route: Route, forwarded: Forwarded) -> None:
        """Hand over what was for everybody at that gateway, and for members of shared subscriptions there."""
        receivers: tuple[Receiver, ...] = ()
        if forwarded.direct:
            mine = forwarded._replace(left=owner)
            receivers = tuple(
                one for one in route.receivers
                if (self.moves.was_at(one.session, owner) and self._lacks(one.session, owner, forwarded))
                or self.moves.had_left(one.session, mine)
            )  # fmt: skip
            if peers:
                self.moves.to_others.put(sorted(peers), mine._replace(groups=[]))
        self._deliver(route, forwarded, receivers, self._served(route, forwarded))

    def _is_unread(self, session: Session, owner: str, forwarded: Forwarded) -> bool:
        """Whether a session that nobody had read yet lacks a publication."""
        if not self.moves.was_at(session, owner) or self.moves.has_later(session, owner, forwarded):
            return False
        return self._lacks(session, owner, forwarded)

    def _lacks(self, session: Session, owner: str, forwarded: Forwarded) -> bool:
        """Whether a session of that gateway has got a publication neither here nor from a gateway where it was before;
        if that is not known yet, the publication is put aside."""
        moves, client = self.moves, session.client_id
        if moves.gave(client, session.epoch, forwarded) or moves.has_earlier(session, owner, forwarded):
            return False
        has = moves.sent_on_before(client, session.epoch, forwarded)
        if has is Has.UNKNOWN:
            moves.hold(session, forwarded, owner)
        return has is Has.NO


def _owner_of(stored: Stored) -> object:
    """The owner that a stored session names; None if its record cannot be read."""
    try:
        return decode_json(stored.data).get("owner", "")
    except (ValueError, TypeError):
        return None
