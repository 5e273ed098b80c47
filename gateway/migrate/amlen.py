"""Reads the configuration of Eclipse Amlen (IBM MessageSight), as its administration port returns it in JSON, into a
plan."""

from __future__ import annotations

import json
from typing import Any

from gateway.errors import ConfigurationError, Finding
from gateway.migrate.amlen_access import topic_entries
from gateway.migrate.amlen_objects import Objects, number_of, of_kind, size_of, words
from gateway.migrate.amlen_rules import mappings_of
from gateway.migrate.plan import DENY_ALL, USERS, Plan, unused

_READ = {
    "Endpoint", "SecurityProfile", "CertificateProfile", "ConnectionPolicy", "TopicPolicy", "MessageHub", "Version",
    "DestinationMappingRule", "QueueManagerConnection",
}  # fmt: skip
_WHY = {
    "HighAvailability": "a pair: run several gateways on one IBM MQ queue manager, whose own availability is MQ's",
    "ClusterMembership": "several gateways on one queue manager are one broker, without a cluster of their own",
    "SubscriptionPolicy": "a shared subscription is allowed to whoever may subscribe to the filter in it",
    "QueuePolicy": "MQTT clients have no queues; JMS programs connect to the queue manager",
    "Queue": "queues are the queue manager's: DEFINE QLOCAL",
    "LDAP": "users are in a password file, in tokens, or checked by `security.authenticator`",
    "OAuthProfile": "`security.jwt` checks JSON Web Tokens with a file of keys; no server is asked over the network",
    "LTPAProfile": "LTPA tokens have no counterpart; `security.authenticator` may check them",
    "TrustedCertificate": "put the authorities' certificates into the file named as `client_ca`",
    "ClientCertificate": "certificates are trusted by their authority; put that into the file named as `client_ca`",
    "ConfigurationPolicy": "the administration port has an operator's and a reader's token",
    "AdminEndpoint": "the administration port is `admin`",
    "AdminUserID": "the administration port has an operator's and a reader's token",
    "AdminUserPassword": "the administration port has an operator's and a reader's token",
    "Plugin": "plugins are not loaded",
    "Protocol": "MQTT is the protocol",
    "MQTTClient": "sessions are not taken over",
    "CRLProfile": "name the list as `tls.crl` of the listener",
    "Syslog": "the log goes to standard error; systemd or the container keeps it",
    "LogLocation": "the log goes to standard error; systemd or the container keeps it",
    "ServerName": "`process.name` names a gateway",
    "MQConnectivityEnabled": "the gateway always works with its queue manager",
    "ClientSet": "`mqgate client purge` removes sessions",
    "ResourceSetDescriptor": "figures are kept for rules, queues and clients",
}


def read_amlen(texts: dict[str, str]) -> Plan:
    """Returns the plan for the texts by file name, which are merged. Raises ConfigurationError if they are not Amlen's
    JSON."""
    plan = Plan(f"Amlen's configuration {', '.join(texts)}")
    found, files = _merged(texts)
    file = next(iter(texts))
    listeners: list[dict[str, Any]] = []
    acl: list[dict[str, Any]] = []
    both: list[dict[str, Any]] = []
    taken: set[str] = set()
    for name, endpoint in of_kind(found, "Endpoint").items():
        listener = _listener(plan, file, found, name, endpoint, taken)
        if listener is not None:
            listeners.append(listener)
            both += [listener] if _certified(listener) and _asks_for_passwords(found, endpoint) else []
            acl += topic_entries(plan, file, found, endpoint, listener["name"])
            _limits(plan, file, found, endpoint, listener)
    if not listeners:
        raise ConfigurationError([Finding(file, 1, 1, "it contains no endpoint for MQTT", "export Endpoint too")])
    plan.settings["listeners"] = listeners
    security = plan.section("security")
    if both:
        _certificates_beside_passwords(plan, file, listeners, both)
        security["certificate_user"] = "none"
    security["anonymous"] = any(one["anonymous"] for one in listeners)
    security["acl"] = acl or [DENY_ALL]
    if any(words(one.get("ClientID")) == ["${UserID}"] for one in of_kind(found, "ConnectionPolicy").values()):
        security["client_ids"] = "equals_user"
    if any(not one["anonymous"] and (one in both or not _certified(one)) for one in listeners):
        plan.users = []
        security["password_file"] = USERS
        plan.say(file, 0, "users are not in this configuration: add them with `mqgate passwd users NAME`")
    mappings_of(plan, file, found)
    for kind in found:
        if kind not in _READ:
            why = _WHY.get(kind, "look for its place in the reference of settings")
            plan.say(file, 0, f"{kind}: no counterpart: {why}")
    plan.say(file, 0, "sessions, retained messages and buffered messages of the store are not taken over")
    plan.notes = [note._replace(file=_file_of(note.text, files, file)) for note in plan.notes]
    return plan


def _certified(listener: dict[str, Any]) -> bool:
    return bool(listener.get("tls", {}).get("client_certificate") == "required")


def _asks_for_passwords(found: Objects, endpoint: dict[str, Any]) -> bool:
    profile = of_kind(found, "SecurityProfile").get(str(endpoint.get("SecurityProfile") or ""), {})
    return bool(profile.get("UsePasswordAuthentication", True))


