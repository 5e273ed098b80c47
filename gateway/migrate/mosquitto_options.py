"""The options of mosquitto.conf one by one: what each becomes here, or why it becomes nothing."""

from __future__ import annotations

import itertools
import posixpath
import re
import ssl
from typing import Any, NamedTuple

from gateway.migrate.plan import Plan, ReadFile


class Line(NamedTuple):
    """One line of the file."""

    file: str
    number: int
    key: str
    value: str

    @property
    def where(self) -> tuple[str, int]:
        """The place of the line, for a note."""
        return self.file, self.number

    def __str__(self) -> str:
        return f"{self.key} {self.value}"


OF_LISTENERS = frozenset([
    "bind_address", "bind_interface", "http_dir", "max_connections", "max_qos", "maximum_qos", "max_topic_alias",
    "mount_point", "protocol", "socket_domain", "use_username_as_clientid", "websockets_log_level",
    "websockets_headers_size", "cafile", "capath", "certfile", "ciphers", "ciphers_tls1.3", "crlfile",
    "dhparamfile", "keyfile", "require_certificate", "tls_engine", "tls_engine_kpass_sha1", "tls_keyform",
    "tls_version", "use_identity_as_username", "use_subject_as_username", "psk_hint", "psk_file",
    "accept_protocol_versions", "enable_proxy_protocol", "proxy_protocol_v2_require_tls", "listener_allow_anonymous",
    "max_topic_alias_broker", "websockets_origin", "disable_client_cert_date_checks",
])  # fmt: skip
OF_BRIDGES = frozenset([
    "address", "addresses", "topic", "cleansession", "clientid", "local_cleansession", "local_clientid",
    "local_password", "local_username", "keepalive_interval", "idle_timeout", "notifications",
    "notifications_local_only", "notification_topic", "remote_clientid", "remote_password", "remote_username",
    "restart_timeout", "round_robin", "start_type", "threshold", "try_private", "username", "password",
]) | {f"bridge_{one}" for one in (
    "attempt_unsubscribe", "bind_address", "max_packet_size", "outgoing_retain", "protocol_version", "alpn", "cafile",
    "capath", "certfile", "identity", "insecure", "keyfile", "psk", "require_ocsp", "tls_version", "max_topic_alias",
    "reload_type", "tcp_keepalive", "tcp_user_timeout", "tls_use_os_certs", "receive_maximum",
    "session_expiry_interval", "ciphers", "ciphers_tls1.3")}  # fmt: skip

_COUNTS = {
    "max_inflight_messages": ("max_inflight", 65535),
    "max_queued_messages": ("max_queued", 1_000_000),
    "max_queued_bytes": ("max_queued_bytes", 2**30),
    "max_packet_size": ("max_packet", 268_435_460),
    "message_size_limit": ("max_payload", 0),
    "max_keepalive": ("keep_alive_max", 65535),
    "global_max_connections": ("max_connections", 0),
    "global_max_clients": ("max_sessions", 0),
}
"""By option: the key under `mqtt`, and what stands for `0` (no limit) there; 0 if nothing is needed."""

COMMON = frozenset([*_COUNTS, "per_listener_settings", "retain_available", "persistent_client_expiration", "log_type",
                    "allow_zero_length_clientid"])  # fmt: skip

