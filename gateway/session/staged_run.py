"""QoS 2 publications of one topic, staged as the messages they will be, so that their PUBREL only moves them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.ports.batch import Address, Token

LEAST, MOST = 4, 512
"""Publications in a run: fewer are staged as records, more are several runs."""


class StagedRun:
    """Consecutive staged publications with one head: columns of packet identifiers, bodies and tokens."""

    __slots__ = ("address", "bodies", "first", "head", "ids", "longest", "size", "tokens", "topic", "width")

    def __init__(self, topic: bytes, first: int, address: Address, head: bytes, width: int) -> None:
        self.topic = topic
        self.first = first
        """The first byte of their packets."""
        self.address = address
        """Their destination."""
        self.head = head
        self.width = width
        """Bytes of each body before the payload."""
        self.ids: list[int] = []
        self.bodies: list[bytes] = []
        self.tokens: Sequence[Token] = ()
        """Empty until they are durable."""
        self.size = self.longest = 0
        """Bytes of all bodies, and of the longest."""

    def plain(self, at: int) -> tuple[bytes, bytes, int]:
        """One of them as a publication that is staged as a record."""
        return self.topic, self.ids[at].to_bytes(2, "little") + self.bodies[at][self.width :], self.first
