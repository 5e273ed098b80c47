"""Retained messages: the last known good value of each topic, kept in memory and on a state queue. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gateway.broker.publish.kept_routes import leaving
from gateway.ports.batch import Replace
from gateway.ports.state_queues import RETAINED
from gateway.session.due import Due
from gateway.session.publication import Publication
from gateway.session.record import STORED_IDS, encode_prefix, key_of

if TYPE_CHECKING:
    from gateway.broker.context import Context


_NEW = tuple.__new__
MOST_RECORDS = 32_768
"""The most topics whose last record is remembered."""


class _Kept(Publication):
    """A publication that was retained while this process ran, with its number in the order in which they came."""

    __slots__ = ("number",)
    number: int


class Latest:
    """The last record on a topic where something was retained that has nothing but a payload. What the same client
    retains there next differs from it in the payload alone: no publication is made of it before somebody wants it. The
    compiled lane reads and writes these slots."""

    __slots__ = ("client_id", "front", "name", "node", "number", "qos", "record", "size", "topic")

    def __init__(self, node: Node, kept: _Kept) -> None:
        self.node = node
        self.topic = kept.topic
        self.name = RETAINED, key_of(kept.topic)
        """Queue and key of the record."""
        self.record: bytes | None = None
        """The record; None: there is a publication instead."""
        self.size = len(kept.payload)
        self.number = kept.number
        """The number of the publication in the order in which they came."""
        self.belongs_to(kept.client_id, kept.qos)

    def belongs_to(self, client_id: str, qos: int) -> None:
        """Set whose the next record is, and at which QoS."""
        self.client_id, self.qos = client_id, qos
        like = Publication(self.topic, b"", qos, retain=True, client_id=client_id)
        self.front = encode_prefix(like, qos, True, ()) + STORED_IDS[0]  # noqa: FBT003 -- RETAIN
        """The record before the payload."""

    def replace(self, payload: bytes, number: int) -> Replace:
        """Put another payload in the place of what is retained; returns the change to be committed."""
        self.record = record = self.front + payload
        self.size, self.number = len(payload), number
        self.node.forget_publication()
        return _NEW(Replace, (*self.name, record))

    def publication(self) -> _Kept | None:
        """Make the publication of what is retained only as a record, which is not needed any more then. None if there
        is no record."""
        if self.record is None:
            return None
        payload, self.record = self.record[len(self.front) :], None
        made = _Kept(self.topic, payload, self.qos, retain=True, client_id=self.client_id)
        made.number = self.number
        return made


class Node:
    """A topic, or a level of topics, in the tree of retained messages."""

    __slots__ = ("below", "kept", "latest")

    def __init__(self) -> None:
        self.below: dict[str, Node] = {}
        self.kept: Publication | None = None
        self.latest: Latest | None = None

    @property
    def publication(self) -> Publication | None:
        """What is retained on this topic."""
        if self.kept is None and self.latest is not None:
            self.kept = self.latest.publication()
        return self.kept

    @publication.setter
    def publication(self, publication: Publication | None) -> None:
        self.kept, self.latest = publication, None

    def forget_publication(self) -> None:
        """Forget the publication, which is older than the record."""
        self.kept = None

    def settle(self) -> None:
        """Keep the publication alone, without a record."""
        self.publication = self.publication


def nobody_is_told(_topic: str) -> None:
    """Stands for `on_change` where there are no other gateways."""


class Retained:
    """The retained messages: a tree of topics by level, so that a filter visits only what it can match."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._root = Node()
        self._expiring = Due(self._expires_at)
        self._latest: dict[bytes, Latest] = {}
        """The last records by topic; each is the one of its node."""
        self.count = 0
        self.bytes = 0
        self.number = 0
        """How many have been retained so far: later ones reach a subscription made now as live publications."""
        self.on_change: Callable[[str], None] = nobody_is_told
        """Told of what is retained or cleared with the open batch."""
        self.has_others: Callable[[], bool] = lambda: False
        """Whether other gateways retain too; then a topic is cleared even if nothing is known of it here yet."""
        self.is_others: Callable[[str], bool] = lambda _topic: False
        """Asked when a message has expired: whether another gateway may have replaced what lies on the queue, which is
        then looked at first."""

    def keep(self, publication: Publication) -> None:
        """Store a publication or, with an empty payload, clear its topic. Durable with the open batch. [MQTT-3.3.1-5]
        [MQTT3-3.3.1-7] [MQTT3-3.3.1-10] [MQTT3-3.3.1-11] [MQTT5-3.3.1-6] [MQTT5-3.3.1-7]"""
        batch, topic = self.context.batch, publication.topic.decode()
        node = self._node(topic)
        before = node.publication if node is not None else None
        batch.undone_by(self._put_back, topic, before)
        if not publication.payload:
            if self.forget(topic) or self.has_others():
                batch.replace(RETAINED, key_of(publication.topic), None)
                self.on_change(topic)
            return
        more = _size(publication) - (_size(before) if before is not None else 0)
        if not self._room(more, is_new=before is None):
            self.context.counters.messages_dropped["_none", "other"] += 1
            return
        kept = _Kept(
            publication.topic, publication.payload, publication.qos,
            retain=True, properties=publication.properties, expires=publication.expires,
            client_id=publication.client_id,
        )  # fmt: skip
        self.number += 1
        kept.number = self.number
        node = self.restore(kept)
        if before is None or kept.properties or kept.expires:  # many topics are retained on once
            front = encode_prefix(kept, kept.qos, kept.retain, ()) + STORED_IDS[0]
            batch.replace(RETAINED, key_of(kept.topic), front + kept.payload)
        else:
            if len(self._latest) >= MOST_RECORDS:
                for each in leaving(self._latest):
                    self._latest.pop(each).node.settle()
            node.latest = latest = Latest(node, kept)
            self._latest[kept.topic] = latest
            batch.replace(*latest.name, latest.front + kept.payload)
        self.on_change(topic)

    def again(self, topic: bytes, payload: bytes, qos: int, client_id: str) -> bool:
        """Store what a client retains again and again on a topic with nothing but its payload. Returns False if `keep`
        has to do it."""
        batch, latest = self.context.batch, self._latest.get(topic)
        if latest is None or not payload or batch.undo is not None:
            return False
        more = len(payload) - latest.size
        if more > 0 and self.bytes + more > self.context.limits.max_retained_bytes:
            return False
        if latest.client_id != client_id or latest.qos != qos:
            latest.belongs_to(client_id, qos)
        latest.client_id = client_id  # this object, which the compiled lane knows again
        self.bytes += more
        self.number += 1
        batch.replaces[latest.name] = latest.replace(payload, self.number)
        if self.on_change is not nobody_is_told:
            self.on_change(topic.decode())
        return True

    def begin(self) -> tuple[dict[bytes, Latest], int]:
        """The last records by topic, for callers that do by themselves what `again` does where there is room for all of
        it, and the number for everything they retain; they report how many more bytes it is. The records are empty
        where somebody is told of each change."""
        self.number += 1
        alone = self.on_change is nobody_is_told and self.context.batch.undo is None
        return self._latest if alone else {}, self.number

    def _put_back(self, topic: str, before: Publication | None) -> None:
        """Restore what a topic had before a publication that is taken back."""
        if before is None:
            self.forget(topic)
        else:
            self.restore(before)

    def has_room(self, count: int, size: int) -> bool:
        """Whether this many more messages, of this many bytes together, are within the limits, whatever they
        replace."""
        limits = self.context.limits
        return self.count + count <= limits.max_retained and self.bytes + size <= limits.max_retained_bytes

    def _room(self, more: int, *, is_new: bool) -> bool:
        """Whether one more message, or a longer one in the place of another, is within the limits."""
        limits = self.context.limits
        return (not is_new or self.count < limits.max_retained) and (
            more <= 0 or self.bytes + more <= limits.max_retained_bytes
        )

    def restore(self, publication: Publication) -> Node:
        """Put a retained message into the tree (also at start-up)."""
        node = self._root
        for level in publication.topic.decode().split("/"):
            below = node.below.get(level)
            if below is None:
                below = node.below[level] = Node()
            node = below
        before = node.publication
        self.count += before is None
        self.bytes += _size(publication) - (_size(before) if before is not None else 0)
        self._latest.pop(publication.topic, None)
        node.publication = publication
        if publication.expires and (before is None or before.expires != publication.expires):
            self._expiring.note(publication.expires, publication.topic.decode())
        return node

    def _expires_at(self, time: float, topic: str) -> bool:
        """Whether the message retained on a topic expires at this time: most of what is noted concerns messages that
        have been replaced."""
        kept = self.find(topic)
        return kept is not None and kept.expires == time

    def node(self, topic: str | None) -> Node | None:
        """A topic's place in the tree; for None, the root."""
        return self._root if topic is None else self._node(topic)

    def _node(self, topic: str) -> Node | None:
        node = self._root
        for level in topic.split("/"):
            below = node.below.get(level)
            if below is None:
                return None
            node = below
        return node

    def find(self, topic: str) -> Publication | None:
        """The publication retained on a topic, or None."""
        node = self._node(topic)
        return node.publication if node is not None else None

    def forget(self, topic: str) -> bool:
        """Remove a retained message, and the branches that are empty then. Returns False if there is none."""
        path = [self._root]
        levels = topic.split("/")
        for level in levels:
            node = path[-1].below.get(level)
            if node is None:
                return False
            path.append(node)
        publication = path[-1].publication
        if publication is None:
            return False
        self.bytes -= _size(publication)
        self._latest.pop(publication.topic, None)
        path[-1].publication = None
        self.count -= 1
        for depth in range(len(levels), 0, -1):
            if path[depth].below or path[depth].publication is not None:
                break
            del path[depth - 1].below[levels[depth - 1]]
        return True

    def matching(self, filter_: str, now: float, until: int = 1 << 62) -> Iterator[Publication | None]:
        """What a subscription gets that was made when `number` was `until`, without what has expired. One place of the
        tree is looked at in each step; yields None where nothing is."""
        for publication in self._walk(filter_.split("/"), hide=True):
            if publication is None or publication.expired(now) or getattr(publication, "number", 0) > until:
                yield None
            else:
                yield publication

    def _walk(self, levels: list[str], *, hide: bool) -> Iterator[Publication | None]:
        """Walk the places that a filter matches. `hide`: wildcards in the first level do not match topics that begin
        with `$` [MQTT-4.7.2-1]."""
        last = len(levels)
        waiting: list[tuple[Iterator[Node], int]] = [(iter((self._root,)), 0)]
        while waiting:
            nodes, depth = waiting[-1]
            node = next(nodes, None)
            if node is None:
                waiting.pop()
                continue
            level = levels[depth] if depth < last else None
            if level is None or level == "#":
                yield node.publication
            else:
                yield None
            if level in {"#", "+"}:
                below = list(node.below.values())
                if hide and node is self._root:
                    below = [child for name, child in node.below.items() if not name.startswith("$")]
                waiting.append((iter(below), depth if level == "#" else depth + 1))
            elif level is not None:
                child = node.below.get(level)
                if child is not None:
                    waiting.append((iter((child,)), depth + 1))

    def __iter__(self) -> Iterator[Publication]:
        return (one for one in self._walk(["#"], hide=False) if one is not None)

    def sweep(self, now: float) -> Iterator[None]:
        """Forget messages that have expired, durably [MQTT-3.3.2-5], one at each step."""
        for topic in self._expiring.over(now):
            kept = self.find(topic)
            if kept is not None and kept.expired(now):
                self.forget(topic)
                if not self.is_others(topic):
                    self.context.batch.replace(RETAINED, key_of(kept.topic), None)
            yield


def _size(publication: Publication) -> int:
    return len(publication.topic) + len(publication.payload) + len(publication.properties)
