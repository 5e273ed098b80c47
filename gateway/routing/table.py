"""The compiled mapping: from a topic to the rules that apply, as fast with ten thousand rules as with ten.

Patterns are in a trie. What it finds is put into the order of the file, and the first rule whose conditions hold is
used, together with those before it that say `continue`. Conditions on the payload are left to the caller
(`Match.pending`).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.routing.trie import FilterTrie
from gateway.rules.mappings import InboundRule, Mappings, OutboundRule
from gateway.rules.model import When


class Context(NamedTuple):
    """What conditions can ask about a publication besides topic and payload."""

    client_id: str = ""
    username: str = ""
    qos: int = 0
    retain: bool = False
    listener: str = ""
    user_properties: tuple[tuple[str, str], ...] = ()


Condition = Callable[[Context], bool]


@dataclass(frozen=True, slots=True)
class Route:
    """A rule ready for matching. `conditions` have names, which explain why a rule does not apply."""

    rule: InboundRule
    conditions: tuple[tuple[str, Condition], ...]
    pending: bool
    """Whether conditions on the payload are still to be checked."""
    gateway: str = ""
    """The name of the gateway that puts, by which it recognises its own publications when they come back."""
    stencils: dict[Hashable, object] = field(default_factory=dict, repr=False, compare=False)
    """Prepared descriptors and headers of the rule's messages, by kind of origin; they are dropped with the table."""

    def holds(self, context: Context) -> bool:
        return all(condition(context) for _, condition in self.conditions)


class Match(NamedTuple):
    """A rule that applies, with the values of the topic levels that it names."""

    route: Route
    captured: dict[str, str]

    @property
    def rule(self) -> InboundRule:
        return self.route.rule

    @property
    def pending(self) -> bool:
        return self.route.pending


class Table:
    """Rules by topic. Immutable once compiled: a reload makes a new one."""

    __slots__ = (
        "_askers",
        "_property_readers",
        "_trie",
        "dead_letter_unmatched",
        "empty",
        "gateway",
        "hidden_by",
        "names",
        "outbound",
        "own_queues",
        "queues",
        "routes",
    )

    def __init__(self, mappings: Mappings, gateway: str = "") -> None:
        self.gateway = gateway
        """The name by which this gateway recognises its own publications."""
        self.routes = [_compile(rule, gateway if mappings.to_mqtt else "") for rule in mappings.to_mq]
        self.outbound: tuple[OutboundRule, ...] = mappings.to_mqtt
        names = [*(rule.name for rule in mappings.to_mq), *(rule.name for rule in mappings.to_mqtt)]
        self.names = tuple(dict.fromkeys(names))
        """The names of all rules, kept so that a reload need not go through all rules in its turn."""
        own = {rule.spec.queue for rule in mappings.to_mq if not rule.spec.queue_manager}
        own |= {rule.spec.queue for rule in mappings.to_mqtt if not rule.targets}
        others = {rule.spec.queue for rule in mappings.to_mq if rule.spec.queue_manager}
        self.own_queues = frozenset(name for name in own if name and "{" not in name)
        """Queues of the gateway's own queue manager that rules name without a template; asked for all the time."""
        self.queues = self.own_queues.union(name for name in others if name and "{" not in name)
        """These and those of other queue managers."""
        self.dead_letter_unmatched = mappings.dead_letter_unmatched
        self.empty = mappings.empty
        """Mapping files that were empty when they were read."""
        self.hidden_by = mappings.hidden_by
        """See `Mappings`."""
        self._property_readers = {
            id(route): [name.encode() for name in route.rule.spec.when.properties]
            for route in self.routes
            if route.rule.spec.when.properties
        }
        self._askers = {id(route) for route in self.routes if _asks_who(route.rule.spec.when)}
        self._trie: FilterTrie[list[Route]] = FilterTrie()
        for route in self.routes:
            levels = route.rule.levels
            here = self._trie.get(levels)
            if here is None:
                self._trie.put(levels, [route])
            else:
                here.append(route)

    def candidates(self, topic: str) -> list[Route]:
        """The rules whose patterns match, in the order of the files."""
        found = self._trie.match(topic)
        if len(found) == 1:
            return found[0]
        return sorted((route for routes in found for route in routes), key=_position)

    def properties_read(self, topic: str) -> tuple[bytes, ...]:
        """The names of the MQTT 5 user properties on which rules for this topic have conditions: publications with
        other values may go elsewhere."""
        readers = self._property_readers
        if not readers:
            return ()
        names = {name for route in self.candidates(topic) for name in readers.get(id(route), ())}
        return tuple(sorted(names))

    def asks_who(self, topic: str) -> bool:
        """Whether a rule for this topic has conditions on the client or its user, so that publications of others may go
        elsewhere."""
        askers = self._askers
        return bool(askers) and any(id(route) in askers for route in self.candidates(topic))

    def match(self, topic: str, context: Context) -> list[Match]:
        """The rules that apply, in order. Those with `pending` apply only if the payload matches (see
        `Plan.settle`)."""
        matches: list[Match] = []
        for route in self.candidates(topic):
            if not route.holds(context):
                continue
            matches.append(Match(route, capture(route.rule, topic)))
            if not route.rule.spec.goes_on and not route.pending:
                break
        return matches


