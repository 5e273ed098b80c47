"""Converts Amlen's queue manager connections to the queue manager of the state and to targets."""

from __future__ import annotations

import re
from typing import Any

from gateway.migrate.amlen_objects import Objects, of_kind, words
from gateway.migrate.plan import Plan

_NAME = re.compile(r"[A-Za-z0-9./_%]{1,48}")
OWN = ""
"""The queue manager of the gateway's state: rules need not name it."""


def queue_managers_of(plan: Plan, file: str, found: Objects, rules: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Returns, by connection, the queue manager that rules name. The gateway's own is the one that most of `rules`
    name, or the embedded one; the others that they name are targets."""
    connections = of_kind(found, "QueueManagerConnection")
    if not connections:
        plan.settings["queue_manager"] = {"embedded": {"objects": "objects.mqsc"}}
        plan.say(file, 0, "no QueueManagerConnection: the gateway's own queue manager is used")
        return {}
    used = [one for rule in rules.values() for one in words(rule.get("QueueManagerConnection"))]
    own = max(connections, key=used.count)
    manager = str(connections[own].get("QueueManagerName") or "")
    plan.settings["queue_manager"] = {"ibm": {"name": manager} | _reached(plan, file, own, connections[own])}
    managers = {own: OWN}
    targets: dict[str, Any] = {}
    for other, connection in connections.items():
        name = str(connection.get("QueueManagerName") or "")
        if other == own:
            continue
        if other not in used:
            plan.say(file, 0, f"QueueManagerConnection {other}: no rule uses it; left out")
        elif name == manager:
            managers[other] = OWN
            plan.say(file, 0, f"QueueManagerConnection {other}: the same queue manager as {own}; reached by that "
                     "one's channel")  # fmt: skip
        elif _NAME.fullmatch(name):
            managers[other] = name
            if name not in targets:
                targets[name] = _reached(plan, file, other, connection)
        else:
            plan.say(file, 0, f"QueueManagerConnection {other}: a target needs the name of its queue manager; left out "
                     "with its rules")  # fmt: skip
    if targets:
        plan.settings["targets"] = targets
    plan.say(file, 0, "the gateway keeps its state on queues of the queue manager: run deploy/mq/state.mqsc there")
    return managers


def _reached(plan: Plan, file: str, name: str, connection: dict[str, Any]) -> dict[str, Any]:
    """Returns how a queue manager is reached, and as which user."""
    addresses = words(connection.get("ConnectionName"))
    found: dict[str, Any] = {
        "connection": ",".join(one if "(" in one else f"{one}(1414)" for one in addresses) or "localhost(1414)",
        "channel": str(connection.get("ChannelName") or "MQGATE.SVRCONN"),
    }
    if connection.get("ChannelUserName"):
        found["user"] = str(connection["ChannelUserName"])
        password = str(connection.get("ChannelUserPassword") or "")
        if password and not re.fullmatch(r"[X*]+|!.*", password):
            found["password_file"] = f"mq{len(plan.secrets) or ''}.password"
            plan.secrets[found["password_file"]] = password + "\n"
        else:
            plan.say(file, 0, f"QueueManagerConnection {name}: the password is not shown; name it as `password_file`")
    if connection.get("SSLCipherSpec"):
        found["tls"] = {"cipher": str(connection["SSLCipherSpec"])}
        plan.say(file, 0, f"QueueManagerConnection {name}: name the key repository as `tls.key_repository`")
    return found
