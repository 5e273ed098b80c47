"""Rules with their counts, and the try-out: where a publication would go, and why."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from gateway.app.api.mapping import check_reader
from gateway.app.mapping_changes import table_with
from gateway.app.parts import Parts
from gateway.bridge.explain import Would, explain
from gateway.bridge.inbound import Origin
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, MQError
from gateway.mq import constants as mq
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Properties
from gateway.mqtt.topics import name_error
from gateway.net.calls import VIEWER, Answered, Call, Endpoint, Later, Problem, endpoint
from gateway.ports.counters import NO_ROUTE, Counters
from gateway.ports.inspection import Inspects
from gateway.ports.spread import in_words
from gateway.ports.state_queues import DEFAULT
from gateway.routing.table import Table, compile_mappings
from gateway.rules.mappings import InboundRule, OutboundRule
from gateway.rules.parse import parse_mappings


def rule_endpoints(parts: Parts) -> list[Endpoint]:
    """Returns the endpoints of this module."""
    views = RuleViews(parts)

    def tried(call: Call) -> tuple[int, object]:
        if not call.body.get("mapping"):
            return _tried(parts, call.body, parts.table)
        check_reader(parts.reader)
        settings, file, text = parts.settings, str(call.body.get("file", "")), str(call.body["mapping"])

        def begin(answered: Answered) -> None:
            def told(table: Table | Exception) -> None:
                try:
                    status, found = _tried(parts, call.body, table)
                except Exception as error:  # noqa: BLE001 -- distinguished where it is answered
                    answered(error)
                    return
                if isinstance(found, Later):
                    found.begin(answered)
                else:
                    answered((status, found))

            parts.reader.ask(lambda: _given_table(settings, file, text), told)

        return 200, Later(begin)

    return [
        endpoint("GET", "/rules", VIEWER, views.listing),
        endpoint("GET", "/rules/{rule}", VIEWER, views.show),
        endpoint("POST", "/explain", VIEWER, tried, most=1 << 20),
    ]


class _Listed:
    """The rules of a table in the order in which they are tried, and what is the same whenever they are listed."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.rules: list[InboundRule | OutboundRule] = [*(route.rule for route in table.routes), *table.outbound]
        self.texts = ["\n".join((rule.name, rule.spec.topic or "", _queue_of(rule))).lower() for rule in self.rules]
        """The text of each rule that is searched."""
        self.files = sorted({rule.file for rule in self.rules})


