"""The settings of a gateway process: every key with its type, its default and the text that documents it.

The reader, the JSON Schema, `mqgate init` and the reference page are all made from this one list of fields. This module
opens no file and knows no environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv6Network, ip_network
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr

from gateway.config.admin import Admin
from gateway.config.events import Events
from gateway.config.findings import Part, contradictions
from gateway.config.limits import Length, Levels, Limits, ListenerRates, PacketSize, Port, Window
from gateway.config.queue_manager import SOCKET, Embedded, QueueManager, QueueManagerName, Target
from gateway.config.security import Security
from gateway.config.tls import Tls
from gateway.config.units import Count, Duration, Positive, Size, Wrong
from gateway.errors import Finding

Version = Literal["3.1", "3.1.1", "5.0"]
WhenFull = Literal["skip", "refuse"]


def _url_path(value: str) -> str:
    if not value.startswith("/"):
        raise Wrong(f"`{value}` is not a path", "write a path that begins with /, as in /mqtt")
    return value


UrlPath = Annotated[str, AfterValidator(_url_path)]


def _host_name(value: str) -> str:
    name = value.lower().rstrip(".")
    if not re.fullmatch(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*", name):
        raise Wrong(f"`{value}` is not a host name", "write it without scheme, port or path, as in mqtt.plant.example")
    return name


def _network(value: str) -> str:
    try:
        network = ip_network(value)
    except ValueError as error:
        fix = "write an address or a network, as in 10.0.0.7 or 10.0.0.0/24"
        raise Wrong(f"`{value}` is not a network: {error}", fix) from error
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped and network.prefixlen >= 96:
        return f"{network.network_address.ipv4_mapped}/{network.prefixlen - 96}"  # what comes from there is IPv4 here
    return str(network)


def _header_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", value):
        raise Wrong(f"`{value}` is not the name of a header", "write it as in X-Forwarded-For")
    return value


HeaderName = Annotated[str, AfterValidator(_header_name)]
HostName = Annotated[str, AfterValidator(_host_name)]
Network = Annotated[str, AfterValidator(_network)]


class WebSocket(Part):
    """MQTT over WebSocket."""

    path: UrlPath = Field(default="/mqtt", description="Path of the HTTP request.")
    origins: list[str] = Field(
        default=[],
        description="Origins of pages that may connect, besides the gateway's own host; `*` is any.",
    )
    hosts: list[HostName] = Field(
        default=[],
        description="Names of the gateway, besides its addresses, `localhost`, the machine's name and those in the "
        "listener's certificate; `*.plant.example` are all below it. A page of the gateway's own host is one under "
        "such a name. When given, requests with another Host are refused.",
    )
    address_header: HeaderName | None = Field(
        default=None,
        description="Header in which the HTTP proxies in `proxy_from` say who the client is, as `X-Forwarded-For`, "
        "`X-Real-IP` or `Forwarded`: the last address in it that is not one of theirs. From others it is ignored. Name "
        "one that each of these proxies writes, or adds to.",
    )


class Listener(Part):
    """Where devices connect: a port, or a Unix socket."""

    name: str = Field(description="Names the listener in logs, metrics, rules and access control.")
    port: Port | None = Field(default=None, description="TCP port; 0 takes a free one.")
    bind: str = Field(default="127.0.0.1", description="Address to listen on.")
    unix: str | None = Field(default=None, description="Path of a Unix socket, instead of a port.")
    tls: Tls | None = Field(default=None, description="TLS; without it the listener is plain.")
    websocket: WebSocket | None = Field(default=None, description="WebSocket framing.")
    max_connections: Positive | None = Field(
        default=None,
        description="Limit of this listener, besides the global one; each of several gateways has its own.",
    )
    max_sessions: Positive | None = Field(
        default=None,
        description="Sessions of clients that last connected through this listener of this gateway, connected or not, "
        "besides the global limit. Beyond it CONNECT is refused (0x97).",
    )
    proxy_protocol: Literal["v1", "v2"] | None = Field(
        default=None, description="Version of the PROXY protocol that the load balancer in front speaks."
    )
    proxy_from: list[Network] | None = Field(
        default=None,
        description="Addresses and networks of the load balancers, whose PROXY headers are believed; others are "
        "refused. Needed where other hosts reach the listener; otherwise whoever reaches it is believed. With "
        "`websocket.address_header` those of the HTTP proxies; others come with their own address.",
    )
    proxy_certificate: Literal["none", "optional", "required"] = Field(
        default="none",
        description="Whether clients show a certificate to the load balancer, which verifies it and gives its common "
        "name in the PROXY header (version 2; HAProxy: `send-proxy-v2-ssl-cn`). With `security.certificate_user: "
        "common_name` that is the user. Believed from `proxy_from` only.",
    )
    anonymous: bool | None = Field(default=None, description="Overrides `security.anonymous` here.")
    versions: list[Version] | None = Field(default=None, description="Overrides `mqtt.versions` here.")
    max_packet: PacketSize | None = Field(default=None, description="Overrides `mqtt.max_packet` here.")
    max_inflight: Window | None = Field(default=None, description="Overrides `mqtt.max_inflight` here.")
    max_queued: Count | None = Field(
        default=None, description="Overrides `mqtt.max_queued` for clients that connect here."
    )
    max_queued_bytes: Size | None = Field(
        default=None, description="Overrides `mqtt.max_queued_bytes` for clients that connect here."
    )
    when_full: WhenFull | None = Field(
        default=None,
        description="Overrides `mqtt.when_full` for clients that connect here and whose sessions are full.",
    )
    max_subscriptions: Positive | None = Field(default=None, description="Overrides `mqtt.max_subscriptions` here.")
    max_topic_levels: Levels | None = Field(default=None, description="Overrides `mqtt.max_topic_levels` here.")
    max_topic_length: Length | None = Field(default=None, description="Overrides `mqtt.max_topic_length` here.")
    max_payload: Size | None = Field(default=None, description="Overrides `mqtt.max_payload` here.")
    max_user_properties: Count | None = Field(default=None, description="Overrides `mqtt.max_user_properties` here.")
    limits: ListenerRates = Field(default_factory=ListenerRates, description="Rates and shares here.")

    @property
    def local(self) -> bool:
        """Whether only programs on this host can reach the listener."""
        return self.unix is not None or self.bind in {"localhost", "::1"} or self.bind.startswith("127.")

    @property
    def knows_by_certificate(self) -> bool:
        """Whether clients may show a certificate to this listener or to the load balancer in front of it."""
        return self.proxy_certificate != "none" or (self.tls is not None and self.tls.client_certificate != "none")

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        if (self.port is None) == (self.unix is None):
            yield Wrong(f"listener `{self.name}` needs one address", "give either `port` or `unix`")
        if self.proxy_protocol is not None and not self.proxy_from and not self.local:
            yield Wrong(
                f"whoever reaches {self.bind} could give any address to listener `{self.name}`",
                "name the load balancers in `proxy_from`, as in [10.0.0.7]",
            )
        yield from self._unfit_header()
        if self.proxy_certificate != "none":
            yield from self._unfit_certificate_of_proxy()

    def _unfit_header(self) -> Iterator[Wrong]:
        header = None if self.websocket is None else self.websocket.address_header
        if self.proxy_from is not None and self.proxy_protocol is None and header is None:
            fix = "give `proxy_protocol`, or leave out `proxy_from`"
            if self.websocket is not None:
                fix = "give `proxy_protocol`, or `websocket.address_header` if HTTP proxies are in front"
            yield Wrong(f"listener `{self.name}` takes no PROXY headers", fix)
        if header is not None and self.proxy_protocol is not None:
            what = f"listener `{self.name}` takes the addresses of its clients in two ways"
            yield Wrong(what, "leave out `proxy_protocol`, or `websocket.address_header`")
        if header is not None and not self.proxy_from and self.unix is None:
            what = f"listener `{self.name}` believes {header} from nobody"
            yield Wrong(what, "name the HTTP proxies in `proxy_from`, as in [10.0.0.7]")

    def _unfit_certificate_of_proxy(self) -> Iterator[Wrong]:
        what = f"listener `{self.name}` could believe nobody about client certificates"
        if self.proxy_protocol != "v2":
            yield Wrong(what, "give `proxy_protocol: v2`, or leave out `proxy_certificate`")
        elif not self.proxy_from and self.unix is None:
            yield Wrong(what, "name the load balancers in `proxy_from`, as in [10.0.0.7]")
        if self.tls is not None:
            what = f"listener `{self.name}` ends TLS itself, and its load balancer cannot"
            yield Wrong(what, "leave out `proxy_certificate` (and ask in `tls.client_certificate`), or `tls`")


class Mqtt(Part):
    """Limits and behaviour of the protocol."""

    versions: list[Version] = Field(
        default=["3.1", "3.1.1", "5.0"], min_length=1, description="Versions that are accepted."
    )
    strict_client_ids: bool = Field(
        default=True, description="MQTT 3.1: an identifier over 23 characters is refused with CONNACK 2."
    )
    max_packet: Size = Field(
        default=2**20,
        ge=128,
        le=268_435_460,
        description="Largest packet; announced in 5.0. A larger one closes the connection (0x95).",
    )
    max_payload: Size | None = Field(
        default=None, description="Largest payload, below what `max_packet` leaves. A larger one is refused (0x97)."
    )
    max_qos: Annotated[int, Field(ge=0, le=2)] = Field(
        default=2, description="Highest quality of service. A higher one closes the connection (0x9B)."
    )
    retain: bool = Field(
        default=True, description="Whether retained messages are kept; if not, the flag closes the connection (0x9A)."
    )
    max_inflight: Window = Field(
        default=100,
        description="Messages in flight to a client, and QoS 2 from it (Receive Maximum; beyond it: 0x93).",
    )
    topic_aliases: Annotated[int, Field(ge=0, le=65535)] = Field(default=10, description="Topic aliases (5.0).")
    max_connections: Positive = Field(
        default=20000,
        description="Connections of the process: each of several gateways on a queue manager has as many.",
    )
    max_sessions: Positive = Field(
        default=100_000,
        description="Sessions, connected or not, of all gateways on the queue manager. Beyond it CONNECT is refused "
        "(0x97).",
    )
    connect_timeout: Duration = Field(
        default=10.0,
        description="From the connection to a whole CONNECT, handshakes included, and to its session (0x88); then "
        "again, at least 5s, for the commit that CONNACK waits for (0x88); and for each re-authentication by AUTH "
        "(0x87).",
    )
    max_queued: Count = Field(
        default=1000, description="Messages of QoS 1 and 2 waiting for one session; beyond it `when_full` holds."
    )
    max_queued_bytes: Size = Field(
        default=16 * 2**20, description="Bytes waiting for one session; beyond it `when_full` holds."
    )
    when_full: WhenFull = Field(
        default="skip",
        description="What happens to a publication for a session that is full. `skip`: that session does not get it; "
        "`refuse`: no session does. Its publisher is told (5.0).",
    )
    retry_interval: Duration = Field(
        default=20.0,
        description="Unacknowledged messages are sent again, with DUP, on a live connection after this time; 0: never.",
    )
    retry_versions: list[Literal["3.1", "3.1.1"]] = Field(
        default=["3.1"],
        description="Versions whose clients get them again. 3.1.1 leaves the choice to the server; 5.0 forbids it.",
    )
    session_expiry_max: Duration = Field(default=604800.0, description="Longest session expiry granted.")
    keep_alive_max: Duration = Field(default=600.0, le=65535, description="Longest keep alive granted.")
    max_subscriptions: Positive = Field(
        default=1000,
        description="Subscriptions of one session. Beyond it: 0x97 in SUBACK. One of 50 may have `+` in several of "
        "more than 13 levels.",
    )
    max_total_queued: Count = Field(
        default=10_000_000, description="Messages waiting for all sessions together; 0: no limit."
    )
    max_total_queued_bytes: Size = Field(
        default=16 * 2**30, description="Bytes waiting for all sessions together; 0: no limit."
    )
    max_total_subscriptions: Count = Field(
        default=5_000_000, description="Subscriptions of all sessions. Beyond it: 0x97 in SUBACK; 0: no limit."
    )
    max_buffered_bytes: Size | None = Field(
        default=None,
        description="Bytes kept in memory for all connections together: packets that have not arrived whole, topics of "
        "aliases, and what clients do not read. Beyond it those that keep most are closed (0x97). As much again may "
        "be taken by what is remembered of the topics that clients publish to. The default is a quarter of the memory "
        "that the process may use; 0: no limit.",
    )
    max_topic_length: Length = Field(default=65535, description="Bytes of a topic or filter. Beyond it: 0x90, 0x8F.")
    max_topic_levels: Levels = Field(default=200, description="Levels of a topic or filter. Beyond it: 0x90, 0x8F.")
    max_user_properties: Count = Field(
        default=100, description="User properties of one packet (5.0). Beyond it the connection is closed (0x97)."
    )
    max_retained: Count = Field(default=1_000_000, description="Retained messages.")
    max_retained_bytes: Size = Field(default=2**30, description="Bytes of retained messages.")
    shared_subscriptions: bool = Field(default=True, description="Shared subscriptions (5.0).")
    server_reference: str = Field(
        default="", description="Where 5.0 clients are sent when the gateway stops (0x9C), as `host:port host:port`."
    )
    response_information: str = Field(
        default="reply/",
        description="Response information for 5.0 clients that request it: the beginning of their response topics; "
        "the client identifier follows.",
    )


class Process(Part):
    """The process as a service: how it ends, and when it reads its files again."""

    name: str = Field(
        default="",
        max_length=48,
        description="Name of this gateway, unique among those on one queue manager: by it the gateway recognises its "
        "own publications when they come back; `{gateway}` in subscriptions stands for it. Left out: made "
        "from host and directory.",
    )
    drain_timeout: Duration = Field(
        default=10.0,
        description="Longest drain after SIGTERM: connections are handed back, what was received is committed.",
    )
    drain_rate: Count = Field(
        default=0,
        description="Connections that are handed back in a second of the drain, so that their devices do not all come "
        "to the other gateways at once; more where `drain_timeout` would not do. 0: all at once.",
    )
    watch_interval: Duration = Field(
        default=0.0,
        description="How often settings, mappings, password files, tokens and certificates are checked for changes; "
        "changed ones are reloaded as by SIGHUP. 0: never.",
    )


class Log(Part):
    """The log."""

    format: Literal["auto", "json", "text"] = Field(
        default="auto", description="One JSON object a line, or text. `auto`: text on a terminal, else JSON."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Lowest level written.")
    connections: bool = Field(
        default=False, description="Whether each device that connects is a line at `info`; else it is one at `debug`."
    )
    clients: list[str] = Field(
        default=[], description="Clients (`*` and `?`) whose messages are logged one by one, with packet id and MsgId."
    )


class Tracing(Part):
    """Spans of the gateway for OpenTelemetry; needs the extra `otel`."""

    endpoint: str | None = Field(
        default=None, description="OTLP/HTTP collector, as http://collector:4318; without it nothing is exported."
    )
    share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=1.0, description="Share of the sampled traces that is exported, by trace identifier."
    )
    service: str = Field(default="mqgate", min_length=1, description="`service.name` of the spans.")


def _default_listeners() -> list[Listener]:
    return [Listener(name="plain", port=1883)]


class Settings(Part):
    """All settings of a gateway process."""

    listeners: list[Listener] = Field(default_factory=_default_listeners, description="Where devices connect.")
    admin: Admin = Field(default_factory=Admin, description="The administration listener.")
    queue_manager: QueueManager = Field(
        default_factory=lambda: QueueManager(embedded=Embedded()), description="The queue manager."
    )
    targets: dict[QueueManagerName, Target] = Field(
        default={},
        description="Other queue managers by name: a rule whose `queue_manager` is one of them puts there directly.",
    )
    mqtt: Mqtt = Field(default_factory=Mqtt, description="The protocol.")
    limits: Limits = Field(default_factory=Limits, description="Rates.")
    security: Security = Field(default_factory=Security, description="Identity and authority.")
    mappings: list[str] = Field(
        default=[], description="Mapping files (`*` allowed), relative to this file; none: the shipped default mapping."
    )
    log: Log = Field(default_factory=Log, description="The log.")
    events: Events = Field(default_factory=Events, description="Device events for programs.")
    process: Process = Field(default_factory=Process, description="The process as a service.")
    tracing: Tracing = Field(default_factory=Tracing, description="Spans for OpenTelemetry.")

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _columns: dict[str, int] = PrivateAttr(default_factory=dict)
    _base: list[str] = PrivateAttr(default_factory=list)
    _source: list[str] = PrivateAttr(default_factory=list)
    _empty: list[bool] = PrivateAttr(default_factory=list)

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        yield from self._alike_listeners()
        yield from self._unfit_targets()
        yield from self._unnamed_certificates()
        yield from self._closed_listeners()

    def _alike_listeners(self) -> Iterator[Wrong]:
        names, places = set[str](), {f"{self.admin.bind}:{self.admin.port}": "the admin port"}
        for index, listener in enumerate(self.listeners):
            at = ("listeners", index)
            place = listener.unix or f"{listener.bind}:{listener.port}"
            if listener.name in names:
                yield Wrong(f"two listeners are called `{listener.name}`", "give each its own name", (*at, "name"))
            if place in places and listener.port != 0:
                what = f"listener `{listener.name}` and {places[place]} use {place}"
                key = "unix" if listener.unix else "port"
                yield Wrong(what, "give each its own address", (*at, key), reads=("admin",))
            names.add(listener.name)
            places[place] = f"listener `{listener.name}`"

    def _unfit_targets(self) -> Iterator[Wrong]:
        manager = self.queue_manager
        own = manager.embedded.name if manager.embedded is not None else manager.ibm.name if manager.ibm else ""
        if own in self.targets:
            yield Wrong(
                f"target `{own}` is the queue manager of the gateway itself",
                "remove it: rules without `queue_manager` put there",
                ("targets", own),
                reads=("queue_manager",),
            )
        if self.targets and manager.buffer is not None:
            what = "`targets` and `queue_manager.buffer` cannot be used together"
            yield Wrong(what, "remove one of them", ("targets",))
        used = [manager.ibm.connection or ""] if manager.ibm is not None else []
        used += [target.connection for target in self.targets.values()]
        if len({connection.startswith(SOCKET) for connection in used}) > 1:
            what = "a process loads one MQ library: IBM's for hosts, or its own for MQI sockets (`unix:`)"
            yield Wrong(what, "give connections of one kind", ("targets",))

    def _unnamed_certificates(self) -> Iterator[Wrong]:
        naming = self.security.certificate_user
        for listener in self.listeners:
            if listener.proxy_certificate != "none" and naming not in {"common_name", "none"}:
                what = f"the load balancer in front of listener `{listener.name}` gives only common names"
                fix = "write `security.certificate_user: common_name`, or leave out `proxy_certificate`"
                yield Wrong(what, fix, ("security", "certificate_user"), reads=("listeners",))

    def _closed_listeners(self) -> Iterator[Wrong]:
        for index, listener in enumerate(self.listeners):
            known = self.security.checks or (listener.knows_by_certificate and self.security.certificate_user != "none")
            if not known and not self.anonymous_on(listener):
                why = "clients without credentials are not let in there, and nothing says who the others are"
                if not listener.local:
                    why = (
                        f"other hosts reach {listener.bind}, and clients without credentials are let in there only "
                        "when the settings say so"
                    )
                yield Wrong(
                    f"nobody could connect to listener `{listener.name}`: {why}",
                    "give `security.password_file`, `users` or `jwt`, or write `anonymous: true` to the listener",
                    ("listeners", index),
                    reads=("security",),
                )

    def anonymous_on(self, listener: Listener) -> bool:
        """Whether clients without credentials may connect to this listener. By default they may not from other
        hosts."""
        if listener.anonymous is not None:
            return listener.anonymous
        said = "anonymous" in self.security.model_fields_set
        return self.security.anonymous and (said or listener.local)

    def origin(self, key: str) -> str:
        """Where the value of `key` (`mqtt.max_packet`, `listeners.0.port`) comes from."""
        while key:
            if key in self._origins:
                return self._origins[key]
            key = key.rpartition(".")[0]
        return "default"

    def finding(self, key: str, what: str, fix: str = "") -> Finding:
        """A finding about the value of `key`, at its line and column if the file has the key, otherwise at the nearest
        section that the file has."""
        while key and key not in self._origins:
            key = key.rpartition(".")[0]
        origin = self.origin(key)
        file, _, line = origin.rpartition(":")
        if file and line.isdigit():
            return Finding(file, int(line), self._columns.get(key, 1), what, fix)
        return Finding(self.source or "settings" if origin == "default" else origin, 0, 0, what, fix)

    def said_by(self, key: str) -> str:
        """The origin of `key` itself: if the file lacks the key, that is the default, even if the file has its
        section."""
        found = self.origin(key)
        return found if key in self._origins or found.startswith(("environment ", "option ")) else "default"

    def is_whole(self, section: str) -> bool:
        """Whether a section has everything that was written in it; wrong values may have been left out."""
        said = (key for key in self._origins if key == section or key.startswith(f"{section}."))
        return all(map(self._has, said))

    def _has(self, key: str) -> bool:
        here: object = self
        for step in key.split("."):
            if not isinstance(here, Part):
                break
            if step not in here.model_fields_set:
                return False
            here = getattr(here, step)
        return True

    def set_origins(
        self, origins: dict[str, str], base: str, source: str | None = None, columns: dict[str, int] | None = None,
        *, empty: bool = False,
    ) -> None:  # fmt: skip
        """Note where values come from. `base`: the directory of the file; `source`: the file; `columns`: where values
        begin in their lines; `empty`: whether the file was empty."""
        self._origins.update(origins)
        self._columns.update(columns or {})
        self._base[:] = [base]
        self._source[:] = [source] if source is not None else []
        self._empty[:] = [empty]

    def values_of(self, file: str) -> int:
        """How many values come from this file."""
        return sum(origin.rpartition(":")[0] == file for origin in self._origins.values())

    @property
    def source(self) -> str | None:
        """The file of settings, if there is one."""
        return self._source[0] if self._source else None

    @property
    def was_empty(self) -> bool:
        """Whether the file of settings was empty when it was read."""
        return any(self._empty)

    def resolve(self, name: str, key: str = "") -> str:
        """A file name as the process can open it: a name written in the file of settings is relative to that file."""
        in_file = not self.origin(key).startswith(("environment ", "option ", "default")) if key else True
        return str(PurePath(*self._base, name)) if in_file else name
