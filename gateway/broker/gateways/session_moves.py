"""Sessions that move from gateway to gateway, and the publications that are under way meanwhile. Pure.

The gateway that a session has left goes on telling others that it wants the session's topics, and sends on what is put
for it. When all others know the gateway where the session is now, the former one puts a message to itself; when that
has come back, it tells the number of the last publication of each gateway that it has sent on. What is put for both
gateways until then, the new one puts aside, on its own key, and gives it to the session if the former one has not sent
it on.

The session's record says from where it has come and what it has had from there, so that whoever takes over from its
gateway can go on, even if the former gateway is no more either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import takewhile
from typing import Any, NamedTuple

from gateway.broker.context import Context
from gateway.broker.gateways.forwarded import Forwarded
from gateway.broker.gateways.places import MOST_STAYS, NEVER, Came, Has, Place, Stay, came_of, record_of
from gateway.broker.gateways.to_others import ToOthers
from gateway.broker.publish.route import Route
from gateway.broker.publish.router import Router, name_of
from gateway.ports.ownership import Message
from gateway.routing.filters import Interest, Subscriptions
from gateway.session.publication import Publication
from gateway.session.session import Session

_REMEMBERED = 60.0
"""Seconds after which what was put for a gateway when a session came there has certainly been read."""
_LONG_GONE = 600.0
"""Seconds after which nothing is read any more that was put by a gateway that is no more."""


class _Moved(NamedTuple):
    to: str
    epoch: int
    move: int = 0
    """The number of the move at the new gateway."""
    fence: int = 0
    """The number of this gateway's message to itself."""


class _Departure(NamedTuple):
    """A session that has gone to another gateway, to which everything that had to be sent on was sent."""

    to: str
    epoch: int
    last: dict[str, int]
    at: float


