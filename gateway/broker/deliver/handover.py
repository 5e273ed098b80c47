"""One message from a queue on its way to devices: what the rules make of it, who gets it, or why nobody does. Pure.

Everything it leads to goes into the open turn, with the take of the message itself: copies for durable sessions,
reports, a dead letter. What a device gets at QoS 0 goes to the wire when the turn is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.bridge import deadletter, outbound, trace
from gateway.bridge.repeated import Known, Repeated
from gateway.bridge.request import Request
from gateway.broker import tracing
from gateway.broker.deliver.delivery import Prefixes
from gateway.broker.publish.route import DEAD, Receiver, Route
from gateway.broker.sessions.asking import ask
from gateway.broker.turn import Cause
from gateway.errors import HeaderError, MQError, Refused
from gateway.mq import mqmd
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Properties
from gateway.ports.batch import Stored
from gateway.ports.state_queues import OUT, REQUESTS
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import OutboundRule
from gateway.rules.templates import Template
from gateway.session.connection import Publisher
from gateway.session.publication import Publication

if TYPE_CHECKING:
    from gateway.broker.deliver.consumers import Source
    from gateway.broker.engine import Engine

_REQUEST_PREFIX = b"MQGR"
_MAX_ROUTES = 4096
_PUBLISHER = Publisher("", "", None, 5)
_SHORT = 32_768
"""Message data of this length is short on every queue manager: its least MAXMSGL."""
_RECORD = 1024
"""Room for what is stored beside topic, properties and payload: descriptor for reports, subscription identifiers."""
_BACKOUT_THRESHOLD_REACHED = 2362
_RFH_ERROR = 2334


class Handover:
    """See the module."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.gateway = ""
        """The name this gateway gives to what its devices publish; empty: nothing is recognised."""
        self._routes: dict[str, Route] = {}
        self.repeated = Repeated()
        self._requests: dict[bytes, list[Stored]] = {}
        """Requests of devices that are known already, by the token they went out with."""

    def know_requests(self, messages: Iterable[Stored], known: Callable[[MQError | None], None]) -> None:
        """Have `known` called when it is known which requests these messages answer, or cannot be."""
        tokens = {stored.md[mqmd.CORREL_ID] for stored in messages}
        tokens = {token for token in tokens if token.startswith(_REQUEST_PREFIX)}
        fetch = self.engine.queue_manager.fetch

        def found(requests: dict[bytes, list[Stored]] | MQError) -> None:
            self._requests = {} if isinstance(requests, MQError) else requests
            known(requests if isinstance(requests, MQError) else None)
            self._requests = {}

        if tokens:
            ask(self.engine, lambda: {token: fetch(REQUESTS, token, 1) for token in tokens}, found)
        else:
            known(None)

    def message(self, source: Source, stored: Stored) -> str:
        """Hand over one message; the name of the rule that took it."""
        rule, engine = source.rules[0], self.engine
        counters = engine.counters
        try:
            self._check_backout(source, stored)
            self._check_whole(stored)
            known = self.repeated.find(source.rules, stored.md, stored.data)
            if known is None:
                rule, made = self._made(source, rule, stored)
            else:
                made = known.made
            if made.gateway and made.gateway == self.gateway:
                counters.messages_dropped[rule.name, "loop"] += 1
            elif known is None:
                self._publish(rule.name, stored, made)
            else:
                self._repeat(rule.name, stored, known)
        except Refused as refused:
            self._dead_letter(source, rule, stored, refused.feedback)
        except HeaderError:
            counters.transform_errors[rule.name, "header"] += 1
            self._dead_letter(source, rule, stored, _RFH_ERROR)
        counters.route_matched[rule.name] += 1
        return rule.name

    def _made(self, source: Source, rule: OutboundRule, stored: Stored) -> tuple[OutboundRule, outbound.Publication]:
        """What the rules make of a message that is like none before it."""
        answer = self._answer(rule, stored)
        if answer is not None:
            return answer
        found = outbound.first_publication(source.rules, stored.md, stored.data)
        self.repeated.keep(source.rules, stored.md, stored.data, found[1])
        return found

    def _check_backout(self, source: Source, stored: Stored) -> None:
        """A message that was backed out too often is poison: it goes aside, with what came before it undisturbed."""
        threshold = source.backout.threshold
        if threshold and mqmd.number(stored.md, mqmd.AT_BACKOUT_COUNT) >= threshold:
            raise Refused("backed out too often", _BACKOUT_THRESHOLD_REACHED)

    @staticmethod
    def _check_whole(stored: Stored) -> None:
        """Of a message in segments that is longer than a message may be only the beginning is here."""
        if len(stored.data) > _SHORT and mqmd.number(stored.md, mqmd.AT_ORIGINAL_LENGTH) > len(stored.data):
            raise Refused("its segments are longer than a message may be", Feedback.TOO_LONG)

    def _room(self) -> int:
        return self.engine.queue_manager.max_length(OUT)

    @staticmethod
    def _stored_size(publication: Publication) -> int:
        """What a session stores of it at most."""
        beside = len(publication.topic) + len(publication.properties) + _RECORD
        return beside + len(publication.payload)

    def _answer(self, rule: OutboundRule, stored: Stored) -> tuple[OutboundRule, outbound.Publication] | None:
        """The answer to a device's request: its CorrelId is the token the request went out with."""
        token = stored.md[mqmd.CORREL_ID]
        if not token.startswith(_REQUEST_PREFIX):
            return None
        if self.engine.far is not None:
            found = self._requests.get(token, [])
        else:
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
        return rule, made

    # -- to devices --

    def _publish(self, rule_name: str, stored: Stored, made: outbound.Publication) -> None:
        engine = self.engine
        passed = trace.passed_on(made.properties, engine.router.new_span)
        length = len(made.payload)
        tracing.note(engine, made.properties, passed, "out", rule_name, made.topic, made.client, made.qos, length)
        properties: Properties = dict(passed)
        expiry = properties.pop(prop.MESSAGE_EXPIRY_INTERVAL, None)
        expires = engine.now + expiry if isinstance(expiry, int) else 0.0
        publication = Publication(
            made.topic.encode(), made.payload, made.qos, made.retain, prop.encode(properties), expires
        )
        self._hand_over(rule_name, stored, made, publication, {})

    def _repeat(self, rule_name: str, stored: Stored, known: Known) -> None:
        """A message whose headers are known."""
        made = known.made
        publication = Publication(known.topic, stored.data[known.start :], made.qos, made.retain, known.block)
        self._hand_over(rule_name, stored, made, publication, known.prefixes)

    def _hand_over(
        self, rule_name: str, stored: Stored, made: outbound.Publication, publication: Publication, prefixes: Prefixes
    ) -> None:
        engine = self.engine
        receivers, shared = self.receivers(made)
        if not receivers and not shared and not publication.retain and made.qos:
            raise Refused("nobody is subscribed", Feedback.DEVICE_UNKNOWN)
        if made.qos and len(stored.data) > _SHORT and self._stored_size(publication) > self._room():
            raise Refused("longer than what a session can store", Feedback.TOO_LONG)
        if len(receivers) == 1 and not shared:
            self._for_one(receivers[0], publication, made.report, prefixes)
            engine.counters.mqtt_publish_sent[rule_name, made.qos] += 1
        else:
            engine.delivery.fan_out(self._route(made.topic), publication, rule_name)
            engine.delivery.reporting.handed_over(stored.md, stored.data)
        if publication.retain:
            engine.retained.keep(publication)

    def receivers(self, made: outbound.Publication) -> tuple[tuple[Receiver, ...], bool]:
        """Who gets it, and whether shared subscriptions are among them."""
        if not made.client:
            route = self._route(made.topic)
            return route.receivers, bool(route.shared)
        session = self.engine.sessions.get(made.client)
        if session is None or session.over:
            raise Refused(f"no device {made.client!r} is known here", Feedback.DEVICE_UNKNOWN)
        return (Receiver(session, 2, True, ()),), False  # noqa: FBT003 -- the message's own RETAIN

    def _for_one(self, receiver: Receiver, publication: Publication, report: bytes, prefixes: Prefixes) -> None:
        """For one device: its own answer is what is reported. A full or absent session refuses here, where the message
        can still be dead-lettered, not later and silently."""
        engine, session = self.engine, receiver.session
        qos = min(publication.qos, receiver.qos)
        away = session.connection is None
        if qos and away and not session.durable:
            raise Refused("the device is away and keeps no session", Feedback.DEVICE_UNKNOWN)
        if qos and engine.delivery.waiting.full(engine.limits.at(session.listener), session, len(publication.payload)):
            raise Refused("the device's queue is full", Feedback.QUEUE_LIMIT)
        publication.report = report
        if qos == 0 and away:
            engine.delivery.reporting.negative(publication, Feedback.DEVICE_UNKNOWN)
            engine.counters.messages_dropped["_none", "other"] += 1
        elif qos == 0:
            engine.delivery.reporting.positive(publication)
        engine.delivery.copy(receiver, publication, prefixes)

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

    # -- aside --

    def _dead_letter(self, source: Source, rule: OutboundRule, stored: Stored, reason: int) -> None:
        engine, turn = self.engine, self.engine.turn
        queue = source.backout.queue if reason == _BACKOUT_THRESHOLD_REACHED else ""
        if engine.delivery.reporting.undeliverable(stored.md, stored.data, reason) and not queue:
            engine.counters.messages_dropped[rule.name, "other"] += 1
            return
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
        run = (queue or engine.dead_letter_queue, "", priority, persistent, b"", True, False)
        turn.aim(run, DEAD)
        _, row = turn.put(run, head, body)
        turn.sources.setdefault(run, {})[row] = (source, stored.token)
        turn.causes.setdefault(run, {})[row] = Cause(
            rule.name, "backed_out" if reason == _BACKOUT_THRESHOLD_REACHED else "transform", -1
        )
