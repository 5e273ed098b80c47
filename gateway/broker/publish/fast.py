"""The fast lane: ordinary packets of all connections, from the bytes that were read straight to the columns of the open
batch.

Nearly everything that devices send is a PUBLISH on a route with a fast path, or the PUBREL of one. `take` takes these
from whatever a round of the hub has brought, be it one packet from each of a thousand connections or a hundred from
each of ten. At a packet that is not ordinary it stops for that connection: the plain lane (`plain.py`) takes this one
packet, and the rest comes here again. `take` is written in Python (`taking.py`) and, function for function, in C
(`_fast.c`); the tests compare both with the plain lane. This module has what they ask of the rest of the broker.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

from gateway.bridge.form import Form, JsonCell, PacketIdCell, TimeCell, UserCell
from gateway.bridge.inbound import timestamp
from gateway.bridge.mqtt5 import escape_name
from gateway.bridge.payload import Body
from gateway.broker.batch import Destination
from gateway.broker.columns import Columns, Mixed
from gateway.broker.limits import Limits
from gateway.broker.moves import Move
from gateway.broker.publish.columns import length_of
from gateway.broker.publish.keeping import NOBODYS as NOBODYS_PUBRELS
from gateway.broker.publish.keeping import PUBREL_BEGINS, Keeping
from gateway.broker.publish.kept_routes import MAX_CACHED_ROUTES, make_way
from gateway.broker.publish.linking import put_linked
from gateway.broker.publish.publications import MAX_CACHED_TOPIC
from gateway.broker.publish.retained import Latest, Node
from gateway.broker.publish.route import FastPath, Receiver, Route
from gateway.broker.publish.rows import released_rows
from gateway.broker.publish.taking import PUBLISH, Arrived, Rest, take_in_python
from gateway.broker.refused.promised_copy import copy_promised
from gateway.broker.refused.restaging import Release
from gateway.broker.refused.set_aside import aside_of_publication
from gateway.broker.undo import Undo
from gateway.mq.headers.rfh2 import FIXED_LENGTH
from gateway.mq.mqmd import AT_EXPIRY
from gateway.mqtt.packets import V5
from gateway.mqtt.properties import RESPONSE_TOPIC, decode_publish
from gateway.mqtt.reader import Reader
from gateway.ports.batch import Puts, Replace
from gateway.ports.state_queues import STAGED
from gateway.session.connection import CLOSED, ONLINE, Connection
from gateway.session.publication import Publication
from gateway.session.session import STAGED_ID, Session
from gateway.session.staged_run import LEAST, StagedRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.broker.batch import Batch, StagedRows
    from gateway.broker.context import Context
    from gateway.broker.deliver.fan_out import FanOut, Note
    from gateway.broker.deliver.in_flight import InFlight
    from gateway.broker.links import LinkedRun
    from gateway.broker.marks import Released
    from gateway.broker.publish.publications import Publications
    from gateway.broker.publish.qos2 import StagedRuns, Staging
    from gateway.broker.publish.route import Sent
    from gateway.broker.publish.shared_routes import Key, MayPublish, SharedRoute
    from gateway.broker.put_off import PutOff

RELEASED = frozenset({FastPath.PROMISED, FastPath.UNROUTED})
"""Paths of QoS 2 to subscribers, or to nobody."""
NOBODYS = -3
"""A generation that no connection's routes have."""
MOST_ASKED = 128
"""The number of a client's routes from which on no more are made for its requests, each of which may have a response
topic of its own."""
MANY = 32
"""The number of topics from which on a client's routes are kept in a `TopicCache`, where the compiled lane finds them
quickly."""


