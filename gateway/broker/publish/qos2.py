"""QoS 2: PUBLISH stages a publication where no consumer sees it, PUBREL makes it available (design decision 3). Pure.

`Staging` stages a publication as a record, and releases it by a put. `StagedRuns` stages several publications on one
topic as the messages that their rule makes of them; their PUBRELs move these without writing them again. This is for
queue managers that can move messages, for messages from which a restart can tell what they were (`read_staged`), and
only while nothing fails: `write_out` turns moves into puts and takes, whose failures the rules know how to handle.
"""

from __future__ import annotations

from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Any

from gateway.bridge.message import read_message
from gateway.broker import books
from gateway.broker.answers import pubcomp, pubrec
from gateway.broker.batch import Batch
from gateway.broker.marks import Mark
from gateway.broker.publish.publications import missed_by, reason_string
from gateway.broker.publish.route import FastPath
from gateway.errors import ProtocolError, Refused
from gateway.mqtt import reasons, writer
from gateway.mqtt.packets import PUBCOMP, PUBREC, V5, Properties
from gateway.ports.batch import MQMD_LENGTH, Moving, Stored, Token
from gateway.ports.state_queues import STAGED
from gateway.session.publication import Publication
from gateway.session.record import STORED_IDS, decode_publication, encode_prefix
from gateway.session.session import STAGED_ID
from gateway.session.staged_run import StagedRun

if TYPE_CHECKING:
    from gateway.broker.context import Context
    from gateway.broker.marks import Released
    from gateway.broker.moves import Move
    from gateway.broker.publish.publications import Publications
    from gateway.broker.publish.route import Route
    from gateway.broker.publish.router import Router
    from gateway.broker.refused.parking import Parking
    from gateway.session.connection import Connection
    from gateway.session.session import Plain, Session

_TOPIC = "topic://"
_REPORT, _EXPIRY = slice(8, 12), slice(16, 20)
_NEVER = b"\xff\xff\xff\xff"
"""Where an MQMD says whether reports are wanted and when the message expires."""
_MESSAGE = b"RFH "
"""The beginning of a staged message's data; a record's data begin with its version."""
_NAME = Struct("<4I")
_SAMPLE = 54_321, b"\x00RFH \xff"


