"""One message from a queue on its way to devices: what the rules make of it, who gets it, or why nobody does. Pure.

Everything it leads to goes into the open batch together with the take of the message itself: copies for durable
sessions, reports, a dead letter. What a device gets at QoS 0 is sent when the batch is submitted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge import outbound, trace
from gateway.bridge.repeated import Known, Repeated, header_length
from gateway.bridge.request import Request
from gateway.broker import books, dead_letters
from gateway.broker.context import Context
from gateway.broker.dead_letters import Undelivered
from gateway.broker.deliver.fan_out import FanOut, Prefixes
from gateway.broker.deliver.reports import Reports
from gateway.broker.marks import Cause, Mark, SourceQueue
from gateway.broker.publish.retained import Retained
from gateway.broker.publish.route import DEAD_LETTER_POLICY, Receiver, Route
from gateway.broker.publish.router import Router
from gateway.broker.refused.set_aside import AWAY, Aside
from gateway.errors import HeaderError, MQError, Refused
from gateway.mq import mqmd
from gateway.mq.transmitted_segments import part_of
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Properties
from gateway.ports.batch import Address, Scheduler, Stored, Token
from gateway.ports.counters import DeadLetterReason
from gateway.ports.sources import Backout
from gateway.ports.state_queues import OUT, REQUESTS
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import OutboundRule
from gateway.rules.templates import Template
from gateway.session.connection import Publisher
from gateway.session.publication import Publication

if TYPE_CHECKING:
    from gateway.broker.batch import Batch
    from gateway.broker.deliver.wide import Wide
    from gateway.session.session import Session

_REQUEST_PREFIX = b"MQGR"
_MAX_ROUTES = 4096
_PUBLISHER = Publisher("", "", None, 5)
_SHORT = 32_768
"""Message data up to this length is short on every queue manager: the least MAXMSGL there is."""
_RECORD = 1024
"""Room for what is stored beside topic, properties and payload: descriptor for reports, subscription identifiers."""
_BACKOUT_THRESHOLD_REACHED = 2362
_RFH_ERROR = 2334
_INCOMPLETE_MSG = 2242
_DEAD_LETTER_REASON: dict[int, DeadLetterReason] = {
    _BACKOUT_THRESHOLD_REACHED: "backed_out", Feedback.QUEUE_LIMIT: "queue_full", Feedback.TOO_LONG: "too_long",
    Feedback.NOT_AUTHORISED: "not_authorized", Feedback.DEVICE_UNKNOWN: "other", Feedback.REQUEST_UNKNOWN: "other",
}  # fmt: skip
"""Reasons that are no fault of the rule that should have made a publication of the message."""
_LEADS_NOWHERE = {Feedback.TOPIC_NOT_VALID, Feedback.VALUE_MISSING, Feedback.DEVICE_UNKNOWN}
"""Reasons given for a message without a topic of its own, as answers to requests are."""

BATCH, DEEP = 200, 1000
"""The most messages in one unit of work; and the most short ones, while the queue holds more than that."""
DEEP_BYTES = 4 << 20
"""The most bytes of a unit of work with more than BATCH messages, judged by the sizes of the last messages."""
GIVING_SECONDS = 0.02
"""Time in one turn for messages of one queue that are looked at one by one; the rest comes in the next turn."""
PAUSE = 1.0
"""Seconds until a queue is read again after one of its messages could not even be dead-lettered."""


def _nothing() -> None:
    pass


class Passed(NamedTuple):
    """How a message came here that another gateway has got from its queue."""

    lies_on: SourceQueue | None = None
    """Where it is now."""
    tried: Collection[str] = ()
    """Gateways where its device is not."""
    redirects: int = 0
    """How often it was sent after a session that moves."""


class Source:
    """A queue or MQ topic that is consumed, with the rules for what comes from it."""

    __slots__ = (
        "active", "backout", "batch", "claimed", "in_slices", "key", "over", "passed", "paused", "queue", "rules",
        "running", "stayed", "under_way", "waiting",
    )  # fmt: skip

    def __init__(self, queue: str, rules: list[OutboundRule]) -> None:
        self.queue = queue
        """The queue's name; for a topic the queue that its subscription puts on, blank until that is known."""
        self.key = b""
        self.rules = rules
        self.backout = Backout()
        self.batch = BATCH
        """How many messages are asked for next."""
        self.claimed = BATCH
        """Like `batch`, where what was asked for has to be handed over in one turn."""
        self.passed: Passed | None = None
        """Set for a message that another gateway has got from there."""
        self.running = False
        self.waiting = False
        """Whether it is held back, because a session that would get the next message is full."""
        self.active = True
        self.paused = False
        """Whether one of its messages can neither be delivered nor dead-lettered; that is tried again after a while."""
        self.under_way = 0
        """How many of its messages are being copied for very many subscribers."""
        self.in_slices = False
        """Whether one of these is so long that its copies are made in slices, or comes behind such a one: nothing more
        is handed over until it has been, and of what had to be, as it was claimed, copies are made in slices, too."""
        self.over: Callable[[], None] = _nothing
        """Called when none of them is any more."""
        self.stayed: set[Token] = set()
        """Messages of the last batch that stay on their queue for that reason."""

    target = ""
    """The target that has it; empty: the gateway's own queue manager."""

    @property
    def name(self) -> str:
        """Its name for an operator."""
        topic = self.rules[0].spec.mq_topic if self.rules else None
        name = f"topic {topic}" if topic is not None else f"queue {self.queue}"
        return f"{name} at {self.target}" if self.target else name

    def leave(self, batch: Batch, token: Token) -> None:
        """Leave a message out of the batch, which was refused: the batch does not take it any more."""
        batch.takes[self.queue, self.key].tokens.remove(token)

    def put_aside(self, batch: Batch, stored: Stored, queue: str) -> bool:
        """Put a message on the back-out queue. Returns False: that is done with the batch, like everything else."""
        del batch, stored, queue
        return False

    def fit(self, messages: int, size: int) -> None:
        """Adapt the next batch to this many messages, of this many bytes together, that came: it is deeper if there
        were as many as asked for, and as short as the bytes allow."""
        if messages < self.batch:
            return
        short = DEEP_BYTES * messages // (size or 1)
        self.batch = max(BATCH, min(DEEP, 2 * self.batch, short))

    def took(self, messages: int, seconds: float) -> None:
        """Adapt the next claim to the time that this many claimed messages took: fewer next time, or more again."""
        if seconds > GIVING_SECONDS:
            self.claimed = max(1, int(messages * GIVING_SECONDS / seconds))
        else:
            self.claimed = min(BATCH, 2 * self.claimed)

    def stay(self, scheduler: Scheduler, token: Token) -> None:
        """Leave a message on the queue, as it can neither be delivered nor dead-lettered; the queue is not read for a
        moment."""
        self.stayed.add(token)
        if not self.paused:
            self.paused = True
            scheduler.later(PAUSE, self._resume)

    def _resume(self) -> None:
        """Have the queue read again, with the next commit at the latest."""
        self.paused, self.waiting = False, True

    def copied(self, _missed: int) -> None:
        """Note that all copies of one message for very many subscribers are made."""
        self.under_way -= 1
        if not self.under_way:
            self.in_slices = False
            self.over, over = _nothing, self.over
            over()


