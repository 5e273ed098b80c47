"""A publication on its way to subscribers, and its bytes on the wire, built once for all that get it in the same form.

Pure: no clock (`now` is an argument), no I/O.
"""

from __future__ import annotations

from gateway.mqtt.packets import V5

_varints: dict[int, bytes] = {}
_befores: dict[tuple[int, int, bytes], bytes] = {}
_MAX_BEFORES, _CACHED_TOPIC = 4096, 256
"""How many packet beginnings are cached, and the longest topic for which they are."""


def varint(number: int) -> bytes:
    """The variable byte integer of every MQTT version; small ones are cached."""
    known = _varints.get(number)
    if known is not None:
        return known
    out = bytearray()
    rest = number
    while True:
        rest, digit = divmod(rest, 128)
        out.append(digit | 0x80 if rest else digit)
        if not rest:
            break
    encoded = bytes(out)
    if len(_varints) < 4096:
        _varints[number] = encoded
    return encoded


class Publication:
    """Topic, payload and what travels with them. `properties` is a 5.0 property block without its length and without
    Message Expiry, Topic Alias and Subscription Identifier, which differ by receiver and moment."""

    __slots__ = (
        "_more", "_parts", "_variant", "client_id", "expires", "handed_over", "payload", "promised", "properties",
        "qos", "report", "retain", "topic",
    )  # fmt: skip

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: bytes = b"",
        expires: float = 0.0,
        client_id: str = "",
        report: bytes = b"",
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.expires = expires
        self.client_id = client_id
        self.report = report
        """The descriptor of the MQ message that it comes from, as long as reports about that are to be made."""
        self.promised = False
        """Its publisher has got PUBREC for it, after the full sessions that refuse were asked."""
        self.handed_over = False
        """It has been delivered to local subscribers and retained already; only the put to its queue is missing."""
        self._variant = -1
        self._parts = (b"", b"")
        """The form on the wire that was built first, nearly always the only one."""
        self._more: dict[int, tuple[bytes, bytes]] | None = None

    @property
    def first(self) -> int:
        """The first byte of its packet, without DUP."""
        return 0x30 | self.qos << 1 | self.retain

    def expired(self, now: float) -> bool:
        """Whether its Message Expiry Interval has passed."""
        return bool(self.expires) and now >= self.expires

    def wire(self, version: int, first: int, now: float, sub_ids: tuple[int, ...]) -> tuple[bytes, bytes]:
        """The bytes before and after the packet identifier, for `first` as first byte of the fixed header."""
        if version != V5:
            variant = first
        elif self.expires or sub_ids:
            return self._build(first, self._v5_block(now, sub_ids), self.topic)
        else:
            variant = first | 0x100
        if variant == self._variant:
            return self._parts
        parts = self._more.get(variant) if self._more is not None else None
        if parts is None:
            block = self._v5_block(now, ()) if version == V5 else b""
            parts = self._build(first, block, self.topic)
            if self._variant < 0:
                self._variant, self._parts = variant, parts
            elif self._more is None:
                self._more = {variant: parts}
            else:
                self._more[variant] = parts
        return parts

    def aliased(self, first: int, now: float, sub_ids: tuple[int, ...], alias: int, known: bool) -> tuple[bytes, bytes]:
        """The 5.0 form with a Topic Alias: with the topic the first time, without it afterwards [MQTT-3.3.2-11]."""
        block = self._v5_block(now, sub_ids, b"\x23" + alias.to_bytes(2, "big"))
        return self._build(first, block, b"" if known else self.topic)

    def _v5_block(self, now: float, sub_ids: tuple[int, ...], more: bytes = b"") -> bytes:
        block = self.properties + more
        if self.expires:  # [MQTT-3.3.2-6]: the interval received minus the time spent waiting here
            block = b"\x02" + max(1, round(self.expires - now)).to_bytes(4, "big") + block
        for sub_id in sub_ids:
            block += b"\x0b" + varint(sub_id)
        return varint(len(block)) + block

    def _build(self, first: int, block: bytes, topic: bytes) -> tuple[bytes, bytes]:
        after = block + self.payload
        length = 2 + len(topic) + (2 if first & 0x06 else 0) + len(after)
        return _before(first, length, topic), after


def _before(first: int, length: int, topic: bytes) -> bytes:
    """A packet up to its packet identifier; cached, because devices send messages of equal length again and again."""
    key = (first, length, topic)
    before = _befores.get(key)
    if before is None:
        before = bytes((first,)) + varint(length) + len(topic).to_bytes(2, "big") + topic
        if len(_befores) >= _MAX_BEFORES:
            _befores.clear()
        if len(topic) <= _CACHED_TOPIC:
            _befores[key] = before
    return before
