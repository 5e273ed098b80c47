"""From a publication to MQ messages: everything that a rule says, prepared once per topic, client, flags and
properties.

`plan` finds the rules; each becomes a `Prepared`. A simple one has its whole message except for packet identifier and
payload: for each message the caller computes `head, tails[packet_id] + payload`. The others evaluate `build` for each
message. No I/O, no clock: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from gateway.bridge import assembly
from gateway.bridge.assembly import NO_TAILS, Made, Recipe, Scope
from gateway.bridge.form import Form, Users, form_of
from gateway.bridge.mqtt5 import user_properties
from gateway.bridge.origin import Origin
from gateway.bridge.payload import Body, Check, Condition, check_of, condition_of
from gateway.bridge.request import Request
from gateway.bridge.stencil import stencil_of
from gateway.errors import Refused
from gateway.mqtt.packets import Properties
from gateway.routing.table import Context, Match, Route, Table
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import InboundRule
from gateway.rules.model import ToMq
from gateway.rules.templates import Slot, Template, Value, as_far_as_known

__all__ = ["NO_RULE", "Built", "Origin", "Plan", "Prepared", "plan", "prepare", "unmatched"]

_UNMATCHED = InboundRule(
    -1, "", 0, ToMq(name="(unmatched)", topic="#", queue="UNMATCHED"), ("#",), (), None, None, Template("", ())
)
_MAX_ORDERED, _MAX_NAMES = 64, 512
"""How many forms are kept for one origin and rule besides the usual one, and how long the names may be by which they
are kept."""
NO_RULE = Route(_UNMATCHED, (), pending=False)
"""Stands for the rule of publications that no rule matches and that are to be dead-lettered."""


class Built(NamedTuple):
    """One message of one publication."""

    queue: str
    queue_manager: str
    mq_topic: str
    priority: int
    persistent: bool
    head: bytes
    body: bytes


@dataclass(slots=True)
class Prepared:
    """What one rule makes of publications from one origin."""

    rule: InboundRule
    match: Match
    origin: Origin
    properties: Properties
    simple: bool = True
    """Whether nothing has to be evaluated or checked for each message."""
    evaluated: bool = False
    """Whether templates are evaluated for each message, so that destination and head are only known when it is
    built."""
    queue: str = ""
    """As `Puts.queue` takes it: a queue name, or `topic://STRING`."""
    queue_manager: str = ""
    mq_topic: str = ""
    priority: int = 0
    persistent: bool = False
    head: bytes = b""
    """If `refused` or `evaluated` is set, the head that a dead letter carries."""
    tails: dict[int, bytes] = field(default_factory=lambda: NO_TAILS)
    refused: Refused | None = None
    """Set if the rule cannot be followed."""
    request: Request | None = None
    """Set if an answer is expected, for which this is stored in the unit of work of the put."""
    recipe: Recipe | None = None
    scope: Scope | None = None
    check: Check | None = None
    """Refuses a payload that is not as the rule says; None: any payload is accepted."""
    condition: Condition | None = None
    """Returns whether the rule applies to a payload; None: it applies to any."""
    _form: Form | None = None
    _has_no_form: bool = False
    _ordered: dict[bytes, Form | None] = field(default_factory=dict)
    """Forms for user properties in which a name occurs twice, by their names."""

    @property
    def form(self) -> Form | None:
        """The message as literal pieces and cells, made when it is first asked for; None: the rule has no form."""
        if self._form is None and not self._has_no_form:
            self._form = form_of(self)
            self._has_no_form = self._form is None
        return self._form

    def build(self, packet_id: int, body: Body, now: float) -> Built:
        """The message of one publication. Raises Refused if payload or time make it impossible."""
        if not (self.simple or self.properties):
            built = self.build_with(packet_id, body, now)
            if built is not None:
                return built
        if self.refused is not None:
            raise self.refused
        if self.check is not None:
            self.check(body)
        if self.evaluated and self.recipe is not None and self.scope is not None:
            made = self.recipe.make(_per_message(self.scope, body, packet_id, now))
            data = made.tails[packet_id] + body.raw
            return Built(*made.destination, made.priority, made.persistent, made.head, data)
        data = self.tails[packet_id] + body.raw
        return Built(self.queue, self.queue_manager, self.mq_topic, self.priority, self.persistent, self.head, data)

    def build_with(
        self, packet_id: int, body: Body, now: float, users: Users = (), expiry: int | None = None
    ) -> Built | None:
        """The same, made by the form, for a publication that has these user properties and this expiry as well; None:
        such publications need a plan of their own."""
        form = self.form
        if form is None:
            return None
        if self.check is not None:
            self.check(body)
        at = timestamp(now).encode()
        head = form.make(at, users, body, packet_id, expiry)
        if head is None:
            form = self.form_in_order(users)
            head = None if form is None else form.make(at, users, body, packet_id, expiry)
        if form is None or head is None:
            return None
        return Built(*form.destination, form.priority, form.persistent, head, form.tails[packet_id] + body.raw)

    def form_in_order(self, users: Users) -> Form | None:
        """The form that keeps the order of user properties where a name occurs twice or is one that the rule sets."""
        names = b"\0".join([name for name, _ in users])  # names have no NUL [MQTT-1.5.4-2]
        if names not in self._ordered:
            if len(names) > _MAX_NAMES:
                return form_of(self, users)
            if len(self._ordered) >= _MAX_ORDERED:
                self._ordered.clear()
            self._ordered[names] = form_of(self, users)
        return self._ordered[names]

    def destination(self, packet_id: int, body: Body, now: float) -> tuple[str, str]:
        """(queue or topic string, queue manager) to which the rule sends this publication, as far as that is known
        although the message cannot be built; it goes into the header of the dead letter."""
        rule, scope = self.rule, _per_message(self.scope or (lambda _slot: None), body, packet_id, now)
        manager = as_far_as_known(rule.queue_manager, scope, names=True) if rule.queue_manager else ""
        manager = rule.targets[0] if rule.targets else manager
        if rule.queue is not None:
            return as_far_as_known(rule.queue, scope, names=True), manager
        return as_far_as_known(rule.mq_topic, scope, names=False) if rule.mq_topic is not None else "", manager

    def take(self, made: Made) -> None:
        """Use this message of the rule."""
        self.queue, self.queue_manager, self.mq_topic = made.destination
        self.priority, self.persistent, self.head, self.tails = made[1:]


@dataclass(slots=True)
class Plan:
    """What becomes of publications from one origin."""

    prepared: list[Prepared]
    pending: bool
    """Whether the payload decides which of `prepared` apply: ask `settle`."""
    dead_letter: bool = False
    """Whether no rule matches and the mapping wants such publications dead-lettered: see `unmatched`."""
    reads: tuple[bytes, ...] = ()
    """The names of MQTT 5 user properties on which rules have conditions: publications with other values may go
    elsewhere."""
    _forms: tuple[Form, ...] | None = None

    @property
    def simple(self) -> bool:
        """Whether head and tail are all that is needed for every message."""
        return not self.pending and all(one.simple and one.refused is None for one in self.prepared)

    @property
    def asks(self) -> bool:
        """Whether an answer is awaited; what that needs is then stored for each message."""
        return any(one.request is not None for one in self.prepared)

    @property
    def may_match(self) -> bool:
        """Whether a rule applies, or could with other user properties."""
        return bool(self.prepared or self.reads)

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms of all rules in order, which make messages of publications with user properties and an expiry as
        well. Empty if such publications may lead elsewhere, or if a rule has no form."""
        if self._forms is None:
            forms = () if self.reads else tuple(one.form for one in self.prepared if one.form is not None)
            self._forms = forms if len(forms) == len(self.prepared) else ()
        return self._forms

    def settle(self, body: Body) -> list[Prepared]:
        """The rules that apply to this payload."""
        if not self.pending:
            return self.prepared
        settled: list[Prepared] = []
        for one in self.prepared:
            if one.condition is None or one.condition(body):
                settled.append(one)
                if not one.rule.spec.goes_on:
                    break
        return settled


