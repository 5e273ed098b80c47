"""What sessions have in flight: sending what the window allows, the client's acknowledgements, and sending again. Pure.

Stored messages that are not in memory are fetched a page at a time, in the order in which they were stored. A remote
queue manager is asked, and the page is sent on when it arrives. What is stored meanwhile is not in memory either: it
lies after the page, and the next fetch finds it.

Acknowledgements come in runs: a client acknowledges in one go what it has been sent in one go. `InFlight.take` takes
them from the bytes; what it leaves is for `puback`, `pubrec` and `pubcomp`, one at a time and with the same result.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from gateway.broker.context import Context
from gateway.broker.deliver.releases import Releases
from gateway.broker.deliver.reports import Reports
from gateway.broker.publish.router import Router
from gateway.broker.refused.set_aside import Aside, aside_of
from gateway.errors import MQError, ProtocolError
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import PUBREL, V5
from gateway.ports.batch import Puts, Stored, Token
from gateway.ports.state_queues import OUT
from gateway.rules.feedback import Feedback
from gateway.session import copy_columns
from gateway.session.connection import ONLINE, VOID, Connection
from gateway.session.copies import Copies
from gateway.session.copy_columns import PUBACK, PUBCOMP, PUBREC
from gateway.session.outflow import Item, restored, restored_several
from gateway.session.record import RELEASED, Decoding, encode_prefix, encode_publication
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.batch import Delivery

ACKNOWLEDGEMENTS = frozenset({PUBACK, PUBREC, PUBCOMP})
"""First bytes of what `InFlight.take` looks at."""
_PAGE = 200
_AGAIN_SECONDS = 1.0
AT_ONCE_SECONDS = 0.005
"""For what one session has in flight or stored, in one turn: a window may have room for 65,535 messages."""
_LOOKED_AT = 500
"""Connections in each step of a look at all of them."""
_SENT_AGAIN = 50
"""Messages at each step."""


class InFlight:
    """What is sent to subscribers and not acknowledged yet."""

    def __init__(self, context: Context, router: Router, reports: Reports) -> None:
        self.context = context
        self.router = router
        self.reports = reports
        self.releases = Releases(context, router)
        self._rights_changed = self._rights_asked_for = 0
        """How often the access list has changed, and for how many of these sessions are still asked about."""

    # -- sending --

    def deliver(self, deliveries: list[Delivery]) -> None:
        """The batch is committed: hand the copies to their sessions, then fill each window once."""
        context, sessions = self.context, dict[Session, None]()
        for session, items, puts, row, count in deliveries:
            if puts is not None and session.ended:  # it ended while this was being committed
                context.batch.taken(OUT, session.key).extend(puts.tokens[row : row + count])
            elif puts is not None and (items is None or not self._in_memory(session)):
                self._leave_stored(session, puts, row, count, sessions)
            elif items is not None and (puts is not None or session.connection is not None):
                if puts is not None:
                    _name(items, puts.tokens[row : row + count])
                try:
                    if isinstance(items, Copies) and self._send_now(session, items):
                        continue
                    session.outflow.offer(items)
                except Exception as error:  # noqa: BLE001 -- as in `fill`
                    session.outflow.unfetched |= puts is not None
                    if session.connection is not None:
                        context.defect(session.connection, error)
                    continue
                sessions[session] = None
        for session in sessions:
            self.fill(session)

    def _send_now(self, session: Session, copies: Copies) -> bool:
        """Send copies for which nothing has to be waited; False, with nothing done, if there is anything."""
        connection, outflow = session.connection, session.outflow
        if connection is None or connection.state != ONLINE or not outflow.resumed:
            return False
        data = outflow.send_now(copies, self.context.now)
        if data is None:
            return False
        self.context.counters.packets_out[3] += len(copies.bodies)
        self.context.send_counted(connection, data)
        return True

    @staticmethod
    def _in_memory(session: Session) -> bool:
        """Whether what is stored for a session now is kept in memory, too."""
        outflow = session.outflow
        return session.connection is not None and not outflow.unfetched and outflow.queued < 4 * _PAGE

    def _leave_stored(self, session: Session, puts: Puts, row: int, count: int, sessions: dict[Session, None]) -> None:
        """It is fetched when it can be sent."""
        context, outflow = self.context, session.outflow
        outflow.unfetched = outflow.missed = True
        if session.connection is not None:
            sessions[session] = None  # nothing else may ask for it
        elif session in context.sessions.ending:
            context.sessions.ending[session].stored_meanwhile(puts, row, count)

    def fill(self, session: Session) -> None:
        """Send what the session's window allows, fetching stored messages when memory has run out of them."""
        connection = session.connection
        if connection is None or connection.state != ONLINE or not session.outflow.resumed:
            return
        try:
            self._fill(session, connection)
        except Exception as error:  # noqa: BLE001 -- a defect costs the connection that met it, not the others
            self.context.defect(connection, error)

    def _fill(self, session: Session, connection: Connection) -> None:
        context, outflow = self.context, session.outflow
        out: list[bytes] = []
        until = 0.0
        while True:
            sent, over = self._send(session, out)
            context.counters.packets_out[3] += sent
            self._drop_unsent(session, over)
            if outflow.ready:
                continue  # the first of those that wait meets a defect
            if not outflow.unfetched or outflow.pending or len(outflow.inflight) >= outflow.window:
                break
            now = context.clock.monotonic()
            until = until or now + AT_ONCE_SECONDS
            if now > until and not outflow.fetching:
                self._fetch_later(session, 0.0)
            if not self._fetch(session, out):
                break
        if out:
            context.send_counted(connection, out[0] if len(out) == 1 else b"".join(out))

    def _send(self, session: Session, out: list[bytes]) -> tuple[int, list[Item]]:
        """What may be sent; an item that meets a defect is set aside, and the next one has its turn."""
        outflow = session.outflow
        while True:
            try:
                return outflow.fill(self.context.now, out)
            except Exception as error:  # noqa: BLE001 -- it is the first that cannot be sent
                self._set_aside(session, outflow.pop(), error)

    def _set_aside(self, session: Session, item: Item, error: Exception) -> None:
        def aside() -> Aside:
            data = encode_publication(item.publication, item.packet_id, item.sub_ids)
            if item.token is None:
                return Aside(b"", data, {"queue": OUT, "key": session.key})
            return aside_of(OUT, session.key, Stored(item.token, b"", data))

        if self.context.set_aside.keep("stored", session.client_id, error, aside) and item.token is not None:
            self.context.stored.taken(session, len(item.publication.payload))

    def _drop_unsent(self, session: Session, items: list[Item]) -> None:
        """They cannot be sent: each has expired, or is larger than the client takes."""
        for item in items:
            expired = not item.dup and item.publication.expired(self.context.now)
            self.context.counters.messages_dropped["_none", "expired" if expired else "too_large"] += 1
            if expired:
                self.reports.expired(item.publication)
            else:
                self.reports.negative(item.publication, Feedback.TOO_LONG)
            self.settle(session, item)

    def _allowed(self, session: Session, item: Item) -> bool:
        """Whether the access list, as it is now, lets the session have what was stored for it; if not it is taken."""
        if self.router.may_receive(session, item.publication.topic.decode()):
            return True
        self.context.counters.messages_dropped["_none", "denied"] += 1
        self.reports.negative(item.publication, Feedback.NOT_AUTHORISED)
        self.settle(session, item)
        return False

    def check_rights(self) -> None:
        """The access list has changed: routes are computed again, what waits in memory is asked about again, what is
        stored when it is fetched. What a connected client already has in flight takes its course."""
        self.router.touch()
        for connection in self.context.connections:
            if connection.session is not None:
                self._check_rights_of(connection.session)
        self._rights_changed += 1
        self.context.slices.run(f"rights {self._rights_changed}", self._check_rights_of_those_away)
        self.context.flush()

    def _check_rights_of_those_away(self) -> Iterator[None]:
        """There may be a hundred thousand: who comes meanwhile is asked about when he does."""
        self._rights_asked_for += 1
        try:
            for some in self.context.sessions.portions():
                for session in some:
                    if _is_away(session):
                        check = partial(self._check_rights_of, session)
                        self.context.set_aside.run("session", session.client_id, check)
                yield
        finally:
            self._rights_asked_for -= 1

    def check_rights_of(self, client_id: str) -> None:
        """The same, where one client alone has other rights now. The caller sees to it that what is written goes
        out."""
        session = self.context.sessions.get(client_id)
        if session is None:
            return
        self.router.touch_filters(session.subscriptions)
        if session.connection is not None:
            session.connection.generation = VOID
        self._check_rights_of(session)

    def _check_rights_of(self, session: Session, *, resumes: bool = False) -> None:
        outflow = session.outflow
        if outflow.pending:
            outflow.wait(item for item in outflow.pending_items() if self._allowed(session, item))
        if resumes or _is_away(session):
            for item in outflow.items():
                if not item.released and not self._allowed(session, item):
                    del outflow.inflight[item.packet_id]

    def settle(self, session: Session, item: Item) -> None:
        """An item needs no acknowledgement any more: its row is taken with the open batch."""
        if item.token is not None:
            self.context.batch.take(OUT, session.key, item.token)
            self.context.stored.taken(session, len(item.publication.payload))
        session.be_in_turn()

    # -- stored messages that are not in memory --

    def _fetch(self, session: Session, out: list[bytes]) -> bool:
        """Fetch what the window has room for; whether there is more to be sent, or fetched, at once."""
        context, outflow = self.context, session.outflow
        if outflow.fetching:
            return False
        if context.remote_reads is not None:
            self._ask(session)
            return False
        try:
            page = context.queue_manager.fetch(OUT, session.key, _PAGE, outflow.last_token)
        except MQError:
            self._fetch_later(session)
            return False
        self._take_in(session, page, context.being_taken(OUT, session.key), out)
        return outflow.unfetched or bool(outflow.pending)  # a page may hold nothing that can be sent

    def _fetch_later(self, session: Session, seconds: float = _AGAIN_SECONDS) -> None:
        """The queue manager is away, or others have their turn: go on then, unless the client has disconnected."""
        context, outflow, visits = self.context, session.outflow, session.outflow.connects
        outflow.fetching = True  # nobody else has to try

        def again() -> None:
            if outflow.connects == visits:
                outflow.fetching = False
                context.now = context.scheduler.now()
                context.refill[session] = None
                context.flush()

        context.scheduler.later(seconds, again)

    def _ask(self, session: Session) -> None:
        """Ask for the next page."""
        context, outflow, manager = self.context, session.outflow, self.context.queue_manager
        outflow.fetching, outflow.missed = True, False
        after, visits, being_taken = outflow.last_token, outflow.connects, context.being_taken(OUT, session.key)

        def answered(page: list[Stored] | MQError) -> None:
            connection = session.connection
            if outflow.connects != visits or connection is None:
                return
            outflow.fetching = False
            if isinstance(page, MQError):
                self._fetch_later(session)
                return
            out: list[bytes] = []
            self._take_in(session, page, being_taken | context.being_taken(OUT, session.key), out)
            if out:
                context.send_counted(connection, b"".join(out))
            if page or outflow.missed:
                context.refill[session] = None
            # what is stored after the look is not offered, and what is being committed may have been seen already
            outflow.unfetched = outflow.unfetched or outflow.missed or context.stores_for(session)

        context.ask(lambda: manager.fetch(OUT, session.key, _PAGE, after), answered)

    def _take_in(self, session: Session, page: list[Stored], being_taken: Container[Token], out: list[bytes]) -> None:
        """The next stored messages of a session. One released before a restart goes on with PUBREL."""
        outflow, decoding = session.outflow, Decoding()
        outflow.unfetched = len(page) == _PAGE
        if page:
            outflow.last_token = page[-1].token
        page = [stored for stored in page if stored.token not in being_taken]
        tokens, records = [stored.token for stored in page], [stored.data for stored in page]
        at = 0
        while at < len(page):
            taken = 0 if outflow.redelivered else self._take_in_several(session, records, tokens, at, decoding)
            if not taken:
                self._take_in_each(session, page[at], decoding, out)
            at += taken or 1

    def _take_in_several(
        self, session: Session, records: list[bytes], tokens: list[Token], at: int, decoding: Decoding
    ) -> int:
        """So many from this one on as are alike; 0, with nothing done, if each is to be looked at."""
        outflow = session.outflow
        try:
            copies = restored_several(records, tokens, at, decoding)
            if copies is None:
                return 0
            known = not outflow.inflight.keys().isdisjoint(range(copies.first, copies.first + len(copies)))
            if known or not self.router.may_receive(session, copies.like.topic.decode()):
                return 0
        except Exception:  # noqa: BLE001 -- the one that meets the defect is set aside when each is looked at
            return 0
        outflow.line().append(copies)
        outflow.queued += len(copies)
        return len(copies)

    def _take_in_one(self, session: Session, stored: Stored, decoding: Decoding, out: list[bytes]) -> None:
        context, outflow = self.context, session.outflow
        item = restored(stored, decoding)
        under_way = outflow.item(item.packet_id)
        if under_way is not None and under_way.token in {None, stored.token}:
            return
        if not item.released and not self._allowed(session, item):
            return
        if outflow.redelivered:
            outflow.redelivered -= 1
            item.dup = True
        if item.released:
            outflow.inflight[item.packet_id] = item
            outflow.sent_token = stored.token
            out.append(outflow.pubrel(item.packet_id, again=True))
            context.counters.packets_out[6] += 1
        else:
            outflow.line().append(item)
            outflow.queued += 1

    def _take_in_each(self, session: Session, stored: Stored, decoding: Decoding, out: list[bytes]) -> None:
        """One by itself; if it meets a defect, or nobody can read it, it is set aside."""
        call = partial(self._take_in_one, session, stored, decoding, out)
        if not self.context.set_aside.record("stored", OUT, session.key, stored, call):
            self.context.stored.added(session, 0, -1)

    # -- acknowledgements in runs --

    def take(self, connection: Connection, data: bytes, offset: int) -> int:
        """Do what the acknowledgements at `offset` ask for, as far as they are plain; returns the offset of the first
        packet that is not. That is for `puback`, `pubrec` or `pubcomp`, which do the same with one."""
        before = -1
        while before < offset < len(data):
            before, first = offset, data[offset]
            if first in {PUBACK, PUBCOMP}:
                offset = self._settle_several(connection, data, offset, first)
            elif first == PUBREC:
                offset = self._release_several(connection, data, offset)
        return offset

    def _settle_several(self, connection: Connection, data: bytes, offset: int, first: int) -> int:
        """PUBACKs or PUBCOMPs: these deliveries have ended."""
        session, context = connection.session, self.context
        outflow, tokens = session.outflow, list[Token]()
        stop, settled, size = copy_columns.settle(
            data, offset, first, connection.version == V5, outflow.inflight, tokens
        )
        if settled:
            if tokens:
                context.batch.taken(OUT, session.key).extend(tokens)
                context.stored.added(session, -size, -len(tokens))
            session.delivered += settled
            session.be_in_turn()
            context.counters.packets_in[first >> 4] += settled
            if outflow.pending or outflow.unfetched:
                context.refill[session] = None
        return stop

    def _release_several(self, connection: Connection, data: bytes, offset: int) -> int:
        """PUBRECs, of copies in the order in which they were sent together."""
        session, batch = connection.session, self.context.batch
        inflight = session.outflow.inflight
        ids, stops = copy_columns.packet_ids(data, offset, PUBREC, connection.version == V5, inflight)
        at = 0
        while at < len(ids):
            copies = inflight.get(ids[at])
            if copies is None or copies.qos != 2 or copies.released:
                break
            if isinstance(copies, Item):
                if copies.token is not None:
                    self._mark_released(session, copies)
                copies.released = True
                at += 1
                continue
            count = copy_columns.in_order(copies, ids, at, inflight)
            begin = ids[at] - copies.first
            released = copies.part(begin, begin + count)
            released.released, released.blocks = True, None
            inflight.update(zip(ids[at : at + count], repeat(released)))
            if released.tokens:
                self.releases.mark_all(session, released)
            at += count
        if at:
            pubrels = b"".join([b"\x62\x02" + packet_id.to_bytes(2, "big") for packet_id in ids[:at]])
            batch.replies.setdefault(connection, []).append(pubrels)  # [MQTT-4.3.3-4]
            batch.answered[6] += at
            self.context.counters.packets_in[5] += at
        return stops[at - 1] if at else offset

    # -- one acknowledgement at a time --

    def puback(self, connection: Connection, packet: Any) -> None:
        """A PUBACK ends a delivery at QoS 1, also with a failure [MQTT-4.4.0-2] [MQTT-4.8.2-6]. An id that is not in
        flight is ignored: it may answer what an earlier connection was sent."""
        item = connection.session.outflow.acknowledged(packet[1])
        self._end(connection, "PUBACK", packet[1], item, packet[2])

    def _end(self, connection: Connection, kind: str, packet_id: int, item: Item | None, reason: int) -> None:
        """A delivery has ended, unless an acknowledgement answers none."""
        session = connection.session
        if item is not None:
            session.delivered += 1
            self.settle(session, item)
            self._report(item, reason)
            self.context.refill[session] = None
        elif packet_id in session.outflow.inflight:
            self._unexpected(connection, kind, packet_id)

    def _report(self, item: Item, reason: int) -> None:
        """The device has answered a message that an application wants to hear about."""
        if reason >= 0x80:
            self.reports.negative(item.publication, Feedback.REJECTED)
        else:
            self.reports.positive(item.publication)

    def pubrec(self, connection: Connection, packet: Any) -> None:
        """QoS 2, first half. For a durable session the release is stored before PUBREL exists, so that a crash between
        cannot send the message again to a client that has already discarded its identifier."""
        _, packet_id, reason, _block = packet
        session, context = connection.session, self.context
        refused = reason >= 0x80
        item = session.outflow.received(packet_id, refused)
        if item is None and packet_id in session.outflow.inflight:
            self._unexpected(connection, "PUBREC", packet_id)
            return
        if item is None:
            answer = reasons.PACKET_IDENTIFIER_NOT_FOUND if connection.version == V5 else 0
            if not refused:
                context.send(connection, writer.encode_ack(connection.version, PUBREL, packet_id, answer, {}))
            return
        if refused:  # [MQTT-4.4.0-2]: the delivery ends
            self.settle(session, item)
            self._report(item, reason)
            self.fill(session)
            return
        if item.token is not None and not item.released:
            self._mark_released(session, item)
        item.released = True
        context.batch.reply(connection, b"\x62\x02" + packet_id.to_bytes(2, "big"))  # [MQTT-4.3.3-4]

    def _mark_released(self, session: Session, item: Item) -> None:
        """Replace the stored row by one that says `released` and needs no payload any more [MQTT-4.3.3-5]."""
        context, batch = self.context, self.context.batch
        batch.take(OUT, session.key, item.token)
        puts = batch.state_puts(OUT, session.key, priority=9)
        prefix = encode_prefix(item.publication, item.qos, item.retain, item.sub_ids, RELEASED)
        puts.heads.append(self.router.state_head(prefix))
        puts.bodies.append(item.packet_id.to_bytes(2, "little"))
        batch.rows += 1
        row = len(puts.heads) - 1
        item.token = None

        def stored() -> None:
            item.token = puts.tokens[row]
            if session.ended or session.outflow.inflight.get(item.packet_id) is not item:  # PUBCOMP overtook the commit
                context.batch.take(OUT, session.key, item.token)

        batch.after.append(stored)

    def pubcomp(self, connection: Connection, packet: Any) -> None:
        """A PUBCOMP ends a delivery at QoS 2."""
        self._end(connection, "PUBCOMP", packet[1], connection.session.outflow.completed(packet[1]), 0)

    def _unexpected(self, connection: Connection, kind: str, packet_id: int) -> None:
        """What is in flight is answered by the acknowledgement of another quality of service, or of another step."""
        text = f"{kind} does not answer what was sent with packet identifier {packet_id}: acknowledge by its QoS"
        self.context.protocol_error(connection, ProtocolError(text))

    # -- reconnect and retry --

    def resume(self, session: Session) -> None:
        """A session's client has connected again: what is in flight first, then what waited [MQTT-4.4.0-1]."""
        connection = session.connection
        if connection is None:
            return
        if self._rights_asked_for:
            self._check_rights_of(session, resumes=True)
        if session.outflow.inflight:
            work = partial(self._resumed, session, connection)
            self.context.slices.run(f"in flight {id(connection)}", work, AT_ONCE_SECONDS)
            return
        session.outflow.resumed = True
        self.fill(session)

    def _resumed(self, session: Session, connection: Connection) -> Iterator[None]:
        try:
            yield from self._send_again(session, connection)
            if session.connection is connection:
                session.outflow.resumed = True
                self.fill(session)
        except Exception as error:  # noqa: BLE001 -- as in `fill`
            self.context.defect(connection, error)

    def _send_again(self, session: Session, connection: Connection, *, stored: bool = False) -> Iterator[None]:
        """What is in flight, some of it at each step, as long as the client is there; `stored`: of what is released
        that of which this is stored."""
        context, out, over = self.context, list[bytes](), list[Item]()
        for count, _ in enumerate(session.outflow.resend(context.now, out, over, stored=stored), 1):
            if count % _SENT_AGAIN == 0:
                context.send_all(connection, out)
                out.clear()
                yield
                if session.connection is not connection or connection.state != ONLINE:
                    return
        self._drop_unsent(session, over)
        context.send_all(connection, out)

    def tick(self, now: float) -> Iterator[None]:
        """MQIsdp, and 3.1.1 where the settings say so: what is not acknowledged after the retry interval is sent again
        with DUP; never in 5.0 [MQTT-4.4.0-1]."""
        context = self.context
        interval, versions = context.limits.retry_interval, context.limits.retry_versions
        if not interval:
            return
        for number, connection in enumerate(list(context.connections), 1):
            if number % _LOOKED_AT == 0:
                yield
            outflow = connection.session.outflow
            if connection.version not in versions or not outflow.inflight or not outflow.resumed:
                continue
            if connection.state != ONLINE:  # since the last step
                continue
            if now - max(connection.last_retry, connection.connected_at) < interval:
                continue
            connection.last_retry = now
            session = connection.session
            yield from self._send_again(session, connection, stored=session.durable)
            yield


def _is_away(session: Session) -> bool:
    """Whether its client has been sent nothing since it left: who has no CONNACK yet is still to be sent all again."""
    return session.connection is None or not session.connection.connack_sent


def _name(items: list[Item] | Copies, tokens: Sequence[Token]) -> None:
    """They are stored now."""
    if isinstance(items, Copies):
        items.tokens = tokens
        return
    for item, token in zip(items, tokens, strict=True):
        item.token = token
