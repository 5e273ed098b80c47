"""Reads mosquitto.conf, its password file and its access lists into a plan."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import ConfigurationError, Finding
from gateway.migrate import mosquitto_options as options
from gateway.migrate.mosquitto_access import read_acl
from gateway.migrate.mosquitto_bridges import Bridge, bridge_rules
from gateway.migrate.mosquitto_options import Line
from gateway.migrate.plan import DEFAULT_RULE, DENY_ALL, USERS, Plan, ReadDirectory, ReadFile, definition, unused

_PER_LISTENER = ("allow_anonymous", "password_file", "acl_file")


@dataclass(slots=True)
class _Listener:
    """One listener with the options that follow it."""

    place: Line
    port: int
    address: str = ""
    said: dict[str, Line] = field(default_factory=dict)
    origins: list[str] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Take an option; only `websockets_origin` may be given more than once."""
        if line.key == "websockets_origin":
            self.origins.append(line.value)
        self.said[line.key] = line


@dataclass(slots=True)
class _Read:
    """The options, sorted by what they belong to."""

    common: dict[str, Line] = field(default_factory=dict)
    in_front: list[Line] = field(default_factory=list)
    """Options of listeners that precede all of them: they belong to the default listener, which `port` makes."""
    listeners: list[_Listener] = field(default_factory=list)
    bridges: list[Bridge] = field(default_factory=list)
    other: list[Line] = field(default_factory=list)

    def add(self, line: Line) -> None:
        """Take an option of a listener: of the one that it follows, or of the default one."""
        if self.listeners:
            self.listeners[-1].add(line)
        else:
            self.common[line.key] = line
            self.in_front.append(line)

    def add_default(self, port: Line) -> None:
        """Make the default listener, with the options that precede all listeners."""
        default = _Listener(port, int(port.value) if port.value.isdigit() else 0)
        for line in self.in_front:
            default.add(line)
        self.listeners.append(default)


def read_mosquitto(
    name: str, text: str, read_file: ReadFile, read_directory: ReadDirectory, directory: str = ""
) -> Plan:
    """Returns the plan for a mosquitto.conf. `read_file` returns the files that it names, `read_directory` those of an
    `include_dir`. Relative names of certificates start in `directory`. Raises ConfigurationError if no line of it is an
    option of mosquitto."""
    plan = Plan(f"mosquitto's configuration {name}")
    lines = _lines(plan, name, text, read_directory)
    if lines and not any(options.is_known(line.key) for line in lines):
        fix = "name the kind and the file, as in: mqgate import mqxr FILE"
        raise ConfigurationError([Finding(name, lines[0].number, 1, "no line of it is an option of mosquitto", fix)])
    read = _sorted(lines)
    apart = "per_listener_settings" in read.common and read.common["per_listener_settings"].value == "true"
    taken: set[str] = set()
    listeners = [
        one for each in read.listeners if (one := _listener(plan, each, taken, directory, read_file)) is not None
    ]
    if not read.listeners:
        listeners = [{"name": "plain", "port": 1883, "bind": "127.0.0.1"}]
        plan.say(name, 0, "no listener is defined: as in mosquitto 2, port 1883 for programs of this host")
    plan.settings["listeners"] = listeners
    _identity(plan, name, read, listeners, apart=apart, read_file=read_file)
    options.quality_of_service(plan, [each.said for each in read.listeners if _kept(each)])
    options.common_options(plan, read.common)
    for line in read.other:
        options.without_counterpart(plan, line)
    _mappings(plan, name, read.bridges)
    return plan


def _lines(plan: Plan, name: str, text: str, read_directory: ReadDirectory) -> list[Line]:
    found: list[Line] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        key, _, value = line.strip().partition(" ")
        if key == "include_dir":
            files = read_directory(value.strip())
            if files is None:
                plan.say(name, number, f"{key}: {value.strip()} cannot be read; its files are not part of the result")
            for file, more in files or ():
                found += _lines(plan, file, more, lambda _: None)
            continue
        found.append(Line(name, number, key, value.strip()))
    return found