def plan(
    table: Table, origin: Origin, properties: Properties, read: tuple[tuple[str, str], ...] | None = None
) -> Plan:  # fmt: skip
    """The plan for one origin with this MQTT 5 property block. `read`: the user properties that conditions look at,
    where these are left to forms; None: they are among the others."""
    users = tuple(user_properties(properties)) if read is None else read
    context = Context(origin.client_id, origin.username, origin.qos, origin.retain, origin.listener, users)
    matches = table.match(origin.topic, context)
    prepared = [prepare(match, origin, properties) for match in matches]
    pending = any(match.pending for match in matches)
    dead = not matches and table.dead_letter_unmatched
    return Plan(prepared, pending, dead, () if read is not None else table.properties_read(origin.topic))


def unmatched(origin: Origin, properties: Properties) -> Prepared:
    """A publication that no rule matches, as the message that its dead letter carries."""
    match = Match(NO_RULE, {})
    made = Prepared(NO_RULE.rule, match, origin, properties)
    made.take(assembly.plain(match, origin, properties))
    made.refused = Refused(f"no rule matches {origin.topic!r}", Feedback.NO_RULE)
    return made


def prepare(match: Match, origin: Origin, properties: Properties) -> Prepared:
    """Prepare what a rule makes of the publications from an origin."""
    scope = _static_scope(match, origin, properties)
    prepared = Prepared(match.rule, match, origin, properties, scope=scope, check=check_of(match.rule))
    if match.pending:
        prepared.condition = condition_of(match.rule.spec.when)
    stencil = None if properties else stencil_of(match, origin)
    try:
        if stencil is not None:
            prepared.take(stencil.fill(match, origin, scope))
            prepared.simple = prepared.check is None
            return prepared
        recipe = assembly.recipe(match, origin, properties, scope)
        prepared.evaluated = recipe.evaluated
        prepared.take(assembly.plain(match, origin, properties) if recipe.evaluated else recipe.make(scope))
        prepared.request, prepared.recipe = recipe.request, recipe
    except Refused as refused:
        prepared.take(assembly.plain(match, origin, properties))
        prepared.refused = refused
    prepared.simple = prepared.check is None and not prepared.evaluated
    return prepared


def _static_scope(match: Match, origin: Origin, properties: Properties) -> Scope:
    """The values that all publications from this origin share."""
    plain: dict[str, Value] = {
        "client": origin.client_id,
        "user": origin.username or None,
        "user_or_client": origin.username or origin.client_id,
        "topic": origin.topic,
        "qos": origin.qos,
        "retained": origin.retain,
        "listener": origin.listener or None,
    }
    users: dict[str, Value] = {}
    for name, value in user_properties(properties):
        users.setdefault(name, value)

    def scope(slot: Slot) -> Value:
        if slot.kind in ("level", "rest"):
            return match.captured[slot.name]
        if slot.kind == "property":
            return users.get(slot.name)
        return plain[slot.kind]

    return scope


def _per_message(static: Scope, body: Body, packet_id: int, now: float) -> Callable[[Slot], Value]:
    """The values of one message."""

    def scope(slot: Slot) -> Value:
        if slot.kind == "json":
            return body.field(slot.name)
        if slot.kind == "received_at":
            return timestamp(now)
        return packet_id if slot.kind == "packet_id" else static(slot)

    return scope


@lru_cache(maxsize=2)
def timestamp(now: float) -> str:
    """A time as ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