_WHY = {
    "persistence": "what is durable is always on disk, and before it is acknowledged",
    "persistence_file": "the store is the directory `queue_manager.embedded.path`",
    "persistence_location": "the store is the directory `queue_manager.embedded.path`; sessions and retained messages "
    "of mosquitto.db are not taken over",
    "autosave_interval": "nothing waits in memory to be saved",
    "autosave_on_changes": "nothing waits in memory to be saved",
    "log_dest": "the log goes to standard error; systemd or the container keeps it",
    "log_facility": "the log goes to standard error; systemd or the container keeps it",
    "log_timestamp": "every line has its time",
    "log_timestamp_format": "times are ISO 8601",
    "connection_messages": "see `log` in the reference of settings",
    "user": "the process does not change its user: the systemd unit does",
    "pid_file": "systemd knows the process; there is no file with its number",
    "sys_interval": "$SYS is published at an interval of its own; /metrics is what monitoring reads",
    "set_tcp_nodelay": "always on",
    "queue_qos0_messages": "QoS 0 is not kept for sessions that are away",
    "upgrade_outgoing_qos": "a subscription never raises the quality of service",
    "allow_duplicate_messages": "overlapping subscriptions: one copy each for 3.x, as identifiers ask for in 5.0",
    "auto_id_prefix": "identifiers that the gateway makes have no prefix to choose",
    "clientid_prefixes": "connecting is not refused by the identifier; write `client` into `security.acl`, or "
    "`security.client_ids`",
    "memory_limit": "limits are counted in sessions, messages and bytes of queues: see docs/reference/limits.md",
    "check_retain_source": "a retained message is delivered by the rights of its receiver",
    "plugin": "plugins are not loaded; `security.authenticator` names a Python function, `security.jwt` takes tokens",
    "auth_plugin": "plugins are not loaded; `security.authenticator` names a Python function, `security.jwt` takes "
    "tokens",
    "auth_plugin_deny_special_chars": "identifiers and names with + # / never fit {client} and {user} of access lists",
    "psk_file": "pre-shared keys have no counterpart",
    "mount_point": "topics have no prefix by listener; name the listener in `when` of a rule, and give each its topics",
    "http_dir": "files are not served",
    "bind_interface": "give the address of the interface as `bind`",
    "capath": "give one file with the authorities as `client_ca`",
    "ciphers": "OpenSSL's own choice for the lowest version is used",
    "ciphers_tls1.3": "OpenSSL's own choice is used",
    "dhparamfile": "not needed: exchanges use elliptic curves",
    "tls_engine": "keys are read from PEM files",
    "tls_keyform": "keys are read from PEM files",
    "tls_engine_kpass_sha1": "keys are read from PEM files",
    "use_username_as_clientid": "`security.client_ids: equals_user` holds for all listeners; write it if that is meant",
    "max_qos": "`mqtt.max_qos` holds for all listeners; write it if that is meant",
    "maximum_qos": "`mqtt.max_qos` holds for all listeners; write it if that is meant",
    "max_topic_alias": "`mqtt.topic_aliases` holds for all listeners; write it if that is meant",
    "max_topic_alias_broker": "`mqtt.topic_aliases` holds for all listeners, and for both directions",
    "max_inflight_bytes": "what is in flight is counted in messages: `mqtt.max_inflight`",
    "retain_expiry_interval": "a retained message stays as long as its own expiry says",
    "packet_buffer_size": "how much is read at a time is the gateway's own choice",
    "proxy_protocol_v2_require_tls": "let the load balancer take TLS only",
    "disable_client_cert_date_checks": "a certificate that has expired is always refused",
    "enable_control_api": "there is no $CONTROL; `mqgate` and the administration port do this",
    "global_plugin": "plugins are not loaded; `security.authenticator` names a Python function, `security.jwt` takes "
    "tokens",
    "websockets_log_level": "the log has one level",
    "websockets_headers_size": "the size of the HTTP request is bounded by the gateway",
}


_QUALITY = ("max_qos", "maximum_qos")
"""Two names of one option."""
_SMALLEST = 128
"""The least that `mqtt.max_packet` can be."""
_OTHERS = frozenset(["listener", "port", "connection", "allow_anonymous", "password_file", "acl_file"])


def is_known(key: str) -> bool:
    """Whether this importer knows a name as an option of mosquitto."""
    return key in OF_LISTENERS or key in OF_BRIDGES or key in COMMON or key in _WHY or key in _OTHERS


