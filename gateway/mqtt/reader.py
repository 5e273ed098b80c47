"""Splits chunks of bytes into packets, a whole chunk at a time.

PUBLISH and acknowledgements without a reason are decoded in one loop over an offset; everything else goes through
`decoders`. Topics and the properties of a PUBLISH are only cut out here: sessions check them once per distinct value
(`topics.topic_name_error`, `properties.decode_publish`). Nothing is raised: see `Reader.error`.
"""

from __future__ import annotations

import struct

from gateway.errors import MalformedPacket, PacketTooLarge, ProtocolError
from gateway.mqtt.connect import check_version, decode_connect, flags_error, layout, protocol_version
from gateway.mqtt.decoders import (
    ACK,
    FROM_CLIENT,
    NAMES,
    PUBLISH_12,
    Grammars,
    decode_rare,
)
from gateway.mqtt.packets import CONNECT, SUBSCRIBE, UNSUBSCRIBE, V5, V31, V311, Packet, Properties
from gateway.mqtt.primitives import decode_varint
from gateway.mqtt.properties import MAX_USER_PROPERTIES, USER_PROPERTY
from gateway.mqtt.reasons import QUOTA_EXCEEDED

_HEAD = struct.Struct(">BBH").unpack_from
MAX_FILTERS = 2000
NEVER = 1 << 62
"""An offset beyond the end of every chunk."""
INCOMPLETE = (0, NEVER)
_MQISDP = b"\x00\x06MQIsdp"
_U16 = struct.Struct(">H").unpack_from


_OTHER_PROTOCOLS = (
    (b"\x16\x03", "TLS", "tls"), (b"GET ", "HTTP or WebSocket", "websocket"), (b"PROXY ", "PROXY", "proxy_protocol"),
    (b"\r\n\r\n\0\r\nQUIT\n", "PROXY", "proxy_protocol"),
)  # fmt: skip
"""What most often comes to the wrong port: how it begins, what it is, and the listener setting that it needs."""
_FIRST = CONNECT << 4


