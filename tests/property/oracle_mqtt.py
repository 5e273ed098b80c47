"""A reader that is slow and plain on purpose: one frame at a time from one buffer. The batch reader must agree with it.

It shares only the record decoders with it (they have goldens of their own); framing, first bytes, PUBLISH and plain
acknowledgements are written a second time.
"""

from __future__ import annotations

from gateway.errors import MalformedPacket, PacketTooLarge, ProtocolError
from gateway.mqtt.connect import check_version, decode_connect, protocol_version
from gateway.mqtt.decoders import FROM_CLIENT, decode_rare

CLIENT_TYPES = {1, 3, 4, 5, 6, 7, 8, 10, 12, 14}


class Oracle:
    def __init__(self, max_packet: int, version: int = 0) -> None:
        self.max_packet = max_packet
        self.version = version
        self.error: ProtocolError | None = None
        self.buffer = b""

    def feed(self, chunk: bytes) -> list:
        self.buffer += chunk
        packets = []
        while self.error is None:
            try:
                packet = self.next_packet()
            except ProtocolError as error:
                self.error = error
                break
            if packet is None:
                break
            packets.append(packet)
        return packets

    def next_packet(self):
        if not self.buffer:
            return None
        first = self.buffer[0]
        self.check_first(first)
        header, length = self.header()
        if header is None:
            return None
        if header + length > self.max_packet:
            raise PacketTooLarge("too large")
        if len(self.buffer) < header + length:
            return None
        body = self.buffer[header : header + length]
        self.buffer = self.buffer[header + length :]
        return self.packet(first, body)

    def header(self):
        digits = []
        for byte in self.buffer[1:5]:
            digits.append(byte)
            if byte < 128:
                break
        else:
            if len(digits) == 4:
                raise MalformedPacket("a fifth byte")
            return None, 0
        if len(digits) > 1 and digits[-1] == 0:
            raise MalformedPacket("longer than needed")
        return 1 + len(digits), sum((digit % 128) * 128**place for place, digit in enumerate(digits))

    def check_first(self, first: int) -> None:
        kind, flags = first >> 4, first & 15
        if self.version == 0:
            if kind != 1:
                raise ProtocolError("not a CONNECT")
            return
        if kind == 0 or (kind == 15 and self.version != 5):
            raise MalformedPacket("reserved type")
        if kind not in CLIENT_TYPES | ({15} if self.version == 5 else set()) or kind == 1:
            raise ProtocolError("not from a client, or a second CONNECT")
        qos = flags >> 1 & 3
        if kind == 3:
            if qos == 3 or (qos == 0 and flags & 8 and self.version != 3):
                raise MalformedPacket("QoS 3, or DUP at QoS 0")
        elif self.version == 3:
            if kind in {6, 8, 10} and qos == 3:
                raise MalformedPacket("QoS 3")
        elif flags != (2 if kind in {6, 8, 10} else 0):
            raise MalformedPacket("reserved flags")

    def packet(self, first: int, body: bytes):
        if self.version == 0:
            name, level, _ = protocol_version(body)
            self.version = {"MQIsdp": 3, "MQTT": 5 if level == 5 else 4}.get(name, 0)
            check_version(name, level)
            return first, decode_connect(first, body)
        if first >> 4 == 3:
            return self.publish(first, body)
        if first >> 4 in {4, 5, 6, 7} and len(body) == 2 and body != b"\0\0":
            return first, int.from_bytes(body, "big"), 0, b""
        return decode_rare(FROM_CLIENT[self.version], first, body, self.version)

    def publish(self, first: int, body: bytes):
        topic, rest = self.cut(body, 2)
        packet_id, properties = 1, b""
        if first & 6:
            if len(rest) < 2:
                raise MalformedPacket("no packet identifier")
            packet_id, rest = int.from_bytes(rest[:2], "big"), rest[2:]
        if self.version == 5:
            properties, rest = self.block(rest)
        if packet_id == 0:
            raise ProtocolError("packet identifier 0")
        return first, topic, packet_id if first & 6 else 0, properties, rest

    def cut(self, data: bytes, size: int) -> tuple[bytes, bytes]:
        length = int.from_bytes(data[:size], "big")
        if len(data) < size + length:
            raise MalformedPacket("short")
        return data[size : size + length], data[size + length :]

    def block(self, data: bytes) -> tuple[bytes, bytes]:
        kept, self.buffer = self.buffer, b"?" + data
        try:
            header, length = self.header()
        finally:
            self.buffer = kept
        if header is None or len(data) < header - 1 + length:
            raise MalformedPacket("short")
        return data[header - 1 : header - 1 + length], data[header - 1 + length :]
