"""Converts Amlen's topic policies to entries of `security.acl`.

There, a policy allows, and what none of the endpoint's policies allows is denied. It is the same here. A condition that
has no counterpart (group, common name, address) would make a permission wider, so such a permission is left out.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from gateway.migrate.amlen_objects import Objects, of_kind, words
from gateway.migrate.plan import Plan

_NARROWING = ("GroupID", "CommonNames", "ClientAddress")
_VARIABLES = {"${ClientID}": "{client}", "${UserID}": "{user}"}


def topic_entries(
    plan: Plan, file: str, found: Objects, endpoint: dict[str, Any], listener: str
) -> list[dict[str, Any]]:
    """Returns entries for what the endpoint's topic policies allow to clients that its connection policies let in."""
    clients = _connecting(plan, file, found, endpoint)
    entries: list[dict[str, Any]] = []
    policies = of_kind(found, "TopicPolicy")
    for name in words(endpoint.get("TopicPolicies")):
        if name not in policies:
            plan.say(file, 0, f"TopicPolicy {name} is not in the file; what it allows is denied")
            continue
        policy = policies[name]
        if _narrowed(plan, file, f"TopicPolicy {name}", policy):
            continue
        filters = _filters(plan, file, name, str(policy.get("Topic") or ""))
        actions = {one.lower() for one in words(policy.get("ActionList"))}
        key = "allow" if {"publish", "subscribe"} <= actions else "publish" if "publish" in actions else "subscribe"
        if not filters or not actions & {"publish", "subscribe"}:
            continue
        own = _people(policy)
        people = own if own != [{}] else clients
        entries += [{**person, "listener": listener, key: filters} for person in people]
        for text in ("MaxMessageTimeToLive", "DisconnectedClientNotification"):
            if policy.get(text) not in {None, "", "unlimited", False}:
                plan.say(file, 0, f"TopicPolicy {name}: {text}: no counterpart")
    return entries


def _connecting(plan: Plan, file: str, found: Objects, endpoint: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the clients that the endpoint's connection policies let in, as conditions of entries."""
    policies = of_kind(found, "ConnectionPolicy")
    people: list[dict[str, Any]] = []
    for name in words(endpoint.get("ConnectionPolicies")):
        if name not in policies:
            plan.say(file, 0, f"ConnectionPolicy {name} is not in the file; clients that it lets in may do nothing")
            continue
        policy = policies[name]
        if _narrowed(plan, file, f"ConnectionPolicy {name}", policy):
            continue
        mine = _people(policy)
        if mine != [{}]:
            plan.say(file, 0, f"ConnectionPolicy {name}: others may connect here, but neither publish nor subscribe")
        people += mine
        for text in ("AllowDurable", "AllowPersistentMessages"):
            if policy.get(text) is False:
                plan.say(file, 0, f"ConnectionPolicy {name}: {text}: no counterpart; it is allowed")
        for text in ("MaximumSessionExpiryInterval", "ExpectedMsgRate"):
            if policy.get(text) not in {None, "", "Default", "unlimited"}:
                plan.say(file, 0, f"ConnectionPolicy {name}: {text}: see `mqtt.session_expiry_max` and `limits`")
    return people


def _narrowed(plan: Plan, file: str, name: str, policy: dict[str, Any]) -> bool:
    said = [key for key in _NARROWING if words(policy.get(key)) not in ([], ["*"])]
    if said:
        plan.say(file, 0, f"{name}: {', '.join(said)}: no counterpart; what it allows only to these is left out")
    return bool(said)


def _people(policy: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns conditions of entries, one for each pair of client and user; `*` and the client's own user are no
    condition."""
    none = {"*", "${UserID}", "${ClientID}"}
    clients = [{} if one in none else {"client": one} for one in words(policy.get("ClientID"))] or [{}]
    users = [{} if one in none else {"user": one} for one in words(policy.get("UserID"))] or [{}]
    return [dict(client | user) for client, user in product(clients, users)]


def _filters(plan: Plan, file: str, name: str, topic: str) -> list[str]:
    """Returns the filters for a topic string in which `*` stands for any characters, including slashes. If there is no
    exact filter, less is allowed."""
    for variable, ours in _VARIABLES.items():
        topic = topic.replace(variable, ours)
    plain = topic.replace("{client}", "").replace("{user}", "")
    if "$" in plain.removeprefix("$") or "{" in plain or "+" in plain or "#" in plain:
        plan.say(file, 0, f"TopicPolicy {name}: Topic {topic}: it has no filter here; what it allows is left out")
        return []
    if "*" not in topic:
        return [topic] if topic else []
    *parents, last = topic.split("/")
    if last == "*" and not any("*" in level for level in parents):
        return ["/".join([*parents, "#"])]
    levels = ["+" if "*" in level else level for level in parents] + (["#"] if last == "*" else [last])
    if any("*" in level and level != "*" for level in [*parents, last]):
        plan.say(file, 0, f"TopicPolicy {name}: Topic {topic}: a wildcard is a whole level here; it is left out")
        return []
    plan.say(file, 0, f"TopicPolicy {name}: Topic {topic}: `*` in the middle is one level here: {'/'.join(levels)}")
    return ["/".join(levels)]