class Reader:
    """Turns the bytes of one connection into packets.

    `error` is set at the first violation, with the MQTT 5 reason code to close with; packets before it are returned and
    nothing after it is read. `version` is 0 until a CONNECT has been read (even one that is refused, so that the
    refusal can be written in the client's version). A reader for a client's side is made with its version and
    FROM_SERVER.
    """

    __slots__ = (
        "_grammars", "_missing", "error", "finished", "held", "max_filters", "max_packet", "max_user_properties",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        max_packet: int,
        version: int = 0,
        grammars: Grammars = FROM_CLIENT,
        max_user_properties: int = MAX_USER_PROPERTIES,
        max_filters: int = MAX_FILTERS,
    ) -> None:
        self.max_packet = max_packet
        self.max_user_properties = max_user_properties
        self.max_filters = max_filters
        """The most filters that one SUBSCRIBE or UNSUBSCRIBE may have."""
        self.version = version
        self.error: ProtocolError | None = None
        self._grammars = grammars
        self.held: bytearray | None = None
        """The beginning of an incomplete packet."""
        self.finished = 0
        """How many packets that came in pieces have become whole."""
        self._missing = 0

    def feed(self, chunk: bytes) -> list[Packet]:
        """The packets that are complete with this chunk."""
        packets: list[Packet] = []
        if self.error is not None:
            return packets
        data = chunk if self.held is None else self.joined(chunk)
        try:
            offset = 0 if self.version else self._decode_connect(data, packets)
            if self.version and (packets or not offset):
                offset = self._decode(data, packets, offset)
        except ProtocolError as error:
            self.error = _bare(error)
            return packets
        if offset < len(data):
            self.held = bytearray(data[offset:])
        return packets

    def first(self, chunk: bytes) -> tuple[Packet | None, bytes]:
        """The CONNECT, once it is complete, and the bytes that follow it. None: it is not complete yet, or the packet
        is not a valid CONNECT (see `error`)."""
        packets: list[Packet] = []
        data = chunk if self.held is None else self.joined(chunk)
        if self.error is not None:
            return None, b""
        try:
            stop = self._decode_connect(data, packets)
        except ProtocolError as error:
            self.error = _bare(error)
            return None, b""
        if packets:
            return packets[0], data[stop:]
        if data:
            self.held = bytearray(data)
        return None, b""

    def packet(self, data: bytes, offset: int) -> tuple[Packet | None, int]:
        """The packet at `offset`, and where it ends. None: it is incomplete and held from now on, or it may not be sent
        (see `error`)."""
        packets: list[Packet] = []
        stop = offset
        try:
            if self._grammars[self.version].kinds[data[offset]] > ACK:
                _, end = self._bounds(data, offset)
                if end != NEVER:
                    stop = offset + self._decode(data[offset:end], packets)
            else:
                stop = self._decode_one(data, offset, packets)
        except ProtocolError as error:
            self.error = _bare(error)
            return None, len(data)
        if packets:
            return packets[0], stop
        self.held = bytearray(data[offset:])
        return None, len(data)

    def joined(self, chunk: bytes) -> bytes:
        """What was held, together with this chunk; empty while the packet is still incomplete."""
        held = self.held or bytearray()
        if len(chunk) < self._missing:
            held += chunk
            self._missing -= len(chunk)
            return b""
        self.held = None
        self.finished += 1
        return b"".join((held, chunk))

    def _decode_connect(self, data: bytes, packets: list[Packet]) -> int:
        """Decode the first packet, which is CONNECT [MQTT-3.1.0-1]; returns where it ends, or 0 if it is incomplete."""
        if not data:
            return 0
        if data[0] != _FIRST:
            _refuse_beginning(data)
        start, stop = self._bounds(data, 0)
        if stop == NEVER:
            if data[0] & 0x0F and not _has_flags_of_mqisdp(data):
                self._missing = 1  # check again with the next byte, before it is complete
            return 0
        body = data[start:stop]
        self._learn_version(body)
        connect = decode_connect(data[0], body)
        pairs = connect.properties.get(USER_PROPERTY)
        if isinstance(pairs, list):
            del pairs[self.max_user_properties :]  # they are not used
        if connect.will is not None:
            self._check_user_properties(connect.will.properties)
        packets.append((data[0], connect))
        return stop

    def _learn_version(self, body: bytes) -> None:
        """Note the version, so that the client can be answered in it before anything else in the packet is refused."""
        name, level, offset = protocol_version(body)
        if name == "MQIsdp":
            self.version = V31
        elif name == "MQTT":  # an unknown level is answered in the form its CONNECT is written in. [MQTT-3.1.2-2]
            self.version = level if level in {V311, V5} else layout(body, offset)
        check_version(name, level)

    def _decode(self, data: bytes, packets: list[Packet], offset: int = 0) -> int:
        """Decode whole frames from `offset` on; returns where the incomplete one begins."""
        kinds = self._grammars[self.version].kinds
        append, head, u16 = packets.append, _HEAD, _U16
        v5 = self.version == V5
        short = min(127, self.max_packet - 2)
        end = len(data)
        try:
            while offset + 4 <= end:
                first, length, topic_length = head(data, offset)
                kind = kinds[first]
                if kind == ACK and length == 2 and topic_length:  # these two bytes are its packet id
                    append((first, topic_length, 0, b""))
                    offset += 4
                    continue
                if kind <= ACK:
                    stop = self._decode_one(data, offset, packets)
                    if stop == offset:
                        break
                    offset = stop
                    continue
                if length > short:
                    start, stop = self._bounds_of_two(data, offset, length, topic_length >> 8)
                    (topic_length,) = u16(data, start)
                    start += 2
                else:
                    start, stop = offset + 4, offset + 2 + length
                if stop > end:
                    break
                body = mark = start + topic_length
                packet_id = 1
                if kind == PUBLISH_12:  # at QoS 0 there is no packet id [MQTT-2.3.1-5] [MQTT-2.2.1-2]
                    (packet_id,) = u16(data, mark)
                    body += 2
                properties = b""
                if v5:
                    properties, body = _block(data, body, stop) if data[body] else (b"", body + 1)
                if body > stop or not packet_id:
                    raise _publish_error(stop - offset, is_short=body > stop)
                append((first, data[start:mark], packet_id if kind == PUBLISH_12 else 0, properties, data[body:stop]))
                offset = stop
        except (IndexError, struct.error):
            raise _publish_error(length, is_short=True) from None
        return self._decode_rest(data, offset, packets)

    def _decode_rest(self, data: bytes, offset: int, packets: list[Packet]) -> int:
        """Decode what the loop leaves: the last two or three bytes, which may be a packet. Returns where the incomplete
        one begins."""
        while offset < len(data):
            stop = self._decode_one(data, offset, packets)
            if stop == offset:
                break
            offset = stop
        return offset

    def _decode_one(self, data: bytes, offset: int, packets: list[Packet]) -> int:
        """Decode the frame at `offset`, of any type and size; returns where it ends, or `offset` if it is
        incomplete."""
        first = data[offset]
        grammar = self._grammars[self.version]
        refusal = grammar.refusals.get(first)
        if refusal is not None:
            raise refusal.error(refusal.text)
        start, stop = self._bounds(data, offset)
        if stop == NEVER:
            return offset
        if stop - start > self.max_filters and first >> 4 in {SUBSCRIBE, UNSUBSCRIBE}:
            self._check_filters(first, data[start:stop])
        packet = decode_rare(grammar, first, data[start:stop], self.version)
        record = packet[-1]
        if self.version == V5 and not isinstance(record, int | bytes):
            self._check_user_properties(record.properties)
        packets.append(packet)
        return stop

    def _check_filters(self, first: int, body: bytes) -> None:
        """Refuse a packet with more filters than are allowed before decoding any of them, as most would be refused
        anyway."""
        count, offset = 0, 2
        if self.version == V5:
            length, offset = decode_varint(body, 2)
            offset += length
        beside = 2 if first >> 4 == UNSUBSCRIBE else 3
        while offset + 2 <= len(body):
            offset += beside + (body[offset] << 8 | body[offset + 1])
            count += 1
            if count > self.max_filters:
                text = f"more than {self.max_filters} filters in one packet: send several packets"
                raise ProtocolError(text, QUOTA_EXCEEDED)

    def _check_user_properties(self, properties: Properties) -> None:
        pairs = properties.get(USER_PROPERTY)
        if isinstance(pairs, list) and len(pairs) > self.max_user_properties:
            text = (
                f"{len(pairs)} user properties in one packet, only {self.max_user_properties} are allowed: send fewer"
            )
            raise ProtocolError(text, QUOTA_EXCEEDED)

    def _bounds_of_two(self, data: bytes, offset: int, low: int, high: int) -> tuple[int, int]:
        """`_bounds` for the usual PUBLISH over 127 bytes, whose remaining length is these two bytes."""
        stop = offset + 3 + (low & 0x7F | high << 7)
        if low > 0x7F and 0 < high < 0x80 and stop <= len(data) and stop - offset <= self.max_packet:
            return offset + 3, stop
        return self._bounds(data, offset)

    def _bounds(self, data: bytes, offset: int) -> tuple[int, int]:
        """Where the body of the frame at `offset` begins and ends; INCOMPLETE if it is not whole. [MQTT-1.5.5-1]"""
        length = shift = 0
        for byte in data[offset + 1 : offset + 5]:
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if byte == 0 and shift > 7:
                    raise MalformedPacket("the remaining length is longer than needed: send its shortest form")
                start = offset + 1 + shift // 7
                stop = start + length
                if stop - offset > self.max_packet:
                    raise self._too_large(stop - offset)
                if stop > len(data):
                    self._missing = stop - len(data)
                    return INCOMPLETE
                return start, stop
        if shift == 28:
            raise MalformedPacket("the remaining length has a fifth byte: send four at most")
        self._missing = 1
        return INCOMPLETE

    def _too_large(self, size: int) -> PacketTooLarge:
        """The refusal of a packet by its header alone, whatever follows. [MQTT-3.2.2-15]"""
        return PacketTooLarge(
            f"a packet of {size} bytes is announced, but only {self.max_packet} are allowed: send smaller ones"
        )


