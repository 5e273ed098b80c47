"""What a rule must satisfy beyond the types of its keys. Each problem names the path of the key it is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from gateway.config.source import Path
from gateway.config.units import Wrong
from gateway.rules.mappings import InboundRule, OutboundRule, PropertyRule
from gateway.rules.model import Property, ToMq, ToMqtt
from gateway.rules.templates import (
    OUTBOUND_FOLDERS,
    OUTBOUND_PLAIN,
    RESERVED,
    Slot,
    Template,
    check_name,
    parse_pattern,
    parse_template,
)
from gateway.rules.trials import Test

T = TypeVar("T")
Problems = list[tuple[Path, Wrong]]

MAX_TOPIC_STRING = 10240
MAX_TARGETS = 16
"""How many targets a rule may choose from."""
_HEX = "0123456789abcdefABCDEF"
_RESERVED_WORDS = {"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"}


class _Checker:
    """Collects problems: `attempt` records what a check raises, so that the checks can go on."""

    def __init__(self) -> None:
        self.problems: Problems = []
        self.levels: tuple[str, ...] = ()
        self.known = True

    def attempt(self, path: Path, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except Wrong as wrong:
            self.problems.append((path, wrong))
            return None

    def inbound(self, path: Path, text: str | None) -> Template | None:
        if text is None or (not self.known and "{" in text):
            return None
        return self.attempt(path, lambda: parse_template(text, self.levels))

    def outbound(self, path: Path, text: str | None) -> Template | None:
        if text is None:
            return None
        return self.attempt(path, lambda: parse_template(text, (), OUTBOUND_PLAIN, OUTBOUND_FOLDERS))

    def wrong(self, path: Path, what: str, fix: str) -> None:
        self.problems.append((path, Wrong(what, fix)))


def check_inbound(
    spec: ToMq, position: int, file: str, line: int, schema: str | None, manager_at: tuple[int, int] = (1, 1)
) -> tuple[InboundRule | None, Problems]:
    """The rule with its templates parsed, and what is wrong with it; no rule if anything is."""
    checker = _Checker()
    pattern = checker.attempt(("topic",), lambda: parse_pattern(spec.topic))
    levels, names = pattern or ((), ())
    checker.levels, checker.known = tuple(name for _, name in names), pattern is not None
    _destination(checker, spec)
    _descriptor(checker, spec)
    rule = InboundRule(
        position, file, line, spec, levels, names,
        queue=_name_template(checker, ("queue",), spec.queue, spec),
        mq_topic=checker.inbound(("mq_topic",), spec.mq_topic),
        queue_manager=_queue_manager(checker, spec),
        targets=tuple(spec.queue_manager) if isinstance(spec.queue_manager, list) else (),
        properties=tuple(_properties(checker, spec)),
        group_by=checker.inbound(("group_by",), spec.group_by),
        group_sequence=checker.inbound(("group_sequence",), spec.group_sequence),
        group_last=checker.inbound(("group_last",), spec.group_last),
        correlation=checker.inbound(("descriptor", "correlation"), spec.descriptor.correlation),
        user=checker.inbound(("descriptor", "user"), spec.descriptor.user),
        application_data=checker.inbound(("descriptor", "application_data"), spec.descriptor.application_data),
        schema=schema,
        manager_at=manager_at,
    )  # fmt: skip
    return (None if checker.problems else rule), checker.problems


def _destination(checker: _Checker, spec: ToMq) -> None:
    if (spec.queue is None) == (spec.mq_topic is None):
        what = "a rule needs one destination" if spec.queue is None else "a rule has only one destination"
        checker.wrong((), what, "give either `queue` or `mq_topic`")
    if spec.group_sequence is not None and spec.group_by is None:
        checker.wrong(("group_sequence",), "a sequence number counts within a group", "give `group_by`")
    if spec.group_last is not None and spec.group_sequence is None:
        checker.wrong(("group_last",), "without sequence numbers every message is the last of its group",
                      "give `group_sequence`")  # fmt: skip
    if spec.mq_topic is not None and spec.queue_manager:
        checker.wrong(("queue_manager",), "`queue_manager` goes with `queue` only", "remove it")
    if spec.mq_topic is not None and spec.too_long == "segment":
        checker.wrong(("too_long",), "a publication to an MQ topic cannot be segmented", "use dead_letter or reject")


def _queue_manager(checker: _Checker, spec: ToMq) -> Template:
    names = spec.queue_manager
    if isinstance(names, str):
        if "spread" in spec.model_fields_set:
            checker.wrong(("spread",), "`spread` says how messages are spread over several targets",
                          "give `queue_manager` a list of them, or remove it")  # fmt: skip
        return _name_template(checker, ("queue_manager",), names, spec) or Template("", ())
    if not names:
        checker.wrong(("queue_manager",), "a list of 0 targets", f"name from 1 to {MAX_TARGETS} of them")
    _target_names(checker, names, "a list names its targets", "write the names, or a template instead of the list")
    text = ", ".join(names)
    return Template(text, (text,) if spec.spread == "round_robin" else (Slot("client"),))


def _name_template(checker: _Checker, path: Path, text: str | None, spec: ToMq) -> Template | None:
    template = checker.inbound(path, text)
    if template is None or not text:
        return None
    constant = template.constant
    if constant is not None:
        checker.attempt(path, lambda: check_name(constant, "queue" if path == ("queue",) else "queue manager"))
        return template
    literal = "".join(part for part in template.parts if isinstance(part, str))
    if literal:
        checker.attempt(path, lambda: check_name(literal))
    first = template.parts[0] if isinstance(template.parts[0], str) else ""
    if path == ("queue",) and first.upper().startswith(RESERVED) and not spec.allowed_queues:
        what = f"`{text}` begins like a queue of the gateway or of MQ itself, and a device chooses which"
        checker.wrong(path, what, "begin with a name of your own, or list the queues meant in `allowed_queues`")
    if not isinstance(template.parts[0], str) and path == ("queue",) and not spec.allowed_queues:
        what = f"`{text}` begins with a placeholder, so that a device could name any queue"
        checker.wrong(path, what, "begin with fixed text, or list the queues meant in `allowed_queues`")
    return template


def _properties(checker: _Checker, spec: ToMq) -> list[PropertyRule]:
    found: list[PropertyRule] = []
    for name, value in spec.properties.items():
        here: Path = ("properties", name)
        checker.attempt(here, partial(_property_name, name))
        text: bool | float | str = value.value if isinstance(value, Property) else value
        type_name: str = value.type if isinstance(value, Property) else ""
        if isinstance(text, str):
            template = checker.inbound(here, text)
        else:
            template = Template(str(text), (str(text).lower() if isinstance(text, bool) else str(text),))
            type_name = {bool: "bool", int: "int", float: "float"}[type(text)]
            checker.attempt(here, partial(_property_constant, text))
        if template is not None:
            found.append((name, template, type_name))
    return found


def _property_name(name: str) -> None:
    if not name.isidentifier() or not name.isascii() or len(name) > 256:
        raise Wrong(f"`{name}` is not a property name", "use letters, digits and _, beginning with a letter")
    if name.upper() in _RESERVED_WORDS or name.startswith("JMS"):
        raise Wrong(f"MQ reserves the property name `{name}`", "choose another name")


def _property_constant(value: float) -> None:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Wrong(f"{value} does not fit into 64 bits", "write it in quotes, as text")
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN differs from itself
        raise Wrong(f"{value} is not a number that a selector can compare", "write it in quotes, as text")


_NEEDS_REPLY = ("coa", "cod", "exception", "expiration", "pan", "nan")


def _descriptor(checker: _Checker, spec: ToMq) -> None:
    descriptor = spec.descriptor
    reply = descriptor.reply_to
    if reply is not None:
        here: Path = ("descriptor", "reply_to")
        checker.attempt((*here, "queue"), partial(check_name, reply.queue))
        if reply.queue_manager:
            checker.attempt((*here, "queue_manager"), partial(check_name, reply.queue_manager, "queue manager"))
    elif descriptor.message_type == "request" or any(one.startswith(_NEEDS_REPLY) for one in descriptor.report):
        here = ("descriptor", "report" if descriptor.report else "message_type")
        checker.wrong(here, "a request or a report needs a queue for the answer", "add `reply_to: {queue: NAME}`")
    if not spec.headers and spec.properties:
        checker.wrong(("properties",), "properties need a header that carries them", "add `mcd` to `headers`")


def check_outbound(
    spec: ToMqtt, position: int, file: str, line: int, manager_at: tuple[int, int] = (1, 1)
) -> tuple[OutboundRule | None, Problems]:
    """The rule with its templates parsed, and what is wrong with it; no rule if anything is."""
    checker = _Checker()
    sources = {key: getattr(spec, key) for key in ("queue", "transmission_queue", "mq_topic")}
    given = [key for key, value in sources.items() if value is not None]
    if len(given) != 1:
        checker.wrong((), f"a rule has one source, not {len(given)}", f"give one of {', '.join(sources)}")
    for key in ("queue", "transmission_queue"):
        _constant_name(checker, (key,), sources[key])
    if spec.mq_topic is not None:
        checker.attempt(("mq_topic",), partial(_subscribable, spec.mq_topic))
    elif spec.subscription is not None:
        checker.wrong(
            ("subscription",),
            "`subscription` is the name of a subscription to an `mq_topic`",
            "remove it, or give `mq_topic`",
        )
    _constant_name(checker, ("backout", "queue"), spec.backout.queue)
    if spec.transmission_queue is not None and spec.topic is not None:
        checker.wrong(("topic",), "on a transmission queue RemoteQName is the topic", "remove `topic`, or use `queue`")
    if spec.groups == "whole" and spec.queue is None:
        checker.wrong(("groups",), "MQ keeps groups together on local queues only", "remove it, or use `queue`")
    topic = checker.outbound(("topic",), spec.topic)
    if topic is not None:
        checker.attempt(("topic",), lambda: _topic_text(topic))
    client = checker.outbound(("client",), spec.client)
    response = checker.outbound(("response_topic",), spec.response_topic)
    _consumed_at(checker, spec)
    rule = OutboundRule(position, file, line, spec, topic, client, response, manager_at)
    return (None if checker.problems else rule), checker.problems


def _target_names(checker: _Checker, names: Sequence[str], why: str, fix: str, *, alone: bool = False) -> None:
    """Check the targets that a rule names, in a list or alone (`alone`): none twice, and without placeholders. `why`
    and `fix` are the texts of the problem of a placeholder."""
    if len(names) > MAX_TARGETS:
        checker.wrong(("queue_manager",), f"a list of {len(names)} targets", f"name from 1 to {MAX_TARGETS} of them")
    for index, name in enumerate(names):
        here: Path = ("queue_manager",) if alone else ("queue_manager", index)
        if "{" in name:
            checker.wrong(here, f"`{name}` has a placeholder: {why}", fix)
        elif name in names[:index]:
            checker.wrong(here, f"`{name}` is in the list already", "remove it")
        else:
            checker.attempt(here, partial(check_name, name, "queue manager"))


def _consumed_at(checker: _Checker, spec: ToMqtt) -> None:
    """Check the targets that a rule consumes from."""
    names = spec.queue_manager
    why = "what is consumed must be known before there is a message"
    _target_names(checker, names, why, "write the name of a target, or a list of them", alone=len(names) == 1)
    if names and spec.groups == "whole":
        checker.wrong(("groups",), "groups are put together on the gateway's own queue manager only",
                      "remove it, or remove `queue_manager`")  # fmt: skip


def _constant_name(checker: _Checker, path: Path, name: str | None) -> None:
    if name is None:
        return
    checker.attempt(path, lambda: check_name(name))


def _subscribable(topic: str) -> None:
    """Check an MQ topic string, or one with `+` and `#` as whole levels."""
    levels = topic.split("/")
    if not 0 < len(topic) <= MAX_TOPIC_STRING or "\0" in topic:
        raise Wrong("an MQ topic string has 1 to 10240 characters", "write a topic, as in plant/+/alarms")
    if any(("+" in level or "#" in level) and len(level) > 1 for level in levels):
        raise Wrong(f"`{topic}` has a wildcard in the middle of a level", "make + or # a level of its own")


def _topic_text(template: Template) -> None:
    literal = "".join(part for part in template.parts if isinstance(part, str))
    if any(character in literal for character in "+#\0") or not template.parts:
        raise Wrong(
            "a topic to publish to has no wildcard", "write the topic in full, with {placeholders} for what varies"
        )
    if template.text.startswith("$"):
        raise Wrong("topics beginning with `$` belong to the gateway", "choose another topic")


def check_test(test: Test) -> Problems:
    """The problems of a test."""
    if (test.publish is None) == (test.put is None):
        return [((), Wrong("a test publishes or puts one message", "give either `publish` or `put`"))]
    digits = test.publish.payload_hex if test.publish is not None else None
    if digits is not None and (len(digits) % 2 or not all(digit in _HEX for digit in digits)):
        return [(("publish", "payload_hex"), Wrong("not hexadecimal", "write two digits for each byte, as in 7b7d"))]
    return []
