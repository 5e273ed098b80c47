"""Retained messages: the last known good value of each topic, kept in memory and on a state queue. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gateway.ports.state_queues import RETAINED
from gateway.session.publication import Publication
from gateway.session.record import encode_publication, key_of

if TYPE_CHECKING:
    from gateway.broker.context import Context


class _Kept(Publication):
    """A publication that was retained while this process ran, with its number in the order in which they came."""

    __slots__ = ("number",)
    number: int


class _Node:
    __slots__ = ("below", "publication")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.publication: Publication | None = None


class Retained:
    """A tree of topics by level, so that a filter visits only what it can match."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._root = _Node()
        self._expiring: list[tuple[float, str]] = []
        self.count = 0
        self.bytes = 0
        self.number = 0
        """How many have been retained so far: later ones reach a subscription made now as live publications."""

    def keep(self, publication: Publication) -> None:
        """Store or, with an empty payload, clear. Durable with the open batch. [MQTT-3.3.1-5] [MQTT3-3.3.1-7]
        [MQTT3-3.3.1-10] [MQTT3-3.3.1-11] [MQTT5-3.3.1-6] [MQTT5-3.3.1-7]"""
        if not publication.payload:
            if self.forget(publication.topic.decode()):
                self.context.batch.replace(RETAINED, key_of(publication.topic), None)
            return
        if not self._room(publication):
            self.context.counters.messages_dropped["_none", "other"] += 1
            return
        kept = _Kept(
            publication.topic, publication.payload, publication.qos,
            retain=True, properties=publication.properties, expires=publication.expires,
            client_id=publication.client_id,
        )  # fmt: skip
        self.number += 1
        kept.number = self.number
        self.restore(kept)
        self.context.batch.replace(RETAINED, key_of(publication.topic), encode_publication(kept, 0))

    def _room(self, publication: Publication) -> bool:
        """Whether one more, or a longer one in the place of another, is within the limits."""
        limits, before = self.context.limits, self._find(publication.topic.decode())
        more = _size(publication) - (_size(before) if before is not None else 0)
        return (before is not None or self.count < limits.max_retained) and (
            more <= 0 or self.bytes + more <= limits.max_retained_bytes
        )

    def restore(self, publication: Publication) -> None:
        """Put a retained message into the tree (also at start-up)."""
        node = self._root
        for level in publication.topic.decode().split("/"):
            node = node.below.setdefault(level, _Node())
        self.count += node.publication is None
        self.bytes += _size(publication) - (_size(node.publication) if node.publication is not None else 0)
        node.publication = publication
        if publication.expires:
            if len(self._expiring) > 2 * self.count + 1000:  # most are of messages that have been replaced
                self._expiring = [(one.expires, one.topic.decode()) for one in self if one.expires]
                heapq.heapify(self._expiring)
            else:
                heapq.heappush(self._expiring, (publication.expires, publication.topic.decode()))

    def _find(self, topic: str) -> Publication | None:
        node: _Node | None = self._root
        for level in topic.split("/"):
            node = node.below.get(level) if node is not None else None
        return node.publication if node is not None else None

    def forget(self, topic: str) -> bool:
        """Remove a retained message, and the branches that are empty then; False: there is none."""
        path = [self._root]
        levels = topic.split("/")
        for level in levels:
            node = path[-1].below.get(level)
            if node is None:
                return False
            path.append(node)
        if path[-1].publication is None:
            return False
        self.bytes -= _size(path[-1].publication)
        path[-1].publication = None
        self.count -= 1
        for depth in range(len(levels), 0, -1):
            if path[depth].below or path[depth].publication is not None:
                break
            del path[depth - 1].below[levels[depth - 1]]
        return True

    def matching(self, filter_: str, now: float, until: int = 1 << 62) -> Iterator[Publication]:
        """What a subscription gets that was made when `number` was `until`, without what has expired."""
        for publication in self._walk(self._root, filter_.split("/"), 0):
            if not publication.expired(now) and getattr(publication, "number", 0) <= until:
                yield publication

    def _walk(self, node: _Node, levels: list[str], depth: int) -> Iterator[Publication]:
        if depth == len(levels):
            if node.publication is not None:
                yield node.publication
            return
        level = levels[depth]
        if level == "#":
            yield from self._below(node, depth == 0)
        elif level == "+":
            for name, child in list(node.below.items()):
                if depth or not name.startswith("$"):  # [MQTT-4.7.2-1]
                    yield from self._walk(child, levels, depth + 1)
        else:
            child_ = node.below.get(level)
            if child_ is not None:
                yield from self._walk(child_, levels, depth + 1)

    def _below(self, node: _Node, first: bool) -> Iterator[Publication]:
        if node.publication is not None:
            yield node.publication
        for name, child in list(node.below.items()):
            if not first or not name.startswith("$"):
                yield from self._below(child, False)  # noqa: FBT003 -- only the top level hides `$` topics

    def __iter__(self) -> Iterator[Publication]:
        return self._below(self._root, False)  # noqa: FBT003 -- all of them

    def sweep(self, now: float) -> None:
        """Forget what has expired, durably [MQTT-3.3.2-5]."""
        while self._expiring and self._expiring[0][0] <= now:
            _, topic = heapq.heappop(self._expiring)
            kept = self._find(topic)
            if kept is not None and kept.expired(now):
                self.forget(topic)
                self.context.batch.replace(RETAINED, key_of(kept.topic), None)


def _size(publication: Publication) -> int:
    return len(publication.topic) + len(publication.payload) + len(publication.properties)
