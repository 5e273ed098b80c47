"""Subscriptions: from a topic to its subscribers, including shared groups.

The cost of `match` depends on the levels of the topic and the number of matches. Other subscriptions matter only where
many begin like the topic with `+` in place of some levels: `entries_among` finds that out, and `walk` goes through them
in steps. Results may be cached by topic as long as `version` stays the same. This module knows neither sessions nor
packets: a subscriber is any hashable value.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from gateway.mqtt.topics import split_shared
from gateway.routing.trie import FilterTrie

S = TypeVar("S", bound=Hashable)


class Interest(NamedTuple):
    """What a subscriber asked for with one filter (or, merged, with several)."""

    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifiers: tuple[int, ...] = ()
    echoed: Interest | None = None
    """The interest in the subscriber's own publications, if only some of its filters are No Local."""


class Rings(NamedTuple, Generic[S]):
    """The members of a shared subscription, each in one of these; the next one comes first."""

    turns: OrderedDict[S, None]
    """Members that wait for their turn."""
    passed: OrderedDict[S, None]
    """Members that cannot take a message at once."""
    full: OrderedDict[S, int]
    """Members that have no room, each with the payload size from which on that is so."""


class Sharers(dict[S, Interest], Generic[S]):
    """The members of one shared subscription, and whose turn it is to get a message. A member that cannot take one is
    passed over and not asked again until it is put back, because there may be thousands."""

    __slots__ = ("_rings", "full_from")

    def __init__(self) -> None:
        self._rings: Rings[S] | None = None
        """Made on first use: most have one member, and many get no message."""
        self.full_from = 0
        """No full member has room for a payload of this many bytes."""

    @property
    def rings(self) -> Rings[S]:
        """In which ring each member is."""
        if self._rings is None:
            self._rings = Rings(OrderedDict.fromkeys(self), OrderedDict(), OrderedDict())
        return self._rings

    def join(self, subscriber: S, interest: Interest) -> None:
        """Add a subscriber, whose turn comes last, or replace its options; with another QoS it may have room again."""
        if self._rings is not None:
            if subscriber in self:
                self.put_back(subscriber)
            else:
                self._rings.turns[subscriber] = None
        self[subscriber] = interest

    def leave(self, subscriber: S) -> None:
        """Remove a subscriber."""
        del self[subscriber]
        for ring in self._rings or ():
            ring.pop(subscriber, None)

    def pass_over(self, subscriber: S) -> None:
        """Take a member out of its turn until it is put back."""
        turns, passed, _ = self.rings
        del turns[subscriber]
        passed[subscriber] = None

    def fill_up(self, subscriber: S, size: int) -> None:
        """Take a member out also for payloads of this many bytes or more, for which it has no room."""
        turns, passed, full = self.rings
        turns.pop(subscriber, None)
        passed.pop(subscriber, None)
        full[subscriber] = size
        self.full_from = max(self.full_from, size)

    def put_back(self, subscriber: S) -> None:
        """Let a member take messages again, if it is still one."""
        turns, passed, full = self.rings
        if subscriber in passed or subscriber in full:
            passed.pop(subscriber, None)
            full.pop(subscriber, None)
            turns[subscriber] = None


class Members(Generic[S]):
    """The subscribers of one filter: `direct` ones, and `shared` ones by share name."""

    __slots__ = ("direct", "shared")

    def __init__(self) -> None:
        self.direct: dict[S, Interest] = {}
        self.shared: dict[str, Sharers[S]] = {}


class Group(NamedTuple, Generic[S]):
    """One shared subscription: one of `members` gets each message."""

    name: str
    filter: str
    members: Sharers[S]


class Matched(NamedTuple, Generic[S]):
    """Who gets a publication: everyone in `direct`, one of each group in `groups`."""

    direct: dict[S, Interest]
    groups: list[Group[S]]