class SessionMoves:
    """Knows which sessions have come and gone, and what they get from where."""

    def __init__(
        self, context: Context, router: Router, to_others: ToOthers, write: Callable[[str, Message], None],
        arrived: Callable[[], None],
    ) -> None:  # fmt: skip
        """`arrived`: told that there may be something to hand over that had to wait."""
        self.context = context
        self.router = router
        self.to_others = to_others
        self.write = write
        self.arrived = arrived
        self.instance = to_others.instance
        to_others.on_sent = self.send_all_on
        to_others.departed_groups, to_others.give_departed = self._departed_groups, self._give_departed
        router.sent_on = self._is_sent_on
        self.is_gone: Callable[[str], bool] = lambda _gateway: False
        """Whether a gateway is no more; set by whoever makes this."""
        self.on_going: Callable[[Session], None] = lambda _session: None
        self.on_coming: Callable[[Session], None] = lambda _session: None
        """Told of each session that goes or comes, before it does: something may have been put for others that it has
        not got yet."""
        self.unread_here: Callable[[], Collection[str]] = tuple
        """Gateways that are no more and whose sessions this one has still to read; set likewise."""
        self.last: dict[str, int] = {}
        """The number of the last publication of each gateway that was handed over here."""
        self._came: dict[str, Came] = {}
        """The sessions that have come, by client, in the order in which they came."""
        self._departed: Subscriptions[str] = Subscriptions()
        """The subscriptions of clients whose sessions have moved on: these get what is still put for this gateway."""
        self._moved: dict[str, _Moved] = {}
        self._departures: dict[str, _Departure] = {}
        """Sessions that departed of late, in that order."""
        self._number = 0
        self._gone_at: dict[str, float] = {}
        """Since when gateways are no more."""

    def on_message(self, message: Message) -> None:
        """Take what another gateway says of a session that goes, or has come."""
        kind = message["kind"]
        if kind == "follows":
            self.follows(message["client"], message["from"], message["last"])
        elif kind == "settled":
            self.settled(message["client"], message["move"], message["from"])
        elif kind == "departed":
            self.departed(message["client"], message["move"], message["last"])

    # -- a session goes --

    def goes(self, session: Session, to: str) -> None:
        """Note that a session moves to another gateway with the open batch: until all others know, what is put here is
        sent on to it."""
        client = session.client_id
        self.on_going(session)
        self._stop_sending(client)
        self._moved[client] = _Moved(to, session.epoch + 1)
        for filter_, subscribed in session.subscriptions.items():
            self._departed.add(client, filter_, Interest(subscribed.options.qos))
            self.router.on_interest(filter_, 1)
        self.router.touch_filters(session.subscriptions)

    def stays_of(self, session: Session) -> list[Stay]:
        """Where a session was of late before it came here."""
        came = self._of(session.client_id, session.epoch)
        if came is None or self.context.scheduler.monotonic() - came.at > _REMEMBERED:
            return []
        return [stay for stay in came.stays if stay.last is not None][: MOST_STAYS - 1]

    def has_moved(self, client: str) -> bool:
        """Whether what comes for this client is to be sent on."""
        return client in self._moved

    def went(self, client: str) -> tuple[str, int] | None:
        """The gateway to which the client's session has moved from here, and how often it had moved then; None if it
        has not moved, or long ago."""
        moved, departure = self._moved.get(client), self._departures.get(client)
        if moved is not None:
            return moved.to, moved.epoch
        return None if departure is None else (departure.to, departure.epoch)

    def _is_sent_on(self, topic: str) -> bool:
        if self.to_others.unread:
            return True
        if not len(self._departed):
            return False
        matched = self._departed.match(topic)
        return bool(matched.direct or matched.groups)

    def send_all_on(self, forwarded: Forwarded) -> None:
        """Send a publication on to sessions that have moved on from here and want it."""
        if not len(self._departed):
            return
        for client in self._departed.match(forwarded.publication.topic.decode()).direct:
            if self.has(client, self._moved[client].epoch, forwarded) is Has.NO:
                self.send_on(client, forwarded)

    def _departed_groups(self, topic: str) -> list[str]:
        """The shared subscriptions with a member that has moved on from here and that is not yet known to all
        elsewhere."""
        return [name_of(group) for group in self._departed.match(topic).groups] if len(self._departed) else []

    def _give_departed(self, name: str, publication: Publication, tried: Collection[str], redirects: int) -> bool:
        """Give a publication to such a member; its gateway gives it to one of the members there when it has the
        session. Returns False if there is none."""
        group = self._departed.group(name)
        for client in () if group is None else group.members:
            moved = self._moved[client]
            member = Forwarded(
                publication, to=sorted(tried), client=client, epoch=moved.epoch, groups=[name], redirects=redirects
            )
            self.to_others.put([moved.to], member)
            return True
        return False

    def send_on(self, client: str, forwarded: Forwarded) -> None:
        """Send a publication on to the gateway to which the client's session has moved."""
        moved = self._moved[client]
        theirs = forwarded._replace(client=client, epoch=moved.epoch, groups=[], held=False, left="")
        self.to_others.put([moved.to], theirs)

    def settled(self, client: str, move: int, sender: str) -> None:
        """The gateway where the session is now says that all others know. What comes after this gateway's message to
        itself is put for that gateway, too."""
        moved = self._moved.get(client)
        if moved is not None and moved.to == sender:
            self._number += 1
            self._moved[client] = moved._replace(move=move, fence=self._number)
            self._fence(client, self._number)

    def _fence(self, client: str, number: int) -> None:
        nothing = Publication(b"", b"", 1, False)  # noqa: FBT003 -- not retained
        self.to_others.put([self.instance], Forwarded(nothing, client=client, fence=number))

    def fence_is_back(self, client: str, number: int) -> None:
        """Everything that was put before this gateway's message to itself has been handed over or sent on: tell the new
        gateway."""
        if number < 0:
            self._nothing_more(client, -number)
            return
        moved = self._moved.get(client)
        if moved is None or moved.fence != number:
            return
        last = self._last()
        self.write(moved.to, {"kind": "departed", "client": client, "move": moved.move, "last": last})
        self._stop_sending(client)
        self._came.pop(client, None)
        self._departed_to(client, moved, last)

    def _last(self) -> dict[str, int]:
        """The number of the last publication of each gateway that has been handed over or sent on."""
        return self.last | {self.instance: self.to_others.number}

    def _departed_to(self, client: str, moved: _Moved, last: dict[str, int]) -> None:
        now = self.context.scheduler.monotonic()
        self._departures.pop(client, None)
        self._departures[client] = _Departure(moved.to, moved.epoch, last, now)
        while now - next(iter(self._departures.values())).at > _REMEMBERED:
            del self._departures[next(iter(self._departures))]

    def _stop_sending(self, client: str) -> None:
        filters = list(self._departed.of(client))
        for filter_ in filters:
            self.router.on_interest(filter_, -1)
        self.router.touch_filters(filters)
        self._departed.remove_all(client)
        self._moved.pop(client, None)

    # -- a session comes --

    def given(self, session: Session, to: str) -> dict[str, Any]:
        """What the record of a session that is given to another gateway says of its moves until it is read there."""
        came = self._of(session.client_id, session.epoch)
        lefts, after = ([], 0) if came is None else (came.lefts, came.own)
        return {
            "at": to,
            "from": self.instance,
            "former": self.instance,
            "given_after": after,
            "given_at": self.to_others.number,
            "arrived": False,
            "stays": self.stays_of(session),
            "lefts": lefts,
            "sent_on": {},
        }

    def comes(
        self, session: Session, gateway: str, stays: list[Stay], record: dict[str, Any], given_at: int = 0
    ) -> int:
        """Note that a session has moved here from another gateway, which gave it after its own publication `given_at`;
        returns the number of the move. `record`: what that gateway has stored of the session."""
        self._stop_sending(session.client_id)
        self._departures.pop(session.client_id, None)
        self._number += 1
        came = self._remember(session, [Stay(gateway, None), *stays])
        before = record.get("came") or {}
        came.former, came.given_after, came.given_at = gateway, before.get("given_after", NEVER), given_at
        came.lefts = [Place(*one) for one in before.get("lefts", ())]
        session.came = record_of(came, self.instance)
        self.arrived()
        return self._number

    def inherits(self, session: Session, owner: str, record: dict[str, Any]) -> None:
        """Note that a session of a gateway that is no more is this one's: it gets what lies there. What others had sent
        on to it there is not known before they have said so; or, if they are no more either, before what lies for them
        is handed over, too. `record`: what was stored of the session there."""
        client, stays = session.client_id, list[Stay]()
        before = came_of(record, owner)
        moved, departure = self._moved.get(client), self._departures.get(client)
        if moved is not None and moved.to == owner:  # it comes back
            stays = [Stay(self.instance, self._last())]
            self._stop_sending(client)
        elif departure is not None and departure.to == owner:
            stays = [Stay(self.instance, departure.last)]
        earlier = [Stay(*one) for one in before.get("stays", ()) if not stays or one[0] != self.instance]
        assumed = before.get("from", "") if not stays else ""
        self._number += 1
        came = self._remember(session, [*stays, *([Stay(assumed, None)] if assumed else []), *earlier][:MOST_STAYS])
        there = Place(owner, record.get("after", NEVER), before.get("read"), before.get("arrived", True))
        came.lefts = [there, *[Place(*one) for one in before.get("lefts", ())]][:MOST_STAYS]
        came.assumed, came.unclear = assumed, True
        came.former, came.given_at = before.get("former", ""), before.get("given_at", 0)
        came.given_after = before.get("given_after", NEVER)
        came.sent_on = before.get("sent_on", {})
        session.came = record_of(came, self.instance)

    def follows(self, client: str, sender: str, last: dict[str, int] | None) -> None:
        """Another gateway had sent on what was for a session to a gateway that is no more. It has done so up to `last`;
        or (None) it still does, from now on to this one."""
        came = self._came.get(client)
        if came is not None and came.unclear:
            came.stays = [stay for stay in came.stays if stay.gateway != sender]
            came.assumed = "" if came.assumed == sender else came.assumed
            came.stays.insert(0, Stay(sender, last)) if last is None else came.stays.append(Stay(sender, last))
        elif last is None:  # that session has ended
            self.write(sender, {"kind": "settled", "client": client, "move": 0})

    def all_follow(self, owner: str) -> list[tuple[str, int]]:
        """Note that all others have said what they had sent on to the gateway that is no more. Returns the sessions to
        which one of them goes on sending, each with the number of its move."""
        found = []
        for client, came in self._came.items():
            if not came.unclear or came.lefts[0].gateway != owner:
                continue
            came.unclear = False
            if came.assumed and not self.is_gone(came.assumed):  # it had nothing to say: that was long ago
                came.stays = [stay for stay in came.stays if stay.gateway != came.assumed]
                came.assumed = ""
            if came.assumed:
                came.dead = True
            elif came.stays and came.stays[0].last is None:
                found.append((client, came.move))
            else:
                came.settled = True
        self.arrived()
        return found

    def awaited(self) -> set[str]:
        """Gateways that are no more and whose leavings are waited for, because sessions have come from there."""
        return {came.stays[0].gateway for came in self._came.values() if came.dead and not came.settled}

    def _remember(self, session: Session, stays: list[Stay]) -> Came:
        now = self.context.scheduler.monotonic()
        self._came.pop(session.client_id, None)
        read, own = dict(self.last), self.to_others.number
        session.came_after = own
        self.on_coming(session)
        found = self._came[session.client_id] = Came(self._number, session.epoch, own, read, stays, now)
        old = takewhile(lambda one: now - self._came[one].at > _REMEMBERED, self._came)
        for client in [one for one in old if self._came[one].settled and one not in self._moved]:
            del self._came[client]
        return found

    def is_unsettled(self, session: Session) -> bool:
        """Whether the gateway where a session was may still send something on."""
        came = self._of(session.client_id, session.epoch)
        return came is not None and not came.settled

    def known(self, client: str, move: int) -> None:
        """All gateways know by now that the session is here: tell the former one."""
        came = self._came.get(client)
        if came is not None and came.move == move and not came.settled:
            self.write(came.stays[0].gateway, {"kind": "settled", "client": client, "move": move})

    def departed(self, client: str, move: int, last: dict[str, int]) -> None:
        """Note that the former gateway has sent on all that it had to."""
        came = self._came.get(client)
        if came is not None and came.move == move and not came.settled:
            came.stays[0] = came.stays[0]._replace(last=last)
            came.settled = True
            self._persist(client, came)
            self.arrived()

    def _persist(self, client: str, came: Came) -> None:
        """Write what has changed into the session's record: whoever takes over from this gateway has to know it."""
        session = self.context.sessions.get(client)
        if session is not None and session.came is not None:
            session.came = record_of(came, self.instance)
            if session.durable:
                self.context.persist(session)

    def forget(self, gateway: str, heir: str) -> None:
        """Note that a gateway is no more: what was sent on to it is sent on to its successor, and sessions that have
        come from there wait for what it has left."""
        for client, moved in list(self._moved.items()):
            if moved.to == gateway and heir == self.instance:
                self._stop_sending(client)
            elif moved.to == gateway:
                self._moved[client] = _Moved(heir, moved.epoch + 1)
                self.write(heir, {"kind": "follows", "client": client, "last": None})
        self._forget_numbers(gateway)
        for client, departure in self._departures.items():
            if departure.to == gateway and heir != self.instance:
                self.write(heir, {"kind": "follows", "client": client, "last": departure.last})
        for came in self._came.values():
            if not came.settled and came.stays and came.stays[0].gateway == gateway:
                came.dead = True

    def _forget_numbers(self, gateway: str) -> None:
        """Forget the numbers of gateways that have been no more for long."""
        now = self.context.scheduler.monotonic()
        self._gone_at.setdefault(gateway, now)
        for gone, since in list(self._gone_at.items()):
            if now - since > _LONG_GONE:
                del self._gone_at[gone]
                self.last.pop(gone, None)

    def handed_over(self, gateway: str) -> None:
        """The successor of a gateway has put for others what that one had not sent on: it lies before a message that
        this gateway now puts to itself."""
        for client, came in self._came.items():
            if came.dead and not came.settled and came.stays[0].gateway == gateway:
                self._fence(client, -came.move)

    def _nothing_more(self, client: str, move: int) -> None:
        came = self._came.get(client)
        if came is not None and came.stays:
            former = came.stays[0].gateway
            given_at = came.given_at if former == came.former else 0
            own = max(given_at, came.sent_on.get(former, 0))
            self.departed(client, move, came.sent_on | {former: own})

    # -- a publication --

    def concern(self, route: Route) -> bool:
        """Whether a session that gets what is published on a route has come here, or has gone from here, of late."""
        came = self._came
        has_come = bool(came) and any(one.session.client_id in came for one in route.receivers)
        return has_come or self._is_sent_on(route.topic)

    @property
    def any_came(self) -> bool:
        """Whether any session has come here of late."""
        return bool(self._came)

    def _of(self, client: str, epoch: int) -> Came | None:
        came = self._came.get(client)
        return came if came is not None and epoch >= came.epoch else None

    def has(self, client: str, epoch: int, forwarded: Forwarded) -> Has:
        """Whether a session gets, or has got, a publication that was put for this gateway from one where it was."""
        came = self._of(client, epoch)
        if came is None:
            return Has.NO
        if any(left.has(forwarded) for left in came.lefts):
            return Has.YES
        return Has.UNKNOWN if came.unclear else self.sent_on_before(client, epoch, forwarded)

    def sent_on_before(self, client: str, epoch: int, forwarded: Forwarded) -> Has:
        """Like `has`, leaving aside what lies where the session was when its gateway ended."""
        came = self._of(client, epoch)
        for stay in () if came is None else came.stays:
            if stay.last is None and (stay.gateway in forwarded.to or forwarded.origin == stay.gateway):
                return Has.YES if came is None or came.settled else Has.UNKNOWN
            if stay.has(forwarded):
                return Has.YES
        return Has.NO

    def hold(self, session: Session, forwarded: Forwarded, left: str = "") -> None:
        """Put a publication aside, in the open batch, as it is not known yet whether the session gets it elsewhere.
        `left`: the gateway, which is no more, for which it lay."""
        mine = forwarded._replace(client=session.client_id, epoch=session.epoch, groups=[], held=True, left=left)
        self.to_others.put([self.instance], mine)

    def waits(self, forwarded: Forwarded, session: Session | None) -> bool:
        """Whether what was held, or sent on, cannot be handed over yet."""
        moved = self._moved.get(forwarded.client)
        if moved is not None:
            return forwarded.epoch > moved.epoch  # the session is on its way back
        if session is None:
            return True
        return forwarded.held and self.is_unsettled(session)

    def is_for(self, client: str, epoch: int, forwarded: Forwarded) -> bool:
        """Whether a session that is here, or was until it moved on, gets what was sent on to it or held for it."""
        if epoch < forwarded.epoch:
            return False  # begun anew since then
        if forwarded.held:
            has = self.sent_on_before if forwarded.left else self.has
            return has(client, epoch, forwarded) is Has.NO
        came = self._of(client, epoch)
        if came is None:
            return True
        self.was_sent_on(client, forwarded)
        return not self.gave(client, epoch, forwarded)

    def was_sent_on(self, client: str, forwarded: Forwarded) -> None:
        """Note that what was sent on to a session has been read here, though it may have to wait behind what was
        held."""
        came = self._of(client, forwarded.epoch)
        if came is not None and not forwarded.held:
            came.sent_on[forwarded.origin] = max(forwarded.number, came.sent_on.get(forwarded.origin, 0))
            if not came.settled:
                self._persist(client, came)

    def gave(self, client: str, epoch: int, forwarded: Forwarded) -> bool:
        """Whether a session has got a publication where that was published, here or at a gateway that is no more,
        because it was there then."""
        came = self._of(client, epoch)
        if came is None:
            return False
        for left in came.lefts:
            if forwarded.origin == left.gateway:
                return forwarded.number > left.own
        if forwarded.origin == came.former and came.given_after < forwarded.number <= came.given_at:
            return True
        return forwarded.origin == self.instance and forwarded.number > came.own

    def _lefts(self, session: Session) -> list[Place]:
        """The gateways that are no more and where a session was."""
        came = self._of(session.client_id, session.epoch)
        return [] if came is None else came.lefts

    def was_at(self, session: Session, gateway: str) -> bool:
        """Whether a session was that gateway's, which is no more."""
        return any(left.gateway == gateway and left.arrived for left in self._lefts(session))

    def was_last_at(self, session: Session, gateways: Collection[str]) -> str:
        """At which of these gateways, which are no more, a session was last, though it may not have been read there;
        empty if it was at none of them."""
        return next((left.gateway for left in self._lefts(session) if left.gateway in gateways), "")

    def has_later(self, session: Session, gateway: str, forwarded: Forwarded) -> bool:
        """Whether a session that was at that gateway, which is no more, gets a publication from one where it was later,
        or here."""
        came = self._of(session.client_id, session.epoch)
        if came is None:
            return False
        here = next((at for at, left in enumerate(came.lefts) if left.gateway == gateway), 0)
        is_here = self.instance in forwarded.to and forwarded.number > came.read.get(forwarded.origin, 0)
        return is_here or any(left.has(forwarded) or left.has_unread(forwarded) for left in came.lefts[:here])

    def has_earlier(self, session: Session, gateway: str, forwarded: Forwarded) -> bool:
        """Whether a session that was at that gateway, which is no more, gets a publication from one where it was before
        and which is no more either."""
        lefts = self._lefts(session)
        here = next((at for at, left in enumerate(lefts) if left.gateway == gateway), len(lefts))
        return any(left.has(forwarded) for left in lefts[here + 1 :])

    def had_left(self, session: Session, forwarded: Forwarded) -> bool:
        """Whether a session gets what lay for a gateway that is no more, because it had just moved on from there, and
        has not been handed what was put for this gateway."""
        came = self._of(session.client_id, session.epoch)
        if came is None or not (came.dead or came.assumed) or not came.stays or came.settled:
            return False
        if came.stays[0].gateway != forwarded.left or self.gave(session.client_id, session.epoch, forwarded):
            return False
        if any(left.has(forwarded) or left.has_unread(forwarded) for left in came.lefts):
            return False
        if any(stay.has(forwarded) for stay in came.stays[1:]):
            return False
        return self.instance not in forwarded.to or forwarded.number <= came.read.get(forwarded.origin, 0)
