"""Rules that are never used, because an earlier rule takes everything they match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gateway.rules.mappings import InboundRule, OutboundRule
from gateway.rules.model import When

_ALWAYS = When()


class _Node:
    __slots__ = ("children", "rules")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.rules: list[InboundRule] = []


def shadowed(rules: Iterable[InboundRule]) -> Iterator[tuple[InboundRule, InboundRule]]:
    """Yield pairs: a rule that is never reached, and the earlier rule that takes its publications."""
    root = _Node()
    for rule in rules:
        hiding = _hiding(root, rule)
        if hiding is not None:
            yield rule, hiding
        elif not rule.spec.goes_on:
            _insert(root, rule)


def _insert(node: _Node, rule: InboundRule) -> None:
    for level in rule.levels:
        node = node.children.setdefault(level, _Node())
    node.rules.append(rule)


def _hiding(root: _Node, rule: InboundRule) -> InboundRule | None:
    candidates = [earlier for node in _covering(root, rule.levels) for earlier in node.rules]
    for earlier in sorted(candidates, key=lambda one: one.position):
        if earlier.spec.when in (_ALWAYS, rule.spec.when):
            return earlier
    return None


def _covering(root: _Node, levels: tuple[str, ...]) -> Iterator[_Node]:
    """The nodes whose filters match every topic that `levels` match; a wildcard never covers `$` [MQTT-4.7.2-1]."""
    nodes = [root]
    for index, level in enumerate(levels):
        system = index == 0 and level.startswith("$")
        if not system:
            yield from (node.children["#"] for node in nodes if "#" in node.children)
        if level == "#":
            return
        steps = (level,) if system or level == "+" else (level, "+")
        nodes = [node.children[step] for node in nodes for step in steps if step in node.children]
    yield from nodes
    yield from (node.children["#"] for node in nodes if "#" in node.children)


def shadowed_sources(rules: Iterable[OutboundRule]) -> Iterator[tuple[OutboundRule, OutboundRule]]:
    """Yield the same pairs for rules with the same source, where the first is used whatever the message."""
    always: dict[tuple[str | None, ...], OutboundRule] = {}
    for rule in rules:
        where = (rule.spec.queue, rule.spec.transmission_queue, rule.spec.mq_topic)
        sources = [(*where, target) for target in rule.targets or ("",)]
        if all(source in always for source in sources):
            yield rule, always[sources[0]]
        elif rule.topic is not None and rule.topic.constant is not None:
            always |= {source: rule for source in sources if source not in always}
