"""Reads telemetry channels of IBM MQ, as `DISPLAY CHANNEL(*) CHLTYPE(MQTT) ALL` prints them, into a plan.

`DEFINE CHANNEL` commands (dmpmqcfg) have the same words and are read too. mqxr_unix.properties and mqxr_win.properties
are read only for their channels: IBM documents the commands and reserves the file's format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.errors import ConfigurationError, Finding
from gateway.migrate.plan import USERS, Plan, unused

_WORD = re.compile(r"\b([A-Z][A-Z0-9]*)\s*\(")
_QUEUE_MANAGER = re.compile(r"Starting MQSC for queue manager ([A-Za-z0-9./_%]{1,48})\.")
_ADDRESS = re.compile(r"[0-9A-Za-z:._-]+")
_VERSIONS = {"MQTTV3": "3.1", "MQTTV311": "3.1.1"}
_PREFIX = "com.ibm.mq.MQXR."
_PROPERTIES = {
    "Port": "PORT", "Backlog": "BACKLOG", "LocalAddress": "LOCLADDR", "UserName": "MCAUSER", "JAASConfig": "JAASCFG",
    "KeyFileName": "SSLKEYR", "PassPhrase": "SSLKEYP", "ClientAuth": "SSLCAUTH", "CipherSuite": "SSLCIPH",
    "UseClientIdentity": "USECLTID", "Protocol": "PROTOCOL",
}  # fmt: skip
_SILENT = {"CHLTYPE", "TRPTYPE", "DESCR", "ALTDATE", "ALTTIME", "CHANNEL", "PORT", "LOCLADDR", "PROTOCOL", "SSLCAUTH",
           "SSLKEYR", "USECLTID", "MCAUSER", "JAASCFG", "BACKLOG", "SSLCIPH", "SSLKEYP"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Channel:
    """One telemetry channel: its attributes and their lines."""

    file: str
    line: int
    attributes: dict[str, str]

    def __getitem__(self, key: str) -> str:
        return self.attributes.get(key, "").strip().strip("'")


def read_mqxr(texts: dict[str, str]) -> Plan:
    """Returns the plan for the texts by file name. Raises ConfigurationError if they contain no telemetry channel."""
    plan = Plan(f"telemetry channels in {', '.join(texts)}")
    channels: list[_Channel] = []
    manager = ""
    for name, text in texts.items():
        named = _QUEUE_MANAGER.search(text)
        manager = named[1] if named else manager
        is_file = _PREFIX in text or name.endswith(".properties")
        channels += _from_properties(plan, name, text) if is_file else _from_mqsc(name, text)
    channels = [one for one in channels if one["CHLTYPE"] in {"", "MQTT"}]
    if not channels:
        fix = "give the output of DISPLAY CHANNEL(*) CHLTYPE(MQTT) ALL"
        raise ConfigurationError([Finding(name, 1, 1, "it contains no telemetry channel", fix) for name in texts])
    taken: set[str] = set()
    plan.settings["listeners"] = [_listener(plan, channel, taken) for channel in channels]
    _queue_manager(plan, next(iter(texts)), manager)
    _identity(plan, channels)
    plan.mappings = _mappings(channels, plan.settings["listeners"])
    _say_guarantees(plan, next(iter(texts)))
    return plan


def _words(text: str) -> Iterator[tuple[str, str, int]]:
    """Yields every `WORD(value)` with the line on which it begins; a value may contain parentheses of its own."""
    at = 0
    while (match := _WORD.search(text, at)) is not None:
        depth, end = 1, match.end()
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield match[1], text[match.end() : end - 1], text.count("\n", 0, match.start()) + 1
        at = end


def _from_mqsc(name: str, text: str) -> list[_Channel]:
    without_comments = "\n".join("" if line.lstrip().startswith("*") else line for line in text.splitlines())
    echoed = re.compile(r"^([ \t]*\d+[ \t]*:[ \t]*)?DIS(PLAY)?\b.*$", re.MULTILINE | re.IGNORECASE)
    found: list[_Channel] = []
    for word, value, line in _words(echoed.sub("", without_comments)):
        if word == "CHANNEL":
            found.append(_Channel(name, line, {}))
        if found:
            found[-1].attributes[word] = value
    return found


def _from_properties(plan: Plan, name: str, text: str) -> list[_Channel]:
    """Returns the channels of a properties file. Lines that end in a backslash continue on the next; a channel's
    attributes are separated by semicolons."""
    found = []
    number, rest = 0, ""
    for each, line in enumerate(text.splitlines(), 1):
        if not rest:
            number = each
        rest += line.strip().removesuffix("\\")
        if line.rstrip().endswith("\\") and not line.rstrip().endswith("\\\\"):
            continue
        whole, rest = rest, ""
        if not whole or whole.startswith(("#", "!")):
            continue
        key, value = [*re.split(r"[:=]", whole, maxsplit=1), ""][:2]
        channel = key.strip().removeprefix(_PREFIX)
        if not channel.startswith("channel/"):
            plan.say(name, number, f"{key.strip()}: no counterpart: a property of the telemetry service")
            continue
        attributes = {"CHANNEL": channel.removeprefix("channel/")}
        for part in filter(None, (one.strip() for one in value.split(";"))):
            word, _, given = part.partition("=")
            known = _PROPERTIES.get(word.strip().removeprefix(_PREFIX))
            if known is not None:
                attributes[known] = re.sub(r"\\(.)", r"\1", given.strip())
            else:
                plan.say(name, number, f"channel {attributes['CHANNEL']}: {word.strip()}: no counterpart")
        found.append(_Channel(name, number, attributes))
    return found


def _listener(plan: Plan, channel: _Channel, taken: set[str]) -> dict[str, Any]:
    name = channel["CHANNEL"]

    def say(text: str) -> None:
        plan.say(channel.file, channel.line, f"channel {name}: {text}")

    address = _ADDRESS.match(channel["LOCLADDR"])
    port = channel["PORT"]
    if not port.isdigit():
        say("no PORT is given; 1883 is written")
    found: dict[str, Any] = {
        "name": unused(name, taken),
        "port": int(port) if port.isdigit() else 1883,
        "bind": address[0] if address else "::",
    }
    if channel["SSLKEYR"]:
        found["tls"] = _tls(channel, say)
    protocols = [one.strip() for one in channel["PROTOCOL"].split(",") if one.strip()]
    versions = [_VERSIONS[one] for one in protocols if one in _VERSIONS]
    if versions:
        found["versions"] = sorted(versions)
    if "HTTP" in protocols and not versions:
        found["websocket"] = {"path": "/mqtt"}
        say("PROTOCOL(HTTP): a WebSocket listener; clients use the path /mqtt, and pages are not served")
    elif "HTTP" in protocols:
        say("PROTOCOL: HTTP on the same port as MQTT has no counterpart; give WebSockets a listener of their own")
    found["anonymous"] = not channel["JAASCFG"] and channel["SSLCAUTH"] != "REQUIRED"
    if channel["JAASCFG"]:
        say(f"JAASCFG({channel['JAASCFG']}): no counterpart for JAAS modules: put the users into the file `users` "
            "(`mqgate passwd users NAME`), or write their check as `security.authenticator`")  # fmt: skip
    if channel["BACKLOG"] not in {"", "4096"}:
        say(f"BACKLOG({channel['BACKLOG']}): no counterpart; connections wait for the kernel, see net.core.somaxconn")
    for word in sorted(set(channel.attributes) - _SILENT):
        if channel[word]:
            say(f"{word}({channel[word]}): no counterpart")
    return found


def _tls(channel: _Channel, say: Any) -> dict[str, Any]:
    """Returns the TLS settings. A key repository is one file with everything; here there are PEM files."""
    name = channel["CHANNEL"]
    tls = {"certificate": f"{name}.pem", "key": f"{name}.key"}
    asked = channel["SSLCAUTH"].upper()
    if asked in {"OPTIONAL", "REQUIRED"}:
        tls |= {"client_ca": f"{name}.ca.pem", "client_certificate": asked.lower()}
    files = ", ".join(one for one in tls.values() if "." in one)
    say(f"SSLKEYR({channel['SSLKEYR']}): key repositories are not read: export it with keytool or runmqakm to PKCS#12, "
        f"then with `openssl pkcs12` to {files} beside the settings")  # fmt: skip
    if channel["SSLCIPH"]:
        say(f"SSLCIPH({channel['SSLCIPH']}): no counterpart; TLS 1.2 is the lowest version, `tls.minimum_version`")
    return tls


def _queue_manager(plan: Plan, file: str, manager: str) -> None:
    ibm: dict[str, Any] = {"connection": "localhost(1414)", "channel": "MQGATE.SVRCONN"}
    plan.settings["queue_manager"] = {"ibm": ({"name": manager} if manager else {}) | ibm}
    plan.say(
        file, 0, "the telemetry service runs inside the queue manager; the gateway is a client: write `connection` and "
        "`channel`, `user` and `password_file`, and run deploy/mq/channel.mqsc, state.mqsc and authorities.sh",
    )  # fmt: skip


def _identity(plan: Plan, channels: list[_Channel]) -> None:
    security = plan.section("security")
    security["anonymous"] = any(not one["JAASCFG"] and one["SSLCAUTH"] != "REQUIRED" for one in channels)
    if any(one["JAASCFG"] for one in channels):
        plan.users = []
        security["password_file"] = USERS


def _user_of(channel: _Channel) -> str | None:
    """Returns the template for UserIdentifier: the user under which the channel put messages; None if there is none."""
    if channel["USECLTID"].upper() in {"YES", "TRUE"}:
        return "{client}"
    return channel["MCAUSER"].replace("{", "{{").replace("}", "}}") or None


def _mappings(channels: list[_Channel], listeners: list[dict[str, Any]]) -> dict[str, Any]:
    by_user: dict[str | None, list[str]] = {}
    for channel, listener in zip(channels, listeners, strict=True):
        by_user.setdefault(_user_of(channel), []).append(listener["name"])
    rules = []
    for user, names in by_user.items():
        rule: dict[str, Any] = {"name": f"publications of {names[0]}" if len(by_user) > 1 else "publications"}
        rule |= {"topic": "{topic*}", "mq_topic": "{topic}", "headers": ["mqps", "mqtt", "mcd"]}
        if len(by_user) > 1:
            rule["when"] = {"listener": names}
        if user is not None:
            rule["descriptor"] = {"user": user}
        rules.append(rule)
    direct = {"name": "direct", "transmission_queue": "SYSTEM.MQTT.TRANSMIT.QUEUE", "qos": "from_property"}
    return {"version": 1, "to_mq": rules, "to_mqtt": [direct, {"name": "mq publications", "mq_topic": "#"}]}


def _say_guarantees(plan: Plan, file: str) -> None:
    plan.say(
        file, 0, "devices' subscriptions are the gateway's own; the rule `mq publications` subscribes to all MQ topics "
        "for them: narrow its `mq_topic` to what applications publish for devices",
    )  # fmt: skip
    plan.say(
        file, 0, "MCAUSER and USECLTID become UserIdentifier of the messages; MQ checks the authority of the gateway's "
        "user, and `security.acl` says what devices may do",
    )  # fmt: skip
    plan.say(
        file, 0, "sessions, subscriptions and messages in doubt of SYSTEM.MQTT.* queues are not taken over: let "
        "devices connect once with a clean session, or drain them first",
    )  # fmt: skip