class Staging:
    """Stages publications as records at PUBLISH, and makes what is staged available at PUBREL."""

    def __init__(self, context: Context, publications: Publications, staged_runs: StagedRuns) -> None:
        self.context = context
        self.router = publications.router
        self.publications = publications
        self.staged_runs = staged_runs

    # -- PUBLISH --

    def stage(
        self, connection: Connection, route: Route, publication: Publication, packet_id: int, properties: Properties
    ) -> None:
        """Store a publication where no consumer sees it, then answer PUBREC [MQTT-4.3.3-8]. The same packet identifier
        again changes nothing [MQTT-4.3.3-10], unless it had been refused [MQTT-4.3.3-9]."""
        context, session = self.context, connection.session
        publications = self.publications
        if packet_id not in session.inbound:
            refused = publications.refusal(connection, route, publication, properties)
            if refused is not None:  # 3.x is not told: its PUBREL finds nothing
                publications.answer(connection, PUBREC, packet_id, route, refused)
                return
            session.inbound[packet_id] = publication
            put_record(self.router, context.batch, session, packet_id, publication)
        if connection.version == V5 and not route.interested:
            publications.answer(connection, PUBREC, packet_id, route, None)
        else:
            context.batch.reply(connection, pubrec(packet_id))

    def make_way(self, connection: Connection, packet_id: int, publication: Publication) -> None:
        """Release what an earlier connection has staged under this identifier, if it is another message. A client that
        has lost its state while its session was kept starts its identifiers anew and never releases the earlier
        messages: what it sends now would be acknowledged and lost. A message that has had its PUBREC is the gateway's
        to deliver (MQTT 5, 4.3.3)."""
        session, batch = connection.session, self.context.batch
        staged = session.inbound.get(packet_id)
        if staged is None:
            return
        if isinstance(staged, StagedRun):
            token, staged = self.staged_runs.remove_one(staged, packet_id)
        else:
            token = session.staged_tokens.get(packet_id)
        topic, payload = (
            (staged[0], staged[1][STAGED_ID:]) if isinstance(staged, tuple) else (staged.topic, staged.payload)
        )
        if token is None or (topic, payload) == (publication.topic, publication.payload):
            return
        del session.inbound[packet_id]
        session.staged_tokens.pop(packet_id, None)
        if connection.carried:
            connection.carried.discard(packet_id)
        if session in batch.moves:
            self.staged_runs.write_out(batch, session)
        batch.take(STAGED, session.staged_key, token)
        self._release(connection, staged, packet_id, token)

    def head(self, route: Route, client_id: str) -> bytes:
        """The head of the records of a route, for publications without properties; made once."""
        if not route.staged_head:
            publication = Publication(route.wire_topic, b"", 2, bool(route.first & 1), client_id=client_id)
            route.staged_head = self.router.state_head(encode_prefix(publication, 2, publication.retain, ()))
        return route.staged_head

    def check_unreleased(self, connection: Connection) -> None:
        """End a connection that releases too little: 3.x knows no Receive Maximum, and that of 5.0 begins anew with
        each connection. A client may use its 65,535 identifiers, but no more memory than may be stored for a session.
        Counted again when there are a quarter more identifiers."""
        inbound = connection.session.inbound.values()
        size = sum(map(size_of, inbound))
        connection.unreleased = len(inbound) + len(inbound) // 4
        if size > connection.limits.max_queued_bytes:
            text = f"{size} bytes of QoS 2 that were not released: send PUBREL"
            self.context.refuse(connection, reasons.RECEIVE_MAXIMUM_EXCEEDED, "protocol_error", text)

    # -- PUBREL --

    def pubrel(self, connection: Connection, packet: Any) -> None:
        """Take the staged record and put its message in one unit of work, then answer PUBCOMP (design decision 3).
        [MQTT3-4.3.3-2] [MQTT-4.3.3-11] [MQTT-4.3.3-12] [MQTT-4.3.3-13]"""
        packet_id = packet[1]
        context, session = self.context, connection.session
        batch = context.batch
        staged = session.inbound.pop(packet_id, None)
        if connection.carried:
            connection.carried.discard(packet_id)
        if staged is None and session.release_again(packet_id):
            return  # it is parked: PUBCOMP follows the commit
        if staged is None and packet_id in session.read_back:  # nobody may hear that it is not known: it comes again
            context.refuse(connection, reasons.SERVER_BUSY, "other", "what its queue has refused is being staged again")
            return
        if staged is None:  # sent again behind an interruption the publication is complete; clients report 0x92 as lost
            unknown = connection.version == V5 and not connection.resumed  # "no error during recovery": 3.7.2.1
            reason = reasons.PACKET_IDENTIFIER_NOT_FOUND if unknown else 0
            batch.reply(connection, writer.encode_ack(connection.version, PUBCOMP, packet_id, reason, {}))
            return
        if isinstance(staged, StagedRun):
            token, staged = self.staged_runs.remove_one(staged, packet_id)
        else:
            token = session.staged_tokens.pop(packet_id, None)
        if session in batch.moves:  # in the order in which they were released
            self.staged_runs.write_out(batch, session)
        if token is None:
            context.protocol_error(connection, ProtocolError("PUBREL before PUBREC was sent"))
            return
        batch.take(STAGED, session.staged_key, token)
        missed = self._release(connection, staged, packet_id, token)
        if missed and connection.version == V5:
            words = reason_string(connection, missed_by(missed))
            batch.reply(connection, writer.encode_ack(V5, PUBCOMP, packet_id, 0, words))
        else:
            batch.reply(connection, pubcomp(packet_id))
        if connection.version == V5:
            batch.release(connection, 1)

    def _release(self, connection: Connection, staged: Publication | Plain, packet_id: int, token: Token) -> int:
        """Make a staged publication available where its topic leads now; returns how many subscribers had no room for
        it."""
        context, session = self.context, connection.session
        batch = context.batch
        released = (session, packet_id, token)
        plain = staged if isinstance(staged, tuple) and len(staged) == 3 else None
        topic, first = (staged[0], staged[2]) if isinstance(staged, tuple) else (staged.topic, staged.first)
        known = connection.generation == self.router.generation
        route = connection.caches[first & 7].get(topic) if known else None
        if route is None or route.version != route.changes[0]:
            route = self.publications.route(connection, first, topic)
        missed = 0
        is_put_alone = route.fast_path is FastPath.STAGED and route.head and not route.elsewhere and not first & 1
        if is_put_alone and plain is not None:
            body = route.tails[packet_id] + plain[1][STAGED_ID:]
            destination, row = batch.put(route.address, route.policies[0], route.head, body)
            destination.contribute(connection)
            destination.mark(row, Mark(released))
        elif not route.error:
            missed = self._make_available(connection, route, staged, released)
        else:  # the access list has changed since its PUBREC
            who = connection.session.client_id
            books.refused(context.counters, route.rule, 2, "denied", client_id=who, topic=route.topic)
            if context.on_denied is not None:
                context.on_denied(connection, "publish", route.topic)
        return missed

    def _make_available(
        self, connection: Connection, route: Route, staged: Publication | Plain, released: Released
    ) -> int:
        """Make a publication available without a fast path; returns how many subscribers had no room for it."""
        publication = unpacked(staged, connection.session.client_id) if isinstance(staged, tuple) else staged
        return self.publications.release(connection.publisher, route, publication, released[1], connection, released)


