"""Usual publications from other gateways: for everybody here who subscribes, none of whom has moved of late. They are
handed over many at a time, with the same result as one by one (`FromOthers`). Pure.

Consecutive publications of one client on one topic are relayed as the fast lane relays them. For the others, the rows
of each session are made in one go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from gateway.broker.context import Context
from gateway.broker.deliver.fan_out import FanOut
from gateway.broker.publish.columns import length_of
from gateway.session.outflow import Item
from gateway.session.publication import Publication
from gateway.session.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.broker.gateways.forwarded import Usual
    from gateway.broker.publish.route import Route

LEAST = 4
"""At least this many publications that are alike make a run."""
_FRONT = attrgetter("front")


class Part(NamedTuple):
    """Publications that are handed over together."""

    found: list[Usual]
    is_run: bool
    """Whether all are of one client and on one topic."""


@dataclass(slots=True, eq=False)
class _Share:
    """What a session gets."""

    items: list[Item] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)
    """The heads of what a durable session stores."""
    size: int = 0


class Incoming:
    """Hands usual publications over."""

    def __init__(self, context: Context, fan_out: FanOut, route: Callable[[Publication], Route]) -> None:
        self.context = context
        self.fan_out = fan_out
        self.route = route

    def hand_over(self, part: Part) -> bool:
        """Hand a part over with the open batch. Returns False, with nothing done, if a session has no room for all of
        it, or gets one of the publications in a way of its own."""
        return self._hand_over_run(part.found) if part.is_run else self._hand_over_each(part.found)

    def _hand_over_run(self, run: list[Usual]) -> bool:
        like = _publication(run[0])
        route, payloads, blocks = self.route(like), [one.payload for one in run], [one.block for one in run]
        if not route.receivers:
            return True
        size, are_mixed = length_of(payloads), any(blocks) and not all(blocks)
        if are_mixed or _is_apart(route, like) or not self.fan_out.admits(route, len(run), size):
            self.fan_out.hand_on()
            return False
        said = blocks if blocks[0] else None
        relay = partial(self.fan_out.relay, route, like.client_id, payloads, size, said, like.expires)
        if like.qos:
            relay()
        else:  # at most once; and after what its publisher had been acknowledged before
            self.context.batch.after.append(relay)
        self.fan_out.hand_on()
        return True

    def _hand_over_each(self, found: list[Usual]) -> bool:
        shares: dict[Session, _Share] = {}
        sent: Counter[int] = Counter()
        at_once, later = list[tuple[Session, Item]](), list[tuple[Session, Item]]()
        for one in found:
            publication = _publication(one)
            route = self.route(publication)
            if _is_apart(route, publication):
                return False
            prefixes = {} if publication.properties or publication.expires else route.prefixes
            sent[publication.qos] += len(route.receivers)
            for session, highest, _, sub_ids in route.receivers:
                item = Item(publication, min(publication.qos, highest), False, sub_ids)  # noqa: FBT003 -- not retained
                if not item.qos:
                    (at_once if publication.qos else later).append((session, item))
                    continue
                share = shares.get(session)
                if share is None:
                    share = shares[session] = _Share()
                share.items.append(item)
                share.size += len(one.payload)
                if session.durable:
                    share.heads.append(self.fan_out.prefix(prefixes, item))
        wanted = [(session, len(share.items), share.size) for session, share in shares.items()]
        is_much = sum(size for _, _, size in wanted) > self.context.copies_left
        if is_much or self.context.limits.any_refuses or not self.fan_out.have_room(wanted):
            return False
        for session, share in shares.items():
            self.fan_out.copy_items(session, share.items, share.heads, share.size)
        self._send(at_once)
        for qos in (1, 2):
            if sent[qos]:
                self.context.counters.mqtt_publish_sent["_none", qos] += sent[qos]
        if later:
            self.context.batch.after.append(partial(self._send_later, later))
        return True

    def _send(self, copies: list[tuple[Session, Item]]) -> None:
        for session, item in copies:
            self.fan_out.send_at_once(session, item)

    def _send_later(self, copies: list[tuple[Session, Item]]) -> None:
        """Send what was published at QoS 0."""
        self.context.counters.mqtt_publish_sent["_none", 0] += len(copies)
        self._send(copies)


def parts(found: list[Usual]) -> Iterator[Part]:
    """Split publications into runs that are alike, and what is between them."""
    single: list[Usual] = []
    for _, some in groupby(found, _FRONT):
        alike = list(some)
        if len(alike) < LEAST:
            single += alike
            continue
        if single:
            yield Part(single, is_run=False)
            single = []
        yield Part(alike, is_run=True)
    if single:
        yield Part(single, is_run=False)


def _is_apart(route: Route, publication: Publication) -> bool:
    """Whether some receiver gets the publication with RETAIN set."""
    return publication.retain and any(one.retain_as_published for one in route.receivers)


def _publication(one: Usual) -> Publication:
    front = one.front
    return Publication(front.topic, one.payload, front.qos, front.retain, one.block, front.expires, front.client_id)
