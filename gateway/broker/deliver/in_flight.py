"""What sessions have in flight: sending what the window allows, the client's acknowledgements, and sending again. Pure.

Stored messages that are not in memory are fetched a page at a time, in the order in which they were stored. A remote
queue manager is asked, and the page is sent on when it arrives. What is stored meanwhile is not in memory either: it
lies after the page, and the next fetch finds it.

PUBACKs come in runs: a client acknowledges in one go what it has been sent in one go. Anything but a plain PUBACK for a
message of QoS 1 in flight, of which no application wants reports, is left to `InFlight.puback`, one at a time and with
the same result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from itertools import takewhile
from struct import unpack
from typing import Any

from gateway.broker.context import Context
from gateway.broker.deliver.reports import Reports
from gateway.broker.publish.router import Router
from gateway.errors import MQError, ProtocolError
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import PUBREL, V5
from gateway.ports.batch import Puts, Stored, Token
from gateway.ports.state_queues import OUT
from gateway.rules.feedback import Feedback
from gateway.session.connection import ONLINE, Connection
from gateway.session.outflow import Item, restored
from gateway.session.record import RELEASED, Decoding, encode_prefix
from gateway.session.session import Session

PUBACK, PLAIN_PUBACK = 0x40, b"\x40\x02"
"""The first byte of a PUBACK, and its first two where it has neither reason nor properties."""
_PAGE = 200
_AGAIN_SECONDS = 1.0


class InFlight:
    """What is sent to subscribers and not acknowledged yet."""

    def __init__(self, context: Context, router: Router, reports: Reports) -> None:
        self.context = context
        self.router = router
        self.reports = reports

    # -- sending --

    def deliver(self, deliveries: list[tuple[Session, list[Item], Puts | None, int]]) -> None:
        """The batch is committed: hand the copies to their sessions, then fill each window once."""
        context, sessions = self.context, dict[Session, None]()
        ending, remote = context.sessions.ending, context.remote_reads is not None
        for session, items, puts, row in deliveries:
            outflow = session.outflow
            if puts is not None:
                tokens = puts.tokens[row : row + len(items)]
                if session.ended:  # it ended while this was being committed
                    context.batch.taken(OUT, session.key).extend(tokens)
                    continue
                if session.connection is None or outflow.unfetched or len(outflow.pending) >= 4 * _PAGE:
                    outflow.unfetched = outflow.missed = True
                    if session.connection is not None and remote:
                        sessions[session] = None  # nothing else may ask for it
                    elif session in ending:
                        ending[session].stored_meanwhile(puts, row, len(items))
                    continue
                for item, token in zip(items, tokens, strict=True):
                    item.token = token
            elif session.connection is None:
                continue
            outflow.offer(items)
            sessions[session] = None
        for session in sessions:
            self.fill(session)

    def fill(self, session: Session) -> None:
        """Send what the session's window allows, fetching stored messages when memory has run out of them."""
        connection = session.connection
        if connection is None or connection.state != ONLINE or not session.outflow.resumed:
            return
        outflow = session.outflow
        out: list[bytes] = []
        while True:
            for item in outflow.fill(self.context.now, out):
                self._drop_unsent(item)
                self.settle(session, item)
            if not outflow.unfetched or outflow.pending or len(outflow.inflight) >= outflow.window:
                break
            if not self._fetch(session, out):
                break
        if out:
            self.context.send_all(connection, out)

    def _drop_unsent(self, item: Item) -> None:
        """It cannot be sent: it has expired, or is larger than the client takes."""
        expired = item.publication.expired(self.context.now)
        self.context.counters.messages_dropped["_none", "expired" if expired else "too_large"] += 1
        if expired:
            self.reports.expired(item.publication)
        else:
            self.reports.negative(item.publication, Feedback.TOO_LONG)

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
        for session in self.context.sessions:
            outflow = session.outflow
            if outflow.pending:
                outflow.pending = deque(item for item in outflow.pending if self._allowed(session, item))
            if session.connection is None:
                for packet_id, item in list(outflow.inflight.items()):
                    if not item.released and not self._allowed(session, item):
                        del outflow.inflight[packet_id]
        self.context.flush()

    def settle(self, session: Session, item: Item) -> None:
        """An item needs no acknowledgement any more: its row is taken with the open batch."""
        if item.token is not None:
            self.context.batch.take(OUT, session.key, item.token)
            self.context.stored.taken(session, len(item.publication.payload))

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

    def _fetch_later(self, session: Session) -> None:
        """The queue manager is away: try again, unless the client has disconnected meanwhile."""
        context, outflow, visits = self.context, session.outflow, session.outflow.connects
        outflow.fetching = True  # nobody else has to try

        def again() -> None:
            if outflow.connects == visits:
                outflow.fetching = False
                context.now = context.scheduler.now()
                context.refill[session] = None
                context.flush()

        context.scheduler.later(_AGAIN_SECONDS, again)

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
                context.send_all(connection, out)
            if page or outflow.missed:
                context.refill[session] = None
            # what is stored after the look is not offered, and what is being committed may have been seen already
            outflow.unfetched = outflow.unfetched or outflow.missed or context.stores_for(session)

        context.ask(lambda: manager.fetch(OUT, session.key, _PAGE, after), answered)

    def _take_in(self, session: Session, page: list[Stored], being_taken: Container[Token], out: list[bytes]) -> None:
        """The next stored messages of a session. One released before a restart goes on with PUBREL."""
        outflow = session.outflow
        decoding, allowed = Decoding(), None
        offered: list[Item] = []
        for stored in page:
            outflow.last_token = stored.token
            if stored.token in being_taken:
                continue
            item = restored(stored, decoding)
            under_way = outflow.inflight.get(item.packet_id)
            if under_way is not None and under_way.token in {None, stored.token}:
                continue
            topic = item.publication.topic
            if not item.released and topic is not allowed:
                if not self._allowed(session, item):
                    continue
                allowed = topic
            if outflow.redelivered:
                outflow.redelivered -= 1
                item.dup = True
            if item.released:
                outflow.inflight[item.packet_id] = item
                outflow.sent_token = stored.token
                out.append(outflow.pubrel(item.packet_id, again=True))
            else:
                offered.append(item)
        if offered:
            outflow.pending.extend(offered)
        outflow.unfetched = len(page) == _PAGE

    # -- PUBACKs in runs --

    def settle_chunk(self, connection: Connection, chunk: bytes) -> bytes:
        """Settle what the PUBACKs a chunk begins with acknowledge, if it consists of plain ones; returns what is
        left."""
        number = len(chunk) >> 2
        end = number << 2
        if self.context.trace is not None or chunk[:end:4] != b"\x40" * number or chunk[1:end:4] != b"\x02" * number:
            return chunk
        settled = self._settle_ids(connection.session, unpack(f">{2 * number}H", chunk[:end])[1::2])
        return chunk[4 * settled :]

    def settle_packets(self, connection: Connection, packets: list[Any], start: int) -> int:
        """Settle what the packets from `start` on acknowledge; returns the number of the first that is left."""
        if self.context.trace is not None:
            return start
        of_a_kind = takewhile(_is_puback, packets[start:])
        return start + self._settle_ids(connection.session, [packet[1] for packet in of_a_kind])

    def _settle_ids(self, session: Session, packet_ids: Sequence[int]) -> int:
        """As far as they are plain; how many that were."""
        context, inflight = self.context, session.outflow.inflight
        tokens: list[Token] = []
        size = settled = 0
        for packet_id in packet_ids:
            item = inflight.get(packet_id)
            if item is None or item.qos != 1 or item.publication.report:
                break
            del inflight[packet_id]
            settled += 1
            if item.token is not None:
                tokens.append(item.token)
                size += len(item.publication.payload)
        if tokens:
            context.batch.taken(OUT, session.key).extend(tokens)
            context.stored.added(session, -size, -len(tokens))
        if settled:
            session.delivered += settled
            context.counters.packets_in[4] += settled
            context.refill[session] = None
        return settled

    # -- one acknowledgement at a time --

    def puback(self, connection: Connection, packet: Any) -> None:
        """A PUBACK ends a delivery at QoS 1, also with a failure [MQTT-4.4.0-2] [MQTT-4.8.2-6]. An id that is not in
        flight is ignored: it may answer what an earlier connection was sent."""
        session = connection.session
        inflight = session.outflow.inflight
        item = inflight.get(packet[1])
        if item is None or item.qos != 1:
            if item is not None:
                self._unexpected(connection, "PUBACK", packet[1])
            return
        del inflight[packet[1]]
        session.delivered += 1
        self.settle(session, item)
        if item.publication.report:
            self._report(item, packet[2])
        self.context.refill[session] = None

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
        session = connection.session
        item = session.outflow.completed(packet[1])
        if item is not None:
            session.delivered += 1
            self.settle(session, item)
            self._report(item, 0)
            self.context.refill[session] = None
        elif packet[1] in session.outflow.inflight:
            self._unexpected(connection, "PUBCOMP", packet[1])

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
        out: list[bytes] = []
        session.outflow.resend(self.context.now, out)
        session.outflow.resumed = True
        if out:
            self.context.send_all(connection, out)
        self.fill(session)

    def tick(self, now: float) -> None:
        """MQIsdp, and 3.1.1 where the settings say so: what is not acknowledged after the retry interval is sent again
        with DUP; never in 5.0 [MQTT-4.4.0-1]."""
        context = self.context
        interval, versions = context.limits.retry_interval, context.limits.retry_versions
        if not interval:
            return
        for connection in list(context.connections):
            if connection.version not in versions or not connection.session.outflow.inflight:
                continue
            if now - max(connection.last_retry, connection.connected_at) < interval:
                continue
            connection.last_retry = now
            out: list[bytes] = []
            connection.session.outflow.resend(context.now, out)
            context.send_all(connection, out)


def _is_puback(packet: Any) -> bool:
    return bool(packet[0] == PUBACK)