class Handover:
    """Hands messages over to devices, each in the open batch."""

    def __init__(self, context: Context, router: Router, fan_out: FanOut, reports: Reports, retained: Retained) -> None:
        self.context = context
        self.router = router
        self.fan_out = fan_out
        self.reports = reports
        self.retained = retained
        self.apart: frozenset[str] = frozenset()
        """Rules whose messages every gateway gets for itself, because the subscription is named after it."""
        self.rules: dict[str, list[OutboundRule]] = {}
        """By the name of a rule: all rules for what comes from the same place."""
        self.pass_on: Callable[[str, str, Source, Stored, bytes], bool] = lambda *_: False
        """Puts a message for another gateway, as its device (the first argument) has no session here; returns False if
        there is none."""
        self.gateway = ""
        """The name this gateway gives to what its devices publish; empty: nothing is recognised."""
        self.wide: Wide
        """Copies publications for very many subscribers; set by the engine."""
        self._routes: dict[str, Route] = {}
        self.repeated = Repeated()
        self.answers = Repeated()
        self._requests: dict[bytes, list[Stored]] = {}
        """Requests of devices that have been looked up, by the token they went out with."""

    def know_requests(self, messages: Iterable[Stored], known: Callable[[MQError | None], None]) -> None:
        """Have `known` called when the requests that these messages answer have been looked up, or cannot be."""
        tokens = {stored.md[mqmd.CORREL_ID] for stored in messages}
        tokens = {token for token in tokens if token.startswith(_REQUEST_PREFIX)}
        fetch = self.context.queue_manager.fetch

        def found(requests: dict[bytes, list[Stored]] | MQError) -> None:
            self._requests = {} if isinstance(requests, MQError) else requests
            known(requests if isinstance(requests, MQError) else None)
            self._requests = {}

        if tokens:
            self.context.ask(lambda: {token: fetch(REQUESTS, token, 1) for token in tokens}, found)
        else:
            known(None)

    def one(self, source: Source, stored: Stored) -> str:
        """Hand over one message as a unit, which is set aside if it meets a defect. Returns the name of the rule that
        took it; the open batch takes it already."""
        rules = [source.rules[0].name]

        def message() -> None:
            rules[0] = self.message(source, stored)

        aside = Aside(stored.md, stored.data, {"queue": source.queue}, (source, stored.token))
        self.context.set_aside.run("queue_message", source.queue, message, lambda: aside, AWAY)
        return rules[0]

    def message(self, source: Source, stored: Stored) -> str:
        """Hand over one message; returns the name of the rule that took it."""
        rule = self._message(source, stored)
        self.context.counters.route_matched[rule] += 1
        return rule

    def passed(self, rule: str, queue: str, stored: Stored, request: bytes, how: Passed) -> None:
        """Hand over a message that another gateway has got from its queue, and counted. `request`: the request that it
        answers."""
        source = Source(queue, self.rules.get(rule, []))
        source.passed = how
        if not source.rules:  # of rules that are not the same everywhere, while they are being replaced
            self._dead_letter(source, rule, stored, Feedback.DEVICE_UNKNOWN, "other")
            return
        if request:
            self._requests = {stored.md[mqmd.CORREL_ID]: [Stored(stored.token, b"", request)]}
        try:
            self._message(source, stored)
        finally:
            self._requests = {}

    def _message(self, source: Source, stored: Stored) -> str:
        rule, context = source.rules[0], self.context
        counters = context.counters
        try:
            self._check_backout(source, stored)
            self._check_whole(source, stored)
            known = self.repeated.find(source.rules, stored.md, stored.data)
            rule, made = self._made(source, rule, stored) if known is None else (rule, known.made)
            if made.gateway and made.gateway == self.gateway:
                counters.messages_returned[rule.name] += 1
            elif self._is_passed_on(source, rule.name, stored, made):
                pass
            elif known is None:
                self._publish(source, rule.name, stored, made)
            else:
                self._repeat(source, rule.name, stored, known)
        except Refused as refused:
            reason = refused.feedback
            if reason in _LEADS_NOWHERE and self._is_late_answer(stored):
                reason = Feedback.REQUEST_UNKNOWN
            label = _DEAD_LETTER_REASON.get(reason, "transform")
            if label == "transform":
                books.not_built(counters, rule.name, refused, queue=source.queue)
            self._dead_letter(source, rule.name, stored, reason, label)
        except HeaderError:
            counters.transform_errors[rule.name, "header"] += 1
            counters.examples.note("transform_errors", (rule.name, "header"), queue=source.queue)
            self._dead_letter(source, rule.name, stored, _RFH_ERROR, "transform")
        return rule.name

    def _is_passed_on(self, source: Source, rule: str, stored: Stored, made: outbound.Outgoing) -> bool:
        """Whether the message's device may be at another gateway, and the message goes there."""
        if not made.client or rule in self.apart or self._session(made.client) is not None:
            return False
        if len(stored.data) + _RECORD > self._room():
            return False
        return self.pass_on(made.client, rule, source, stored, self._request(stored))

    def _session(self, client_id: str) -> Session | None:
        session = self.context.sessions.get(client_id)
        return None if session is None or session.ended else session

    def _request(self, stored: Stored) -> bytes:
        """The record of the request that a message answers; empty if there is none."""
        found = self._requests.get(stored.md[mqmd.CORREL_ID])
        return found[0].data if found else b""

    def _made(self, source: Source, rule: OutboundRule, stored: Stored) -> tuple[OutboundRule, outbound.Outgoing]:
        """What the rules make of a message that is like none before it."""
        answer = self._answer(rule, stored)
        if answer is not None:
            return answer
        found = outbound.first_publication(source.rules, stored.md, stored.data)
        self.repeated.keep(source.rules, stored.md, stored.data, found[1])
        return found

    def _check_backout(self, source: Source, stored: Stored) -> None:
        """Refuse a message that was backed out too often: it goes aside, and those around it are not disturbed."""
        threshold = source.backout.threshold
        if threshold and mqmd.number(stored.md, mqmd.AT_BACKOUT_COUNT) >= threshold:
            raise Refused("backed out too often", _BACKOUT_THRESHOLD_REACHED)

    @staticmethod
    def _check_whole(source: Source, stored: Stored) -> None:
        """Refuse what is not a whole message. A message in segments may be longer than a message may be: then only its
        beginning is here. Segments behind transmission headers are put together on the gateway's own queue manager
        only."""
        if source.target and part_of(stored.md, stored.data) is not None:
            raise Refused("a segment on a transmission queue of a target", _INCOMPLETE_MSG)
        if len(stored.data) > _SHORT and mqmd.number(stored.md, mqmd.AT_ORIGINAL_LENGTH) > len(stored.data):
            raise Refused("its segments are longer than a message may be", Feedback.TOO_LONG)

    def _room(self) -> int:
        return self.context.queue_manager.max_length(OUT)

    @staticmethod
    def _stored_size(publication: Publication) -> int:
        """The most that a session stores of a publication."""
        beside = len(publication.topic) + len(publication.properties) + _RECORD
        return beside + len(publication.payload)

    def _answer(self, rule: OutboundRule, stored: Stored) -> tuple[OutboundRule, outbound.Outgoing] | None:
        """The answer to a device's request, or None: its CorrelId is the token that the request went out with."""
        token = stored.md[mqmd.CORREL_ID]
        found = self._asked(token) if token.startswith(_REQUEST_PREFIX) else []
        if not found:
            return None
        request = Request.decode(found[0].data)
        made = self._made_answer(rule, stored, request.response_topic)
        properties = {**made.properties}
        properties.pop(prop.RESPONSE_TOPIC, None)
        if request.correlation_data:
            properties[prop.CORRELATION_DATA] = request.correlation_data
        self.context.batch.replace(REQUESTS, token, None)
        return rule, made._replace(properties=properties)

    def _made_answer(self, rule: OutboundRule, stored: Stored, topic: str) -> outbound.Outgoing:
        """What the rule makes of an answer, published on this topic: the same for all answers that have no header and
        the same descriptor apart from their identifiers."""
        md = mqmd.with_correl_id(stored.md, bytes(mqmd.CORREL_ID.stop - mqmd.CORREL_ID.start))
        known = self.answers.find([rule], md, stored.data)
        if known is not None:
            return known.made._replace(topic=outbound.valid_topic(topic), payload=stored.data)
        made = outbound.publication(replace(rule, topic=Template(topic, (topic,))), stored.md, stored.data)
        if header_length(md, stored.data) == 0:
            self.answers.keep([rule], md, stored.data, made)
        return made

    def _asked(self, token: bytes) -> list[Stored]:
        """The request that went out with this token, if it waits for an answer."""
        if self.context.remote_reads is not None:
            return self._requests.get(token, [])
        return self.context.queue_manager.fetch(REQUESTS, token, 1)

    def _is_late_answer(self, stored: Stored) -> bool:
        """Whether a message answers a request that no longer waits."""
        token = stored.md[mqmd.CORREL_ID]
        return token.startswith(_REQUEST_PREFIX) and not self._asked(token)

    # -- to devices --

    def _publish(self, source: Source, rule_name: str, stored: Stored, made: outbound.Outgoing) -> None:
        context = self.context
        passed = trace.passed_on(made.properties, self.router.new_span)
        length = len(made.payload)
        books.note_hop(
            context.batch, context.on_hop, made.properties, passed,
            "out", rule_name, made.topic, made.client, made.qos, length,
        )  # fmt: skip
        properties: Properties = dict(passed)
        expiry = properties.pop(prop.MESSAGE_EXPIRY_INTERVAL, None)
        expires = context.now + expiry if isinstance(expiry, int) else 0.0
        publication = Publication(
            made.topic.encode(), made.payload, made.qos, made.retain, prop.encode(properties), expires
        )
        self._hand_over(source, rule_name, stored, made, publication, {})

    def _repeat(self, source: Source, rule_name: str, stored: Stored, known: Known) -> None:
        """Publish a message whose headers are known."""
        made = known.made
        publication = Publication(known.topic, stored.data[known.start :], made.qos, made.retain, known.block)
        self._hand_over(source, rule_name, stored, made, publication, known.prefixes)

    def _hand_over(
        self, source: Source, rule_name: str, stored: Stored, made: outbound.Outgoing, publication: Publication,
        prefixes: Prefixes,
    ) -> None:  # fmt: skip
        context = self.context
        receivers, shared = self.receivers(made)
        apart = rule_name in self.apart
        elsewhere = not made.client and not apart and self._route(made.topic).forwarded
        wide = not made.client and self._is_wide(source, self._route(made.topic), publication)
        if not (receivers or shared or elsewhere or wide or publication.retain) and made.qos:
            raise Refused("nobody is subscribed", Feedback.DEVICE_UNKNOWN)
        if made.qos and len(stored.data) > _SHORT and self._stored_size(publication) > self._room():
            raise Refused("longer than what a session can store", Feedback.TOO_LONG)
        if len(receivers) == 1 and not shared and not elsewhere:
            self._for_one(receivers[0], publication, made.report, prefixes)
            context.counters.mqtt_publish_sent[rule_name, made.qos] += 1
        elif wide:
            source.in_slices |= not self._route(made.topic).wide
            self._promise(source, rule_name, publication)
            self.reports.handed_over(stored.md, stored.data)
        else:
            route = self._route(made.topic)
            if apart:
                self.fan_out.deliver_to(route, route.receivers, route.shared, publication, rule_name)
            else:
                self.fan_out.deliver(route, publication, rule_name)
            self.reports.handed_over(stored.md, stored.data)
        if publication.retain:
            self.retained.keep(publication)

    def _is_wide(self, source: Source, route: Route, publication: Publication) -> bool:
        """Whether very many get a publication, its copies are very many bytes, or it would overtake such a one."""
        ways = len(route.receivers) + len(route.shared)
        if route.wide or not ways:
            return route.wide
        is_long = ways > 1 and len(publication.payload) * ways > self.context.most_copied
        is_behind = source.in_slices or publication.topic in self.fan_out.in_slices
        return (is_long or is_behind) and self._may_be_wide

    @property
    def _may_be_wide(self) -> bool:
        return self.wide.promises and not self.context.limits.any_refuses

    def _promise(self, source: Source, rule_name: str, publication: Publication) -> None:
        """Have a publication copied for very many; nothing more is read from its queue meanwhile."""
        self.context.batch.undone_by(source.copied, 0)
        source.under_way += 1
        self.wide.promise(publication, rule_name, over=source.copied)

    def receivers(self, made: outbound.Outgoing) -> tuple[tuple[Receiver, ...], bool]:
        """The receivers, and whether shared subscriptions are among them. Raises Refused if the device is not known."""
        if not made.client:
            route = self._route(made.topic)
            return route.receivers, bool(route.shared)
        session = self._session(made.client)
        if session is None:
            raise Refused(f"no device {made.client!r} is known here", Feedback.DEVICE_UNKNOWN)
        return (Receiver(session, 2, True, ()),), False  # noqa: FBT003 -- the message's own RETAIN

    def _for_one(self, receiver: Receiver, publication: Publication, report: bytes, prefixes: Prefixes) -> None:
        """Copy a publication for one device, whose own answer is what is reported. If the session is full, or the
        device away without one, the publication is refused here, where the message can still be dead-lettered, not
        later and silently."""
        context, session = self.context, receiver.session
        qos = min(publication.qos, receiver.qos)
        away = session.connection is None
        if qos and away and not session.durable:
            raise Refused("the device is away and keeps no session", Feedback.DEVICE_UNKNOWN)
        if qos and self.fan_out.full(receiver, publication):
            raise Refused("the device's queue is full", Feedback.QUEUE_LIMIT)
        publication.report = report
        session.reports |= bool(report)
        if qos == 0 and away:
            self.reports.negative(publication, Feedback.DEVICE_UNKNOWN)
            context.counters.messages_dropped["_none", "away"] += 1
        elif qos == 0:
            self.reports.positive(publication)
        self.fan_out.copy(receiver, publication, prefixes)

    def _route(self, topic: str) -> Route:
        """A route with the local subscribers of a topic."""
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            route = self._routes[topic] = Route(topic, topic.encode(), 0)
        if route.version != route.changes[0] or route.version < 0 or (route.wide and self.router.has_walked(topic)):
            self.router.find_receivers(route, _PUBLISHER, may_be_wide=self._may_be_wide)
        return route

    # -- aside --

    def _dead_letter(self, source: Source, rule: str, stored: Stored, reason: int, label: DeadLetterReason) -> None:
        context, batch = self.context, self.context.batch
        queue = source.backout.queue if reason == _BACKOUT_THRESHOLD_REACHED else ""
        if queue and source.put_aside(batch, stored, queue):
            return
        if self.reports.undeliverable(stored.md, stored.data, reason) and not queue:
            context.counters.messages_dropped[rule, "other"] += 1
            return
        persistent = mqmd.number(stored.md, mqmd.AT_PERSISTENCE) == 1
        context.counters.examples.note("dlq_messages", (rule, label), queue=source.queue)
        if queue:  # a backout queue gets the message as it is
            address = Address(queue, "", mqmd.number(stored.md, mqmd.AT_PRIORITY), persistent)
            destination, row = batch.put(address, DEAD_LETTER_POLICY, stored.md, stored.data)
        else:
            dead = Undelivered(stored.md, stored.data, reason, source.queue, source.target, persistent)
            destination, row = dead_letters.put(context, batch, dead, context.now)
        lies_on = source.passed.lies_on if source.passed is not None else None
        destination.mark(row, Mark(cause=Cause(rule, label, -1), source=(lies_on or source, stored.token)))