def unpacked(staged: Plain, client_id: str) -> Publication:
    """The publication for which a tuple is kept."""
    topic, body, first = staged[:3]
    block = staged[3] if len(staged) == 4 else b""
    return Publication(topic, body[STAGED_ID:], first >> 1 & 3, bool(first & 1), block, client_id=client_id)


def size_of(one: Publication | Plain | StagedRun) -> int:
    """Payload bytes of a staged publication; in a run, the average."""
    if isinstance(one, StagedRun):
        return one.size // len(one.ids) - one.width
    return len(one[1]) - STAGED_ID if isinstance(one, tuple) else len(one.payload)


class StagedRuns:
    """QoS 2 publications that are staged as messages and moved."""

    def __init__(self, context: Context, parking: Parking) -> None:
        self.context = context
        self.parking = parking
        manager = context.queue_manager
        self._moving = manager if isinstance(manager, Moving) else None

    # -- PUBLISH --

    def can_stage(self, session: Session, route: Route) -> bool:
        """Whether publications of a client on this route can be staged in runs now."""
        if self._moving is None or self.parking.waiting or not route.head:
            return False
        if not route.movable:  # if the queue is changed afterwards, a move is refused
            here = not self.context.is_elsewhere(route.address.queue_manager)
            movable = (
                here
                and _can_be_staged_as_message(route, session.client_id)
                and self._moving.movable(route.address.queue, route.address.queue_manager)
            )
            route.movable = 1 if movable else -1
        return route.movable > 0

    def add(self, session: Session, run: StagedRun) -> None:
        """Stage a run with the open batch."""
        puts, _ = self.context.batch.staging(session, run)
        puts.heads.extend(repeat(run.head, len(run.ids)))
        puts.bodies += run.bodies

    # -- PUBREL --

    def move(self, session: Session, move: Move) -> None:
        """Move messages of a staged run with the open batch."""
        moves = self.context.batch.moves.setdefault(session, [])
        last = moves[-1] if moves else None
        if last is not None and last.run is move.run and last.first + last.rows == move.first:
            moves[-1] = last._replace(rows=last.rows + move.rows)
        else:
            moves.append(move)

    @staticmethod
    def remove_one(run: StagedRun, packet_id: int) -> tuple[Token | None, Plain]:
        """For a publication of a run that is released by itself: its token, if it is stored, and the publication."""
        at = run.ids.index(packet_id)
        return (run.tokens[at] if run.tokens else None), run.plain(at)

    @staticmethod
    def write_out(batch: Batch, session: Session) -> None:
        """Replace the moves of a session by puts and takes."""
        batch.noting(batch.moves, session)
        for move in batch.moves.pop(session, ()):
            run = move.run
            destination = batch.destination(run.address, move.policy)
            destination.contribute(move.connection)
            ids = run.ids[move.first : move.first + move.rows]
            destination.released_rows.append((destination.rows, session, ids, list(move.tokens)))
            destination.puts.heads.extend(repeat(run.head, move.rows))
            destination.puts.bodies.extend(move.bodies)
            batch.taken(STAGED, session.staged_key).extend(move.tokens)

    def write_all_out(self, batch: Batch) -> None:
        """Replace the moves of all sessions."""
        for session in list(batch.moves):
            self.write_out(batch, session)

    def write_traced_out(self, batch: Batch) -> None:
        """Replace the moves of sessions that somebody traces, so that what is put is shown."""
        for session, moves in list(batch.moves.items()):
            if any(move.connection.traced for move in moves):
                self.write_out(batch, session)

    # -- the end of a session --

    def ended(self, session: Session) -> None:
        """Take the staged messages of a session that has ended."""
        places: dict[StagedRun, dict[int, Token]] = {}
        tokens = []
        for number, one in session.inbound.items():
            if isinstance(one, StagedRun) and one.tokens:
                if one not in places:
                    places[one] = dict(zip(one.ids, one.tokens, strict=True))
                tokens.append(places[one][number])
        if tokens:
            self.context.batch.taken(STAGED, session.staged_key).extend(tokens)


