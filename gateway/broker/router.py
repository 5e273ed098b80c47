"""Where a publication goes: topic validity, access, rules, local subscribers. Callers cache the results. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING

from gateway.bridge import deadletter, inbound, reports
from gateway.bridge.trace import NewSpan, carries, passed_on
from gateway.broker import accounting, tracing
from gateway.broker.failures import put_report
from gateway.broker.route import DEAD, HOT, STAGING, Inbound, Policy, Receiver, Route, Shared
from gateway.broker.turn import Cause, Row, Run, Turn
from gateway.errors import Refused
from gateway.mq import mqmd
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.mqtt.packets import V5, Properties, Will
from gateway.mqtt.topics import SHARE_PREFIX, split_shared, topic_name_error
from gateway.ports.access import Access
from gateway.ports.batch import MQMD_LENGTH
from gateway.ports.counters import TransformReason
from gateway.routing.filters import Group, Interest, Subscriptions
from gateway.routing.table import Table
from gateway.rules.feedback import Feedback
from gateway.session.connection import Publisher
from gateway.session.publication import Publication
from gateway.session.record import REPORTS
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

_STATE_MD = mqmd.build(persistence=1, put_appl_name="mqgate")
_RESERVED = ("$SYS/", SHARE_PREFIX)
"""The broker's own word, which no device may speak, and names that nobody can subscribe to."""
_MAX_HEADS = 20_000
_MAX_PLANS = 4096
_MAX_CELLS = 20_000
_CACHED_LENGTH, _CELL_NAME = 1024, 64
"""Nothing longer is kept: clients choose topics and properties, and may send many."""
REQUESTS = "MQGATE.REQUESTS"
_TRANSFORM: dict[int, TransformReason] = {
    Feedback.NAME_NOT_VALID: "template", Feedback.VALUE_MISSING: "template", Feedback.VALUE_NOT_VALID: "template",
    Feedback.SCHEMA: "schema", Feedback.TEXT_NOT_VALID: "payload",
}  # fmt: skip