def tls_of(
    plan: Plan, place: Line, said: dict[str, Line], directory: str, read_file: ReadFile
) -> dict[str, Any] | None:
    """Returns the TLS settings of a listener; files keep their names. A listener that had TLS never loses it."""
    if not any(key in said for key in ("certfile", "keyfile", "cafile", "capath")):
        return None
    if "certfile" not in said or "keyfile" not in said:
        plan.say(*place.where, f"{place}: TLS without `certfile` and `keyfile`; put them at server.pem and server.key")
    tls: dict[str, Any] = {
        "certificate": _path(directory, said, "certfile", "server.pem"),
        "key": _path(directory, said, "keyfile", "server.key"),
    }
    if "require_certificate" in said and said["require_certificate"].value == "true":
        tls |= {"client_ca": _path(directory, said, "cafile", "ca.pem"), "client_certificate": "required"}
    elif "cafile" in said and _has_intermediates(read_file(said["cafile"].value)):
        why = "mosquitto completes the server's chain from it; here `certificate` has the chain: append what is missing"
        plan.say(*said["cafile"].where, f"{said['cafile']}: {why}")
    if "crlfile" in said:
        tls["crl"] = _path(directory, said, "crlfile", "")
    version = said["tls_version"].value.lower() if "tls_version" in said else ""
    if version in {"tlsv1.2", "tlsv1.3"}:
        tls["minimum_version"] = version.removeprefix("tlsv")
    elif version:
        plan.say(*said["tls_version"].where, f"{said['tls_version']}: TLS 1.2 is the lowest version here")
    return tls


_NUMBERED = {"3": "3.1", "4": "3.1.1", "5": "5.0"}


def versions_of(plan: Plan, line: Line) -> dict[str, Any]:
    """Returns the protocol versions of a listener."""
    wanted = [one.strip() for one in line.value.split(",")]
    found = [ours for theirs, ours in _NUMBERED.items() if theirs in wanted]
    if len(found) != len(wanted):
        plan.say(*line.where, f"{line}: the versions are 3, 4 and 5; correct `versions` of the listener")
    return {"versions": found} if found else {}


def websocket_of(plan: Plan, said: dict[str, Line], origins: list[str]) -> dict[str, Any]:
    """Returns the settings of a WebSocket listener. Pages of another host than the gateway's are let in only if their
    origin is listed."""
    plan.say(*said["protocol"].where, "websockets: mosquitto takes any path; clients must use /mqtt here")
    if not origins:
        why = "mosquitto takes pages of any origin; name those that are not the gateway's own host in `origins`"
        plan.say(*said["protocol"].where, f"websockets: {why}")
    return {"path": "/mqtt"} | ({"origins": origins} if origins else {})


_OF_PROXIED_TLS = (
    "require_certificate", "use_identity_as_username", "use_subject_as_username", "proxy_protocol_v2_require_tls",
)  # fmt: skip


def proxy_of(plan: Plan, said: dict[str, Line]) -> dict[str, Any]:
    """Returns the settings for PROXY headers. mosquitto believes everybody who reaches the port; here only those named
    are believed."""
    line = said["enable_proxy_protocol"]
    why = ""
    if line.value not in {"1", "2"}:
        why = "the versions are 1 and 2"
    elif any(key in said and said[key].value == "true" for key in _OF_PROXIED_TLS):
        why = "what a header says about TLS and certificates is not used"
    if why:
        plan.say(*line.where, f"{line}: {why}; connections with PROXY headers are refused")
        return {}
    plan.say(*line.where, f"{line}: only headers from this host are believed; name the load balancers in `proxy_from`")
    return {"proxy_protocol": f"v{line.value}", "proxy_from": ["127.0.0.1", "::1"]}