class Subscriptions(Generic[S]):
    """All subscriptions of a gateway process."""

    __slots__ = ("_by_subscriber", "_count", "_trie", "version")

    def __init__(self) -> None:
        self._trie: FilterTrie[tuple[str, Members[S]]] = FilterTrie()
        self._by_subscriber: dict[S, dict[str, Interest]] = {}
        self._count = 0
        self.version = 0

    def __len__(self) -> int:
        return self._count

    def add(self, subscriber: S, filter: str, interest: Interest) -> bool:  # noqa: A002
        """Subscribe, or replace the options of the same filter; returns True if it is new [MQTT-3.8.4-3]."""
        share, inner = split_shared(filter)
        levels = inner.split("/")
        entry = self._trie.get(levels)
        if entry is None:
            entry = (inner, Members())
            self._trie.put(levels, entry)
        members = entry[1].shared.get(share) if share else entry[1].direct
        if members is None:
            members = entry[1].shared[share] = Sharers()
        new = subscriber not in members
        if isinstance(members, Sharers):
            members.join(subscriber, interest)
        else:
            members[subscriber] = interest
        mine = self._by_subscriber.setdefault(subscriber, {})
        self._count += filter not in mine
        mine[filter] = interest
        self.version += 1
        return new

    def remove(self, subscriber: S, filter: str) -> bool:  # noqa: A002
        """Unsubscribe; returns False if there was no such subscription [MQTT-3.10.4-1]."""
        mine = self._by_subscriber.get(subscriber)
        if mine is None or mine.pop(filter, None) is None:
            return False
        self._count -= 1
        if not mine:
            del self._by_subscriber[subscriber]
        self._detach(subscriber, *split_shared(filter))
        self.version += 1
        return True

    def remove_all(self, subscriber: S) -> int:
        """End every subscription of a subscriber; returns how many there were."""
        filters = self.leave(subscriber)
        for filter_ in filters:
            self.detach(subscriber, filter_)
        return len(filters)

    def leave(self, subscriber: S) -> list[str]:
        """Remove a subscriber that does not come back. Returns its filters, each of which matches it until it is
        detached."""
        mine = self._by_subscriber.pop(subscriber, {})
        self._count -= len(mine)
        self.version += bool(mine)
        return list(mine)

    def detach(self, subscriber: S, filter: str) -> None:  # noqa: A002
        """Let a filter no longer match a subscriber that has left."""
        self._detach(subscriber, *split_shared(filter))

    def _detach(self, subscriber: S, share: str, inner: str) -> None:
        levels = inner.split("/")
        entry = self._trie.get(levels)
        if entry is None:
            return
        members = entry[1]
        if share:
            members.shared[share].leave(subscriber)
            if not members.shared[share]:
                del members.shared[share]
        else:
            del members.direct[subscriber]
        if not members.direct and not members.shared:
            self._trie.pop(levels)

    def of(self, subscriber: S) -> dict[str, Interest]:
        """The subscriptions of one subscriber, by filter as it was sent."""
        return self._by_subscriber.get(subscriber, {})

    def match(self, topic: str) -> Matched[S]:
        """Who gets a publication on `topic`: each subscriber once, with its overlapping interests merged."""
        return matched(self.entries(topic))

    def entries(self, topic: str) -> list[tuple[str, Members[S]]]:
        """The filters that match `topic`, and their subscribers."""
        return self._trie.match(topic)

    def entries_among(self, topic: str, most: int) -> list[tuple[str, Members[S]]] | None:
        """The same; None if more than `most` places would have to be visited."""
        return self._trie.match_among(topic, most)

    def walk(self, topic: str) -> Iterator[tuple[str, Members[S]] | None]:
        """The same, step by step; yields None where nothing is found."""
        return self._trie.walk(topic)

    def group(self, filter: str) -> Group[S] | None:  # noqa: A002
        """The shared subscription with this filter, as `$share/name/filter`, if it has members."""
        share, inner = split_shared(filter)
        entry = self._trie.get(inner.split("/"))
        members = entry[1].shared.get(share) if entry is not None else None
        return Group(share, inner, members) if members else None

    def __iter__(self) -> Iterator[tuple[S, str, Interest]]:
        for subscriber, filters in self._by_subscriber.items():
            for filter_, interest in filters.items():
                yield subscriber, filter_, interest


def width(entries: Sequence[tuple[str, Members[S]]]) -> int:
    """How many copies a publication that these filters match may have; a shared subscription gets one."""
    return sum(len(members.direct) + len(members.shared) for _, members in entries)


def matched(entries: Sequence[tuple[str, Members[S]]]) -> Matched[S]:
    """Who gets a publication that these filters match: each subscriber once, with its overlapping interests merged."""
    if len(entries) == 1 and not entries[0][1].shared:
        return Matched(entries[0][1].direct.copy(), [])
    direct: dict[S, Interest] = {}
    several: dict[S, list[Interest]] = {}
    groups: list[Group[S]] = []
    for filter_, members in entries:
        for subscriber, interest in members.direct.items():
            first = direct.setdefault(subscriber, interest)
            if first is not interest:
                several.setdefault(subscriber, [first]).append(interest)
        if members.shared:
            groups += [Group(name, filter_, inside) for name, inside in members.shared.items()]
    for subscriber, interests in several.items():
        direct[subscriber] = merged(interests)
    return Matched(direct, groups)


def merged(interests: Sequence[Interest]) -> Interest:
    """Overlapping subscriptions deliver once, at the highest QoS, with every identifier [MQTT-3.3.5-1] [MQTT-3.3.4-2]
    [MQTT-3.3.4-3] [MQTT-3.3.4-4]. Those that are No Local do not count for what the subscriber itself published."""
    qos, no_local, as_published, handling, identifiers, echoed = zip(*interests, strict=True)
    unlike = any(no_local) or any(echoed)
    found = Interest(
        max(qos), all(no_local), any(as_published), min(handling),
        tuple(chain.from_iterable(identifiers)),
    )  # fmt: skip
    if found.no_local or not unlike:
        return found
    own = [interest.echoed or interest for interest in interests if not interest.no_local]
    return found._replace(echoed=own[0] if len(own) == 1 else merged(own))