def _asks_who(when: When) -> bool:
    return when.client is not None or when.user is not None


def compile_mappings(mappings: Mappings, gateway: str = "") -> Table:
    """Compile these rules; messages carry the name of the gateway if it has one."""
    return Table(mappings, gateway)


def _position(route: Route) -> int:
    return route.rule.position


def capture(rule: InboundRule, topic: str) -> dict[str, str]:
    """The values of the levels that the rule's pattern names; for a rest, its levels joined by `/`."""
    if not rule.names:
        return {}
    levels = topic.split("/")
    captured = {}
    for index, name in rule.names:
        if name.endswith("*"):
            captured[name[:-1]] = "/".join(levels[index:])
        else:
            captured[name] = levels[index]
    return captured


def is_plain(pattern: str) -> bool:
    """Whether a pattern matches only itself, having no wildcard."""
    return not any(character in pattern for character in "*?[")


def like(patterns: list[str]) -> Callable[[str], bool]:
    """A test, compiled once, of whether a text matches one of the patterns (with `*` and `?`)."""
    if all(map(is_plain, patterns)):
        wanted = frozenset(patterns)
        return wanted.__contains__
    expression = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))
    return lambda text: expression.match(text) is not None


def _compile(rule: InboundRule, gateway: str) -> Route:
    when = rule.spec.when
    return Route(rule, tuple(_conditions(when)), when.payload is not None or bool(when.json_fields), gateway)


def _conditions(when: When) -> Iterable[tuple[str, Condition]]:
    if when.qos is not None:
        wanted = frozenset(when.qos)
        yield f"qos is {_show(when.qos)}", lambda context: context.qos in wanted
    if when.client is not None:
        client = like(when.client)
        yield f"client is like {_show(when.client)}", lambda context: client(context.client_id)
    if when.user is not None:
        user, nobody = like(when.user), "" in when.user  # an anonymous client has no name to compare
        yield f"user is like {_show(when.user)}", lambda context: user(context.username) if context.username else nobody
    if when.listener is not None:
        listeners = frozenset(when.listener)
        yield f"listener is {_show(when.listener)}", lambda context: context.listener in listeners
    if when.retained is not None:
        retained = when.retained
        yield f"retained is {str(retained).lower()}", lambda context: context.retain == retained
    for name, pattern in (when.properties or {}).items():
        yield f"property {name} is like {pattern}", _property_like(name, pattern)


def _show(values: Iterable[object]) -> str:
    return " or ".join(str(value) or '""' for value in values)


def _property_like(name: str, pattern: str) -> Condition:
    matches = like([pattern])
    return lambda context: any(key == name and matches(value) for key, value in context.user_properties)