def _block(data: bytes, offset: int, stop: int) -> tuple[bytes, int]:
    """The property block at `offset` of a packet that ends at `stop`, and the offset after it."""
    length = data[offset]
    offset += 1
    if length > 127:
        length, size = decode_varint(data[offset - 1 : min(offset + 3, stop)], 0)
        offset += size - 1
    end = offset + length
    return data[offset:end], end


def _has_flags_of_mqisdp(data: bytes) -> bool:
    """Whether an incomplete CONNECT that has flags is known to be MQIsdp, the only protocol that does not use them.
    Raises MalformedPacket as soon as it is known to be another. [MQTT-2.2.2-2] [MQTT-2.1.3-1]"""
    body = next((at for at, byte in enumerate(data[1:5], 2) if byte < 0x80), len(data))
    name = data[body : body + len(_MQISDP)]
    if not _MQISDP.startswith(name):
        raise flags_error(data[0])
    return name == _MQISDP


def _bare(error: ProtocolError) -> ProtocolError:
    """The error without its causes and traceback, whose frames lead back to the reader: this cycle would keep what was
    read until the garbage collector runs."""
    error.__cause__ = error.__context__ = error.__traceback__ = None
    return error


def _publish_error(length: int, *, is_short: bool) -> ProtocolError:
    if is_short:
        return MalformedPacket(f"a PUBLISH of {length} bytes ends before its topic, packet identifier or properties do")
    # [MQTT-2.3.1-1] [MQTT-2.2.1-3]
    return ProtocolError("packet identifier 0 is not valid: number packets from 1 to 65535")


def _refuse_beginning(data: bytes) -> None:
    """Refuse bytes that do not begin like a CONNECT, and say what they seem to be."""
    for beginning, spoken, setting in _OTHER_PROTOCOLS:
        if data.startswith(beginning):
            raise ProtocolError(
                f"the client speaks {spoken}, which is for a listener with `{setting}`: this one has none"
            )
    if data[0] >> 4 != CONNECT:
        name = NAMES.get(data[0] >> 4, "a reserved packet type")
        raise ProtocolError(f"the first packet is {name}: send CONNECT first")