class RuleViews:
    """Rules as the API shows them, a page at a time, because there may be thousands."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known: _Listed | None = None

    def _listed(self) -> _Listed:
        table = self._parts.table
        if self._known is None or self._known.table is not table:
            self._known = _Listed(table)
        return self._known

    def listing(self, call: Call) -> tuple[int, object]:
        """GET /rules."""
        listed, wanted = self._listed(), call.query.get("search", "").lower()
        begin, limit = call.number("after", 0, len(listed.rules)), call.number("limit", 50, 500)
        found = [at for at, text in enumerate(listed.texts) if wanted in text]
        page = [at for at in found if at >= begin][: limit + 1]
        following = str(page[limit]) if 0 < limit < len(page) else None
        return 200, {
            "items": self._shown(listed, [listed.rules[at] for at in page[:limit]]),
            "total": len(found),
            "next": following,
            "files": listed.files,
            "loaded": self._parts.last_reload.time,
        }

    def show(self, call: Call) -> tuple[int, object]:
        """GET /rules/{rule}."""
        listed, name = self._listed(), call.path["rule"]
        rule = next((one for one in listed.rules if one.name == name), None)
        if rule is None:
            raise Problem(404, "Not found", "no rule of this name is in force")
        return 200, self._shown(listed, [rule])[0]

    def _shown(self, listed: _Listed, rules: list[InboundRule | OutboundRule]) -> list[dict[str, object]]:
        of_rules, held = _OfRules(self._parts, {rule.name for rule in rules}), self._parts.engine.parking.held()
        return [
            (_inbound(of_rules, rule) | {"held": held[rule.name]} if isinstance(rule, InboundRule)
             else _outbound(of_rules, rule) | {"held": 0})
            | {"hidden_by": listed.table.hidden_by.get(rule.name)}
            for rule in rules
        ]  # fmt: skip


class _OfRules:
    """What has been counted for some rules, added up once for all of them: there may be several series for each."""

    def __init__(self, parts: Parts, names: set[str]) -> None:
        counters = parts.counters

        def by_rule(series: Mapping[Any, int], at: int) -> Counter[str]:
            return _by_rule(series, at, names)

        self.received = by_rule(counters.mqtt_publish_received, 0)
        self.put = by_rule(counters.mq_put_messages, 1)
        self.got = by_rule(counters.mq_get_messages, 1)
        self.matched = counters.route_matched
        self._failed = {
            "transform_errors": by_rule(counters.transform_errors, 0),
            "dead_lettered": by_rule(counters.dlq_messages, 0),
            "dropped": by_rule(counters.messages_dropped, 0),
            "backouts": by_rule(counters.mq_backouts, 1),
        }
        self._activity = parts.activity

    def failures(self, name: str) -> dict[str, object]:
        """Returns what went wrong with a rule, and when it matched."""
        return {
            **{what: numbers[name] for what, numbers in self._failed.items()},
            "last_matched": self._activity.last_matched.get(name),
            "last_error": self._activity.last_error.get(name),
        }


def _by_rule(series: Mapping[Any, int], at: int, names: set[str]) -> Counter[str]:
    """Returns the sums of the series of each of these rules, whose name is at position `at` of their keys."""
    found: Counter[str] = Counter()
    for key, number in series.items():
        if number and key[at] in names:
            found[key[at]] += number
    return found


def _inbound(of_rules: _OfRules, rule: InboundRule) -> dict[str, object]:
    name = rule.name
    return {
        "name": name,
        "direction": "to_mq",
        "file": rule.file,
        "line": rule.line,
        "topic": rule.spec.topic,
        "queue": _queue_of(rule),
        "queue_manager": rule.queue_manager.text,
        "continue": rule.spec.goes_on,
        "on_failure": rule.spec.on_failure.then,
        "matched": of_rules.received[name],
        "done": of_rules.put[name],
        **of_rules.failures(name),
    }


def _outbound(of_rules: _OfRules, rule: OutboundRule) -> dict[str, object]:
    name = rule.name
    return {
        "name": name,
        "direction": "to_mqtt",
        "file": rule.file,
        "line": rule.line,
        "topic": rule.spec.topic or "",
        "queue": _queue_of(rule),
        "queue_manager": ", ".join(rule.targets),
        "continue": False,
        "on_failure": "dead_letter",
        "matched": of_rules.matched[name],
        "done": of_rules.got[name],
        **of_rules.failures(name),
    }


def _queue_of(rule: InboundRule | OutboundRule) -> str:
    """Returns what a rule puts to or takes from, as it is shown."""
    taken = rule.spec.transmission_queue if isinstance(rule, OutboundRule) else None
    return rule.spec.queue or taken or f"topic {rule.spec.mq_topic}"


class RulesOfQueues:
    """The rules by their queues, found once for a table: there may be ten thousand, and as many dead letters."""

    def __init__(self, table: Table) -> None:
        self.table = table
        named = [(route.rule.name, route.rule.spec.queue or "") for route in table.routes]
        named += [(one.name, one.spec.queue or one.spec.transmission_queue or "") for one in table.outbound]
        self._names = [name for name, _ in named]
        self._outright: dict[str, list[int]] = {}
        self._templates: list[tuple[int, re.Pattern[str]]] = []
        for at, (_, queue) in enumerate(named):
            if "{" in queue:
                pattern = ".+".join(map(re.escape, re.split(r"\{[^}]*\}", queue)))
                self._templates.append((at, re.compile(pattern)))
            else:
                self._outright.setdefault(queue, []).append(at)

    def naming(self, queue: str) -> list[str]:
        """Returns the rules that name a queue, literally or by a template that could become its name."""
        by_template = [at for at, pattern in self._templates if pattern.fullmatch(queue)]
        return [self._names[at] for at in sorted([*self._outright.get(queue, ()), *by_template])]

    def of_dead_letter(self, destination: str, topic: str | None) -> str | None:
        """Returns the rule by which a dead letter came, according to the current rules: by its destination, otherwise
        by its topic."""
        outright = self._outright.get(destination, ()) if destination else ()
        inbound = len(self.table.routes)
        if outright and outright[-1] >= inbound:
            return next(self._names[at] for at in outright if at >= inbound)
        matches = [route.rule for route in self.table.candidates(topic)] if topic else []
        for rule in matches:
            if destination and rule.spec.queue == destination:
                return rule.name
        return matches[0].name if matches else self._names[outright[0]] if outright else None


class CurrentRules:
    """The rules by their queues, of the table that is in force."""

    def __init__(self, table: Callable[[], Table]) -> None:
        self._table = table
        self._known: RulesOfQueues | None = None

    def __call__(self) -> RulesOfQueues:
        table = self._table()
        known = self._known
        if known is None or known.table is not table:
            known = self._known = RulesOfQueues(table)
        return known


def count_replayed(counters: Counters, rule: str | None, *, ok: bool) -> None:
    """Count that a dead letter was put back, or could not be."""
    counters.dlq_replayed[rule or NO_ROUTE, "ok" if ok else "failed"] += 1


def _tried(parts: Parts, given: dict[str, Any], table: Table | Exception) -> tuple[int, object]:
    """Returns the answer by a table, or with what was wrong with the rules that were given."""
    if isinstance(table, ConfigurationError):
        nothing = {"allowed": True, "access": "", "puts": [], "others": [], "subscribers": 0}
        return _with_missing_queues(parts, nothing | {"findings": [_finding(one) for one in table.findings]})
    if isinstance(table, Exception):
        raise table
    return _with_missing_queues(parts, try_out(parts, given, table))


def try_out(parts: Parts, given: dict[str, Any], table: Table) -> dict[str, object]:
    """POST /explain: returns what would happen; nothing is put."""
    topic = str(given.get("topic", ""))
    wrong = name_error(topic)
    if wrong is not None:
        raise Problem(400, "Bad request", f"topic: {wrong}")
    try:
        payload = base64.b64decode(given["base64"]) if "base64" in given else str(given.get("text", "")).encode()
    except (binascii.Error, ValueError) as error:
        raise Problem(400, "Bad request", f"base64: {error}") from error
    client, user = str(given.get("client_id", "try-out")), str(given.get("user", ""))
    listener = str(given.get("listener", ""))
    properties: Properties = {}
    if given.get("properties"):
        properties[prop.USER_PROPERTY] = [(str(name), str(value)) for name, value in given["properties"]]
    origin = Origin(client, user, topic, int(given.get("qos", 1)), bool(given.get("retain", False)), listener=listener)
    answer = explain(table, origin, properties, payload, time.time())
    allowed = parts.access.may_publish(listener, client, user or None, topic)
    matched = parts.engine.router.subscriptions.match(topic)
    return {
        "allowed": allowed,
        "access": parts.access.why(listener, client, user or None, topic),
        "puts": [_would(one, parts.table) for one in answer.puts],
        "others": [
            {"rule": one.rule, "file": one.place.rpartition(":")[0], "line": _line(one.place), "why": one.why}
            for one in answer.considered
            if not one.applies
        ],
        "subscribers": len(matched.direct) + len(matched.groups),
        "findings": [],
        "unmatched": answer.unmatched,
    }


def _with_missing_queues(parts: Parts, answer: dict[str, Any]) -> tuple[int, object]:
    """Returns the answer with those of its queues that do not exist; none if the queue manager does not say."""
    named = [one["queue"] for one in answer["puts"] if not one["error"] and not one["queue_manager"]]
    names = [name for name in dict.fromkeys(named) if not name.startswith("topic://") and name != DEFAULT]
    inspection = parts.inspection

    def looked() -> tuple[int, object]:
        return 200, answer | {
            "missing_queues": [name for name in names if inspection and _is_missing(inspection, name)]
        }

    inquiries = parts.inquiries
    if inquiries is None or not names:
        return looked()

    def begin(answered: Answered) -> None:
        inquiries.ask(looked, lambda found: answered(found if isinstance(found, tuple) else (200, unknown)))

    unknown = answer | {"missing_queues": []}
    return 200, Later(begin)


def _is_missing(inspection: Inspects, name: str) -> bool:
    try:
        inspection.queue(name)
    except MQError as error:
        if error.reason != mq.MQRC_UNKNOWN_OBJECT_NAME:
            raise
        return True
    return False


def _given_table(settings: Settings, file: str, text: str) -> Table:
    """Returns the table of rules that are not in force: a mapping by itself, or in place of one of the files."""
    return table_with(settings, file, text) if file else compile_mappings(parse_mappings([("(given)", text)]))


def _line(place: str) -> int:
    last = place.rpartition(":")[2]
    return int(last) if last.isdigit() else 0


def _would(one: Would, table: Table) -> dict[str, object]:
    rule = next((route.rule for route in table.routes if route.rule.name == one.rule), None)
    return {
        "rule": one.rule,
        "file": rule.file if rule else "",
        "line": rule.line if rule else 0,
        "queue": one.queue,
        "queue_manager": in_words(one.queue_manager),
        "mq_topic": None,
        "descriptor": one.descriptor,
        "properties": one.properties,
        "headers": [],
        "persistent": one.persistent,
        "syncpoint": one.syncpoint,
        "syncpoint_why": one.syncpoint_why,
        "length": one.data_bytes,
        "too_long": one.too_long,
        "body": {"length": one.body_bytes, "truncated": False, "text": None, "base64": None, "ccsid": 0},
        "error": one.refused or None,
    }


def _finding(finding: Any) -> dict[str, object]:
    return {
        "file": finding.file,
        "line": finding.line,
        "column": finding.column,
        "what": finding.what,
        "fix": finding.fix,
    }