class Router:
    """Rules, access and subscriptions behind one question."""

    def __init__(
        self, table: Table, access: Access, new_client_id: Callable[[], str], max_levels: int = 200,
        new_span: NewSpan | None = None,
    ) -> None:  # fmt: skip
        self.table = table
        self.access = access
        self.subscriptions: Subscriptions[Session] = Subscriptions()
        self.new_client_id = new_client_id
        self.max_levels = max_levels
        self._rules_generation = 0
        self._cells: dict[str, list[int]] = {}
        self._heads: dict[bytes, bytes] = {}
        self._plans: dict[tuple[inbound.Origin, bytes, int, int], inbound.Plan] = {}
        self._runs: dict[tuple[Run, Policy], Run] = {}
        self.engine: Engine | None = None
        self.new_span = new_span
        """Makes the identifier of our span in a trace; without it trace contexts pass unchanged."""

    @property
    def generation(self) -> int:
        """Grows when rules or access lists change: cached routes of another generation are void."""
        return self._rules_generation + self.access.generation

    def use(self, table: Table) -> None:
        """New rules, between two batches."""
        self.table = table
        self._rules_generation += 1

    def touch(self) -> None:
        """Have every cached route computed again."""
        self._rules_generation += 1

    # -- routes --

    def route(self, publisher: Publisher, wire_topic: bytes, first: int) -> Route:
        """The answer for one topic of one client; `first` holds the QoS and RETAIN bits."""
        problem = self._topic_error(publisher.listener, wire_topic)
        if problem is not None:
            route = Route("", wire_topic, first)
            malformed = topic_name_error(wire_topic) is not None  # 0x90 is for well-formed names that are not accepted
            route.error = reasons.MALFORMED_PACKET if malformed else reasons.TOPIC_NAME_INVALID
            route.error_text, route.seen = problem, 0
            return route
        topic = wire_topic.decode()
        route = Route(topic, wire_topic, first)
        own = topic.startswith(_RESERVED)
        if own or not self.access.may_publish(publisher.listener, publisher.client_id, publisher.user, topic):
            route.error, route.error_text = reasons.NOT_AUTHORIZED, "the access list does not allow this topic"
            route.seen = 0
            return route
        if not topic.startswith("$"):
            self._find_destinations(route, publisher)
        self.find_receivers(route, publisher)
        return route

    def _topic_error(self, listener: str, wire_topic: bytes) -> str | None:
        """Why nothing can be published there, whoever asks."""
        if self.engine is None:
            return topic_name_error(wire_topic, self.max_levels)
        limits = self.engine.limits.at(listener)
        if len(wire_topic) > limits.max_topic_length:
            return f"topics have at most {limits.max_topic_length} bytes here"
        return topic_name_error(wire_topic, limits.max_topic_levels)

    def _find_destinations(self, route: Route, publisher: Publisher) -> None:
        origin = _origin(route, publisher)
        plan = inbound.plan(self.table, origin, {})
        if not plan.prepared and not plan.dead_letter:
            return
        route.plan = plan
        route.policies = tuple(policy_of(one) for one in plan.prepared)
        route.rule = plan.prepared[0].rule.name if plan.prepared else ""
        if plan.simple and not any(one.request is not None for one in plan.prepared):
            route.rows = tuple(
                (run_of(one), policy, one.head, one.tails)
                for one, policy in zip(plan.prepared, route.policies, strict=True)
            )
        if len(plan.prepared) == 1 and plan.simple:
            only = plan.prepared[0]
            route.run = self._run(run_of(only), route.policies[0])
            route.head, route.tails = only.head, only.tails

    def _run(self, run: Run, policy: Policy) -> Run:
        """The same object for equal runs of equal policy: the hot loops ask by identity whether a run goes on."""
        if len(self._runs) >= _MAX_PLANS:
            self._runs.clear()
        return self._runs.setdefault((run, policy), run)

    def find_receivers(self, route: Route, publisher: Publisher) -> None:
        """Local subscribers, as they are now."""
        route.cell = self._cell(route.topic)
        route.seen = route.cell[0]
        matched = self.subscriptions.match(route.topic)
        route.receivers = tuple(
            _receiver(session, (interest.echoed or interest) if session.client_id == publisher.client_id else interest)
            for session, interest in matched.direct.items()
            if not (interest.no_local and session.client_id == publisher.client_id)  # [MQTT5-3.8.3-3]
            and self.may_receive(session, route.topic)
        )
        route.shared = tuple(self.shared(group, route.topic) for group in matched.groups)
        tracing = self.engine is not None and self.engine.trace is not None
        checked = any(policy.too_long == "reject" for policy in route.policies)
        alone = (
            bool(route.head)
            and not checked
            and not tracing
            and not route.receivers
            and not route.shared
            and not route.first & 1
        )
        offered = self.engine is None or route.first >> 1 & 3 <= self.engine.limits.max_qos  # [MQTT-3.2.2-11]
        route.hot = (STAGING if route.first & 4 else HOT) if alone and offered else 0

    def shared(self, group: Group[Session], topic: str) -> Shared:
        """A shared subscription with the members that may have the topic."""
        members = [
            _receiver(session, interest)
            for session, interest in group.members.items()
            if self.may_receive(session, topic)
        ]
        return Shared(f"{SHARE_PREFIX}{group.name}/{group.filter}", members)

    def may_receive(self, session: Session, topic: str) -> bool:
        """Whether the access list lets a session have a topic: asked again when the list changes."""
        return self.access.may_receive(session.listener, session.client_id, session.user, topic)

    # -- subscriptions --

    def _cell(self, topic: str) -> list[int]:
        """The change counter of a topic's first level: subscriptions below others leave its routes alone."""
        level = topic.partition("/")[0][:_CELL_NAME]
        cell = self._cells.get(level)
        if cell is None:
            if len(self._cells) >= _MAX_CELLS:
                self._forget_cells()
            cell = self._cells[level] = [0]
        return cell

    def _forget_cells(self) -> None:
        """Whoever publishes below more and more first levels takes no more memory: every route is looked up again."""
        for cell in self._cells.values():
            cell[0] += 1
        self._cells.clear()

    def _changed(self, filter_: str) -> None:
        level = split_shared(filter_)[1].partition("/")[0]
        if level in {"+", "#"}:
            for cell in self._cells.values():
                cell[0] += 1
        else:
            self._cell(level)[0] += 1

    def subscribe(self, session: Session, filter_: str, interest: Interest) -> bool:
        """Add or replace a subscription; True when it is new."""
        self._changed(filter_)
        return self.subscriptions.add(session, filter_, interest)

    def unsubscribe(self, session: Session, filter_: str) -> None:
        """Remove one."""
        self._changed(filter_)
        self.subscriptions.remove(session, filter_)

    def unsubscribe_all(self, session: Session) -> None:
        """Remove all of a session."""
        for filter_ in session.subscriptions:
            self._changed(filter_)
        self.subscriptions.remove_all(session)

    # -- putting --

    def put(self, turn: Turn, message: Inbound, now: float) -> None:
        """Rows for every destination of a publication, in the open unit of work."""
        publication, route = message.publication, message.route
        plan = self._plan(message, now) if publication.properties or publication.expires else route.plan
        if plan is None:
            return
        if plan is route.plan and route.rows is not None and not plan.dead_letter:
            self._put_rows(turn, message, route.rows)
            return
        if plan.dead_letter:
            self._dead_letter_unmatched(turn, message, now)
            return
        rows: list[Row] = []
        chosen = plan.settle(publication.payload)
        if not chosen:  # the payload agrees with no rule
            self._unmatched(turn, message, now)
        for prepared in chosen:
            try:
                self._check_answer(message.publisher, prepared)
                built = prepared.build(message.packet_id, publication.payload, now)
            except Refused as refused:
                rows += self._refused(turn, message, prepared, refused, now)
                continue
            queue = built.queue or f"topic://{built.mq_topic}"
            run = (queue, built.queue_manager, built.priority, built.persistent, b"")
            turn.aim(run, policy_of(prepared))
            rows.append(_row(turn, message, run, built.head, built.body))
            if prepared.request is not None:
                turn.replace(REQUESTS, prepared.request.token, prepared.request.encode())
        self._line_up(turn, message, rows)

    def _unmatched(self, turn: Turn, message: Inbound, now: float) -> None:
        if self.table.dead_letter_unmatched:
            self._dead_letter_unmatched(turn, message, now)
        elif self.engine is not None:
            self.engine.counters.messages_unrouted += 1

    def _put_rows(
        self, turn: Turn, message: Inbound, destinations: tuple[tuple[Run, Policy, bytes, dict[int, bytes]], ...]
    ) -> None:
        """Nothing to evaluate: a row for each destination."""
        payload, packet_id = message.publication.payload, message.packet_id
        rows: list[Row] = []
        for run, policy, head, tails in destinations:
            turn.aim(run, policy)
            rows.append(_row(turn, message, run, head, tails[packet_id] + payload))
        self._line_up(turn, message, rows)

    def _line_up(self, turn: Turn, message: Inbound, rows: list[Row]) -> None:
        """Rows of one publication stay together; one alone has nothing to stay with, unless others are waited for."""
        engine = self.engine
        if engine is not None and (len(rows) > 1 or message.connection in engine.parking.tied):
            engine.parking.line_up(turn, message.connection, rows)

    def too_long(self, route: Route, payload: bytes) -> bool:
        """Whether a rule that says `too_long: reject` would put more than its queue takes."""
        engine = self.engine
        if engine is None or route.plan is None:
            return False
        for prepared, policy in zip(route.plan.prepared, route.policies, strict=True):
            if policy.too_long == "reject" and prepared.queue:
                length = len(prepared.head) - MQMD_LENGTH + len(prepared.tails[1]) + len(payload)
                if length > engine.queue_manager.max_length(prepared.queue):
                    return True
        return False

    def _plan(self, message: Inbound, now: float) -> inbound.Plan:
        """The plan for this property block and time to live: devices repeat the same ones."""
        origin, publication = _origin(message.route, message.publisher), message.publication
        left = max(1, ceil(publication.expires - now)) if publication.expires else 0
        key = (origin, publication.properties, left, self._rules_generation)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            properties = prop.decode_publish(publication.properties)
            if left:
                properties[prop.MESSAGE_EXPIRY_INTERVAL] = left
            if self.new_span is not None and carries(properties):  # no two such messages are alike
                return self._traced_plan(message, origin, properties)
            plan = inbound.plan(self.table, origin, properties, message.route.plan)
            if len(key[1]) + len(origin.topic) <= _CACHED_LENGTH:
                self._plans[key] = plan
        return plan

    def _traced_plan(self, message: Inbound, origin: inbound.Origin, properties: Properties) -> inbound.Plan:
        made, publication = passed_on(properties, self.new_span), message.publication
        if self.engine is not None:
            rule, length = message.route.rule, len(publication.payload)
            tracing.note(
                self.engine, properties, made, "in", rule, origin.topic, origin.client_id, publication.qos, length
            )
        return inbound.plan(self.table, origin, made, message.route.plan)

    def _check_answer(self, publisher: Publisher, prepared: inbound.Prepared) -> None:
        """A device may name as response topic only what it could publish or receive itself: the answer of the MQ
        application is published there in its name."""
        request = prepared.request
        if request is None:
            return
        who = (publisher.listener, publisher.client_id, publisher.user, request.response_topic)
        if not self.access.may_publish(*who) and not self.access.may_receive(*who):
            raise Refused("the access list does not allow the response topic", Feedback.NOT_AUTHORISED)

    def _refused(self, turn: Turn, message: Inbound, prepared: inbound.Prepared, why: Refused, now: float) -> list[Row]:
        """A rule cannot be followed with this message: it goes where people can see it, with the reason."""
        engine = self.engine
        assert engine is not None  # noqa: S101 -- set when the engine is built
        name, publication = prepared.rule.name, message.publication
        engine.counters.transform_errors[name, _TRANSFORM.get(why.feedback, "other")] += 1
        if prepared.rule.spec.on_failure.then in {"drop", "disconnect"} or not engine.dead_letter_queue:
            accounting.refused(engine.counters, name, publication.qos, "other")
            return []
        body = prepared.tails[message.packet_id] + publication.payload
        data = prepared.head[MQMD_LENGTH:] + body
        report = reports.exception(prepared.head[:MQMD_LENGTH], data, why.feedback)
        if report is not None:
            put_report(turn, report)
        if reports.discards(prepared.head):
            accounting.refused(engine.counters, name, publication.qos, "other")
            return []
        destination = prepared.rule.spec.queue or prepared.rule.spec.mq_topic or ""
        cause = Cause(name, "transform", publication.qos)
        return [self._dead_letter(turn, message, prepared, body, why.feedback, destination, cause, now)]

    def _dead_letter_unmatched(self, turn: Turn, message: Inbound, now: float) -> None:
        engine = self.engine
        assert engine is not None  # noqa: S101 -- set when the engine is built
        engine.counters.messages_unrouted += 1
        if not engine.dead_letter_queue:
            return
        publication = message.publication
        properties = prop.decode_publish(publication.properties) if publication.properties else {}
        made = inbound.unmatched(_origin(message.route, message.publisher), properties)
        body = made.tails[message.packet_id] + publication.payload
        cause = Cause("_none", "unmatched", publication.qos)
        row = self._dead_letter(turn, message, made, body, Feedback.NO_RULE, "", cause, now)
        self._line_up(turn, message, [row])

    def _dead_letter(
        self, turn: Turn, message: Inbound, made: inbound.Prepared, body: bytes, reason: int, destination: str,
        cause: Cause, now: float,
    ) -> Row:  # fmt: skip
        engine = self.engine
        assert engine is not None  # noqa: S101 -- set when the engine is built
        queue, manager = engine.dead_letter_queue, engine.queue_manager
        room = manager.max_length(queue)
        dead = deadletter.build(
            made.head, body, reason=reason, queue=destination, queue_manager=manager.name, now=now, max_length=room
        )
        run = (queue, "", 0, made.persistent, b"")
        turn.aim(run, DEAD)
        row = _row(turn, message, run, dead.head, dead.body)
        turn.causes.setdefault(run, {})[row[1]] = cause
        return row

    def state_head(self, prefix: bytes) -> bytes:
        """The head of a state message; equal prefixes share one object, so that a frame holds them once."""
        if prefix[1] & REPORTS:  # it is like no other
            return _STATE_MD + prefix
        head = self._heads.get(prefix)
        if head is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            head = _STATE_MD + prefix
            if len(prefix) <= _CACHED_LENGTH:
                self._heads[prefix] = head
        return head

    def publish_will(self, publisher: Publisher, will: Will) -> None:
        """A will becomes a publication [MQTT-3.1.2-8]: it follows access lists, rules and retention like any other.
        [MQTT3-3.1.2-16] [MQTT3-3.1.2-17] [MQTT5-3.1.2-14] [MQTT5-3.1.2-15] [MQTT5-3.1.3-10]"""
        engine = self.engine
        assert engine is not None  # noqa: S101 -- set when the engine is built
        first = will.qos << 1 | (1 if will.retain else 0)
        route = self.route(publisher, will.topic.encode(), first)
        if route.error:
            engine.counters.messages_dropped["_none", "denied"] += 1
            return
        properties = prop.decode(will.raw_properties, prop.WILL) if will.raw_properties else {}
        expiry = properties.pop(prop.MESSAGE_EXPIRY_INTERVAL, None)
        properties.pop(prop.WILL_DELAY_INTERVAL, None)
        expires = engine.now + expiry if isinstance(expiry, int) else 0.0
        block = prop.encode(properties) if properties and publisher.version == V5 else b""
        publication = Publication(
            will.topic.encode(), will.payload, will.qos, will.retain, block, expires, publisher.client_id
        )
        engine.publishing.release(publisher, route, publication, 0)


