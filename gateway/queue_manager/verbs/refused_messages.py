"""Messages that the selector of a handle has refused, or that have another sequence number or offset than it asks for.
They are not read again by each get, nor each time a message arrives.

A message stays as it is under its token; only its backout count changes, and selectors that ask for that are not
remembered.
"""

from __future__ import annotations

import re

from gateway.queue_manager.store.place import NUMBER_BITS, NUMBER_MASK

MOST = 1 << 23
"""How many numbers, from the first that is remembered, are covered for each priority: a megabyte of bits."""
_NOT_ALL = re.compile(rb"[^\xff]")
"""A byte with a bit that is not set."""
_CHANGES = re.compile("redeliver|deliverycount|backout", re.IGNORECASE)


class RefusedMessages:
    """The tokens of the refused messages, one bit for each."""

    __slots__ = ("_bits", "_keeps")

    def __init__(self, selector: str) -> None:
        self._keeps = _CHANGES.search(selector) is None
        self._bits: dict[int, tuple[int, bytearray]] = {}
        """By priority: the number of the first bit, and the bits."""

    def __bool__(self) -> bool:
        return bool(self._bits)

    def add(self, token: int) -> None:
        """Remember a refused message. One too far ahead of the first starts the record of its priority anew; an earlier
        one than the first is not remembered."""
        if not self._keeps:
            return
        rank, number = token >> NUMBER_BITS, token & NUMBER_MASK
        begin, bits = self._bits.get(rank, (number, bytearray()))
        if number - begin >= MOST:
            begin, bits = number, bytearray()
        at = number - begin
        if at < 0:
            return
        self._bits[rank] = begin, bits
        if at >> 3 >= len(bits):
            bits.extend(bytes((at >> 3) + 1 - len(bits)))
        bits[at >> 3] |= 1 << (at & 7)

    def __contains__(self, token: int) -> bool:
        return self.onward(token) != token

    def onward(self, token: int) -> int:
        """Returns the first token, from this one on, that has not been refused."""
        known = self._bits.get(token >> NUMBER_BITS)
        if known is None:
            return token
        begin, bits = known
        at = (token & NUMBER_MASK) - begin
        if not 0 <= at >> 3 < len(bits):
            return token
        byte = at >> 3
        free = ~bits[byte] & 0xFF & -1 << (at & 7)
        if not free:
            following = _NOT_ALL.search(bits, byte + 1)
            if following is None:
                return token - at + 8 * len(bits)
            byte = following.start()
            free = ~bits[byte] & 0xFF
        return token - at + 8 * byte + (free & -free).bit_length() - 1
