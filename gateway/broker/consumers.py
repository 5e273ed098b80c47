"""From queues to devices: fetch, translate, hand over to every matching session, take: one unit of work a batch. Pure.

A message leaves its queue in the unit of work that stores it for its durable sessions (or behind a dead-letter header);
for the others it has been handed to their connections when that unit is submitted. What was published to the gateway is
never routed back to a queue from here, so the two directions cannot feed each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.bridge import deadletter, outbound
from gateway.bridge.request import Request
from gateway.broker.route import DEAD, Receiver, Route
from gateway.broker.turn import Cause
from gateway.errors import HeaderError, MQError, Refused
from gateway.mq import mqmd
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Properties
from gateway.ports.batch import Stored
from gateway.ports.counters import mqrc_label
from gateway.routing.table import Table
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import OutboundRule
from gateway.rules.templates import Template
from gateway.session.connection import Publisher
from gateway.session.publication import Publication

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

BATCH = 200
REQUESTS = "MQGATE.REQUESTS"
_REQUEST_PREFIX = b"MQGR"
_MAX_ROUTES = 4096
_PUBLISHER = Publisher("", "", None, 5)
_BACKOUT_THRESHOLD_REACHED = 2362
_PAUSE = 1.0
"""Seconds until a queue is looked at again whose message could not even be dead-lettered."""


class Source:
    """One queue that is consumed, and the rules for what is on it."""

    __slots__ = ("active", "paused", "queue", "rules", "running", "waiting")

    def __init__(self, queue: str, rules: list[OutboundRule]) -> None:
        self.queue = queue
        self.rules = rules
        self.running = False
        self.waiting = False
        """Held back: a session that would get the next message is full."""
        self.active = True
        self.paused = False
        """A message of it can neither be delivered nor dead-lettered: it is tried again after a while."""

    def pause(self, engine: Engine) -> None:
        """Leave the queue alone for a moment."""
        self.paused = True
        engine.scheduler.later(_PAUSE, self.resume)

    def resume(self) -> None:
        """Try again, with the next commit at the latest."""
        self.paused, self.waiting = False, True


class Consumers:
    """The rules from queues to topics, at work."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.sources: dict[str, Source] = {}
        self._routes: dict[str, Route] = {}
        self._ready: dict[Source, None] = {}
        engine.on_committed = self.resume

    def start(self, table: Table) -> None:
        """Begin to consume every queue a rule names."""
        self.use(table)

    def use(self, table: Table) -> None:
        """The rules, at start and after a reload."""
        wanted: dict[str, list[OutboundRule]] = {}
        for rule in table.outbound:
            queue = rule.spec.queue or rule.spec.transmission_queue
            if queue:
                wanted.setdefault(queue, []).append(rule)
        for queue, source in self.sources.items():
            source.active = queue in wanted
            source.rules = wanted.get(queue, [])
        for queue, rules in wanted.items():
            if queue not in self.sources:
                source = self.sources[queue] = Source(queue, rules)
                self._watch(source)

    def _watch(self, source: Source) -> None:
        try:
            self.engine.queue_manager.consume(source.queue, lambda: self.arrived(source))
        except MQError as error:
            self.engine.problems[f"queue {source.queue}"] = f"it cannot be consumed: {error}; define it (mqgate mqsc)"

    def arrived(self, source: Source) -> None:
        """The queue manager says that there may be something."""
        if source.running or source.paused or not source.active:
            source.waiting = source.running or source.paused
            return
        source.running = True
        self.engine.scheduler.soon(lambda: self.pump(source))

    def resume(self) -> None:
        """A unit of work was committed: sources that were held back may find room now."""
        for source in self.sources.values():
            if source.waiting and not source.running and not source.paused:
                source.waiting = False
                self.arrived(source)

    def pump(self, source: Source) -> None:
        """One batch: everything it leads to is in one unit of work with its takes."""
        engine = self.engine
        engine.now = engine.scheduler.now()
        if source.paused or not source.active or engine.draining or engine.turn.rows > 5000 or self._congested():
            source.running, source.waiting = False, True
            return
        try:
            page = engine.queue_manager.fetch(source.queue, b"", BATCH)
        except MQError as error:
            engine.problems[f"queue {source.queue}"] = f"get: {error}"
            engine.counters.mq_errors[engine.queue_manager.name, "get", mqrc_label(error.reason)] += 1
            source.running, source.waiting = False, True
            return
        engine.problems.pop(f"queue {source.queue}", None)
        fetched = engine.scheduler.monotonic()
        for stored in page:
            self._one(source, stored)
            engine.turn.take(source.queue, b"", stored.token)
        if page:
            messages = len(page)
            engine.turn.after.append(lambda: self._again(source, fetched, messages))
            engine.flush()
        else:
            source.running = False

    def _again(self, source: Source, fetched: float, messages: int) -> None:
        """The unit of work is committed, and what it led to handed to connections or stored for sessions."""
        took = self.engine.scheduler.monotonic() - fetched
        self.engine.counters.bridge_latency_seconds["out"].observe_many(took, messages)
        self.engine.scheduler.soon(lambda: self.pump(source))

    def _congested(self) -> bool:
        """Whether a connected session is so far behind that fetching more would only move the queue into memory."""
        limit = self.engine.limits.max_queued
        connections = self.engine.connections
        return any(
            max(len(connection.session.outflow.pending), connection.session.stored) > limit - BATCH
            for connection in connections
        )

    # -- one message --

    def _one(self, source: Source, stored: Stored) -> None:
        rule = source.rules[0]
        engine = self.engine
        try:
            self._check_backout(rule, stored)
            made = self._answer(rule, stored) or self._publication(source.rules, stored)
            rule_name = rule.name
            engine.counters.route_matched[rule_name] += 1
            self._publish(rule_name, made)
            engine.counters.mq_get_messages[engine.queue_manager.name, rule_name] += 1
        except Refused as refused:
            self._dead_letter(source, rule, stored, refused.feedback)
        except HeaderError:
            engine.counters.transform_errors[rule.name, "header"] += 1
            self._dead_letter(source, rule, stored, 2334)

    def _publication(self, rules: list[OutboundRule], stored: Stored) -> outbound.Publication:
        """What the first rule that can be followed makes of the message."""
        for rule in rules[:-1]:
            try:
                return outbound.publication(rule, stored.md, stored.data)
            except Refused:
                continue
        return outbound.publication(rules[-1], stored.md, stored.data)

    def _check_backout(self, rule: OutboundRule, stored: Stored) -> None:
        """A message that was backed out too often is poison: it goes aside, with what came before it undisturbed."""
        threshold = rule.spec.backout.threshold
        if threshold and mqmd.number(stored.md, mqmd.AT_BACKOUT_COUNT) >= threshold:
            raise Refused("backed out too often", _BACKOUT_THRESHOLD_REACHED)

    def _answer(self, rule: OutboundRule, stored: Stored) -> outbound.Publication | None:
        """The answer to a device's request: its CorrelId is the token the request went out with."""
        token = stored.md[mqmd.CORREL_ID]
        if not token.startswith(_REQUEST_PREFIX):
            return None
        found = self.engine.queue_manager.fetch(REQUESTS, token, 1)
        if not found:
            return None
        request = Request.decode(found[0].data)
        topic = Template(request.response_topic, (request.response_topic,))
        made = outbound.publication(replace(rule, topic=topic), stored.md, stored.data)
        made.properties.pop(prop.RESPONSE_TOPIC, None)
        if request.correlation_data:
            made.properties[prop.CORRELATION_DATA] = request.correlation_data
        self.engine.turn.replace(REQUESTS, token, None)
        return made

    def _publish(self, rule_name: str, made: outbound.Publication) -> None:
        engine = self.engine
        properties: Properties = dict(made.properties)
        expiry = properties.pop(prop.MESSAGE_EXPIRY_INTERVAL, None)
        expires = engine.now + expiry if isinstance(expiry, int) else 0.0
        publication = Publication(
            made.topic.encode(), made.payload, made.qos, made.retain, prop.encode(properties), expires
        )
        if publication.retain:
            engine.retained.keep(publication)
        if made.client:
            self._for_client(made, publication)
            engine.counters.mqtt_publish_sent[rule_name, made.qos] += 1
        else:
            route = self._route(made.topic)
            if not route.receivers and not route.shared and not publication.retain and made.qos:
                raise Refused("nobody is subscribed", Feedback.DEVICE_UNKNOWN)
            self._check_room(route.receivers, publication)
            engine.delivery.fan_out(route, publication, rule_name)

    def _for_client(self, made: outbound.Publication, publication: Publication) -> None:
        """For one device, subscribed or not: an application addressed it by its client identifier."""
        session = self.engine.sessions.get(made.client)
        if session is None:
            raise Refused(f"no device {made.client!r} is known here", Feedback.DEVICE_UNKNOWN)
        receiver = Receiver(session, 2, True, ())  # noqa: FBT003 -- the message's own RETAIN
        self._check_room((receiver,), publication)
        self.engine.delivery.copy(receiver, publication, {})

    def _check_room(self, receivers: tuple[Receiver, ...], publication: Publication) -> None:
        """A full session refuses here, where the message can still be dead-lettered, not later and silently."""
        limit = self.engine.limits.max_queued
        if publication.qos and len(receivers) == 1 and receivers[0].session.stored >= limit:
            raise Refused("the device's queue is full", Feedback.QUEUE_LIMIT)

    def _route(self, topic: str) -> Route:
        """The local subscribers of a topic."""
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            route = self._routes[topic] = Route(topic, topic.encode(), 0)
        if route.seen != route.cell[0] or route.seen < 0:
            self.engine.router.find_receivers(route, _PUBLISHER)
        return route

    def _dead_letter(self, source: Source, rule: OutboundRule, stored: Stored, reason: int) -> None:
        engine = self.engine
        queue = rule.spec.backout.queue if reason == _BACKOUT_THRESHOLD_REACHED else ""
        persistent = mqmd.number(stored.md, mqmd.AT_PERSISTENCE) == 1
        priority = max(0, mqmd.number(stored.md, mqmd.AT_PRIORITY))
        head, body = stored.md, stored.data
        if not queue:  # a backout queue gets the message as it is
            manager = engine.queue_manager
            dead = deadletter.build(
                stored.md, stored.data, reason=reason, queue=source.queue, queue_manager=manager.name, now=engine.now,
                max_length=manager.max_length(engine.dead_letter_queue),
            )  # fmt: skip
            head, body = dead.head, dead.body
        run = (queue or engine.dead_letter_queue, "", priority, persistent, b"")
        turn = engine.turn
        turn.aim(run, DEAD)
        _, row = turn.put(run, head, body)
        turn.sources.setdefault(run, {})[row] = (source, stored.token)
        turn.causes.setdefault(run, {})[row] = Cause(rule.name, "backed_out" if queue else "transform", -1)
