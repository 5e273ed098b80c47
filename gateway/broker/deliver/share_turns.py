"""Whose turn it is to take a message of a shared subscription. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, takewhile
from typing import NamedTuple

from gateway.broker.context import Context
from gateway.broker.publish.route import Receiver, Route, Shared
from gateway.session.outflow import NO_LIMIT
from gateway.session.publication import Publication
from gateway.session.session import Session


class Chosen(NamedTuple):
    """The members of a shared subscription that take some publications in turn."""

    group: Shared
    members: list[Receiver]
    """Each takes the next one; then it begins again."""
    last: Session
    """The one that takes the last of them."""


class ShareTurns:
    """The members of shared subscriptions, one after the other [MQTT-4.8.2]."""

    def __init__(self, context: Context, full: Callable[[Receiver, Publication], bool]) -> None:
        self._context = context
        self._full = full
        """Whether a session has no room for a copy."""

    def choose(self, group: Shared, publication: Publication) -> Receiver | None:
        """The member whose turn it is; those first that can take the message now, then those that have room, and last
        those for which it is too large."""
        found = self._able(group, 1, publication)
        if found:
            self.take(group, found[0].session)
            return found[0]
        passed, without = group.sharers.rings[1], None
        for session in self._looked_at(group):
            member = group.member(session) if session.connection is not None or session.durable else None
            if member is not None and not self._full(member, publication) and self._fits(member, publication):
                if session in passed:
                    passed.move_to_end(session)
                return member
            without = without or member
        return without

    def is_full(self, group: Shared, publication: Publication) -> bool:
        """Whether a shared subscription has members and none of them has room."""
        members = filter(None, map(group.member, self._looked_at(group)))
        first = next(members, None)
        return first is not None and all(self._full(member, publication) for member in chain((first,), members))

    @staticmethod
    def _looked_at(group: Shared) -> Iterator[Session]:
        """Everybody, until there is one with room; those before it are the last next time."""
        turns, passed = group.sharers.rings
        yield from turns
        for _ in range(len(passed)):
            session = next(iter(passed))
            yield session
            passed.move_to_end(session)

    def _able(self, group: Shared, count: int, publication: Publication | None = None) -> list[Receiver]:
        """So many that can take a message now, this one if it is known, from the one whose turn it is, or all."""
        members, unable = list[Receiver](), list[Session]()
        for session in group.sharers.rings[0]:
            if not session.can_take:
                unable.append(session)
            elif (member := group.member(session)) and (publication is None or self._fits(member, publication)):
                members.append(member)
                if len(members) == count:
                    break
        for session in unable:
            session.be_passed_over(group.sharers)
        return members

    def _fits(self, member: Receiver, publication: Publication) -> bool:
        """Whether a copy is no larger than the member's client takes: otherwise it is for another member
        [MQTT-3.1.2-25]."""
        session, outflow = member.session, member.session.outflow
        if session.connection is None or outflow.max_packet == NO_LIMIT:
            return True
        first = 0x30 | min(publication.qos, member.qos) << 1
        before, after = publication.wire(outflow.version, first, self._context.now, member.sub_ids)
        return len(before) + (2 if first & 6 else 0) + len(after) <= outflow.max_packet

    def can_take(self, route: Route) -> bool:
        """Whether somebody of each shared subscription can take a publication now."""
        return all(self._able(group, 1) for group in route.shared)

    def in_turn(self, group: Shared, count: int) -> Chosen | None:
        """Those that can take a publication now, from the one whose turn it is: as many as there are publications, or
        all of them. None: there are none."""
        members = self._able(group, count)
        return Chosen(group, members, members[(count - 1) % len(members)].session) if members else None

    def take(self, group: Shared, last: Session) -> None:
        """From now on it is the turn of the one behind this one."""
        turns = group.sharers.rings[0]
        for session in list(takewhile(lambda one: one is not last, turns)):
            turns.move_to_end(session)
        turns.move_to_end(last)