def put_record(
    router: Router, batch: Batch, session: Session, packet_id: int, publication: Publication, flags: int = 0,
    name: bytes = b"",
) -> None:  # fmt: skip
    """Stage a publication as a record in a batch. `name`: its name in markers, if it was staged before."""
    puts, ids = batch.staging(session)
    ids.append(packet_id)
    numbers = _NAME.unpack(name) if name else ()  # where others have subscription identifiers
    puts.heads.append(router.state_head(encode_prefix(publication, 2, publication.retain, numbers, flags)))
    puts.bodies.append(STORED_IDS[packet_id] + publication.payload)
    batch.rows += 1


def read_staged(stored: Stored) -> tuple[Publication, int]:
    """The publication that a staged message stands for, and its packet identifier."""
    return read_named(stored)[:2]


def read_named(stored: Stored) -> tuple[Publication, int, bytes]:
    """The publication and packet identifier of a staged message, and its name in markers if it was staged before."""
    data = stored.data
    if not data.startswith(_MESSAGE):
        publication, packet_id, numbers, _ = decode_publication(data)
        return publication, packet_id, _NAME.pack(*numbers) if len(numbers) == 4 else b""
    message = read_message(stored.md, data)
    topic, client_id = message.property("mqps", "Top"), message.property("mqtt", "clientId") or ""
    packet_id = int(message.property("mqtt", "msgId") or 0)
    payload = data[message.body_at :]
    return Publication(str(topic).encode(), payload, 2, retain=False, client_id=str(client_id)), packet_id, b""


def _can_be_staged_as_message(route: Route, client_id: str) -> bool:
    """Whether a route's messages can be staged as they are: a restart finds client, topic, packet identifier and
    payload in them, no report is due when they are put, and they do not expire while they are staged."""
    queue, _, _, persistent, syncpoint, retain = route.address
    if not (persistent and syncpoint) or retain or queue.startswith(_TOPIC):
        return False
    head = route.head
    if any(head[_REPORT]) or head[_EXPIRY] != _NEVER or route.first & 1:
        return False
    number, payload = _SAMPLE
    data = head[MQMD_LENGTH:] + route.tails[number] + payload
    if not data.startswith(_MESSAGE):
        return False
    try:
        found, packet_id = read_staged(Stored(None, head[:MQMD_LENGTH], data))
    except (Refused, ValueError):
        return False
    told = found.client_id, found.topic, packet_id, found.payload
    return told == (client_id, route.wire_topic, number, payload)