def _row(turn: Turn, message: Inbound, run: Run, head: bytes, body: bytes) -> Row:
    """A row of a publication: who waits for it, and the staged message it releases."""
    row = turn.put(run, head, body)
    if message.connection is not None:
        turn.contribute(run, message.connection)
    if message.staged is not None:
        turn.released.setdefault(run, {})[row[1]] = message.staged
    return row


def _origin(route: Route, publisher: Publisher) -> inbound.Origin:
    qos, retain = route.first >> 1 & 3, bool(route.first & 1)
    user = publisher.user or ""
    return inbound.Origin(publisher.client_id, user, route.topic, qos, retain, listener=publisher.listener)


def run_of(prepared: inbound.Prepared) -> Run:
    """The destination of what a rule prepared."""
    queue = prepared.queue or f"topic://{prepared.mq_topic}"
    return (queue, prepared.queue_manager, prepared.priority, prepared.persistent, b"")


def policy_of(prepared: inbound.Prepared) -> Policy:
    """What its rule says about failures."""
    spec = prepared.rule.spec
    retry = spec.on_failure.retry
    return Policy(spec.name, retry.times, retry.first, retry.longest, spec.on_failure.then, spec.too_long)


def _receiver(session: Session, interest: Interest) -> Receiver:
    return Receiver(session, interest.qos, interest.retain_as_published, interest.identifiers)
