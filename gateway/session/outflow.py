"""What a session sends: packet identifiers, the in-flight window, order, redelivery. Pure.

The way of one item: `pending` (waiting for the window) -> `inflight` (sent, packet id known) -> removed when it is
acknowledged. At QoS 2 an item is `released` between PUBREC and PUBCOMP. Order is the order of `offer`
[MQTT3-4.6.0-5] [MQTT3-4.6.0-6] [MQTT5-4.6.0-5] [MQTT5-4.6.0-6].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gateway.mqtt.packets import V5, V31
from gateway.ports.batch import Stored, Token
from gateway.session.publication import Publication
from gateway.session.record import Decoding

_PUBREL, _PUBREL_DUP = b"\x62\x02", b"\x6a\x02"
NO_LIMIT = 0xFFFFFFFF


class Item:
    """One publication for one session."""

    __slots__ = ("dup", "packet_id", "publication", "qos", "released", "retain", "share", "sub_ids", "token")

    def __init__(
        self,
        publication: Publication,
        qos: int,
        retain: bool,
        sub_ids: tuple[int, ...] = (),
        packet_id: int = 0,
        token: Token | None = None,
    ) -> None:
        self.publication = publication
        self.qos = qos
        self.retain = retain
        self.sub_ids = sub_ids
        self.packet_id = packet_id
        self.token = token
        self.released = False
        self.dup = False
        self.share = ""
        """The shared subscription it came through: when the session ends, another member gets it."""


def restored(stored: Stored, decoding: Decoding | None = None) -> Item:
    """An item from its stored row."""
    publication, packet_id, sub_ids, released = (decoding or Decoding()).decode(stored.data)
    item = Item(publication, publication.qos, publication.retain, sub_ids, packet_id, stored.token)
    item.released = released
    return item


_Like = tuple[bytes | None, bytes | None, int, int, bytes, bytes]
"""Topic, properties, payload's length and QoS of a publication, and the bytes before and after its packet
identifier, up to the payload: all publications with these are alike on the wire."""
_NOTHING_YET: _Like = (None, None, 0, 0, b"", b"")


def _like(item: Item, before: bytes, after: bytes) -> _Like:
    publication = item.publication
    if item.retain or item.dup or item.sub_ids or publication.expires:
        return _NOTHING_YET
    size = len(publication.payload)
    return publication.topic, publication.properties, size, item.qos, before, after[: len(after) - size]


class Outflow:
    """The sending side of one session."""

    __slots__ = (
        "_alias_limit",
        "_aliases",
        "_next",
        "connects",
        "fetching",
        "inflight",
        "last_token",
        "max_packet",
        "missed",
        "pending",
        "redelivered",
        "resumed",
        "sent_token",
        "unfetched",
        "version",
        "window",
    )

    def __init__(self) -> None:
        self.window = 0xFFFF
        self.version = 4
        self.max_packet = NO_LIMIT
        self.inflight: dict[int, Item] = {}
        self.pending: deque[Item] = deque()
        self.unfetched = False
        """True while stored messages are not in memory: they are fetched when the window has room."""
        self.fetching = False
        """True while a fetch is under way."""
        self.missed = False
        """Whether more was stored meanwhile."""
        self.connects = 0
        """The number of connections so far: the answer to a fetch for an earlier one is dropped."""
        self.last_token: Token | None = None
        """The last stored message that was fetched: fetching goes on after it."""
        self.sent_token: Token | None = None
        """The last stored message that left `pending`: when the connection ends, those after it are fetched again."""
        self.resumed = False
        """Whether what was in flight has been sent again on this connection: nothing new goes out before that."""
        self.redelivered = 0
        """How many of the next stored messages had been sent before a restart: they go out with DUP."""
        self._next = 0
        self._alias_limit = 0
        self._aliases: dict[bytes, int] = {}

    def connected(self, version: int, window: int, max_packet: int, alias_limit: int) -> None:
        """A connection took over the session: its limits hold from now on; aliases belong to the connection
        [MQTT-3.3.2-7]."""
        self.connects += 1
        self.fetching = False
        self.version = version
        self.window = window
        self.max_packet = max_packet
        self.resumed = False
        self._alias_limit = alias_limit
        self._aliases.clear()

    @property
    def takes_aliases(self) -> bool:
        """Whether the client accepts topic aliases."""
        return bool(self._alias_limit)

    def allot(self) -> int:
        """A packet id that is not in flight. 0 never occurs. [MQTT-2.3.1-4] [MQTT-2.2.1-4] [MQTT3-4.3.2-1]
        [MQTT3-4.3.3-1] [MQTT5-4.3.2-1] [MQTT5-4.3.3-1]"""
        candidate = self._next
        while True:
            candidate = candidate % 0xFFFF + 1
            if candidate not in self.inflight:
                self._next = candidate
                return candidate

    def resume_ids(self, last: int) -> None:
        """Go on after the last packet identifier that was assigned before a restart."""
        self._next = last

    def offer(self, items: list[Item]) -> None:
        """Append items at QoS 1 or 2; `fill` sends them when the window has room."""
        self.pending.extend(items)
        token = items[-1].token
        if token is not None:
            self.last_token = token

    def fill(self, now: float, out: list[bytes]) -> list[Item]:
        """Send what the window allows. Returns items that are dropped unsent: expired, or larger than the
        client's Maximum Packet Size [MQTT5-3.1.2-24] [MQTT-3.1.2-25]."""
        over: list[Item] = []
        pending, inflight = self.pending, self.inflight
        plain = not (self._alias_limit and self.version == V5)
        window, token, like = self.window, self.sent_token, _NOTHING_YET
        while pending and len(inflight) < window:  # [MQTT-4.9.0-2] [MQTT-3.3.4-9]
            item = pending.popleft()
            if item.token is not None:
                token = item.token
            publication = item.publication
            if publication.expires and publication.expired(
                now
            ):  # [MQTT-3.3.2-5], but not once it is sent [MQTT-4.3.3-7]
                over.append(item)
                continue
            packet_id = item.packet_id
            if not packet_id or packet_id in inflight:
                packet_id = item.packet_id = self.allot()
            payload = publication.payload
            topic, block, size, qos, before, middle = like
            if (
                publication.topic is topic
                and publication.properties is block
                and len(payload) == size
                and item.qos == qos
                and not (item.retain or item.dup or item.sub_ids or publication.expires)
            ):
                data = before + packet_id.to_bytes(2, "big") + middle + payload
            elif plain:
                first = 0x30 | item.qos << 1 | (1 if item.retain else 0) | (8 if item.dup else 0)
                before, after = publication.wire(self.version, first, now, item.sub_ids)
                data = before + packet_id.to_bytes(2, "big") + after
                like = _like(item, before, after) if len(data) <= self.max_packet else _NOTHING_YET
            else:
                data = self.encode(item, now)
            if len(data) > self.max_packet:
                over.append(item)
                continue
            inflight[packet_id] = item  # until it is acknowledged [MQTT-4.3.2-3] [MQTT-4.3.3-3]
            out.append(data)
        self.sent_token = token
        return over

    def encode(self, item: Item, now: float) -> bytes:
        """The PUBLISH of an item, with its packet id (QoS 0: without). DUP only when it is sent again [MQTT-3.3.1-3]
        [MQTT-4.3.1-1] [MQTT5-4.3.2-2] [MQTT5-4.3.3-2]."""
        publication = item.publication
        first = 0x30 | item.qos << 1 | (1 if item.retain else 0) | (8 if item.dup else 0)
        if self._alias_limit and self.version == V5:
            alias = self._aliases.get(publication.topic)
            known = alias is not None
            if alias is None and len(self._aliases) < self._alias_limit:
                alias = self._aliases[publication.topic] = len(self._aliases) + 1
            if alias is not None:
                before, after = publication.aliased(first, now, item.sub_ids, alias, known)
                if not known and len(before) + len(after) + 2 > self.max_packet:
                    del self._aliases[publication.topic]  # it may not be sent: the client never learns this alias
                return before + item.packet_id.to_bytes(2, "big") + after if item.qos else before + after
        before, after = publication.wire(self.version, first, now, item.sub_ids)
        return before + item.packet_id.to_bytes(2, "big") + after if item.qos else before + after

    def acknowledged(self, packet_id: int) -> Item | None:
        """PUBACK: the item is delivered."""
        item = self.inflight.get(packet_id)
        if item is None or item.qos != 1:
            return None
        del self.inflight[packet_id]
        return item

    def received(self, packet_id: int, refused: bool) -> Item | None:
        """PUBREC: the item is released, or finished when the receiver refused it [MQTT-4.4.0-2]. None: unknown id."""
        item = self.inflight.get(packet_id)
        if item is None or item.qos != 2:
            return None
        if refused:
            del self.inflight[packet_id]
        return item

    def completed(self, packet_id: int) -> Item | None:
        """PUBCOMP: the item is delivered."""
        item = self.inflight.get(packet_id)
        if item is None or not item.released:
            return None
        del self.inflight[packet_id]
        return item

    def pubrel(self, packet_id: int, *, again: bool = False) -> bytes:
        """PUBREL; MQIsdp repeats it with DUP, later versions know no DUP there [MQTT-3.6.1-1]."""
        first = _PUBREL_DUP if again and self.version == V31 else _PUBREL
        return first + packet_id.to_bytes(2, "big")

    def resend(self, now: float, out: list[bytes]) -> None:
        """Everything in flight again, in the original order: PUBLISH with DUP, or PUBREL. [MQTT-4.4.0-1]
        [MQTT-4.6.0-1] [MQTT-3.3.1-1] [MQTT-4.3.3-6] [MQTT-4.8.2-4]"""
        for item in self.inflight.values():
            if item.released:
                out.append(self.pubrel(item.packet_id, again=True))
            else:
                item.dup = True
                out.append(self.encode(item, now))

    def drop_memory(self) -> None:
        """The client of a durable session has left: stored items are fetched again when it returns, in order."""
        kept = [item for item in self.pending if item.token is None]
        dropped = [item for item in self.pending if item.token is not None]
        if dropped:
            self.pending = deque(kept)
            self.unfetched, self.last_token = True, self.sent_token
            self.redelivered += sum(item.dup for item in dropped)

    def waiting(self) -> Iterable[Item]:
        """Everything not acknowledged yet."""
        yield from self.inflight.values()
        yield from self.pending
