"""From a publication to rows of the open batch: the messages its rules make of it, or a dead letter when no rule can be
followed. Plans are kept by property block, since devices repeat the same ones. Pure.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge import deadletter, inbound, reports
from gateway.bridge.trace import carries, passed_on
from gateway.broker import books
from gateway.broker.batch import Batch, Cause, Mark, Row
from gateway.broker.deliver.reports import put_report
from gateway.broker.publish.route import DEAD_LETTER_POLICY, REPORT_POLICY, Route
from gateway.broker.publish.router import Router, is_retained, origin_of, policy_of, under_syncpoint
from gateway.errors import Refused
from gateway.mq import mqmd, pcf
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Properties
from gateway.ports.batch import MQMD_LENGTH, Address
from gateway.ports.counters import TransformReason
from gateway.ports.failure_policy import Policy
from gateway.ports.state_queues import REQUESTS
from gateway.rules.feedback import Feedback
from gateway.session.connection import Connection, Publisher
from gateway.session.publication import Publication

if TYPE_CHECKING:
    from gateway.broker.batch import Released, WaitingWill
    from gateway.broker.context import Context
    from gateway.broker.refused.parking import Parking

_MAX_PLANS = 4096
_CACHED_LENGTH = 1024
"""The longest topic and properties a plan is kept for: clients choose them, and may send many."""
_TRANSFORM: dict[int, TransformReason] = {
    Feedback.NAME_NOT_VALID: "template", Feedback.VALUE_MISSING: "template", Feedback.VALUE_NOT_VALID: "template",
    Feedback.SCHEMA: "schema", Feedback.TEXT_NOT_VALID: "payload",
}  # fmt: skip
COMMANDS = "SYSTEM.ADMIN.COMMAND.QUEUE"
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
    """Adds a row for each destination of a publication."""

    def __init__(self, context: Context, router: Router, parking: Parking) -> None:
        self.context = context
        self.router = router
        self.parking = parking
        self._plans: dict[tuple[inbound.Origin, bytes, int, int], inbound.Plan] = {}

    def put(self, batch: Batch, message: Inbound, now: float) -> None:
        """Rows for every destination of a publication, in the open unit of work."""
        publication, route = message.publication, message.route
        plan = self._plan(message, now) if publication.properties or publication.expires else route.plan
        if plan is None:
            return
        plain = message.connection is not None and (publication.payload or not publication.retain)
        if plan is route.plan and route.rows is not None and not plan.dead_letter and plain:
            self._put_rows(batch, message, route.rows)
            return
        if plan.dead_letter:
            self._dead_letter_unmatched(batch, message, now)
            return
        rows: list[Row] = []
        chosen = plan.settle(publication.payload)
        if not chosen:  # the payload agrees with no rule
            self._unmatched(batch, message, now)
        for prepared in chosen:
            try:
                self._check_answer(message.publisher, prepared)
                built = prepared.build(message.packet_id, publication.payload, now)
            except Refused as refused:
                rows += self._refused(batch, message, prepared, refused, now)
                continue
            queue = built.queue or f"topic://{built.mq_topic}"
            # a will goes with the state that says it is still to be published
            joined = len(chosen) > 1 or message.connection is None
            syncpoint = joined or under_syncpoint(prepared, persistent=built.persistent)
            retain = is_retained(prepared, built.mq_topic) and bool(publication.payload)
            address = Address(
                queue, built.queue_manager, built.priority, built.persistent, syncpoint=syncpoint, retain=retain
            )
            row = batch.put(address, policy_of(prepared), built.head, built.body)
            _mark(row, message)
            rows.append(row)
            if is_retained(prepared, built.mq_topic) and not publication.payload:
                clear_retained(batch, built.mq_topic)
            if prepared.request is not None:
                batch.replace(REQUESTS, prepared.request.token, prepared.request.encode())
        self._line_up(batch, message, rows)

    def _unmatched(self, batch: Batch, message: Inbound, now: float) -> None:
        if self.router.table.dead_letter_unmatched:
            self._dead_letter_unmatched(batch, message, now)
        else:
            self.context.counters.messages_unrouted += 1

    def _put_rows(
        self, batch: Batch, message: Inbound, destinations: tuple[tuple[Address, Policy, bytes, dict[int, bytes]], ...]
    ) -> None:
        """A row for each destination, where nothing has to be evaluated for the message."""
        payload, packet_id = message.publication.payload, message.packet_id
        rows: list[Row] = []
        for address, policy, head, tails in destinations:
            row = batch.put(address, policy, head, tails[packet_id] + payload)
            _mark(row, message)
            rows.append(row)
        self._line_up(batch, message, rows)

    def _line_up(self, batch: Batch, message: Inbound, rows: list[Row]) -> None:
        """Keep the rows of one publication together, and behind parked ones of its connection."""
        connection = message.connection if message.publication.qos else None  # QoS 0 keeps no order
        if len(rows) > 1 or connection in self.parking.linked:
            self.parking.line_up(batch, connection, rows)

    def _plan(self, message: Inbound, now: float) -> inbound.Plan:
        """The plan for this property block and time to live: devices repeat the same ones."""
        origin, publication = origin_of(message.route, message.publisher), message.publication
        left = max(1, ceil(publication.expires - now)) if publication.expires else 0
        key = (origin, publication.properties, left, self.router.generation)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            properties = prop.decode_publish(publication.properties)
            if left:
                properties[prop.MESSAGE_EXPIRY_INTERVAL] = left
            if self.router.new_span is not None and carries(properties):  # no two such messages are alike
                return self._traced_plan(message, origin, properties)
            plan = inbound.plan(self.router.table, origin, properties, message.route.plan)
            if len(key[1]) + len(origin.topic) <= _CACHED_LENGTH:
                self._plans[key] = plan
        return plan

    def _traced_plan(self, message: Inbound, origin: inbound.Origin, properties: Properties) -> inbound.Plan:
        made, publication = passed_on(properties, self.router.new_span), message.publication
        rule, length = message.route.rule, len(publication.payload)
        books.note_hop(
            self.context.batch, self.context.on_hop, properties, made,
            "in", rule, origin.topic, origin.client_id, publication.qos, length,
        )  # fmt: skip
        return inbound.plan(self.router.table, origin, made, message.route.plan)

    def _check_answer(self, publisher: Publisher, prepared: inbound.Prepared) -> None:
        """A device may name as response topic only what it could publish or receive itself: the answer of the MQ
        application is published there in its name."""
        request = prepared.request
        if request is None:
            return
        who = (publisher.listener, publisher.client_id, publisher.user, request.response_topic)
        if not self.context.access.may_publish(*who) and not self.context.access.may_receive(*who):
            raise Refused("the access list does not allow the response topic", Feedback.NOT_AUTHORISED)

    def _refused(
        self, batch: Batch, message: Inbound, prepared: inbound.Prepared, why: Refused, now: float
    ) -> list[Row]:
        """A rule cannot be followed: dead-letter the message with the reason, or drop it if the rule says so."""
        context = self.context
        name, publication = prepared.rule.name, message.publication
        context.counters.transform_errors[name, _TRANSFORM.get(why.feedback, "other")] += 1
        if prepared.rule.spec.on_failure.then in {"drop", "disconnect"} or not context.dead_letter_queue:
            books.refused(context.counters, name, publication.qos, "other")
            return []
        body = prepared.tails[message.packet_id] + publication.payload
        data = prepared.head[MQMD_LENGTH:] + body
        report = reports.exception(prepared.head[:MQMD_LENGTH], data, why.feedback)
        if report is not None:
            put_report(batch, report)
        if reports.discards(prepared.head):
            books.refused(context.counters, name, publication.qos, "other")
            return []
        destination = prepared.rule.spec.queue or prepared.rule.spec.mq_topic or ""
        cause = Cause(name, "transform", publication.qos)
        return [self._dead_letter(batch, message, prepared, body, why.feedback, destination, cause, now)]

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
        row = self._dead_letter(batch, message, made, body, Feedback.NO_RULE, "", cause, now)
        self._line_up(batch, message, [row])

    def _dead_letter(
        self, batch: Batch, message: Inbound, made: inbound.Prepared, body: bytes, reason: int, destination: str,
        cause: Cause, now: float,
    ) -> Row:  # fmt: skip
        context = self.context
        queue, manager = context.dead_letter_queue, context.queue_manager
        room = manager.max_length(queue)
        dead = deadletter.build(
            made.head, body, reason=reason, queue=destination, queue_manager=manager.name, now=now, max_length=room
        )
        address = Address(queue, persistent=made.persistent)
        row = batch.put(address, DEAD_LETTER_POLICY, dead.head, dead.body)
        _mark(row, message, cause)
        return row


def _mark(row: Row, message: Inbound, cause: Cause | None = None) -> None:
    """Remember of a row of a publication who waits for it, the staged message it releases, and whose will it is."""
    destination, number = row
    if message.connection is not None:
        destination.contribute(message.connection, message.publication.qos)
    if message.staged is not None or message.will is not None or cause is not None:
        destination.mark(number, Mark(message.staged, cause, will=message.will))


def clear_retained(batch: Batch, topic: str) -> None:
    """Take the retained publication off an MQ topic, as an empty one does on the MQTT topic. MQ has no put for that:
    it is the command CLEAR TOPICSTR, sent in PCF to the command server in the same unit of work. The gateway's user
    needs +put on the command queue and +clr on the topic. A command that the queue refuses is dead-lettered."""
    head = mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQADMIN ")
    batch.put(_COMMANDS, REPORT_POLICY, head, command(topic))


def command(topic: str) -> bytes:
    """CLEAR TOPICSTR(topic) CLRTYPE(RETAINED) SCOPE(LOCAL)."""
    wanted = [pcf.string(_TOPIC_STRING, topic), pcf.integer(_CLEAR_TYPE, _RETAINED), pcf.integer(_CLEAR_SCOPE, _LOCAL)]
    return pcf.build(pcf.Message(1, _CLEAR_TOPIC_STRING, wanted))
