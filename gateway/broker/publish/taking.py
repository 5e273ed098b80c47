"""The fast lane in Python: what `_fast.c` does, function for function. See `fast.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.bridge.payload import Body
from gateway.broker.deliver.in_flight import ACKNOWLEDGEMENTS
from gateway.broker.publish.chunk import PUBREL
from gateway.broker.publish.given import NOTHING, Given, carried, given_of, is_text
from gateway.broker.publish.linking import Chosen, Linking
from gateway.broker.publish.route import UNROUTED, FastPath, Route
from gateway.broker.publish.rows import RETAIN
from gateway.mqtt.reasons import NO_MATCHING_SUBSCRIBERS
from gateway.session.connection import CLOSED, ONLINE, Connection
from gateway.session.copy_columns import PUBACK, PUBREC
from gateway.session.record import with_properties
from gateway.session.session import STAGED_ID
from gateway.session.staged_run import MOST, StagedRun

if TYPE_CHECKING:
    from gateway.broker.columns import Columns
    from gateway.broker.publish.fast import FastLane
    from gateway.broker.publish.route import Sent
    from gateway.session.session import Plain

    Opened = tuple[Any, Any, list[int], list[Any]]
    """Lists to which rows that release records are appended: heads, bodies, packet identifiers and tokens."""

Arrived = list[tuple[Connection, bytes]]
"""What was read from each connection; each occurs once."""
Rest = list[tuple[Connection, bytes, int]]
"""What is left of it from an offset on, where a packet is not ordinary, or not whole."""
PUBLISH = 0x30
"""The first byte of a PUBLISH without flags."""
SUBSCRIBES = frozenset({0x82, 0xA2})
"""The first bytes of SUBSCRIBE and UNSUBSCRIBE."""
DUP = 0x08
MOST_KEPT = 500
"""The most topics of one client on which something is retained at once: the rest comes in later turns."""
STAGES = frozenset({FastPath.STAGED, FastPath.PROMISED, FastPath.UNROUTED})
"""Paths of QoS 2 publications that are staged."""
ROWS = frozenset({FastPath.DIRECT, FastPath.FORMED, FastPath.UNROUTED})
"""Paths of QoS 0 and 1 that lead to one queue at most, and to nobody else here."""


def take_in_python(
    lane: FastLane,
    arrived: Arrived | Rest,
    replies: dict[Connection, list[bytes]],
    pending: dict[Connection, int],
    generation: int,
    now: float,
    /,
) -> tuple[Rest, int, int, int, int, int, int]:
    """Take the ordinary packets at the beginning of what has arrived into the open batch, whose `replies` and `pending`
    publications are given; routes of another `generation` are void. It ends at the first connection whose next packet
    is SUBSCRIBE or UNSUBSCRIBE: what others publish after that depends on it. Returns what is left, how many entries
    were looked at, how many bytes had been read, how many publications of QoS 0, 1 and 2 were taken, and how many
    PUBRELs."""
    rest: Rest = []
    sent: list[Sent] = []
    looked = size = unanswered = acknowledged = received = completed = 0
    for one in arrived:
        looked += 1
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
            if len(one) == 2 and connection.state == ONLINE and data[at] in SUBSCRIBES:
                break
    if sent:
        lane.forward(sent)
    return rest, looked, size, unanswered, acknowledged, received, completed


def _account(taking: Taking, pending: dict[Connection, int]) -> None:
    """Have what was taken from a connection answered, and count it."""
    taking.answer()
    if taking.unrouted:
        taking.lane.unrouted(taking.unrouted)
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


class Taking(Linking):
    """The bytes of one connection while they are taken into the open batch."""

    __slots__ = ()

    def take(self) -> int:
        """Take packets until one is not ordinary; returns the offset of that one."""
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

    # -- QoS 0 and 1 --

    def _publications(self, first: int) -> bool:  # noqa: C901, PLR0912, PLR0915 -- the hot loop
        """Take publications of QoS 0 or 1 that begin with this byte. Returns whether more ordinary packets may
        follow."""
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
                if given.alias:
                    known = self.lane.aliased(connection, given.alias, topic)
                    if known is None:
                        break
                    topic = known
            if topic != last:
                route = self._route(first, topic)
                if route is None or route.fast_path not in ROWS:
                    relayed = route
                    break
                constant, last = route.head, topic
            payload = data[body:stop]
            if route is None or (given is not None and given.is_text and not is_text(payload)):
                break
            head, chosen = constant, route
            if route.fast_path is FastPath.UNROUTED:
                chosen = UNROUTED
            elif given is not None or not constant:
                made = self._made(first, route, given or NOTHING, Body(payload), packet_id if qos else 0)
                if made is None:
                    break
                chosen, head = made
            if chosen is not of and chosen is not UNROUTED:
                of, tails = chosen, chosen.tails
                heads, bodies = self._columns_of(chosen.columns)
            if chosen is UNROUTED:
                self.unrouted += 1
            else:
                if chosen.queue:
                    chosen.columns.queues.append(chosen.queue)
                    chosen.columns.owners.append(connection)
                heads(head)
                bodies(tails[packet_id if qos else 0] + payload)
            if qos and route.fast_path is FastPath.UNROUTED and self.version_5:
                self._count(first, ids)
                ids = []
                self.answers.append(unwanted(PUBACK, packet_id))
                self.acknowledged += 1
            elif qos:
                ids.append(packet_id.to_bytes(2, "big"))
            if first & RETAIN:
                self._keep(route, payload, block)
            if route.elsewhere:
                self._note_sent(route, payload, block, given)
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

    # -- subscribers --

    def _relay(self, first: int, route: Route) -> bool:
        """Take publications on one topic that has subscribers, either all with properties for these or all without,
        which expire at the same time or not at all. Returns whether any was taken."""
        payloads, bodies, blocks, heads = list[bytes](), list[bytes](), list[bytes](), list[Any]()
        ids: list[bytes] = []
        at, expiry, last = self.at, None, b""
        while len(payloads) < route.most and (one := self._read(at, first)) is not None:
            topic, packet_id, block, body, stop = one
            given: Given | None = NOTHING
            if block:
                given = given_of(block, self.most_users)
            payload, number = self.data[body:stop], packet_id if first & 6 else 0
            if given is None or (given.is_text and not is_text(payload)):
                break
            if (self.lane.aliased(self.connection, given.alias, topic) if given.alias else topic) != route.wire_topic:
                break
            what = carried(block) if given.alias or given.expiry is not None else block
            if payloads and (bool(what) is not bool(blocks) or given.expiry != expiry):
                break
            if not self._make_rows(first, route, (given, block, payload, number), heads, bodies):
                break
            if what:
                blocks.append(what)
            payloads.append(payload)
            ids.append(packet_id.to_bytes(2, "big"))
            at, expiry, last = stop, given.expiry, block
        self._forward()
        if not payloads or not self.lane.relay(self.connection, route, payloads, bodies, blocks, heads, expiry or 0):
            return False
        if first & RETAIN:
            self._keep(route, payloads[-1], last)
        self.at = at
        self._count(first, ids)
        return True

    def _make_rows(
        self, first: int, route: Route, one: tuple[Given, bytes, bytes, int], heads: list[Any], bodies: list[bytes]
    ) -> bool:  # fmt: skip
        """Make the rows of a publication that subscribers get too, if it goes to queues. Returns whether the fast lane
        can make them."""
        given, block, payload, number = one
        if route.linked:
            rows = self._rows_of(first, route, given, payload, number, has_block=bool(block))
            if rows is not None:
                heads.append(rows)
            return rows is not None
        if route.head or route.form:
            if given.asks or given.traced:  # what is noted of it is noted once, and the subscribers may have no room
                return False
            made = self._made(first, route, given, Body(payload), number)
            if made is None or made[0].columns is not route.columns or made[0].queue != route.queue:
                return False
            heads.append(made[1])
            bodies.append(made[0].tails[number] + payload)
        return True

    # -- what subscribers answer --

    def _settle(self) -> bool:
        """Take answers to what this client was sent."""
        at = self.at
        self.at = self.lane.settle(self.connection, self.data, at)
        return self.at > at

    # -- QoS 2: staged at PUBLISH --

    def _stage(self, first: int) -> bool:
        """Take PUBLISH of QoS 2; returns as `_publications` does."""
        one = self._read(self.at, first) if first & 6 == 4 else None
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

    def _stage_run(self, first: int, route: Route) -> bool:
        """Stage publications on one topic as the messages that their rule makes of them. Returns whether any was
        staged."""
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
        """Stage publications as records, as long as their routes are staged. Returns whether any was staged."""
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
            if given.is_text and not is_text(self.data[body:stop]):
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
            is_told = self.version_5 and found_route is not None and found_route.fast_path is FastPath.UNROUTED
            self.answers.append(unwanted(PUBREC, packet_id) if is_told else b"\x50\x02" + packet_id.to_bytes(2, "big"))
            self.received += 1
            self.at = stop
        return self.at > begin

    def _has_room(self, route: Route, size: int) -> bool:
        """Whether the subscribers of a topic, if it has any, have room for one more publication."""
        return route.fast_path is not FastPath.PROMISED or self.lane.admits(route, size)

    # -- QoS 2: released at PUBREL --

    def _release(self) -> bool:
        """Take PUBREL; returns as `_publications` does."""
        staged = self.session.inbound.get(self._pubrel(self.at))
        if isinstance(staged, StagedRun):
            return self._release_run(staged)
        return isinstance(staged, tuple) and (self._release_records() or self._release_promised())

    def _release_promised(self) -> bool:
        """Take PUBRELs of publications that have subscribers. Returns whether any was taken."""
        if len(self.kept) >= MOST_KEPT:
            return False
        self._forward()
        count, begin = self.lane.release(self.connection, self.data, self.at), self.at
        if isinstance(count, tuple):
            count, route, payload, block = count
            self._keep(route, payload, block)
        self.at += 4 * count
        self.answers += [b"\x70\x02" + self.data[at + 2 : at + 4] for at in range(begin, self.at, 4)]
        self.completed += count
        self.in_flight += count if self.version_5 else 0
        return count > 0

    def _release_run(self, run: StagedRun) -> bool:
        """Take PUBRELs of a staged run, in its order. Returns whether any was taken."""
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
        """Take PUBRELs of publications staged as records, as long as their routes are staged. Returns whether any was
        taken."""
        session, begin, until, route = self.session, self.at, 0, None
        inbound, tokens, (_, taken, _) = session.inbound, session.staged_tokens, self.lane.taken_records(session)
        last: tuple[bytes, int] | None = None
        opened: dict[Columns, Opened] = {}
        while packet_id := self._pubrel(self.at):
            staged = inbound.get(packet_id)
            if not isinstance(staged, tuple) or packet_id not in tokens:
                break
            topic, body, first = staged[:3]
            if (topic, first) != last:
                route, last = self._route(first, topic), (topic, first)
            if route is None or route.fast_path is not FastPath.STAGED:
                break
            if first & RETAIN and self.at >= until:
                until = self.lane.keeps_until(self.connection, self.data, self.at)
            if first & RETAIN and (self.at >= until or len(self.kept) >= MOST_KEPT):
                break
            chosen = self._messages(first, route, staged, packet_id)
            if chosen is None:
                break
            del inbound[packet_id]
            token = tokens.pop(packet_id)
            taken.append(token)
            for target, head in chosen:
                known = opened.get(target.columns) if target.columns.heads is not None else None
                heads, bodies, ids, of_rows = known or self._opened(target.columns, opened)
                heads(head)
                bodies(target.tails[packet_id] + body[STAGED_ID:])
                ids.append(packet_id)
                of_rows.append(token)
            if route.linked:
                self._belong_together(first, chosen)
            self.unrouted += not chosen
            if route.elsewhere or first & RETAIN:
                block = staged[3] if len(staged) == 4 else b""
                self._note_sent(route, body[STAGED_ID:], block, released=(session, packet_id, token))
            if first & RETAIN:
                self._keep(route, body[STAGED_ID:], block)
            self.answers.append(b"\x70\x02" + packet_id.to_bytes(2, "big"))
            self.completed += 1
            self.in_flight += 1 if self.version_5 else 0
            self.at += 4
        return self.at > begin

    def _messages(self, first: int, route: Route, staged: Plain, packet_id: int) -> Chosen | None:
        """The messages of a record, as routes and heads; None if the plain lane has to decide."""
        if len(staged) == 3 and route.head:
            return ((route, route.head),)
        given = given_of(staged[3], self.most_users) if len(staged) == 4 else NOTHING
        body = Body(staged[1][STAGED_ID:])
        if given is None or (route.linked and (given.rest != b"" or (len(staged) == 4 and route.reads))):
            return None
        if route.linked:
            return self._chosen(first, route, given, body, packet_id)
        made = self._made(first, route, given, body, packet_id)
        return None if made is None else (made,) if made[0] is not UNROUTED else ()

    def _opened(self, columns: Columns, opened: dict[Columns, Opened]) -> Opened:
        """The lists to which rows that release records are appended. They are closed by rows that another rule puts on
        the same queue."""
        heads, bodies = self._columns_of(columns)
        ids, of_rows = list[int](), list[Any]()
        columns.released.append((len(columns.heads), self.session, ids, of_rows))
        opened[columns] = made = heads, bodies, ids, of_rows
        return made


def unwanted(kind: int, packet_id: int) -> bytes:
    """The answer to a publication that nobody gets, for a client that can be told so [MQTT 5: 0x10 No matching
    subscribers]."""
    return bytes((kind, 3, packet_id >> 8, packet_id & 255, NO_MATCHING_SUBSCRIBERS))
