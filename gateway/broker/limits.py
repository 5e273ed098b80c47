"""The limits the broker keeps, as plain numbers (the settings say them with units)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Limits:
    """Every bound of the MQTT side. Defaults as documented in the settings reference."""

    versions: frozenset[int] = frozenset({3, 4, 5})
    strict_client_ids: bool = True
    max_packet: int = 1 << 20
    max_connect: int = 128 << 10
    """Largest packet before CONNACK, and all that is held until then: nobody has shown who it is."""
    max_payload: int = 0
    max_qos: int = 2
    retain: bool = True
    max_inflight: int = 100
    receive_maximum: int = 1000
    """What a client may have unacknowledged towards us; announced to 5.0 clients."""
    topic_aliases: int = 10
    max_connections: int = 20_000
    max_sessions: int = 100_000
    max_listener_sessions: int = 0
    """Of clients that came last through one listener; 0: as many as there may be."""
    connect_timeout: float = 10.0
    max_queued: int = 1000
    max_queued_bytes: int = 64 << 20
    refuse_when_full: bool = False
    """A session that is full has what it would get refused for everybody, instead of going without."""
    max_total_queued: int = 0
    max_total_queued_bytes: int = 0
    """Of all sessions together; 0: no limit."""
    retry_interval: float = 20.0
    retry_versions: frozenset[int] = frozenset({3})
    session_expiry_max: int = 7 * 86_400
    keep_alive_max: int = 600
    max_subscriptions: int = 1000
    max_total_subscriptions: int = 0
    """0: no limit."""
    max_topic_levels: int = 200
    max_topic_length: int = 65_535
    max_retained: int = 1_000_000
    max_retained_bytes: int = 1 << 30
    max_outgoing_bytes: int = 8 << 20
    """Bytes written and not taken by a slow reader before its connection is closed."""
    max_user_properties: int = 1000
    shared_subscriptions: bool = True
    server_reference: str = ""
    response_prefix: str = "reply/"
    """Where Response Information tells a client to have its answers sent."""
    listeners: dict[str, Limits] = field(default_factory=dict)
    """Those of listeners that have some of their own."""

    @property
    def any_refuses(self) -> bool:
        """Whether sessions that are full may have publications refused."""
        return self.refuse_when_full or any(one.refuse_when_full for one in self.listeners.values())

    @property
    def shortest_payload(self) -> int:
        """The longest payload that every listener allows: what the fast path asks about."""
        shortest = self.max_payload or self.max_packet
        for one in self.listeners.values():
            shortest = min(shortest, one.max_payload or one.max_packet)
        return shortest

    def at(self, listener: str) -> Limits:
        """What holds for clients of a listener."""
        return self.listeners.get(listener, self)
