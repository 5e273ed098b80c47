"""Amlen's queue manager connections and destination mapping rules to a queue manager and rules."""

from __future__ import annotations

import re
from typing import Any

from gateway.migrate.amlen_objects import Objects, number_of, of_kind, words
from gateway.migrate.plan import DEFAULT_RULE, Plan

TOPIC_TO_QUEUE, TOPIC_TO_MQ_TOPIC, QUEUE_TO_TOPIC, MQ_TOPIC_TO_TOPIC = 1, 2, 3, 4
TREE_TO_QUEUE, TREE_TO_MQ_TOPIC, TREE_TO_MQ_TREE, MQ_TREE_TO_TOPIC, MQ_TREE_TO_TREE = 5, 6, 7, 8, 9
"""RuleType; 10 to 14 are rules for Amlen's own queues."""
PASSWORD_FILE = "mq.password"  # noqa: S105 - a file's name


def queue_manager_of(plan: Plan, file: str, found: Objects) -> None:
    """The queue manager of the settings: the one that most of the rules that are enabled name, or the embedded one."""
    connections = of_kind(found, "QueueManagerConnection")
    if not connections:
        plan.settings["queue_manager"] = {"embedded": {"objects": "objects.mqsc"}}
        plan.say(file, 0, "no QueueManagerConnection: the gateway's own queue manager is used")
        return
    used = [one for rule in _enabled(found).values() for one in words(rule.get("QueueManagerConnection"))]
    name = max(connections, key=used.count)
    for other in connections:
        if other != name:
            plan.say(
                file, 0, f"QueueManagerConnection {other}: a gateway works with one queue manager, {name}: reach the "
                "other by remote queues, or run a second gateway",
            )  # fmt: skip
    chosen = connections[name]
    ibm: dict[str, Any] = {
        "name": str(chosen.get("QueueManagerName") or ""),
        "connection": ",".join(one if "(" in one else f"{one}(1414)" for one in words(chosen.get("ConnectionName")))
        or "localhost(1414)",
        "channel": str(chosen.get("ChannelName") or "MQGATE.SVRCONN"),
    }
    if chosen.get("ChannelUserName"):
        ibm["user"] = str(chosen["ChannelUserName"])
        password = str(chosen.get("ChannelUserPassword") or "")
        if password and not re.fullmatch(r"[X*]+|!.*", password):
            ibm["password_file"] = PASSWORD_FILE
            plan.secrets[PASSWORD_FILE] = password + "\n"
        else:
            plan.say(file, 0, f"QueueManagerConnection {name}: the password is not shown; name it as `password_file`")
    if chosen.get("SSLCipherSpec"):
        ibm["tls"] = {"cipher": str(chosen["SSLCipherSpec"])}
        plan.say(file, 0, f"QueueManagerConnection {name}: name the key repository as `tls.key_repository`")
    plan.settings["queue_manager"] = {"ibm": ibm}
    plan.say(file, 0, "the gateway keeps its state on queues of the queue manager: run deploy/mq/state.mqsc there")


def mappings_of(plan: Plan, file: str, found: Objects) -> None:
    """The mapping: what every enabled rule does. All that match a publication there put it, so they `continue` here."""
    to_mq: list[dict[str, Any]] = []
    to_mqtt: list[dict[str, Any]] = []
    for name, rule in of_kind(found, "DestinationMappingRule").items():
        made = _rules(plan, file, name, rule) if name in _enabled(found) else []
        if name not in _enabled(found):
            plan.say(file, 0, f"DestinationMappingRule {name}: not enabled; left out")
        for one in made:
            (to_mq if "continue" in one else to_mqtt).append(one)
    if not to_mq and not to_mqtt:
        to_mq.append(DEFAULT_RULE)
        plan.say(file, 0, "no DestinationMappingRule: every publication goes to MQGATE.DEFAULT")
    plan.mappings = {"version": 1, "to_mq": to_mq, "to_mqtt": to_mqtt}
    queues = dict.fromkeys(rule["queue"] for rule in [*to_mq, *to_mqtt] if "queue" in rule)
    plan.objects = [f"DEFINE QLOCAL({_quoted(queue)}) DEFPSIST(YES) NOREPLACE" for queue in queues]


def _quoted(queue: str) -> str:
    return queue if queue == queue.upper() else f"'{queue}'"


def _enabled(found: Objects) -> dict[str, dict[str, Any]]:
    rules = of_kind(found, "DestinationMappingRule")
    return {name: rule for name, rule in rules.items() if rule.get("Enabled", True) is not False}


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
    """The filter for a topic and everything below it."""
    return source if source.endswith("#") else f"{source.rstrip('/')}/#"
