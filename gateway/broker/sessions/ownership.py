"""Several gateways on the same state queues: a session belongs to one gateway, and follows its device to another. Pure.

The record of a session or a will names its owner. A gateway knows the sessions it owns and touches no others. Before it
gives a session to a device that connects, it asks every other gateway: the owner closes the older connection (0x8E) and
transfers the session, in one unit of work with its answer. The sessions of a gateway whose lease has expired are
orphaned; one other gateway, its successor, takes them over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from itertools import islice
from typing import Any

from gateway.broker.context import Context
from gateway.broker.deliver.expiry import Expiry
from gateway.broker.gateways.addressed import Addressed
from gateway.broker.gateways.census import Census
from gateway.broker.gateways.from_others import FromOthers
from gateway.broker.gateways.interests import Interests
from gateway.broker.gateways.places import stays_from
from gateway.broker.gateways.rebalance import Rebalance
from gateway.broker.gateways.session_moves import SessionMoves
from gateway.broker.gateways.to_others import ToOthers
from gateway.broker.gateways.unfinished import Unfinished
from gateway.broker.publish.router import Router
from gateway.broker.sessions.claims import Claims, Standing
from gateway.broker.sessions.connack import Connacks
from gateway.broker.sessions.endings import Endings
from gateway.broker.sessions.joining import Joining
from gateway.broker.sessions.left_over import (
    Begun,
    LeftOver,
    Orphan,
    Recovering,
    begin_several,
    left_by_pages,
    record_or_aside,
)
from gateway.broker.sessions.looks import Found, Looks
from gateway.broker.sessions.questions import Questions
from gateway.broker.sessions.recovery import Recovery, restore_staged
from gateway.broker.sessions.retained_elsewhere import RetainedElsewhere
from gateway.broker.sessions.stored_records import Left, Unread
from gateway.broker.sessions.wills import Wills
from gateway.broker.steps import WAIT, Steps, waited_for
from gateway.errors import MQError
from gateway.ports.batch import Stored
from gateway.ports.ownership import Message, Owners, message_key
from gateway.ports.state_queues import GATEWAYS, SESSIONS, WILLS
from gateway.session.record import decode_json, encode_json
from gateway.session.registry import Waiter
from gateway.session.session import Session, will_from_record, will_record

_SLICE = 50
"""Sessions that are taken over before others get their turn."""
_AGAIN_SECONDS, _RETRY_SECONDS, _LOOKS = 0.05, 1.0, 10


class Ownership:
    """Who owns which session, as this gateway sees it."""

    def __init__(
        self,
        context: Context,
        owners: Owners,
        router: Router,
        expiry: Expiry,
        wills: Wills,
        connacks: Connacks,
        endings: Endings,
        recovery: Recovery,
    ) -> None:
        self.context = context
        self.owners = owners
        self.router = router
        self.expiry = expiry
        self.wills = wills
        self.endings = endings
        self.recovery = recovery
        self.instance = owners.instance
        self.retained = RetainedElsewhere(
            context, recovery.retained, self.instance, owners.peers, owners.reads, self._write
        )
        self.interests = Interests(context, router, self.instance, owners.peers, self._write)
        self.census = Census(self.instance, owners.peers, owners.leases, owners.lease_seconds)
        self.census.write = self._write
        self.to_others = ToOthers(context, router, self.instance, owners.reads)
        self.from_others = FromOthers(context, router, endings.fan_out, owners)
        self.moves = SessionMoves(context, router, self.to_others, self._write, self.from_others.arrived)
        self.moves.is_gone = lambda gateway: gateway in self._over or gateway not in owners.peers()
        self.from_others.moves = self.moves
        self.unfinished = Unfinished(self.moves, self.interests, owners.expired_owners, self._write)
        self.addressed = Addressed(context, self.to_others, self.moves, self._takers, self._may_come)
        self.from_others.addressed = self.addressed
        endings.fan_out.forward, endings.give_elsewhere = self.to_others.send, self.to_others.give
        endings.fan_out.forward_all = self.to_others.send_all
        self.rebalance = Rebalance(context, endings, self.moves, owners.peers, self._write)
        context.settle_others = lambda key, settled: self.interests.ask_all(settled, key=key)
        self.claims = Claims(connacks, self.instance, owners.peers, self._write)
        self._loading: Steps[None] | None = None
        self.joining = Joining()
        self._recovering = Recovering(owners)
        self._left_over = LeftOver()
        self._wills_due: set[str] = set()
        """Clients of gateways that are no more: their wills are published before they connect again."""
        self._deferred = Questions()
        self._receiving: set[str] = set()
        """Clients whose sessions are this gateway's and are being read."""
        self.looks = Looks(context, owners, self.claims, self._receiving)
        self._until_received: list[Message] = []
        """Messages that a gateway is no more, and what followed them, while sessions are read that may come from there:
        its successor goes on when it is known here who gets what it has left."""
        self._awaited: set[str] = set()
        """The clients of those sessions."""
        self._over: set[str] = set()
        """Gateways that are no more, while others may still be heard of them."""
        self._settling: set[str] = set()
        """Owners whose sessions all name this gateway once a batch is committed: not to be looked through again."""

    # -- what is written --

    def is_alone(self) -> bool:
        """Whether no other gateway may own a session."""
        return not self.owners.peers()

    def expired_owners(self) -> list[str]:
        """The gateways whose sessions and wills this one takes over as it recovers; see `Recovering`."""
        return self._recovering.begin()

    def is_own(self, record: dict[str, Any]) -> bool:
        """Whether a stored session or will is this gateway's during recovery."""
        return self._recovering.is_own(record)

    def is_nobodys(self, record: dict[str, Any]) -> bool:
        """Whether a stored session is this gateway's unless there is another one of the same client."""
        return self._recovering.is_nobodys(record)

    def recovered(self, expired: list[str]) -> None:
        """All that is this gateway's, with what these others left, has been recovered: messages of other gateways are
        answered from now on. Where there are others, nothing is taken over before these have told what they want, and
        have given up what gateways that are no more had asked them for."""
        gone = [owner for owner in expired if owner]
        self.context.on_succession(gone)
        self.interests.changed()
        if self.owners.peers():
            self.joining.begin()
            self._loading = self._join()
        else:
            for owner in gone:
                self._all_follow(owner)
            for owner in gone:
                self._inherited(owner, gone, self.from_others.left(owner))
                self.unfinished.here(owner)
            self.unfinished.settle()
            if expired:
                self._settle(expired)
        self._recovering.end()
        self.owners.listen(self.on_message, self.changed)
        self.from_others.start()
        if self._loading is not None:
            self._load()

    def _join(self) -> Steps[None]:
        """Begin beside other gateways."""
        self.unfinished.ask()
        yield from self._heard_by_all()
        self._loading = None
        self.unfinished.put_for_unread()
        self.joining.finish(unread=self.unfinished.unread)
        self.changed()

    def claim(self, session: Session, record: dict[str, Any]) -> None:
        """Write this gateway as the owner into the record of a session that names another, or none."""
        if record.get("owner", "") == self.instance:
            return
        former = record.get("owner", "")
        session.epoch = record.get("epoch", 0) + 1
        if former and (former in self.owners.expired_owners() or former in self._recovering.owners):
            self.moves.inherits(session, former, record)
        record = record | self.context.owner_of(session)
        if record["connected"]:
            record |= {"connected": False, "since": self.context.now, "sent": session.outflow.redelivered}
        self.context.batch.replace(SESSIONS, session.key, encode_json(record))

    def _settle(self, expired: list[str]) -> None:
        """Once the open batch is committed, nothing that is stored names these owners: note that then."""
        self._settling.update(expired)
        self.context.batch.after.append(lambda: self._settled(expired))

    def _settled(self, expired: list[str]) -> None:
        self.unfinished.settled(expired)
        for owner in expired:
            self.owners.taken_over(owner)
        self._settling.difference_update(expired)
        self.owners.reached("taken-over")
        self._loading = None
        self.changed()

    # -- a device connects --

    def holds_up(self, client_id: str, waiter: Waiter) -> bool:
        """Whether a CONNECT has to wait for the answers of other gateways; the waiter is called when they have come."""
        is_here = self.context.sessions.get(client_id) is not None and client_id not in self.claims
        if is_here and self.joining.over and client_id not in self._wills_due:
            return False
        waits = self._has_to_wait(client_id)
        if not waits and not self.owners.peers() and client_id not in self._receiving:
            return False
        if self.claims.add(client_id, waiter) and not waits and client_id not in self._receiving:
            self.claims.ask(client_id)
        return True

    def _go_on(self, client_id: str) -> None:
        if client_id not in self._receiving:  # else when its session has been read
            self.claims.go_on(client_id)

    def _may_come(self, client_id: str) -> bool:
        """Whether a session that is not here may be on its way."""
        return self._busy or client_id in self._receiving or client_id in self.claims

    def _takers(self) -> set[str]:
        """The gateways that take messages for devices; those that are no more are forgotten."""
        self._over &= self.owners.peers()
        return {one for one in self.interests.told - self._over if self.owners.reads(one)}

    # -- messages between gateways --

    def on_message(self, message: Message) -> None:
        """Take a question or an answer from another gateway."""
        self.context.now = self.context.scheduler.now()
        kind = message["kind"]
        self.interests.introduce(message["from"])
        if (kind == "gone" and self._receiving) or (kind in {"gone", "heard?"} and self._until_received):
            self._awaited = self._awaited or set(self._receiving)
            self._until_received.append(message)
        else:
            self._take(kind, message.get("client", ""), message)
        self.context.flush()

    def _take(self, kind: str, client_id: str, message: Message) -> None:
        if kind == "ask":
            self._asked(message)
        elif kind == "yours":
            self._receiving.add(client_id)
            self.claims.given(message)
            self._receive(message)
        elif kind == "named":
            self._named(client_id, message)
        elif kind == "withdraw":
            self._deferred.withdraw(client_id, message["from"])
        elif kind in {"none", "wait", "anothers"}:
            if self.claims.answered(message):
                self._look_for(client_id)
        elif kind in {"ended", "gone", "handed over"}:
            self._taken_over_elsewhere(kind, message["gateway"], message["from"])
        elif kind == "census":
            self.census.heard(message, self.context.now, self.context.scheduler.monotonic())
        elif kind == "rebalance":
            self.rebalance.on_message(message)
        else:
            self.moves.on_message(message)
            self.interests.on_message(message)
            self.retained.on_message(message)
            self.unfinished.on_message(message)

    def _taken_over_elsewhere(self, kind: str, gateway: str, heir: str) -> None:
        """Note that another gateway takes over from one that has ended: when it knows the sessions, and at the end."""
        if kind != "handed over":  # a session that was its own may come here next
            self.context.on_succession([gateway])
        self._over.add(gateway)
        self.addressed.over(gateway, heir)
        if kind == "ended":
            self.interests.expect_nothing_of(gateway)
            self._deferred.drop_those_of([gateway])
        elif kind == "gone":
            was_last = self.unfinished.gone_elsewhere(gateway)
            self.moves.forget(gateway, heir)
            if was_last:
                self.joining.finish()
                self.changed()
        else:
            self.unfinished.elsewhere(gateway)

    def _asked(self, message: Message) -> None:
        client_id, sender = message["client"], message["from"]
        session = self.context.sessions.get(client_id)
        anothers = self._is_anothers(session, message)
        earlier = client_id in self._deferred  # who asked first is given it first
        looks = message["looks"] = message.get("looks", 0) + (not self.context.is_full)
        unread = not anothers and looks <= _LOOKS and not (session is None or self.endings.is_heard(session.connection))
        if session is not None and not (self._busy or anothers or earlier or unread):
            if session.unconfirmed:
                session.expiry = 0  # its client has not been told of it
            if session.connection is not None and not session.expiry:
                self.endings.take_over(session.connection)  # and so it ends
                message["closed"] = True
        reading = client_id in self._receiving or session in self.context.sessions.ending
        reading = reading or (session is not None and self.moves.is_unsettled(session))
        late = session is not None and (earlier or unread or self.endings.must_release_first(session))
        if (self._is_left(client_id) if session is None else self._busy) or reading or late:
            self._defer(message)
            return
        standing = Standing.NOTHING
        if session is None:
            standing = self.claims.standing(client_id, sender)
        if standing is Standing.UNKNOWN or (earlier and standing is Standing.NOTHING):
            self._defer(message)
            return
        self.owners.reached("asked")
        answer = {"kind": "none", "client": client_id, "number": message["number"]}
        if anothers:
            answer["kind"] = "anothers"
        elif standing is Standing.GOES_ON:
            answer["kind"] = "wait"
        elif session is not None:
            stays = self.moves.stays_of(session)
            message["closed"] = message.get("closed", False) or session.connection is not None
            if self._give(session, sender):
                answer |= {"kind": "yours", "stays": stays, "given_at": self.to_others.number, "now": self.context.now}
        if message.get("closed") and answer["kind"] == "none":
            answer["closed"] = True  # that client has nothing to take over but the place of one that was connected
        self._write(sender, answer)
        self.owners.reached("answered")

    def _is_anothers(self, session: Session | None, message: Message) -> bool:
        """Whether the session asked for belongs to another user. Gateways of earlier versions do not say who asks."""
        return "listener" in message and self.context.is_anothers(session, message["user"], message["listener"])

    def _defer(self, message: Message) -> None:
        if not self._deferred and not self._busy:
            self.context.scheduler.later(_AGAIN_SECONDS, self._ask_again)
        self._deferred.add(message)

    def _ask_again(self) -> None:
        for message in self._deferred.take():
            self.on_message(message)

    def _write(self, to: str, message: Message) -> None:
        self.interests.write_changes()  # whatever is said refers to what has been said before
        head = self.router.state_head(encode_json(message | {"from": self.instance}))
        self.context.batch.put_state(GATEWAYS, message_key(to), head, b"")

    # -- transfer --

    def _give(self, session: Session, to: str) -> bool:
        """Transfer a session in the open batch. Returns False if it has ended with its connection."""
        context = self.context
        if session.connection is not None:
            self.endings.take_over(session.connection)
        if context.sessions.get(session.client_id) is not session:
            return False
        owner = {"owner": to, "epoch": session.epoch + 1}
        came = {"came": self.moves.given(session, to)}
        context.batch.replace(SESSIONS, session.key, session.to_record(context.now, owner | came))
        if session.will is not None:
            delay = max(0.0, session.will_at - context.now)
            will = will_record(session, session.will, delay) | owner
            context.batch.replace(WILLS, session.key, encode_json(will))
        self.moves.goes(session, to)
        self._forget(session)
        self.context.counters.mqtt_sessions_signed_over += 1
        return True

    def _forget(self, session: Session) -> None:
        """Forget a session that is another gateway's now: nothing of it is touched any more."""
        context = self.context
        self.endings.unsubscribe_all(session)
        context.sessions.remove(session)
        context.stored.emptied(session)
        self.expiry.forget(session)
        context.refill.pop(session, None)

    def _receive(self, message: Message) -> None:
        """Read the session that another gateway has transferred; its device may be waiting for it."""
        self.owners.reached("receiving")
        self.looks.given(message["client"], partial(self._received, message))

    def _named(self, client_id: str, message: Message) -> None:
        """Read a session that no gateway has, as another one has found, and whose record names this one. What the open
        batch does may be that it is given away."""
        known = client_id in self._receiving or client_id in self.claims or self.context.sessions.get(client_id)
        if not known and self.joining.over and not self._busy:
            self._receiving.add(client_id)
            message = self.looks.given_before(client_id) or message
            self.context.batch.after.append(partial(self._receive, message))

    def _received(self, message: Message, found: Found) -> None:
        client_id, was_given = message["client"], message["kind"] == "yours"
        self._receiving.discard(client_id)
        if isinstance(found, Unread):
            self.looks.set_aside(client_id, found)
        elif isinstance(found, Left):
            restore = partial(self._restore_received, message=message) if was_given else self._restore_stray
            self.looks.take_in(client_id, found, partial(restore, found))
        elif was_given and self.context.sessions.get(client_id) is None:
            self.looks.miss_given(client_id, message)
        self.owners.reached("received")
        if client_id in self.claims:
            self._go_on(client_id)
        self._awaited.discard(client_id)
        if self._until_received and not self._awaited:
            messages, self._until_received = self._until_received, []
            for one in messages:
                self._take(one["kind"], "", one)

    def _look_for(self, client_id: str) -> None:
        """Let a client go on whose session no gateway says it has, if no record says otherwise either."""
        self.looks.unowned(client_id, self._take_in_stray, self._go_on)

    def _take_in_stray(self, client_id: str, left: Left) -> None:
        message = self.looks.given_before(client_id)
        restore = self._restore_stray if message is None else partial(self._restore_received, message=message)
        self.looks.take_in(client_id, left, partial(restore, left))

    def _restore_stray(self, left: Left) -> None:
        self._restore_will(self._restore(left), left)

    def _restore_received(self, left: Left, message: Message) -> None:
        if "now" in message:  # the clock by which that gateway has written it may show another time
            ahead = self.context.now - message["now"]
            left = left._replace(record=left.record | {"since": left.record["since"] + ahead})
        session = self._restore(left)
        stays, given_at = stays_from(message), message.get("given_at", 0)
        move = self.moves.comes(session, message["from"], stays, left.record, given_at)
        self.context.batch.replace(SESSIONS, session.key, encode_json(left.record | self.context.owner_of(session)))
        self._restore_will(session, left)
        self.interests.ask_all(lambda: self.moves.known(session.client_id, move))

    def _restore(self, left: Left) -> Session:
        session = self.recovery.restore_session(left.record, left.looked)
        self.claim(session, left.record)
        for staged in left.all_staged():
            restore_staged(session, staged)
        return session

    def _restore_will(self, session: Session, left: Left) -> None:
        """Restore a will whose delay had begun."""
        for stored in left.wills:
            record = decode_json(stored.data)
            session.will, session.will_at = will_from_record(record), self.context.now + record["delay"]
            self.context.sessions.watch_until(session, session.will_at)

    # -- orphaned sessions --

    @property
    def _busy(self) -> bool:
        """Whether sessions are being taken over: who owns what is not known until then."""
        return self._loading is not None or bool(self.owners.expired_owners())

    def _is_left(self, client_id: str) -> bool:
        """Whether a session that is not here, or its will, may be left of a gateway from which this one takes over."""
        return self._busy and (
            client_id in self._wills_due or self._left_over.may_have(client_id, self.owners.expired_owners())
        )

    def _has_to_wait(self, client_id: str) -> bool:
        """Whether others may not be asked for a client yet. What is published has to find all who want it."""
        return not self.joining.over or self._is_left(client_id)

    def changed(self) -> None:
        """Other gateways have started or ended: take over the orphaned sessions that are this gateway's, then ask again
        for those that devices wait for."""
        self.context.now = self.context.scheduler.now()
        self.interests.changed()
        expired = [owner for owner in self.owners.expired_owners() if owner not in self._settling]
        if self._loading is None and not self._settling:
            if expired:
                self._loading = self._take_over(expired)
                self._load()
            else:
                self._ask_for()
        self.context.flush()

    def _load(self, found: Any = None) -> None:
        """Do the next step, with what the last one wanted to read."""
        assert self._loading is not None  # noqa: S101 -- begun by `changed`
        if isinstance(found, MQError):  # it is away: from the beginning when it is back; what is taken over stays
            self._loading = None
            self.context.scheduler.later(_RETRY_SECONDS, self.changed)
            return
        try:
            read = self._loading.send(found)
        except StopIteration:
            self.context.flush()
            return
        except Exception as error:  # noqa: BLE001 -- from the beginning, as when the queue manager is away
            self.context.set_aside.keep("call", "sessions of a gateway that has ended", error)
            self._loading = None
            self.context.scheduler.later(_RETRY_SECONDS, self.changed)
            return
        if read is WAIT:
            self.context.flush()
        elif read is not None:
            self.context.ask(read, self._load)
        else:
            self.context.flush()
            self.context.scheduler.later(0.0, self._load)

    def _take_over(self, expired: list[str]) -> Steps[None]:
        """Take over the sessions and wills of these owners. Yields what is to be read at each step, or None where
        others get their turn."""
        context, gone = self.context, [owner for owner in expired if owner]
        context.on_succession(gone)
        self._over.update(expired)
        for owner in expired:
            self.addressed.over(owner, self.instance)
            self.interests.expect_nothing_of(owner)
            self.interests.say("ended", owner)
        self._left_over.begin(expired)
        yield from self._heard_by_all()  # whoever it had asked for a session has given it now, or does not any more
        self._deferred.drop_those_of(expired)
        record_of = partial(record_or_aside, context, self.owners)
        kept = yield lambda: list(context.queue_manager.load(WILLS))
        wills = [(key, stored, record) for key, stored in kept if (record := record_of("will", key, stored))]
        wills = [one for one in wills if one[2].get("owner", "") in expired]
        self._wills_due = {record.get("client", "") for _, _, record in wills}
        sessions = iter(context.queue_manager.load(SESSIONS))
        while some := (yield lambda: list(islice(sessions, _SLICE))):
            for key, stored in some:
                record = record_of("session", key, stored)
                if record.get("owner", "") in expired and context.sessions.get(record["client"]) is None:
                    self._left_over.found(Orphan(key, stored, record))
            yield None
        self._left_over.all_found()
        self._ask_for()  # those that wait and have nothing there need not wait for all others
        while some := self._left_over.next(self.claims.clients()):
            for orphan, begun in (yield partial(begin_several, context.queue_manager, some)):
                yield from self._adopt(orphan, begun)
        for key, stored, record in wills:
            context.set_aside.record("will", WILLS, key, stored, partial(self._restore_orphaned_will, key, record))
        self._wills_due = set()
        for client_id in self.claims.those_of(context.sessions):  # what was put for their gateway follows
            self._go_on(client_id)
        yield from self._forwarded_to(gone)
        self._settle(expired)
        self.owners.reached("signing")

    def _adopt(self, orphan: Orphan, begun: Begun) -> Steps[None]:
        """Take one session over; its client may be waiting for it."""
        context, client_id = self.context, orphan.record["client"]
        left = yield from left_by_pages(context, orphan.record, orphan.stored, begun)
        record = partial(context.set_aside.record, "session", SESSIONS, orphan.key, orphan.stored)
        if context.sessions.get(client_id) is None and record(partial(self._restore, left)):
            context.counters.mqtt_sessions_taken_over += 1
        self._left_over.taken(orphan)
        may_go_on = self.joining.over and client_id not in self._wills_due
        if may_go_on and client_id in self.claims and context.sessions.get(client_id):
            self._go_on(client_id)
        if not context.counters.mqtt_sessions_taken_over % _SLICE:
            self.owners.reached("slice")

    def _restore_orphaned_will(self, key: bytes, record: dict[str, Any]) -> None:
        self.wills.restore(self.context.sessions.get(record["client"]), key, record)

    def _forwarded_to(self, gone: list[str]) -> Steps[None]:
        """Take what others have put for these gateways: it is for the sessions that were theirs. First all others hear
        that nothing is to be put for them any more, and this gateway has read all that was written to it."""
        for owner in gone:
            self.unfinished.gone_here(owner)
        self.joining.finish(unread=self.unfinished.unread)
        yield from self._heard_by_all()
        while self._receiving:  # what these gave last: who gets what they have left is known when it is here
            yield lambda: None
        for owner in gone:
            self.moves.forget(owner, self.instance)  # a session that has come from it waits for nothing any more
            self._all_follow(owner)
        for owner in gone:
            yield from self.from_others.pages_left(owner, partial(self._inherited, owner, gone), self._committed)
            self.interests.say("handed over", owner)
            self.unfinished.here(owner)
        self.unfinished.settle()

    def _heard_by_all(self) -> Steps[None]:
        """Wait until all others, and this gateway, have read what has been written to them so far."""
        yield from waited_for(self.context, partial(self.interests.ask_all, oneself=True), self._load)

    def _committed(self) -> Steps[None]:
        """Wait until the open batch is committed."""
        yield from waited_for(self.context, self.context.batch.after.append, self._load)

    def _all_follow(self, owner: str) -> None:
        for client, move in self.moves.all_follow(owner):
            self.interests.ask_all(partial(self.moves.known, client, move))

    def _inherited(self, owner: str, gone: Collection[str], found: Iterable[Stored]) -> None:
        """Take what was left for an owner. `gone`: whose sessions are read; others' may have come from there, too."""
        peers = self.owners.peers().union(self.owners.expired_owners()).difference({"", *gone})
        self.from_others.inherited(owner, found, peers)

    def _ask_for(self) -> None:
        """Ask for the clients that wait, except those that have to wait on; then answer what others ask."""
        sessions = self.context.sessions
        for client_id in self.claims.ask_again(lambda one: sessions.get(one) is not None, self._has_to_wait):
            self._look_for(client_id)
        self._ask_again()
