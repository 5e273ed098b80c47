"""The bytes that one connection has sent, read as packets by the fast lane in Python. Pure."""

from __future__ import annotations

from gateway.session.staged_run import LEAST

PUBREL = 0x62
"""The first byte of a PUBREL."""


class Chunk:
    """The bytes of one connection. Nothing is read beyond their end."""

    __slots__ = ("at", "data", "end", "longest", "max_packet", "version_5")

    def __init__(self, data: bytes, at: int, *, version_5: bool, max_packet: int, longest: int) -> None:
        self.data = data
        self.at = at
        self.end = len(data)
        self.version_5 = version_5
        self.max_packet = max_packet
        self.longest = longest
        """The most bytes that a payload may have."""

    def _read(self, at: int, first: int) -> tuple[bytes, int, bytes, int, int] | None:
        """Topic, packet identifier, properties, and begin and end of the payload of a PUBLISH that begins with this
        byte. None if there is none, or it is not whole, longer than allowed, or malformed."""
        data = self.data
        if at + 4 > self.end or data[at] != first:
            return None
        length, start = data[at + 1], at + 2
        if length > 127:
            start, length = self._long(at)
        stop = start + length
        if stop > self.end or stop - at > self.max_packet or length < 2:
            return None
        mark = start + 2 + (data[start] << 8 | data[start + 1])
        body, packet_id, block = mark, 1, b""
        if first & 6:
            body += 2
            if body > stop:
                return None
            packet_id = data[mark] << 8 | data[mark + 1]
        if self.version_5:
            if body >= stop:
                return None
            length = data[body]
            body += 1
            if length:
                begin = body
                if length > 127:
                    begin, length = self._long(body - 2)
                body = begin + length
                block = data[begin:body]
        if body > stop or stop - body > self.longest or not packet_id:
            return None
        return data[start + 2 : mark], packet_id, block, body, stop

    def _long(self, at: int) -> tuple[int, int]:
        """For a length of more than one byte that follows `at`: where that which it measures begins, and the length; a
        length beyond all limits if it is not in its shortest form."""
        length = shift = 0
        for byte in self.data[at + 1 : at + 5]:
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return at + 1 + shift // 7, length if byte else 1 << 30
        return at, 1 << 30

    def _one_topic(self, first: int, one: tuple[bytes, int, bytes, int, int]) -> bool:
        """Whether enough publications on one topic follow for a run."""
        if self.end - self.at < LEAST * (4 + len(one[0])):
            return False
        stop = one[4]
        for _ in range(LEAST - 1):
            following = self._read(stop, first)
            if following is None or following[0] != one[0] or following[2]:
                return False
            stop = following[4]
        return True

    def _pubrel(self, at: int) -> int:
        """The packet identifier of a plain PUBREL; 0 if there is none."""
        data = self.data
        if at + 4 > self.end or data[at] != PUBREL or data[at + 1] != 2:
            return 0
        return data[at + 2] << 8 | data[at + 3]
