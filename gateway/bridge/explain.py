"""Why a publication goes where it goes: which rule takes it, why the others do not, and what would be put, as text.

This is what `mqgate explain`, the dashboard's try-out box and the tests next to the rules show. Puts nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from heapq import nsmallest

from gateway.bridge.inbound import Built, Origin, Plan, Prepared, plan
from gateway.bridge.message import read_message
from gateway.bridge.mqtt5 import user_properties
from gateway.bridge.payload import Body, condition_of
from gateway.bridge.syncpoint import when_too_long, why_within
from gateway.config.counting import counted
from gateway.errors import Refused
from gateway.mq.headers import chain
from gateway.mq.headers.rfh2_folder import Scalar
from gateway.mqtt.packets import Properties
from gateway.mqtt.topics import NOBODYS
from gateway.routing.acl import PUBLISH, Rights
from gateway.routing.table import Context, Route, Table
from gateway.rules.feedback import Feedback
from gateway.rules.mappings import InboundRule

MAX_OTHERS = 20
"""How many rules that do not match are explained at most: the closest ones."""


@dataclass(slots=True)
class Considered:
    """A rule, and why it is used or not."""

    rule: str
    place: str
    topic: str
    applies: bool
    why: str


@dataclass(slots=True)
class Would:
    """A message that would be put."""

    rule: str
    queue: str = ""
    queue_manager: str = ""
    persistent: bool = False
    priority: int = 0
    descriptor: dict[str, object] = field(default_factory=dict)
    properties: dict[str, Scalar] = field(default_factory=dict)
    format: str = ""
    """Format of the body."""
    body_bytes: int = 0
    data_bytes: int = 0
    """The length with headers, which MAXMSGL limits."""
    syncpoint: bool = True
    """Whether it is put within the unit of work that is acknowledged, or by itself."""
    syncpoint_why: str = ""
    too_long: str = ""
    """What becomes of it if it is too long for the queue."""
    refused: str = ""
    refused_as: str = ""
    then: str = ""


@dataclass(slots=True)
class Explanation:
    """The whole answer; `as_dict` is what `--json` prints."""

    topic: str
    considered: list[Considered]
    puts: list[Would]
    unmatched: str = ""
    access: str = ""
    """What the access control list says, if it was asked."""

    def as_dict(self) -> dict[str, object]:
        """The explanation as plain values."""
        return asdict(self)


def explain(
    table: Table,
    origin: Origin,
    properties: Properties | None = None,
    payload: bytes = b"",
    now: float = 0.0,
    rights: Rights | None = None,
) -> Explanation:
    """Explain which rules take a publication, and what would be put. With `rights` the access control list is asked
    first, as for a real publication."""
    block = properties or {}
    access = rights.why(PUBLISH, origin.topic) if rights is not None else None
    if access is not None and not access.allowed:
        return Explanation(origin.topic, [], [], "not put: publishing is not allowed", access.text)
    made = plan(table, origin, block)
    used = made.settle(Body(payload))
    considered = list(_considered(table, origin, block, payload, {id(one.rule) for one in used}))
    if origin.topic.startswith(NOBODYS):
        refused = "refused: nobody may publish below `$SYS/` and `$share/`"
        return Explanation(origin.topic, considered, [], refused, access.text if access else "")
    puts = [_would(one, payload, now, joined=len(used) > 1) for one in used]
    return Explanation(origin.topic, considered, puts, _unmatched(made, used), access.text if access else "")


def _unmatched(made: Plan, used: list[Prepared]) -> str:
    if used:
        return ""
    return "dead-lettered: no rule matches" if made.dead_letter else "not put: no rule matches, counted"


def _considered(
    table: Table, origin: Origin, properties: Properties, payload: bytes, used: set[int]
) -> list[Considered]:
    users = tuple(user_properties(properties))
    context = Context(origin.client_id, origin.username, origin.qos, origin.retain, origin.listener, users)
    matching = table.candidates(origin.topic)
    found = []
    for route in matching:
        applies, why = _verdict(route, context, payload, used, matching)
        found.append(_entry(route.rule, applies=applies, why=why))
    here, levels = {id(route) for route in matching}, origin.topic.split("/")
    others = (route for route in table.routes if id(route) not in here)
    found += [
        _entry(route.rule, applies=False, why=_difference(route.rule, levels))
        for route in nsmallest(MAX_OTHERS, others, lambda route: -_common(route.rule, levels))
    ]
    return found


def _entry(rule: InboundRule, *, applies: bool, why: str) -> Considered:
    return Considered(rule.name, f"{rule.file}:{rule.line}", rule.spec.topic, applies, why)


def _verdict(route: Route, context: Context, payload: bytes, used: set[int], matching: list[Route]) -> tuple[bool, str]:
    if id(route.rule) in used:
        return True, "the topic matches" + (" and so do all conditions" if _conditional(route) else "")
    for text, condition in route.conditions:
        if not condition(context):
            return False, f"the topic matches, but not: {text}"
    if route.pending and not condition_of(route.rule.spec.when)(Body(payload)):
        return False, "the topic matches, but the payload is not what the rule requires"
    first = next(one.rule.name for one in matching if id(one.rule) in used and not one.rule.spec.goes_on)
    return False, f"`{first}` comes first and does not say `continue`"


def _conditional(route: Route) -> bool:
    return bool(route.conditions) or route.pending


def _common(rule: InboundRule, levels: list[str]) -> int:
    """How many levels are the same, from the left."""
    count = 0
    for wanted, level in zip(rule.levels, levels, strict=False):
        if wanted not in ("+", level):
            break
        count += 1
    return count


def _difference(rule: InboundRule, levels: list[str]) -> str:
    at = _common(rule, levels)
    if levels[0].startswith("$") and rule.levels[0] in ("+", "#"):
        return "a wildcard in front does not match topics beginning with `$`"
    if at < len(rule.levels) and at < len(levels):
        return f"level {at + 1} is `{levels[at]}`, not `{rule.levels[at]}`"
    return f"the topic has {counted(len(levels), 'level')}, the pattern {len(rule.levels)}"


def _would(prepared: Prepared, payload: bytes, now: float, *, joined: bool) -> Would:
    rule = prepared.rule
    asked = rule.spec.on_failure.then
    then = "drop" if asked == "drop" else "dead_letter"  # neither waiting nor resending lets a message follow its rule
    try:
        built = prepared.build(1 if prepared.origin.qos else 0, Body(payload), now)
    except Refused as refused:
        return Would(rule.name, refused=str(refused), refused_as=reason_name(refused.feedback), then=then)
    would = described(rule.name, built)
    would.syncpoint_why = why_within(prepared, persistent=built.persistent, joined=joined)
    would.syncpoint = bool(would.syncpoint_why)
    would.syncpoint_why = would.syncpoint_why or "QoS 0 that is not persistent is put by itself"
    would.too_long = when_too_long(rule.spec)
    return would


def described(rule: str, built: Built) -> Would:
    """A built message as text."""
    md, data = built.head[:364], built.head[364:] + built.body
    message = read_message(md, data)
    words = chain.describe(md, data, body_limit=0)["descriptor"]
    properties = {f"{folder.name}.{name}": value for folder in message.folders.values() for name, value in folder.pairs}
    return Would(
        rule,
        built.queue,
        built.queue_manager,
        built.persistent,
        built.priority,
        words if isinstance(words, dict) else {},
        properties,
        message.described.format.decode("ascii", "replace").strip(),
        len(message.body.raw),
        len(data),
    )


def reason_name(feedback: int) -> str:
    """The name of one of the gateway's own reasons in small letters (`name_not_valid`), or the number of an MQRC."""
    try:
        return Feedback(feedback).name.lower()
    except ValueError:
        return str(feedback)
