"""Converts Amlen's destination mapping rules to rules."""

from __future__ import annotations

from typing import Any

from gateway.migrate.amlen_managers import OWN, queue_managers_of
from gateway.migrate.amlen_objects import Objects, number_of, of_kind, words
from gateway.migrate.plan import DEFAULT_RULE, Plan, definition

TOPIC_TO_QUEUE, TOPIC_TO_MQ_TOPIC, QUEUE_TO_TOPIC, MQ_TOPIC_TO_TOPIC = 1, 2, 3, 4
TREE_TO_QUEUE, TREE_TO_MQ_TOPIC, TREE_TO_MQ_TREE, MQ_TREE_TO_TOPIC, MQ_TREE_TO_TREE = 5, 6, 7, 8, 9
"""RuleType; 10 to 14 are rules for Amlen's own queues."""


def mappings_of(plan: Plan, file: str, found: Objects) -> None:
    """Take over the queue managers, and what every enabled rule does with them. There, all rules that match a
    publication put it, so they `continue` here."""
    rules = of_kind(found, "DestinationMappingRule")
    enabled = {name: rule for name, rule in rules.items() if rule.get("Enabled", True) is not False}
    managers = queue_managers_of(plan, file, found, enabled)
    to_mq: list[dict[str, Any]] = []
    to_mqtt: list[dict[str, Any]] = []
    for name, rule in rules.items():
        if name not in enabled:
            plan.say(file, 0, f"DestinationMappingRule {name}: not enabled; left out")
            continue
        for one in _rules(plan, file, name, rule):
            placed = _placed(plan, file, one, words(rule.get("QueueManagerConnection")), managers)
            (to_mq if "continue" in one else to_mqtt).extend(placed)
    if not to_mq and not to_mqtt:
        to_mq.append(DEFAULT_RULE)
        plan.say(file, 0, "no DestinationMappingRule: every publication goes to MQGATE.DEFAULT")
    plan.mappings = {"version": 1, "to_mq": to_mq, "to_mqtt": to_mqtt}
    plan.objects = _objects([*to_mq, *to_mqtt])


def _placed(
    plan: Plan, file: str, rule: dict[str, Any], named: list[str], managers: dict[str, str]
) -> list[dict[str, Any]]:
    """Returns the rule for each queue manager of the connections that it names; empty if it cannot be expressed
    here."""

    def say(text: str) -> None:
        plan.say(file, 0, f"DestinationMappingRule {rule['name']}: {text}")

    if not managers:
        return [rule]
    for one in named:
        if one not in managers:
            say(f"QueueManagerConnection {one} is not in the file, or left out")
    places = list(dict.fromkeys(managers[one] for one in named if one in managers))
    targets = [one for one in places if one != OWN]
    if "continue" not in rule:  # the queues of all of them are consumed
        own = [rule] if OWN in places or not named else []
        name = f"{rule['name']} elsewhere" if own else rule["name"]
        return own + ([rule | {"name": name, "queue_manager": targets}] if targets else [])
    if OWN in places or not named:
        if targets:
            say(f"all of it goes to the gateway's own queue manager, none to {', '.join(targets)}")
        return [rule]
    if targets and "mq_topic" in rule:
        say(f"devices publish on MQ topics of the gateway's own queue manager, not of {', '.join(targets)}; left out")
        return []
    return [rule | {"queue_manager": targets if len(targets) > 1 else targets[0]}] if targets else []


def _objects(rules: list[dict[str, Any]]) -> list[str]:
    """Returns definitions of the queues, those of each target after its name."""
    queues: dict[str, dict[str, None]] = {OWN: {}}
    for rule in rules:
        named = rule.get("queue_manager", OWN)
        for manager in named if isinstance(named, list) else [named]:
            if "queue" in rule:
                queues.setdefault(manager, {})[rule["queue"]] = None
    lines = []
    for manager, ours in queues.items():
        lines += [f"* On the queue manager {manager}:"] if manager != OWN else []
        lines += [definition(queue) for queue in ours]
    return lines


def _rules(plan: Plan, file: str, name: str, rule: dict[str, Any]) -> list[dict[str, Any]]:
    kind, source, destination = (
        number_of(rule.get("RuleType")),
        str(rule.get("Source") or ""),
        str(rule.get("Destination") or ""),
    )
    retained = rule.get("RetainedMessages")

    def say(text: str) -> None:
        plan.say(file, 0, f"DestinationMappingRule {name}: {text}")

    if not source or not destination:
        say("without Source or Destination; left out")
        return []
    if any(character in source + destination for character in "{}"):
        say("braces in Source or Destination; left out")
        return []
    if retained not in {None, "", "None", False}:
        say(f"RetainedMessages {retained}: a publication on an MQ topic is retained there when it was retained here")
    if kind in {TOPIC_TO_QUEUE, TREE_TO_QUEUE, TOPIC_TO_MQ_TOPIC, TREE_TO_MQ_TOPIC, TREE_TO_MQ_TREE}:
        return _to_mq(name, kind or 0, source, destination)
    if kind == QUEUE_TO_TOPIC:
        return [{"name": name, "queue": source, "topic": destination}]
    if kind in {MQ_TOPIC_TO_TOPIC, MQ_TREE_TO_TOPIC}:
        return [{"name": name, "mq_topic": _tree(source) if kind == MQ_TREE_TO_TOPIC else source, "topic": destination}]
    if kind == MQ_TREE_TO_TREE:
        if source.strip("/") == destination.strip("/"):
            return [{"name": name, "mq_topic": _tree(source)}]
        say(f"RuleType 9: topics below {source} cannot be given another beginning; publish below {destination}, or "
            "change the subscribers")  # fmt: skip
        return []
    say(f"RuleType {kind}: no counterpart: MQTT clients have no queues; JMS programs use the queue manager's")
    return []


def _to_mq(name: str, kind: int, source: str, destination: str) -> list[dict[str, Any]]:
    if kind in {TOPIC_TO_QUEUE, TREE_TO_QUEUE}:
        topic = _tree(source) if kind == TREE_TO_QUEUE else source
        return [{"name": name, "topic": topic, "queue": destination, "continue": True}]
    if kind == TREE_TO_MQ_TREE:
        base = destination.rstrip("/")
        below = {"topic": f"{source.rstrip('/')}/{{rest*}}", "mq_topic": f"{base}/{{rest}}"}
        return [{"name": name, **below, "continue": True}]
    topic = _tree(source) if kind == TREE_TO_MQ_TOPIC else source
    return [{"name": name, "topic": topic, "mq_topic": destination, "continue": True}]


def _tree(source: str) -> str:
    """Returns the filter for a topic and everything below it."""
    return source if source.endswith("#") else f"{source.rstrip('/')}/#"