def _has_intermediates(text: str | None) -> bool:
    """Whether these certificates include authorities that another one has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text or "")
    except (ssl.SSLError, TypeError, ValueError):  # not certificates
        return False
    return any(one["subject"] != one["issuer"] for one in context.get_ca_certs())


def _path(directory: str, said: dict[str, Line], key: str, default: str) -> str:
    return posixpath.join(directory, said[key].value) if key in said else default


def listener_options(plan: Plan, said: dict[str, Line]) -> None:
    """Add notes for options of a listener that have no counterpart."""
    for key, line in said.items():
        if key in _WHY and key not in _QUALITY:
            without_counterpart(plan, line)


def quality_of_service(plan: Plan, listeners: list[dict[str, Line]]) -> None:
    """Take over the highest quality of service that all listeners have; a note says where they differ."""
    lines = [[said[key] for key in _QUALITY if key in said] for said in listeners]
    values = {of_one[0].value if of_one else "2" for of_one in lines}
    if len(values) == 1 and (only := values.pop()) in {"0", "1"}:
        plan.section("mqtt")["max_qos"] = int(only)
        return
    for line in itertools.chain.from_iterable(lines):
        if line.value != "2":
            without_counterpart(plan, line)


def common_options(plan: Plan, said: dict[str, Line]) -> None:
    """Take over limits and behaviour that apply to all listeners."""
    mqtt = plan.section("mqtt")
    for key, line in said.items():
        if key in _COUNTS:
            _count(plan, mqtt, line)
        elif key == "retain_available":
            mqtt["retain"] = line.value != "false"
        elif key == "persistent_client_expiration":
            _expiration(plan, mqtt, line)
        elif key == "log_type":
            level = {"all": "debug", "debug": "debug", "error": "error", "warning": "warning"}.get(line.value, "info")
            plan.settings["log"] = {"level": level}
        elif key == "allow_zero_length_clientid" and line.value == "false":
            plan.say(*line.where, f"{line}: clients without an identifier get one; `security.client_ids` ties it to "
                                  "the user")  # fmt: skip
        elif key in _WHY:
            without_counterpart(plan, line)
    if not mqtt:
        del plan.settings["mqtt"]


def _count(plan: Plan, mqtt: dict[str, Any], line: Line) -> None:
    key, unlimited = _COUNTS[line.key]
    if not line.value.isdigit():
        plan.say(*line.where, f"{line}: not a number; the default of `mqtt.{key}` holds")
    elif int(line.value):
        mqtt[key] = max(_SMALLEST, min(int(line.value), unlimited)) if key == "max_packet" else int(line.value)
        if key == "max_packet" and int(line.value) < _SMALLEST:
            plan.say(*line.where, f"{line}: packets of {_SMALLEST} bytes are let in: the smallest `mqtt.{key}`")
        if key in {"max_inflight", "keep_alive_max"}:
            mqtt[key] = min(mqtt[key], unlimited)
    elif unlimited:
        mqtt[key] = unlimited
        plan.say(*line.where, f"{line}: nothing is without limit here; `mqtt.{key}` is {unlimited}")


def _expiration(plan: Plan, mqtt: dict[str, Any], line: Line) -> None:
    match = re.fullmatch(r"(\d+)([hdwmy])", line.value)
    if match is None:
        plan.say(*line.where, f"{line}: not a duration; the default of `mqtt.session_expiry_max` holds")
        return
    days = {"w": 7, "m": 30, "y": 365}
    amount, unit = int(match[1]), match[2]
    mqtt["session_expiry_max"] = f"{amount * days[unit]}d" if unit in days else f"{amount}{unit}"


def without_counterpart(plan: Plan, line: Line) -> None:
    """Add the note for an option that becomes nothing."""
    if line.key.startswith(("plugin_opt_", "auth_opt_")):
        plan.say(*line.where, f"{line.key}: goes with the plugin")
        return
    why = _WHY.get(line.key, "not an option that this importer knows; look for its place in the reference of settings")
    plan.say(*line.where, f"{line.key}: no counterpart: {why}" if line.key in _WHY else f"{line.key}: {why}")