def _certificates_beside_passwords(
    plan: Plan, file: str, listeners: list[dict[str, Any]], both: list[dict[str, Any]]
) -> None:
    """Add a note where a certificate and a password are required: a certificate alone is not a login. It is said here
    for all listeners at once."""
    for listener in listeners:
        if _certified(listener) and listener not in both:
            listener["anonymous"] = True
            plan.say(
                file, 0, f"Endpoint {listener['name']}: its clients have a certificate and no user name, because "
                f"others ({', '.join(one['name'] for one in both)}) ask for a password too: what `security.acl` allows "
                "to users they may not do",
            )  # fmt: skip


def _file_of(text: str, files: dict[str, str], otherwise: str) -> str:
    """Returns the file that contains the kind of object with which a note begins."""
    kind = text.partition(" ")[0].partition(":")[0]
    return files.get(kind, otherwise)


def _merged(texts: dict[str, str]) -> tuple[Objects, dict[str, str]]:
    """Returns all objects, and the file that each kind of them is in."""
    merged: Objects = {}
    files: dict[str, str] = {}
    for name, text in texts.items():
        try:
            value = json.loads(text)
        except ValueError as error:
            line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
            fix = "give what GET /ima/v1/configuration/KIND answers"
            raise ConfigurationError([Finding(name, line, column, f"not JSON: {error}", fix)]) from error
        if not isinstance(value, dict):
            raise ConfigurationError([Finding(name, 1, 1, "not an object", "give Amlen's configuration as JSON")])
        for kind, one in value.items():
            have = merged.get(kind)
            merged[kind] = {**have, **one} if isinstance(have, dict) and isinstance(one, dict) else one
            files.setdefault(kind, name)
    return merged, files


def _listener(
    plan: Plan, file: str, found: Objects, name: str, endpoint: dict[str, Any], taken: set[str]
) -> dict[str, Any] | None:
    def say(text: str) -> None:
        plan.say(file, 0, f"Endpoint {name}: {text}")

    protocols = [one.upper() for one in words(endpoint.get("Protocol", "All"))]
    if endpoint.get("Enabled", True) is False:
        say("not enabled; left out")
        return None
    if not {"ALL", "MQTT"} & set(protocols or ["ALL"]):
        say(f"Protocol {endpoint['Protocol']}: JMS programs connect to the queue manager; left out")
        return None
    if number_of(endpoint.get("Port")) is None:
        say("no Port is given; 1883 is written")
    interface = str(endpoint.get("Interface") or "All").strip("[]")
    result: dict[str, Any] = {
        "name": unused(name, taken),
        "port": number_of(endpoint.get("Port")) or 1883,
        "bind": "::" if interface.lower() == "all" else interface,
    }
    profile = of_kind(found, "SecurityProfile").get(str(endpoint.get("SecurityProfile") or ""))
    if endpoint.get("SecurityProfile") and profile is None:
        say(f"SecurityProfile {endpoint['SecurityProfile']} is not in the file: TLS and passwords are asked for")
        profile = {}
    result["anonymous"] = profile is None
    if profile is not None:
        _secured(result, found, profile, say)
    largest = size_of(endpoint.get("MaxMessageSize"))
    if largest is not None:
        result["max_payload"] = largest
        result["max_packet"] = min(268_435_460, largest + 2**17)
    say("TCP and WebSocket come through one port there; give WebSockets a listener of their own")
    return result


def _secured(result: dict[str, Any], found: Objects, profile: dict[str, Any], say: Any) -> None:
    certified = bool(profile.get("UseClientCertificate", False))
    if profile.get("TLSEnabled", True):
        name = str(profile.get("CertificateProfile") or "")
        files = of_kind(found, "CertificateProfile").get(name, {})
        tls: dict[str, Any] = {
            "certificate": str(files.get("Certificate") or "server.pem"),
            "key": str(files.get("Key") or "server.key"),
        }
        if certified:
            tls |= {"client_ca": "client-ca.pem", "client_certificate": "required"}
        result["tls"] = tls
        wanted = [tls[key] for key in ("certificate", "key", "client_ca") if key in tls]
        say(f"TLS: put {', '.join(wanted)} beside the settings; Amlen does not give its key files away")
        if profile.get("MinimumProtocolMethod") in {"TLSv1", "TLSv1.1"}:
            say(f"MinimumProtocolMethod {profile['MinimumProtocolMethod']}: TLS 1.2 is the lowest version here")
        elif profile.get("MinimumProtocolMethod") == "TLSv1.3":
            tls["minimum_version"] = "1.3"
    passwords = bool(profile.get("UsePasswordAuthentication", True))
    result["anonymous"] = not passwords and not certified
    for key in ("OAuthProfile", "LTPAProfile"):
        if profile.get(key):
            say(f"{key} {profile[key]}: no counterpart: {_WHY[key]}")
    if profile.get("AllowNullPassword"):
        say("AllowNullPassword: no counterpart: a user without a password is refused")


def _limits(plan: Plan, file: str, found: Objects, endpoint: dict[str, Any], listener: dict[str, Any]) -> None:
    """Take over limits. `MaxMessages` applies to a topic there, and to a session here."""
    policies = of_kind(found, "TopicPolicy")
    named = [policies[one] for one in words(endpoint.get("TopicPolicies")) if one in policies]
    counts = [count for one in named if (count := number_of(one.get("MaxMessages"))) is not None]
    if counts:
        listener["max_queued"] = max(counts)
    behaviour = {one.get("MaxMessagesBehavior") for one in named}
    if "RejectNewMessages" in behaviour:
        listener["when_full"] = "refuse"
    if "DiscardOldMessages" in behaviour:
        plan.say(
            file, 0, f"Endpoint {listener['name']}: DiscardOldMessages: a full session does not get the new message"
        )
