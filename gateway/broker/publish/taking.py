"""The fast lane in Python: what `_fast.c` does, function for function. See `fast.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from gateway.bridge.payload import Body
from gateway.broker.columns import Columns
from gateway.broker.deliver.in_flight import ACKNOWLEDGEMENTS
from gateway.broker.publish.given import NOTHING, Given, given_of, user_properties
from gateway.broker.publish.qos2 import PUBREL
from gateway.broker.publish.route import UNROUTED, FastPath, Route
from gateway.mqtt.packets import V5
from gateway.session.connection import CLOSED, ONLINE, Connection
from gateway.session.record import with_properties
from gateway.session.session import STAGED_ID
from gateway.session.staged_run import LEAST, MOST, StagedRun

if TYPE_CHECKING:
    from gateway.broker.batch import Destination
    from gateway.broker.marks import Released
    from gateway.broker.publish.fast import FastLane
    from gateway.broker.publish.route import Sent

Arrived = list[tuple[Connection, bytes]]
"""What was read of each connection, once each."""
Rest = list[tuple[Connection, bytes, int]]
"""What is left of it from an offset on, where there is a packet that is not ordinary, or not whole."""
PUBLISH = 0x30
"""The first byte of one without flags."""
RETAIN, DUP, FLAGS = 0x01, 0x08, 0x0F
MOST_KEPT = 500
"""Topics of one client for which something is retained at once: what is left comes in later turns."""
STAGES = frozenset({FastPath.STAGED, FastPath.PROMISED})
"""Paths of QoS 2."""


def take_in_python(
    lane: FastLane,
    arrived: Arrived | Rest,
    replies: dict[Connection, list[bytes]],
    pending: dict[Connection, int],
    generation: int,
    now: float,
    /,
) -> tuple[Rest, int, int, int, int, int]:
    """Take the ordinary packets at the beginning of what has arrived into the open batch, whose answers and
    unanswered publications are given; `generation`: routes of another are void. Returns what is left, how many bytes
    had been read, how many publications of QoS 0, 1 and 2 were taken, and how many PUBRELs."""
    rest: Rest = []
    sent: list[Sent] = []
    size = unanswered = acknowledged = received = completed = 0
    for one in arrived:
        connection, data = one[0], one[1]
        if connection.state == CLOSED:
            continue
        at = 0
        if len(one) == 3:
            at = one[2]
        else:
            size += len(data)
            connection.last_read = now
            if connection.state == ONLINE and connection.reader.held is not None:
                data = connection.reader.joined(data)
                if not data:
                    continue
        try:
            if (
                connection.state == ONLINE
                and not connection.traced
                and (connection.generation == generation or lane.renew(connection))
            ):
                taking = Taking(lane, connection, data, at, replies, sent)
                at = taking.take()
                _account(taking, pending)
                unanswered += taking.unanswered
                acknowledged += taking.acknowledged
                received += taking.received
                completed += taking.completed
        except Exception as error:  # noqa: BLE001 -- a defect costs the connection that met it, not the others
            lane.failed(connection, error)
            continue
        if at < len(data):
            rest.append((connection, data, at))
    if sent:
        lane.forward(sent)
    return rest, size, unanswered, acknowledged, received, completed


def _account(taking: Taking, pending: dict[Connection, int]) -> None:
    """Have what was taken of a connection answered, and counted as its."""
    taking.answer()
    if taking.kept:
        taking.lane.keep(taking.connection, taking.kept)
    connection, acknowledged = taking.connection, taking.acknowledged
    if acknowledged:
        connection.inbound_pending += acknowledged
        pending[connection] = pending.get(connection, 0) + acknowledged
    if taking.completed and taking.version_5:
        taking.lane.released(connection, taking.completed)
    more = taking.unanswered + taking.received  # those of QoS 1 follow with their commit
    if more:
        connection.session.received += more
    connection.published += more + acknowledged


class Taking:
    """What one connection has sent, on its way into the open batch."""

    __slots__ = (
        "acknowledged", "answers", "at", "caches", "completed", "connection", "data", "end", "in_flight", "kept",
        "lane", "longest", "max_packet", "most_users", "received", "replies", "room", "sent", "session", "unanswered",
        "version_5",
    )  # fmt: skip

    def __init__(
        self, lane: FastLane, connection: Connection, data: bytes, at: int, replies: dict[Connection, list[bytes]],
        sent: list[Sent],
    ) -> None:  # fmt: skip
        limits, session = connection.limits, connection.session
        self.lane = lane
        self.connection = connection
        self.session = session
        self.caches = connection.caches
        self.most_users = limits.max_user_properties
        self.data = data
        self.at = at
        self.end = len(data)
        self.replies = replies
        self.sent = sent
        """What clients of other gateways want and is not put for them yet."""
        self.answers: list[bytes] = []
        self.kept: dict[Route, tuple[bytes, bytes]] = {}
        """What is to be retained: payload and properties of the last publication on each route."""
        self.version_5 = connection.version == V5
        self.max_packet = connection.reader.max_packet
        self.longest = limits.max_payload or limits.max_packet
        self.room = limits.receive_maximum if self.version_5 else connection.unreleased
        """How many publications of QoS 2 may be in flight."""
        self.in_flight = connection.uncompleted if self.version_5 else 0
        """Those of them that are released and whose PUBCOMP follows a commit."""
        self.unanswered = self.acknowledged = self.received = self.completed = 0

    def take(self) -> int:
        """Take packets until one is not ordinary; returns where that is."""
        data, last = self.data, self.end - 4  # no packet that is taken is shorter
        more = True
        while more and self.at <= last:
            first = data[self.at]
            kind = first & 0xF0
            if kind == PUBLISH:
                more = self._publications(first) if not first & 4 else self._stage(first)
            elif first == PUBREL:
                more = self._release()
            else:
                more = first in ACKNOWLEDGEMENTS and self._settle()
        return self.at

    def answer(self) -> None:
        """Add to the answers that the connection gets with the commit."""
        if self.answers:
            self.replies.setdefault(self.connection, []).extend(self.answers)
            self.answers = []

    # -- packets --

    def _read(self, at: int, first: int) -> tuple[bytes, int, bytes, int, int] | None:
        """Topic, packet identifier, properties, where the payload begins and ends, of a PUBLISH that begins with this
        byte; None: there is none, or it is not whole, longer than allowed, or malformed."""
        data = self.data
        if at + 4 > self.end or data[at] != first:
            return None
        length, start = data[at + 1], at + 2
        if length > 127:
            start, length = self._long(at)
        stop = start + length
        if stop > self.end or stop - at > self.max_packet or length < 2:
            return None
        mark = start + 2 + (data[start] << 8 | data[start + 1])
        body, packet_id, block = mark, 1, b""
        if first & 6:
            body += 2
            if body > stop:
                return None
            packet_id = data[mark] << 8 | data[mark + 1]
        if self.version_5:
            if body >= stop:
                return None
            length = data[body]
            body += 1
            if length:
                begin = body
                if length > 127:
                    begin, length = self._long(body - 2)
                body = begin + length
                block = data[begin:body]
        if body > stop or stop - body > self.longest or not packet_id:
            return None
        return data[start + 2 : mark], packet_id, block, body, stop

    def _long(self, at: int) -> tuple[int, int]:
        """Where what is longer than 127 bytes begins behind its length, which stands behind `at`, and the length; too
        long if that is not the shortest form."""
        length = shift = 0
        for byte in self.data[at + 1 : at + 5]:
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return at + 1 + shift // 7, length if byte else 1 << 30
        return at, 1 << 30

    def _route(self, first: int, topic: bytes) -> Route | None:
        route: Route | None = self.caches[first & 7].get(topic)
        if route is None or route.version != route.changes[0]:
            return self.lane.route(self.connection, first, topic)
        return route

    # -- QoS 0 and 1 --

    def _publications(self, first: int) -> bool:  # noqa: C901, PLR0912, PLR0915 -- the hot loop
        """Publications of QoS 0 or 1 that begin with this byte; whether there may be something else that is ordinary
        behind them."""
        data, at, connection, qos = self.data, self.at, self.connection, first & 6
        if (first & DUP and not qos) or (first & RETAIN and not self.lane.can_keep()):  # DUP of QoS 0 is malformed
            return False
        last: bytes | None = None
        route: Route | None = None
        relayed: Route | None = None
        ids: list[bytes] = []
        heads: Any = None
        bodies: Any = None
        of: Route | None = None  # whose columns are appended to
        constant, tails, rows = b"", {}, 0
        while (one := self._read(at, first)) is not None:
            if first & RETAIN and len(self.kept) >= MOST_KEPT:
                break
            topic, packet_id, block, body, stop = one
            given: Given | None = None
            if block:
                given = given_of(block, self.most_users)
                if given is None:
                    break
                if given.alias and first & RETAIN:
                    break
                if given.alias:
                    known = self.lane.aliased(connection, given.alias, topic)
                    if known is None:
                        break
                    topic = known
            if topic != last:
                route = self._route(first, topic)
                path = FastPath.NONE if route is None else route.fast_path
                if route is None or (path is not FastPath.DIRECT and path is not FastPath.FORMED):
                    relayed = None if given is not None and given.alias else route
                    break
                constant, last = route.head, topic
            head, chosen = constant, route
            if given is not None or not constant:
                formed = self._formed(route, given or NOTHING, Body(data[body:stop]), packet_id if qos else 0)
                if formed is None:
                    break
                chosen, head = formed
            if chosen is not of and chosen is not None and chosen is not UNROUTED:
                of, tails = chosen, chosen.tails
                heads, bodies = self._columns_of(chosen.columns)
            if chosen is not None and chosen is not UNROUTED:
                if chosen.queue:
                    chosen.columns.queues.append(chosen.queue)
                    chosen.columns.owners.append(connection)
                heads(head)
                bodies(tails[packet_id if qos else 0] + data[body:stop])
            if qos:
                ids.append(packet_id.to_bytes(2, "big"))
            if first & RETAIN and route is not None:
                self.kept.pop(route, None)  # the last one counts, also of a topic that has two routes
                self.kept[route] = data[body:stop], block
            if route is not None and route.elsewhere:
                self._note_sent(route, data[body:stop], block, given)
            rows += 1
            at = stop
        taken, self.at = at > self.at, at
        if not qos:
            self.unanswered += rows
        self._count(first, ids)
        if relayed is not None and relayed.fast_path is FastPath.FAN_OUT:
            return self._relay(first, relayed)
        if relayed is not None and relayed.fast_path is FastPath.LINKED:
            return self._link(first, relayed)
        return taken

    def _columns_of(self, columns: Columns) -> tuple[Any, Any]:
        """What appends to some columns, opened if they are not open."""
        if columns.heads is None:
            self.lane.open(columns)
        if not columns.mixed:
            columns.owners.append(self.connection)
        return columns.heads.append, columns.bodies.append

    # -- other gateways --

    def _note_sent(
        self, route: Route, payload: bytes, block: bytes, given: Given | None = None, released: Released | None = None
    ) -> None:
        """One more publication that is put for them; Topic Alias and expiry are not in what stays of its properties."""
        expiry = 0 if given is None else given.expiry or 0
        if given is not None and (expiry or given.alias):
            block = user_properties(given)
        self.sent.append((self.connection, route, payload, block, expiry, released))

    def _forward(self) -> None:
        """Put all that there is, before what follows of this connection is."""
        if self.sent:
            self.lane.forward(self.sent)
            self.sent.clear()

    # -- properties, and messages that are not all alike --

    def _formed(self, route: Route | None, given: Given, body: Body, packet_id: int) -> tuple[Route, bytes] | None:
        """The head of one message, and the route among this and those that it has otherwise whose rule applies; None:
        the plain lane says what becomes of it."""
        while route is not None:
            if route is UNROUTED:
                self.lane.unrouted()
                return route, b""
            form = route.ask_for_form()
            if form is None:
                return None
            if form.condition is None or form.condition(body):
                head = self.lane.head(form, given.users, given.expiry, body, packet_id)
                return None if head is None else (route, head)
            route = route.otherwise
        return None

    def _relay(self, first: int, route: Route) -> bool:
        """Publications of one topic that has subscribers, all with properties or all without."""
        most, tails = route.most, route.tails if route.head else None
        payloads, bodies, blocks, heads = list[bytes](), list[bytes](), list[bytes](), list[bytes]()
        ids: list[bytes] = []
        at = self.at
        while len(payloads) < most and (one := self._read(at, first)) is not None and one[0] == route.wire_topic:
            _, packet_id, block, body, stop = one
            if payloads and bool(block) is not bool(blocks):
                break
            payload, number = self.data[body:stop], packet_id if first & 6 else 0
            if block:
                given = given_of(block, self.most_users)
                if given is None or given.alias or given.expiry is not None:
                    break
                if tails is not None:
                    formed = self._formed(route, given, Body(payload), number)
                    if formed is None or formed[0] is not route:
                        break
                    heads.append(formed[1])
                blocks.append(block)
            payloads.append(payload)
            ids.append(packet_id.to_bytes(2, "big"))
            if tails is not None:
                bodies.append(tails[number] + payload)
            at = stop
        self._forward()
        if not payloads or not self.lane.relay(self.connection, route, payloads, bodies, blocks, heads):
            return False
        self.at = at
        self._count(first, ids)
        return True

    def _link(self, first: int, route: Route) -> bool:
        """Publications of one topic that go to several queues."""
        ids: list[bytes] = []
        one = self._read(self.at, first)
        if one is None or one[2]:
            return False
        targets = [(*self._columns_of(columns), head, tails) for columns, head, tails in route.linked]
        firsts = tuple(len(columns.heads) for columns, _, _ in route.linked)
        while (one := self._read(self.at, first)) is not None:
            topic, packet_id, block, body, stop = one
            if topic != route.wire_topic or block:
                break
            number, payload = packet_id if first & 6 else 0, self.data[body:stop]
            for heads, bodies, head, tails in targets:
                heads(head)
                bodies(tails[number] + payload)
            if route.elsewhere:
                self._note_sent(route, payload, block)
            ids.append(packet_id.to_bytes(2, "big"))
            self.at = stop
        destinations = tuple(cast("Destination", columns.destination) for columns, _, _ in route.linked)
        waits = self.connection if first & 6 else None  # QoS 0 keeps no order
        self.lane.linked().append((destinations, firsts, len(ids), waits))
        self._count(first, ids)
        return True

    def _count(self, first: int, ids: list[bytes]) -> None:
        """Count publications with these packet identifiers, and have them answered."""
        rows = len(ids)
        if not first & 6:
            self.unanswered += rows
        elif rows:
            self.answers.append(b"\x40\x02" + b"\x40\x02".join(ids))
            self.acknowledged += rows

    def _settle(self) -> bool:
        """Answers to what this client was sent."""
        at = self.at
        self.at = self.lane.settle(self.connection, self.data, at)
        return self.at > at

    # -- QoS 2: staged at PUBLISH --

    def _stage(self, first: int) -> bool:
        """PUBLISH of QoS 2; as `_publications`."""
        one = self._read(self.at, first) if first & ~DUP & FLAGS == 4 else None
        route = None if one is None else self._route(first, one[0])
        if one is None or route is None or route.fast_path not in STAGES:
            return False
        is_run = route.fast_path is FastPath.STAGED and not one[2] and self._one_topic(first, one)
        if is_run and self._stage_run(first, route):
            return True
        return self._stage_records(first)

    def _room(self) -> int:
        """How many more publications of QoS 2 may be in flight."""
        return self.room - self.in_flight - len(self.session.inbound)

    def _one_topic(self, first: int, one: tuple[bytes, int, bytes, int, int]) -> bool:
        """Whether enough publications of one topic follow for a run."""
        if self.end - self.at < LEAST * (4 + len(one[0])):
            return False
        stop = one[4]
        for _ in range(LEAST - 1):
            following = self._read(stop, first)
            if following is None or following[0] != one[0] or following[2]:
                return False
            stop = following[4]
        return True

    def _stage_run(self, first: int, route: Route) -> bool:
        """Publications of one topic, as the messages that their rule makes of them."""
        run = self.lane.new_run(self.session, route)
        if run is None:
            return False
        inbound, tails, at = self.session.inbound, route.tails, self.at
        room = min(MOST, self._room())
        answers: list[bytes] = []
        while len(answers) < room and (one := self._read(at, first)) is not None:
            topic, packet_id, block, body, stop = one
            if topic != run.topic or packet_id in inbound or block:
                break
            inbound[packet_id] = run
            made = tails[packet_id] + self.data[body:stop]
            run.ids.append(packet_id)
            run.bodies.append(made)
            run.size += len(made)
            run.longest = max(run.longest, len(made))
            answers.append(packet_id.to_bytes(2, "big"))
            at = stop
        if not answers:
            return False
        self.at = at
        self.lane.stage(self.session, run)
        self.received += len(answers)
        self.answers.append(b"\x50\x02" + b"\x50\x02".join(answers))
        return True

    def _stage_records(self, first: int) -> bool:
        """Publications as records, as long as their routes are staged."""
        inbound, lane, session, begin = self.session.inbound, self.lane, self.session, self.at
        _, puts, heads, bodies, staged = lane.records(session)
        ids = list[int]()
        staged.append((session, puts, len(heads), ids, None))
        topic, head, found_route = b"", b"", None
        while self._room() > 0 and (one := self._read(self.at, first)) is not None:
            found, packet_id, block, body, stop = one
            given = given_of(block, self.most_users) if block else NOTHING
            if given is None or given.alias or given.expiry is not None:
                break
            if packet_id in inbound:  # [MQTT-4.3.3-10]: the plain lane answers that nothing changes
                break
            if found != topic or not head:
                found_route = self._route(first, found)
                if found_route is None or found_route.fast_path not in STAGES:
                    break
                topic, head = found, lane.staged_head(found_route, session)
            if not (found_route is None or self._has_room(found_route, stop - body)):
                break
            kept = packet_id.to_bytes(STAGED_ID, "little") + self.data[body:stop]
            inbound[packet_id] = (topic, kept, first & ~DUP, block) if block else (topic, kept, first & ~DUP)
            ids.append(packet_id)
            heads.append(with_properties(head, block) if block else head)
            bodies.append(kept)
            self.answers.append(b"\x50\x02" + packet_id.to_bytes(2, "big"))
            self.received += 1
            self.at = stop
        return self.at > begin

    def _has_room(self, route: Route, size: int) -> bool:
        """Whether the subscribers of a topic, if it has any, have room for one more."""
        return route.fast_path is not FastPath.PROMISED or self.lane.admits(route, size)

    # -- QoS 2: released at PUBREL --

    def _pubrel(self, at: int) -> int:
        """The packet identifier of a plain PUBREL; 0: there is none."""
        data = self.data
        if at + 4 > self.end or data[at] != PUBREL or data[at + 1] != 2:
            return 0
        return data[at + 2] << 8 | data[at + 3]

    def _release(self) -> bool:
        """PUBREL; as `_publications`."""
        staged = self.session.inbound.get(self._pubrel(self.at))
        if isinstance(staged, StagedRun):
            return self._release_run(staged)
        return isinstance(staged, tuple) and (self._release_records() or self._release_promised())

    def _release_promised(self) -> bool:
        """PUBRELs of publications that have subscribers."""
        self._forward()
        count, begin = self.lane.release(self.connection, self.data, self.at), self.at
        self.at += 4 * count
        self.answers += [b"\x70\x02" + self.data[at + 2 : at + 4] for at in range(begin, self.at, 4)]
        self.completed += count
        self.in_flight += count if self.version_5 else 0
        return count > 0

    def _release_run(self, run: StagedRun) -> bool:
        """PUBRELs of a staged run, in its order."""
        if not self.lane.may_move(self.connection, run):
            return False
        inbound, ids = self.session.inbound, run.ids
        place = first = ids.index(self._pubrel(self.at))
        answers: list[bytes] = []
        while place < len(ids) and self._pubrel(self.at) == ids[place] and inbound.get(ids[place]) is run:
            del inbound[ids[place]]
            answers.append(ids[place].to_bytes(2, "big"))
            place += 1
            self.at += 4
        self.lane.move(self.connection, run, first, place - first)
        self.completed += place - first
        self.in_flight += place - first if self.version_5 else 0
        self.answers.append(b"\x70\x02" + b"\x70\x02".join(answers))
        return True

    def _release_records(self) -> bool:
        """PUBRELs of what is staged as records, as long as their routes are staged."""
        session, begin, route = self.session, self.at, None
        inbound, tokens, (_, taken, _) = session.inbound, session.staged_tokens, self.lane.taken_records(session)
        last: tuple[bytes, int] | None = None
        ids, of_rows, tails = list[int](), list[Any](), dict[int, bytes]()
        heads: Any = None
        bodies: Any = None
        while packet_id := self._pubrel(self.at):
            staged = inbound.get(packet_id)
            if not isinstance(staged, tuple) or packet_id not in tokens:
                break
            topic, body, first = staged[:3]
            if (topic, first) != last:
                route = self._route(first, topic)
                if route is None or route.fast_path is not FastPath.STAGED:
                    break
                tails, last, heads = route.tails, (topic, first), None
            head: bytes | None = b"" if route is None else route.head
            if len(staged) == 4:
                given = given_of(staged[3], self.most_users)
                formed = None if given is None else self._formed(route, given, Body(body[STAGED_ID:]), packet_id)
                if formed is None:
                    break
                _, head = formed
            if heads is None and route is not None:
                heads, bodies = self._columns_of(route.columns)
                ids, of_rows = [], []
                route.columns.released.append((len(route.columns.heads), session, ids, of_rows))
            del inbound[packet_id]
            token = tokens.pop(packet_id)
            taken.append(token)
            ids.append(packet_id)
            of_rows.append(token)
            heads(head)
            bodies(tails[packet_id] + body[STAGED_ID:])
            if route is not None and route.elsewhere:
                block = staged[3] if len(staged) == 4 else b""
                self._note_sent(route, body[STAGED_ID:], block, released=(session, packet_id, token))
            self.answers.append(b"\x70\x02" + packet_id.to_bytes(2, "big"))
            self.completed += 1
            self.in_flight += 1 if self.version_5 else 0
            self.at += 4
        return self.at > begin
