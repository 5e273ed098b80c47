"""Copies of several publications for one session that are alike but for payload and packet identifier. Pure.

Clients send the same kind of message again and again, and get what they are sent in one go, whoever has published it. A
`Copies` is a few objects for all of them; one that is not treated like its neighbours any more becomes an `Item` of its
own (`Outflow.item`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from gateway.mqtt.packets import V5
from gateway.ports.batch import Token
from gateway.session.publication import Publication, varint

STORED_ID = 2
"""Bytes of the packet identifier before the payload in what is stored."""


class Copies:
    """Consecutive copies for one session: columns of payloads, with packet identifiers that count up."""

    __slots__ = (
        "blocks", "bodies", "first", "like", "likes", "qos", "released", "retain", "share", "start", "sub_ids",
        "tokens", "width",
    )  # fmt: skip

    def __init__(
        self,
        like: Publication,
        qos: int,
        sub_ids: tuple[int, ...],
        bodies: list[bytes],
        width: int = 0,
        first: int = 0,
        tokens: Sequence[Token] = (),
        blocks: list[bytes] | None = None,
        share: str = "",
        likes: list[Publication] | None = None,
        *,
        retain: bool = False,
    ) -> None:
        self.like = like
        """A publication that has what is the same for all."""
        self.likes = likes
        """Where they differ in topic or publisher, one for each."""
        self.qos = qos
        self.sub_ids = sub_ids
        self.bodies = bodies
        self.width = width
        """Bytes of each body before the payload."""
        self.first = first
        """The first packet identifier; 0: they have none yet."""
        self.tokens = tokens
        """Empty where they are not stored."""
        self.blocks = blocks
        """The properties of each, where they differ."""
        self.share = share
        """The shared subscription they came through."""
        self.retain = retain
        """Whether they are sent with RETAIN."""
        self.start = 0
        """How many of them have left for the client as a part of their own."""
        self.released = False
        """Whether PUBREC has come for them."""

    def __len__(self) -> int:
        return len(self.bodies) - self.start

    def part(self, begin: int, end: int) -> Copies:
        """Some of them as copies of their own."""
        first = self.first + begin if self.first else 0
        blocks = self.blocks[begin:end] if self.blocks is not None else None
        bodies, tokens = self.bodies[begin:end], self.tokens[begin:end]
        likes = self.likes[begin:end] if self.likes is not None else None
        like = likes[0] if likes else self.like
        return Copies(
            like, self.qos, self.sub_ids, bodies, self.width, first, tokens, blocks, self.share, likes,
            retain=self.retain,
        )  # fmt: skip

    def alike(self) -> list[Copies]:
        """Those that have not left, as copies that are of one topic and publisher each."""
        parts, at = list[Copies](), self.start
        for like, some in groupby((self.likes or ())[at:]):
            end = at + len(list(some))
            part = self.part(at, end)
            part.like, part.likes, at = like, None, end
            parts.append(part)
        return parts or [self.part(at, len(self.bodies))]

    def publication(self, at: int) -> Publication:
        """One of them by itself."""
        like = self.like if self.likes is None else self.likes[at]
        block = like.properties if self.blocks is None else self.blocks[at]
        payload = self.bodies[at][self.width :]
        return Publication(like.topic, payload, like.qos, like.retain, block, like.expires, like.client_id)

    def middle(self, version: int, now: float, alias: bytes = b"") -> tuple[bytes, bytes]:
        """The 5.0 properties of all of them that come before and after those of each; where these do not differ, they
        are in the first, with the length of all. Nothing before 5.0."""
        if version != V5:
            return b"", b""
        like = self.like
        # [MQTT-3.3.2-6]: the interval received minus the time spent waiting here
        front = b"\x02" + max(1, round(like.expires - now)).to_bytes(4, "big") if like.expires else b""
        back = alias + b"".join([b"\x0b" + varint(sub_id) for sub_id in self.sub_ids])
        if self.blocks is not None:
            return front, back
        block = front + like.properties + back
        return varint(len(block)) + block, b""
