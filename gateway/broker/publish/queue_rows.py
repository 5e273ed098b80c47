"""From a publication to rows of the open batch: the messages its rules make of it, or a dead letter when no rule can be
followed. Plans are kept by property block, since devices repeat the same ones. Pure.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge import inbound, reports
from gateway.bridge.form import Users
from gateway.bridge.inbound import Built, Prepared
from gateway.bridge.mqtt5 import user_properties
from gateway.bridge.payload import Body
from gateway.bridge.request import Request
from gateway.bridge.trace import TRACEPARENT, carries, is_traced, passed_on
from gateway.broker import books, dead_letters
from gateway.broker.batch import Batch, Row
from gateway.broker.dead_letters import Undelivered
from gateway.broker.marks import Cause, Mark
from gateway.broker.publish.route import REPORT_POLICY, Route
from gateway.broker.publish.router import Router, is_retained, origin_of, policy_of, under_syncpoint
from gateway.errors import Refused
from gateway.mq import mqmd, pcf
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Properties
from gateway.ports.batch import Address
from gateway.ports.failure_policy import Policy
from gateway.ports.state_queues import COMMANDS, REQUESTS
from gateway.rules.feedback import Feedback
from gateway.session.connection import Connection, Publisher
from gateway.session.publication import Publication

if TYPE_CHECKING:
    from gateway.broker.context import Context
    from gateway.broker.marks import Released, WaitingWill
    from gateway.broker.refused.exception_reports import ExceptionReports
    from gateway.broker.refused.parking import Parking

_MAX_PLANS = 4096
_ROUNDED = 0.001
"""The most seconds by which a time that has been added to a date may be off."""
_CACHED_LENGTH = 1024
"""The longest topic and properties, together, for which a plan is kept: clients choose them, and may send many."""
_CLEAR_TOPIC_STRING = 184
_TOPIC_STRING, _CLEAR_TYPE, _CLEAR_SCOPE = 2094, 1305, 1306
_RETAINED, _LOCAL = 1, 1
_COMMANDS = Address(COMMANDS)


class Inbound(NamedTuple):
    """A publication with what is needed to evaluate rules that look into the message."""

    route: Route
    publication: Publication
    packet_id: int
    publisher: Publisher
    connection: Connection | None = None
    """The connection that gets the acknowledgement; None for a will."""
    staged: Released | None = None
    """The staged record that this releases (QoS 2)."""
    will: WaitingWill | None = None
    """Set for a will: what is stored of it if its destination is parked."""


class QueueRows:
    """Adds a row for each destination of a publication to the open batch."""

    def __init__(self, context: Context, router: Router, parking: Parking, exception_reports: ExceptionReports) -> None:
        self.context = context
        self.router = router
        self.parking = parking
        self.exception_reports = exception_reports
        self._plans: dict[tuple[inbound.Origin, bytes, int, int], inbound.Plan] = {}
        self._requests = 0
        """How many requests devices have sent since the process began."""

    def put(self, batch: Batch, message: Inbound, now: float) -> None:
        """Append rows for every destination of a publication to the batch."""
        publication, route = message.publication, message.route
        plan, users, expiry = self._plan(message, now)
        if plan is None:
            return
        plain = message.connection is not None and (publication.payload or not publication.retain)
        if plan is route.plan and route.rows is not None and not (users or expiry or plan.dead_letter) and plain:
            self._put_rows(batch, message, route.rows)
            return
        if plan.dead_letter:
            self._dead_letter_unmatched(batch, message, now)
            return
        body = Body(publication.payload)
        chosen = plan.settle(body)
        if chosen and TRACEPARENT.encode() in publication.properties:
            self._note_span(message, chosen[0])
        if not chosen:  # the payload agrees with no rule
            self._unmatched(batch, message, now)
        built = self._build(message, chosen, body, now, users, expiry)
        if built is None:
            chosen = self._whole_plan(message, now).settle(body)
            built = [self._built(message, prepared, body, now) for prepared in chosen]
        self._put_all(batch, message, list(zip(chosen, built, strict=True)), now)

    def _build(
        self, message: Inbound, chosen: list[Prepared], body: Body, now: float, users: Users, expiry: int | None
    ) -> list[Built | Refused] | None:
        """The message of each rule, or why there is none. None if the user properties need a plan of their own, because
        the dead letter would carry them too."""
        if not users and expiry is None:
            return [self._built(message, prepared, body, now) for prepared in chosen]
        found: list[Built | Refused] = []
        for prepared in chosen:
            try:
                built = prepared.build_with(message.packet_id, body, now, users, expiry)
            except Refused:
                return None
            if built is None:
                return None
            found.append(built)
        return found

    def _built(self, message: Inbound, prepared: Prepared, body: Body, now: float) -> Built | Refused:
        try:
            self.router.check_answer(message.publisher, prepared)
            return prepared.build(message.packet_id, body, now)
        except Refused as refused:
            return refused

    def _put_all(
        self, batch: Batch, message: Inbound, messages: list[tuple[Prepared, Built | Refused]], now: float
    ) -> None:
        """Append a row for each message that could be built, and a dead letter for each that could not."""
        publication, rows = message.publication, list[Row]()
        # a will goes with the state that says it is still to be published
        joined = len(messages) > 1 or message.connection is None
        for prepared, built in messages:
            if isinstance(built, Refused):
                rows += self._refused(batch, message, prepared, built, now)
                continue
            queue = built.queue or f"topic://{built.mq_topic}"
            syncpoint = joined or under_syncpoint(prepared, persistent=built.persistent)
            retain = is_retained(prepared, built.mq_topic) and bool(publication.payload)
            address = Address(
                queue, built.queue_manager, built.priority, built.persistent, syncpoint=syncpoint, retain=retain
            )
            head, request = built.head, prepared.request
            if request is not None:
                head = request.stamp(head, self.ask(batch, request, now))
            row = batch.put(address, policy_of(prepared), head, built.body)
            _mark(row, message)
            rows.append(row)
            if is_retained(prepared, built.mq_topic) and not publication.payload:
                clear_retained(batch, built.mq_topic)
        self._line_up(batch, message, rows)

    def ask(self, batch: Batch, request: Request, now: float) -> bytes:
        """Store what the answer to a request needs; returns the token of the request."""
        self._requests += 1
        token = request.numbered(int(now * 1000) << 32 | self._requests & 0xFFFFFFFF)  # no other has it after a restart
        batch.replace(REQUESTS, token, request.encode())
        return token

    def asked(self, route: Route, head: bytes, correlation: bytes, expiry: int) -> bytes | None:
        """Complete the head of a publication with a response topic or correlation data that is about to be put: with
        these data and, where an answer is awaited, with a token, under which is stored what the answer needs. None if
        the commit has no room for more of that."""
        form, context, token = route.ask_for_form(), self.context, None
        if form is None or form.asking is None:
            return head
        request = form.asking.request
        if request is not None:
            if context.is_full:
                return None
            asks = Request(request.client_id, request.response_topic, correlation, expiry)
            token = self.ask(context.batch, asks, context.now)
        return form.asking.stamp(head, correlation, token)

    def _unmatched(self, batch: Batch, message: Inbound, now: float) -> None:
        if self.router.table.dead_letter_unmatched:
            self._dead_letter_unmatched(batch, message, now)
        else:
            self.context.counters.messages_unrouted += 1

    def _put_rows(
        self, batch: Batch, message: Inbound, destinations: tuple[tuple[Address, Policy, bytes, dict[int, bytes]], ...]
    ) -> None:
        """Append a row for each destination where nothing has to be evaluated for the message."""
        payload, packet_id = message.publication.payload, message.packet_id
        rows: list[Row] = []
        for address, policy, head, tails in destinations:
            row = batch.put(address, policy, head, tails[packet_id] + payload)
            _mark(row, message)
            rows.append(row)
        self._line_up(batch, message, rows)

    def _line_up(self, batch: Batch, message: Inbound, rows: list[Row]) -> None:
        """Keep the rows of one publication together, and behind parked rows of its connection."""
        connection = message.connection if message.publication.qos else None  # QoS 0 keeps no order
        may_have_several = connection is not None and bool(message.route.linked)
        if rows and (len(rows) > 1 or may_have_several or connection in self.parking.linked):
            self.parking.note(batch, connection, rows)

    def _plan(self, message: Inbound, now: float) -> tuple[inbound.Plan | None, Users, int | None]:
        """The plan for this publication, with the user properties and the seconds to live that the plan leaves to
        forms."""
        publication, route = message.publication, message.route
        if not (publication.properties or publication.expires):
            return route.plan, (), None
        separated = prop.separate(publication.properties)
        if separated is not None and not is_traced(separated[1]):
            rest, users = separated
            plan = self._known_plan(message, rest, 0) if rest else route.plan
            if plan is not None and plan.forms and not plan.asks:
                return plan, users, _left(publication, now) or None
        return self._whole_plan(message, now), (), None

    def _whole_plan(self, message: Inbound, now: float) -> inbound.Plan:
        """The plan for exactly these properties."""
        publication = message.publication
        properties = prop.decode_publish(publication.properties)
        if carries(properties):  # no two such messages are alike
            return self._traced_plan(message, properties, _left(publication, now))
        return self._known_plan(message, publication.properties, _left(publication, now))

    def _known_plan(self, message: Inbound, block: bytes, left: int) -> inbound.Plan:
        """The plan for this property block and time to live: devices repeat the same ones."""
        origin = origin_of(message.route, message.publisher)
        key = (origin, block, left, self.router.generation)
        plan = self._plans.get(key)
        if plan is None:
            plan = inbound.plan(self.router.table, origin, _properties(prop.decode_publish(block), left))
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            if len(block) + len(origin.topic) <= _CACHED_LENGTH:
                self._plans[key] = plan
        return plan

    def _traced_plan(self, message: Inbound, properties: Properties, left: int) -> inbound.Plan:
        properties, origin = _properties(properties, left), origin_of(message.route, message.publisher)
        return inbound.plan(self.router.table, origin, passed_on(properties, self.router.new_span))

    def made(
        self, route: Route, users: Users, expiry: int | None, body: Body, packet_id: int
    ) -> tuple[Route, bytes] | None:  # fmt: skip
        """Like `Route.make`, for a message that is about to be put: a trace context goes on with the span of this
        hop."""
        now, plan = inbound.timestamp(self.context.now).encode(), route.plan
        if not is_traced(users):
            return route.make(now, users, expiry, body, packet_id)
        before: Properties = {prop.USER_PROPERTY: [(name.decode(), value.decode()) for name, value in users]}
        after = passed_on(before, self.router.new_span)
        users = [(name.encode(), value.encode()) for name, value in user_properties(after)]
        made = route.make(now, users, expiry, body, packet_id)
        if made is not None and plan is not None and plan.prepared:
            first = plan.prepared[0]
            self._note_hop(before, after, first.origin, first.rule.name, len(body.raw))
        return made

    def _note_span(self, message: Inbound, chosen: Prepared) -> None:
        """Note the span of this hop by the first rule that applies."""
        before, length = prop.decode_publish(message.publication.properties), len(message.publication.payload)
        self._note_hop(before, chosen.properties, chosen.origin, chosen.rule.name, length)

    def _note_hop(
        self, before: Properties, after: Properties, origin: inbound.Origin, rule: str, length: int
    ) -> None:  # fmt: skip
        books.note_hop(
            self.context.batch, self.context.on_hop, before, after,
            "in", rule, origin.topic, origin.client_id, origin.qos, length,
        )  # fmt: skip

    def _refused(
        self, batch: Batch, message: Inbound, prepared: inbound.Prepared, why: Refused, now: float
    ) -> list[Row]:
        """Dead-letter a message whose rule cannot be followed, with the reason; or drop it if the rule says so. If the
        device sent it again it would fail again, so `hold` and `disconnect` dead-letter it too. Returns the rows."""
        context = self.context
        name, publication = prepared.rule.name, message.publication
        client_id, topic = message.publisher.client_id, message.route.topic
        books.not_built(context.counters, name, why, client_id, topic=topic)
        if prepared.rule.spec.on_failure.then == "drop" or not context.dead_letter_queue:
            books.refused(context.counters, name, publication.qos, "other", client_id=client_id, topic=topic)
            return []
        body = prepared.tails[message.packet_id] + publication.payload
        head = self.exception_reports.put(batch, prepared.head, body, why.feedback)
        if reports.discards(head):
            books.refused(context.counters, name, publication.qos, "other", client_id=client_id, topic=topic)
            return []
        destination, manager = prepared.destination(message.packet_id, Body(publication.payload), now)
        cause = Cause(name, "transform", publication.qos)
        dead = Undelivered(head, body, why.feedback, destination, manager, prepared.persistent)
        return [self._dead_letter(batch, message, dead, cause, now)]

    def _dead_letter_unmatched(self, batch: Batch, message: Inbound, now: float) -> None:
        context = self.context
        context.counters.messages_unrouted += 1
        if not context.dead_letter_queue:
            return
        publication = message.publication
        properties = prop.decode_publish(publication.properties) if publication.properties else {}
        made = inbound.unmatched(origin_of(message.route, message.publisher), properties)
        body = made.tails[message.packet_id] + publication.payload
        cause = Cause("_none", "unmatched", publication.qos)
        dead = Undelivered(made.head, body, Feedback.NO_RULE, "", "", made.persistent)
        row = self._dead_letter(batch, message, dead, cause, now)
        self._line_up(batch, message, [row])

    def _dead_letter(self, batch: Batch, message: Inbound, dead: Undelivered, cause: Cause, now: float) -> Row:
        row = dead_letters.put(self.context, batch, dead, now)
        self.context.counters.examples.note(
            "dlq_messages", (cause.rule, cause.reason), message.publisher.client_id,
            topic=message.route.topic, queue=dead.queue or None,
        )  # fmt: skip
        _mark(row, message, cause)
        return row


def _left(publication: Publication, now: float) -> int:
    """The seconds that a publication still has to live; 0: it does not expire."""
    return max(1, ceil(publication.expires - now - _ROUNDED)) if publication.expires else 0


def _properties(properties: Properties, left: int) -> Properties:
    return {**properties, prop.MESSAGE_EXPIRY_INTERVAL: left} if left else properties


def _mark(row: Row, message: Inbound, cause: Cause | None = None) -> None:
    """Note for a row of a publication who waits for it, the staged message it releases, and whose will it is."""
    destination, number = row
    if message.connection is not None:
        destination.contribute(message.connection, message.publication.qos)
    if message.staged is not None or message.will is not None or cause is not None:
        destination.mark(number, Mark(message.staged, cause, will=message.will))


def clear_retained(batch: Batch, topic: str) -> None:
    """Take the retained publication off an MQ topic, as an empty one does on the MQTT topic. MQ has no put for that:
    the command CLEAR TOPICSTR is sent in PCF to the command server in the same unit of work. The gateway's user needs
    +put on the command queue and +clr on the topic. A command that the queue refuses is dead-lettered."""
    head = mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQADMIN ")
    batch.put(_COMMANDS, REPORT_POLICY, head, command(topic))


def command(topic: str) -> bytes:
    """The PCF of CLEAR TOPICSTR(topic) CLRTYPE(RETAINED) SCOPE(LOCAL)."""
    wanted = [pcf.string(_TOPIC_STRING, topic), pcf.integer(_CLEAR_TYPE, _RETAINED), pcf.integer(_CLEAR_SCOPE, _LOCAL)]
    return pcf.build(pcf.Message(1, _CLEAR_TOPIC_STRING, wanted))