def _sorted(lines: list[Line]) -> _Read:
    """Returns the options sorted: those that follow `listener` belong to the listener, those that follow `connection`
    to the bridge, whatever else is in between."""
    read = _Read()
    for line in lines:
        if line.key == "listener":
            port, _, address = line.value.partition(" ")
            read.listeners.append(_Listener(line, int(port) if port.isdigit() else 0, address.strip()))
        elif line.key == "port":
            read.add_default(line)
        elif line.key == "connection":
            read.bridges.append(Bridge(line))
        elif line.key in options.OF_BRIDGES and read.bridges:
            read.bridges[-1].said.append(line)
        elif line.key in options.OF_LISTENERS:
            read.add(line)
        elif line.key in _PER_LISTENER:
            if read.listeners:
                read.listeners[-1].said[line.key] = line
            read.common.setdefault(line.key, line)
        elif line.key in options.COMMON:
            read.common[line.key] = line
        else:
            read.other.append(line)
    return read


def _listener(
    plan: Plan, read: _Listener, taken: set[str], directory: str, read_file: ReadFile
) -> dict[str, Any] | None:
    """Returns one entry of `listeners`; None if it is only possible without what protects it."""
    said, place = read.said, read.place
    if any(key.startswith("psk") for key in said):
        plan.say(*place.where, f"{place}: pre-shared keys have no counterpart; the listener is left out")
        return None
    found: dict[str, Any] = {"name": unused(f"port-{read.port}" if read.port else "local", taken)}
    if not read.port:
        if not read.address:
            plan.say(*place.where, f"{place}: neither a port nor a socket; the listener is left out")
            return None
        found["unix"] = posixpath.join(directory, read.address)
    else:
        address = read.address or (said["bind_address"].value if "bind_address" in said else "")
        domain = said["socket_domain"].value if "socket_domain" in said else ""
        found |= {"port": read.port, "bind": address or ("0.0.0.0" if domain == "ipv4" else "::")}
    tls = options.tls_of(plan, place, said, directory, read_file)
    if tls is not None:
        found["tls"] = tls
    if "protocol" in said and said["protocol"].value == "websockets":
        found["websocket"] = options.websocket_of(plan, said, read.origins)
    if "max_connections" in said and said["max_connections"].value.isdigit() and int(said["max_connections"].value):
        found["max_connections"] = int(said["max_connections"].value)
    if "accept_protocol_versions" in said:
        found |= options.versions_of(plan, said["accept_protocol_versions"])
    if "enable_proxy_protocol" in said:
        found |= options.proxy_of(plan, said)
    if "listener_allow_anonymous" in said:
        found["anonymous"] = said["listener_allow_anonymous"].value == "true"
    options.listener_options(plan, said)
    return found


def _identity(
    plan: Plan, name: str, read: _Read, listeners: list[dict[str, Any]], *, apart: bool, read_file: ReadFile
) -> None:
    """Take over users, anonymous clients and access lists; with `per_listener_settings` each listener has its own."""
    owners: list[tuple[dict[str, Line], str | None]] = [(read.common, None)]
    if apart:
        kept = [each for each in read.listeners if _kept(each)]
        owners = [(each.said, entry["name"]) for each, entry in zip(kept, listeners, strict=True)]
    acl: list[dict[str, Any]] | None = None
    security = plan.section("security")
    for said, listener in owners:
        anonymous = "allow_anonymous" in said and said["allow_anonymous"].value == "true"
        anonymous = anonymous or (not read.listeners and "allow_anonymous" not in said)
        if listener is None:
            security["anonymous"] = anonymous
        else:
            next(one for one in listeners if one["name"] == listener).setdefault("anonymous", anonymous)
        if "password_file" in said:
            _users(plan, said["password_file"], read_file)
        if "acl_file" in said:
            line = said["acl_file"]
            text = read_file(line.value)
            entries = [DENY_ALL] if text is None else read_acl(plan, line.value, text)
            if text is None:
                plan.say(*line.where, f"{line}: cannot be read; nothing is allowed until `security.acl` is written")
            acl = (acl or []) + [entry | ({"listener": listener} if listener else {}) for entry in entries]
        elif listener is not None and apart:
            acl = (acl or []) + [{"listener": listener, "allow": ["#", "$SYS/#"]}]
    if acl is not None and any(set(entry) != {"listener", "allow"} for entry in acl):
        security["acl"] = acl
        security["wide_subscriptions"] = "filter"  # as mosquitto, which asks about each message only
    _names_of_certificates(plan, read, security)
    closed = [one["name"] for one in listeners if not one.get("anonymous", security.get("anonymous", False))]
    if plan.users is None and closed:
        plan.users = []
        where = "" if len(closed) == len(listeners) else f" at {', '.join(closed)}"
        why = f"neither users nor anonymous clients are let in{where}: add users with `mqgate passwd users NAME`"
        plan.say(name, 0, why)
    if plan.users is not None:
        security["password_file"] = USERS