class FastLane(Keeping):
    """Takes ordinary packets into the open batch."""

    def __init__(
        self, context: Context, publications: Publications, staging: Staging, staged_runs: StagedRuns,
        fan_out: FanOut, in_flight: InFlight, put_off: PutOff,
    ) -> None:  # fmt: skip
        super().__init__(context, publications)
        self.put_off = put_off
        self.router = publications.router
        self.staging = staging
        self.staged_runs = staged_runs
        self.fan_out = fan_out
        self.in_flight = in_flight
        self.behind: Arrived = []
        """What had arrived behind a packet that subscribes, and was not looked at by `take`."""
        self.restage: Callable[[Batch, Released], None] = lambda _batch, _released: None
        """Undoes a release in a batch that could not be committed; set by the engine."""

    def take(self, arrived: Arrived | Rest) -> Rest:
        """Take the ordinary packets at the beginning of what has arrived. Returns what is left."""
        context = self.context
        batch, self._arrived, self._keeps, self._released = context.batch, arrived, None, NOBODYS_PUBRELS
        generation = self.router.generation if context.storage_full is None else NOBODYS
        self.fan_out.rooms.clear()  # as it is now
        if context.bounds is not None:
            context.bounds.relayed = 0
        try:
            rest, looked, size, unanswered, acknowledged, received, completed = take(
                self, arrived, batch.replies, batch.pending, generation, context.clock.monotonic()
            )
        finally:
            if self.fan_out.rooms:  # somebody gets something
                self.hand_on()
        if looked < len(arrived):
            self.behind = cast("Arrived", arrived[looked:])
        counters, published = context.counters, unanswered + acknowledged + received
        counters.bytes_in += size
        counters.packets_in[3] += published
        batch.answered[4] += acknowledged
        if received or completed:
            counters.packets_in[6] += completed
            batch.answered[5] += received
            batch.answered[7] += completed
        batch.rows += published + completed
        return rest

    # -- what `take` asks --

    def renew(self, connection: Connection) -> bool:
        """Forget the void routes of a connection. Returns False if nothing of this connection may be taken now."""
        if connection in self.put_off or self.context.storage_full is not None:
            return False
        self.publications.forget_routes(connection)
        return True

    def route(self, connection: Connection, first: int, topic: bytes) -> Route | None:
        """Find the route of a topic that is not cached or not up to date. Returns None if the plain lane has to take
        the packet, because time is up, because the route of a long topic would have to be found once more, or because
        finding it runs into a defect."""
        context = self.context
        if context.clock.monotonic() > context.until or len(topic) > MAX_CACHED_TOPIC:
            return None
        try:
            return self.publications.route(connection, first, topic)
        except Exception:  # noqa: BLE001 -- it costs the connection that meets it again, not those that were taken
            return None

    def sharing(self) -> tuple[dict[Key, SharedRoute], MayPublish, int] | None:
        """Return what the compiled lane needs to make routes by itself: shared routes, a check whether a client may
        publish there, and how many routes a connection may have. Returns None if it has to ask for each route, because
        some have no fast path."""
        if self.publications.parking.linked:
            return None
        return self.router.shared_routes, self.router.access.may_publish, MAX_CACHED_ROUTES

    def variant(self, connection: Connection, route: Route, deciding: bytes) -> Route | None:
        """The route for publications that have these properties, besides an expiry and user properties on which no rule
        has conditions. It is kept with the routes of topics, whose names have no NUL. None: the plain lane takes
        them."""
        cache = connection.caches[route.first & 7]
        if len(cache) >= MOST_ASKED and RESPONSE_TOPIC in decode_publish(deciding):
            return None
        try:
            made = self.router.variant(route, connection.publisher, deciding)
        except Exception:  # noqa: BLE001 -- as in `route`
            return None
        if made is not None:
            if len(cache) >= MAX_CACHED_ROUTES:
                make_way(cache)
            cache[route.wire_topic + b"\0" + deciding] = made
        return made

    def open(self, columns: Columns) -> None:
        """Open these columns for direct appending."""
        batch, address = self.context.batch, columns.address
        if columns.mixed:
            Mixed.open(batch, columns)
        elif batch.undo is None and not batch.mixed and address not in batch.destinations:  # as nearly always
            batch.destinations[address] = destination = Destination(address, columns.policy)
            destination.open(columns)
        else:
            batch.destination(address, columns.policy).open(columns)

    def head(
        self, route: Route, users: list[tuple[bytes, bytes]], expiry: int | None, payload: bytes | Body, packet_id: int
    ) -> tuple[Route, bytes] | None:
        """The head that a route's form makes for a message, and the route whose tail it has, which keeps the order of
        the user properties. None: the plain lane makes it, or says why there is none."""
        body = payload if isinstance(payload, Body) else Body(payload)
        return self.publications.queue_rows.made(route, users, expiry, body, packet_id)

    def asked(self, route: Route, head: bytes, correlation: bytes, expiry: int) -> bytes | None:
        """See `QueueRows.asked`."""
        return self.publications.queue_rows.asked(route, head, correlation, expiry)

    def unrouted(self, count: int) -> None:
        """Count publications to which no rule applies."""
        self.context.counters.messages_unrouted += count

    def time(self) -> bytes:
        """Return the time of receipt of what has arrived."""
        return timestamp(self.context.now).encode()

    def form(self, route: Route) -> Form | None:
        """Have a route make its form."""
        return route.ask_for_form()

    def escaped(self, name: bytes) -> bytes:
        """Return the name of a user property as it stands in folders."""
        return escape_name(name.decode()).encode()

    def aliased(self, connection: Connection, alias: int, topic: bytes) -> bytes | None:
        """Return the topic of a publication with a Topic Alias, or None if the plain lane has to refuse it."""
        if alias > self.context.limits.topic_aliases:
            return None
        if not topic:
            return connection.aliases.get(alias)
        connection.aliases[alias] = topic
        return topic

    def linked(self) -> list[LinkedRun]:
        """Return the open batch's runs of publications that go to several queues."""
        return self.context.batch.links.runs

    def relay(
        self, connection: Connection, route: Route, payloads: list[bytes], bodies: list[bytes], blocks: list[bytes],
        heads: list[Any], expiry: int, /,
    ) -> bool:  # fmt: skip
        """Hand publications of one topic to its subscribers and its queues, if it has any; returns whether they were
        taken. `blocks`: the properties that subscribers get with each, if any. `heads`: what the rule makes of each,
        or, where rules go on, what each target gets, with heads and bodies. `expiry`: how many seconds all of them have
        to live (0: for ever)."""
        context, fan_out, count, size = self.context, self.fan_out, len(payloads), length_of(payloads)
        undo = Undo(context.batch) if route.elsewhere else None
        try:
            if context.clock.monotonic() > context.until or not self._may_relay(route, count):
                return False
            chosen = fan_out.choose_several(route, count, size) if route.shared else ()
            if chosen is None or not fan_out.admits(route, count, size):
                return False
            if route.elsewhere:
                self._forward_run(connection, route, payloads, blocks, expiry)
            expires = context.now + expiry if expiry else 0.0
            fan_out.relay(
                route, connection.session.client_id, payloads, size, blocks or None, expires=expires, chosen=chosen
            )
        except Exception:  # noqa: BLE001 -- as in `route`: the plain lane meets it again
            if undo is not None:
                undo.take_back(context.batch)
            return False
        finally:
            if undo is not None:
                undo.keep()
        if route.linked:
            self.context.counters.messages_unrouted += put_linked(self, connection, route.first, heads)
        else:
            self.put(connection, route, bodies, heads, count)
        return True

    def _may_relay(self, route: Route, count: int) -> bool:
        """Whether this many publications may be relayed before the open batch is looked at."""
        bounds = self.context.bounds
        return bounds is None or bounds.may_relay(count * (len(route.receivers) + len(route.shared)))

    def put(
        self, connection: Connection, route: Route, bodies: list[bytes], heads: list[bytes], count: int
    ) -> None:  # fmt: skip
        """Put on the route's queue, if it has one, what its subscribers get."""
        batch, columns = self.context.batch, route.columns
        heads = heads or ([route.head] * count if route.head else heads)
        if heads and batch.undo is None:
            if columns.heads is None:
                self.open(columns)
            columns.heads += heads
            columns.bodies += bodies
            columns.owners += [connection] * count
            if columns.mixed:
                columns.queues += [route.queue] * count
        elif heads:
            destination = batch.destination(route.address, route.policies[0])
            destination.contribute(connection, route.first & 6)
            destination.puts.heads += heads
            destination.puts.bodies += bodies
        else:
            self.context.counters.messages_unrouted += count

    def _forward_run(
        self, connection: Connection, route: Route, payloads: list[bytes], blocks: list[bytes], expiry: int = 0
    ) -> None:
        """Put publications of one topic for those who want them at other gateways."""
        said = blocks or [b""] * len(payloads)
        self.fan_out.forward_all([(connection, route, *one, expiry, None) for one in zip(payloads, said, strict=True)])

    def hand_on(self) -> None:
        """Deliver what was relayed to its sessions; if that runs into a defect, one copy after the other."""
        fan_out, batch = self.fan_out, self.context.batch
        relayed = fan_out.relayed
        if not relayed:
            fan_out.rooms.clear()
            return
        undo = Undo(batch)
        try:
            fan_out.hand_on()
        except Exception:  # noqa: BLE001 -- it costs those whose publication meets it again
            undo.take_back(batch)
            for session, notes in relayed.items():
                for note in notes:
                    self._hand_on_each(session, note)
        finally:
            undo.keep()

    def _hand_on_each(self, session: Session, note: Note) -> None:
        (qos, retain, sub_ids, share, _), like, payloads, blocks, _, _ = note
        receiver = Receiver(session, qos, retain_as_published=retain, sub_ids=sub_ids)
        for payload, block in zip(payloads, blocks or repeat(like.properties), strict=False):
            publication = Publication(like.topic, payload, like.qos, like.retain, block, like.expires, like.client_id)
            if like.qos == 2:
                copy_promised(self.fan_out, receiver, publication, share)
                continue
            undo = Undo(self.context.batch)
            try:
                self.fan_out.copy(receiver, publication, {}, share)
            except Exception as error:  # noqa: BLE001 -- nobody acknowledges it: it is sent again
                undo.take_back(self.context.batch)
                publisher = self.context.sessions.get(like.client_id)
                if publisher is not None and publisher.connection is not None:
                    self.context.defect(publisher.connection, error)
            finally:
                undo.keep()

    def _defect(self, connection: Connection, error: Exception) -> None:
        """End a connection, and perhaps its session; what was relayed before is delivered first."""
        self.hand_on()
        self.context.defect(connection, error)

    def forward(self, sent: list[Sent]) -> None:
        """Put for other gateways what their clients want of the publications that were taken."""
        try:
            self.fan_out.forward_all([one for one in sent if one[1].elsewhere])
        except Exception:  # noqa: BLE001 -- it costs the connection that meets it again
            for one in sent:
                self._forward_alone(one)
            return
        for one in sent:
            if one[5] is not None:  # they have had it, and it is retained, should the queue have to be waited for
                self.context.batch.fanned[one[5]] = self._publication(one)

    def _publication(self, one: Sent) -> Publication:
        connection, route, payload, block, expiry, _ = one
        expires, client_id = self.context.now + expiry if expiry else 0.0, connection.session.client_id
        return Publication(
            route.wire_topic, payload, route.first >> 1 & 3, bool(route.first & 1), block, expires, client_id
        )

    def _forward_alone(self, one: Sent) -> None:
        """Forward one publication as the plain lane does. If it runs into a defect it is not acknowledged, and will be
        sent again; what it has put on its queue at QoS 2 must not come there again, so it is set aside, or its release
        undone where that is refused."""
        context, (connection, route, *_, released) = self.context, one
        publication, undo = self._publication(one), Undo(context.batch)
        try:
            self.fan_out.forward(route, publication)
        except Exception as error:
            undo.take_back(context.batch)
            if released is not None:
                aside = aside_of_publication(connection.publisher, publication)
                aside = aside._replace(source=(Release(released, self.restage), released[2]))
                if not context.set_aside.keep("publication", connection.publisher.client_id, error, lambda: aside):
                    context.on_fatal(error)
                    raise
            self._defect(connection, error)
        else:
            undo.keep()
            if released is not None:
                context.batch.fanned[released] = publication

    def settle(self, connection: Connection, data: bytes, at: int) -> int:
        """Take a subscriber's acknowledgements from `at` on, as far as they are plain. Returns where they end."""
        try:
            return self.in_flight.take(connection, data, at)
        except Exception as error:  # noqa: BLE001 -- a defect costs the connection that met it, not the others
            self._defect(connection, error)
        return at

    def staged_head(self, route: Route, session: Session) -> bytes:
        """Return the head of the records that stage publications on a route."""
        return route.staged_head or self.staging.head(route, session.client_id)

    def records(self, session: Session) -> tuple[bytes, Puts, list[bytes], list[bytes], list[StagedRows]]:
        """Where sessions with the same key, which is the first of these, stage records with the open batch: puts, their
        heads and bodies; and where it is noted who has staged which."""
        batch, key = self.context.batch, session.staged_key
        puts = batch.state_puts(STAGED, key)
        if batch.undo is not None:
            batch.undo.length(batch.staged)
        return key, puts, puts.heads, puts.bodies, batch.staged

    def admits(self, route: Route, size: int) -> bool:
        """Whether every subscriber has room for one more publication of this many bytes."""
        try:
            return self.fan_out.admits(route, 1, size) and self.fan_out.turns.can_take(route)
        except Exception:  # noqa: BLE001 -- as in `route`: the plain lane meets it again
            return False

    def new_run(self, session: Session, route: Route) -> StagedRun | None:
        """Return an empty run if publications on this route can be staged in runs, else None."""
        if route.elsewhere or not self.staged_runs.can_stage(session, route):
            return None
        width = getattr(route.tails, "width", 0)
        return StagedRun(route.wire_topic, route.first | PUBLISH, route.address, route.head, width)

    def failed(self, connection: Connection, error: Exception) -> None:
        """Handle a defect that was met while packets of this connection were taken: nothing of them is acknowledged,
        and nothing that was about to be staged is staged."""
        context = self.context
        context.set_aside.run("call", "what is half staged", lambda: self._forget_half_staged(connection.session))
        self._defect(connection, error)

    def _forget_half_staged(self, session: Session) -> None:
        batches = (self.context.batch, self.context.running, *self.context.attempts)
        noted = {id(run) for batch in batches for _, _, _, _, run in batch.staged if run is not None}
        for packet_id, one in list(session.inbound.items()):
            if isinstance(one, StagedRun) and not one.tokens and id(one) not in noted:
                del session.inbound[packet_id]

    def released(self, connection: Connection, count: int) -> None:
        """Note that this many QoS 2 publications of a 5.0 client were released; their PUBCOMPs follow the commit."""
        self.context.batch.release(connection, count)

    def stage(self, session: Session, run: StagedRun) -> None:
        """Stage a run with the open batch."""
        self.staged_runs.add(session, run)

    def may_move(self, connection: Connection, run: StagedRun) -> bool:
        """Whether the publications of a staged run would become the same messages today."""
        route: Route | None = connection.caches[run.first & 7].get(run.topic)
        if route is None or route.version != route.changes[0]:
            route = self.route(connection, run.first, run.topic)
        return (
            route is not None
            and bool(run.tokens)
            and route.fast_path is FastPath.STAGED
            and not route.elsewhere
            and route.address == run.address
            and route.head == run.head
        )

    def move(self, connection: Connection, run: StagedRun, first: int, rows: int) -> None:
        """Move messages of a staged run with the open batch."""
        route = connection.caches[run.first & 7][run.topic]
        self.staged_runs.move(connection.session, Move(run, first, rows, route.policies[0], connection))

    def release(self, connection: Connection, data: bytes, at: int) -> int | tuple[int, Route, bytes, bytes]:
        """Release publications of one topic, which has subscribers and at most one queue, from the PUBREL at `at` on,
        as long as these follow one another; returns how many PUBRELs that were, and where the last of these
        publications is to be retained also its route, payload and properties."""
        tokens = connection.session.staged_tokens
        inbound: dict[int, Any] = connection.session.inbound
        if self.context.clock.monotonic() > self.context.until:
            return 0
        topic, _, first, *block = inbound[data[at + 2] << 8 | data[at + 3]]
        route: Route | None = connection.caches[first & 7].get(topic)
        if route is None or route.version != route.changes[0]:
            route = self.route(connection, first, topic)
        stop = self.keeps_until(connection, data, at) if first & 1 else len(data) - 3
        if route is None or route.fast_path not in RELEASED:
            return 0
        most, payloads, blocks = route.most, dict[int, bytes](), list[bytes]()
        for place in range(at, stop, 4):
            packet_id = data[place + 2] << 8 | data[place + 3]
            one = inbound.get(packet_id)
            if data[place : place + 2] != PUBREL_BEGINS or len(payloads) >= most or packet_id in payloads:
                break
            if type(one) is not tuple or (one[0], one[2], len(one)) != (topic, first, 3 + len(block)):
                break
            if packet_id not in tokens:
                break
            payloads[packet_id] = one[1][STAGED_ID:]
            blocks += one[3:]
        if not payloads or not self._may_relay(route, len(payloads)):
            return 0
        if not self._release_all(connection, route, payloads, blocks):
            return 0
        if not first & 1:
            return len(payloads)
        *_, last = payloads.values()
        return len(payloads), route, last, blocks[-1] if blocks else b""

    def _release_all(
        self, connection: Connection, route: Route, payloads: dict[int, bytes], blocks: list[bytes]
    ) -> bool:  # fmt: skip
        """Release staged publications, all with properties or all without. Returns whether that was done. Their records
        are taken, so what a session does not get because of a defect is kept (`copy_promised`)."""
        fan_out, batch, session = self.fan_out, self.context.batch, connection.session
        ids, columns, is_put = list(payloads), list(payloads.values()), bool(route.head or route.form)
        tokens = [session.staged_tokens[packet_id] for packet_id in ids]
        size, undo, most_users = length_of(columns), Undo(batch), connection.limits.max_user_properties
        try:
            rows = released_rows(self, route, payloads, blocks, most_users) if is_put else ([], [])
            chosen = fan_out.choose_several(route, len(ids), size)
            if rows is None or chosen is None or not fan_out.admits(route, len(ids), size):
                return False
            self.taken_records(session)[1].extend(tokens)
            if is_put:
                destination = batch.destination(route.address, route.policies[0])
                destination.released_rows.append((destination.rows, session, ids, tokens))
            self.put(connection, route, rows[1], rows[0], len(ids))
            if route.elsewhere:
                self._forward_run(connection, route, columns, blocks)
            fan_out.relay(route, session.client_id, columns, size, blocks or None, chosen=chosen)
        except Exception:  # noqa: BLE001 -- as in `relay`
            undo.take_back(batch)
            return False
        finally:
            undo.keep()
        for packet_id, token, block in zip(ids, tokens, blocks or repeat(b""), strict=False):
            del session.inbound[packet_id], session.staged_tokens[packet_id]
            if is_put:  # they have had it, should the queue have to be waited for
                like = Publication(
                    route.wire_topic, payloads[packet_id], 2, retain=bool(route.first & 1), properties=block,
                    client_id=session.client_id,
                )  # fmt: skip
                batch.fanned[session, packet_id, token] = like
        return True

    def taken_records(self, session: Session) -> tuple[bytes, list[Any], dict[Session, list[Move]]]:
        """The tokens of the records that the open batch takes of sessions with the same key, which is the first of
        these; they go in the order of their PUBRELs. Last, what is moved: then another session has to be asked for."""
        batch = self.context.batch
        if batch.moves and session in batch.moves:
            self.staged_runs.write_out(batch, session)
        return session.staged_key, batch.taken(STAGED, session.staged_key), batch.moves


take = take_in_python
with suppress(ModuleNotFoundError):
    import gateway.broker.publish._fast as compiled_lane

    take = compiled_lane.take


def configure(many: int) -> None:
    """Tell the compiled lane which classes' slots it reads, from how many topics on a client's routes are kept in a
    `TopicCache`, and what else it has to know."""
    compiled_lane.configure(
        (
            Connection,
            Reader,
            Session,
            Limits,
            Route,
            Columns,
            Form,
            Body,
            JsonCell,
            TimeCell,
            PacketIdCell,
            UserCell,
            Latest,
            Node,
            Replace,
        ),
        (
            CLOSED,
            ONLINE,
            V5,
            FastPath.DIRECT,
            FastPath.STAGED,
            FastPath.FAN_OUT,
            FastPath.FORMED,
            FastPath.LINKED,
            FastPath.PROMISED,
            FastPath.UNROUTED,
            many,
            LEAST,
            AT_EXPIRY,
            FIXED_LENGTH,
        ),
    )


def compiled() -> bool:
    """Whether the compiled code is used."""
    return take is not take_in_python


if compiled():
    configure(MANY)