def _kept(read: _Listener) -> bool:
    return not any(key.startswith("psk") for key in read.said) and bool(read.port or read.address)


def _users(plan: Plan, line: Line, read_file: ReadFile) -> None:
    text = read_file(line.value)
    if plan.users:
        plan.say(*line.where, f"{line}: all listeners share one password file; the users of all of them are in it")
    plan.users = plan.users or []
    if text is None:
        plan.say(*line.where, f"{line}: cannot be read; copy its lines to the file `users`, or nobody can log in")
        return
    have = {one.partition(":")[0] for one in plan.users}
    for number, entry in enumerate(text.splitlines(), 1):
        user, _, stored = entry.partition(":")
        if not entry.strip() or entry.startswith("#"):
            continue
        if user in have:
            plan.say(line.value, number, f"user {user} is in more than one file; the first password counts")
        elif stored.startswith(("$7$", "$6$", "$argon2id$")):
            plan.users.append(entry.strip())
            have.add(user)
        else:
            plan.say(line.value, number, f"user {user}: the password is not hashed; run `mqgate passwd users {user}`")


def _names_of_certificates(plan: Plan, read: _Read, security: dict[str, Any]) -> None:
    """Take over `use_identity_as_username`, which applies to one listener there and to all of them here."""
    said = [each.said for each in read.listeners] + [read.common]
    names = [one["use_identity_as_username"] for one in said if "use_identity_as_username" in one]
    subjects = [one["use_subject_as_username"] for one in said if "use_subject_as_username" in one]
    if any(line.value == "true" for line in subjects):
        security["certificate_user"] = "subject"
    elif any(line.value == "true" for line in names):
        security["certificate_user"] = "common_name"
    elif any("require_certificate" in one for one in said):
        security["certificate_user"] = "none"
    asked = [one for one in said if "require_certificate" in one]
    if security.get("certificate_user", "none") != "none" and len(asked) > 1:
        line = (names + subjects)[0]
        plan.say(*line.where, f"{line.key}: applies to certificates of all listeners here")


def _mappings(plan: Plan, name: str, bridges: list[Bridge]) -> None:
    rules = [bridge_rules(plan, bridge) for bridge in bridges]
    to_mq = [rule for one in rules for rule in one.to_mq]
    to_mqtt = [rule for one in rules for rule in one.to_mqtt]
    if not to_mq:
        to_mq = [DEFAULT_RULE]
        plan.say(
            name, 0, "mosquitto has no queues: every publication goes to MQGATE.DEFAULT as well as to its subscribers; "
            "write rules for the topics you want on queues, in mappings/imported.yaml",
        )  # fmt: skip
    plan.mappings = {"version": 1, "to_mq": to_mq} | ({"to_mqtt": to_mqtt} if to_mqtt else {})
    queues = dict.fromkeys(rule["queue"] for rule in [*to_mq, *to_mqtt] if "queue" in rule)
    plan.objects = [definition(queue, "MAXMSGL(104857600) ") for queue in queues]  # mosquitto takes 256 MB
    plan.settings["queue_manager"] = {"embedded": {"objects": "objects.mqsc"}}
