"""Whose turn it is to take a message of a shared subscription. Pure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from gateway.broker.context import Context
from gateway.broker.publish.route import Receiver, Route, Shared
from gateway.session.outflow import NO_LIMIT
from gateway.session.publication import Publication

_MAX_TURNS = 10_000


class Chosen(NamedTuple):
    """The members of a shared subscription that take some publications in turn."""

    group: Shared
    members: list[Receiver]
    """Each takes the next one; then it begins again."""
    turn: int
    """Whose turn it is afterwards."""


class ShareTurns:
    """The members of shared subscriptions, one after the other [MQTT-4.8.2]."""

    def __init__(self, context: Context, full: Callable[[Receiver, Publication], bool]) -> None:
        self._context = context
        self._full = full
        """Whether a session has no room for a copy."""
        self._turns: dict[str, int] = {}
        """Whose turn it is, by shared subscription."""

    def choose(self, group: Shared, publication: Publication) -> Receiver | None:
        """The member whose turn it is; those first that can take the message now, then those that have room, and last
        those for which it is too large."""
        if len(self._turns) > _MAX_TURNS:
            self._turns.clear()
        sessions = group.sessions
        turn = self._turns.get(group.name, 0) % (len(sessions) or 1)
        without: Receiver | None = None
        for at in group.places(self._context.comings, turn):
            member = group.member(sessions[at]) if sessions[at].can_take else None
            if member is not None and self._fits(member, publication):
                self._turns[group.name] = at + 1
                return member
        for at in chain(range(turn, len(sessions)), range(turn)):
            session = sessions[at]
            member = group.member(session) if session.connection is not None or session.durable else None
            if member is not None and not self._full(member, publication) and self._fits(member, publication):
                self._turns[group.name] = at + 1
                return member
            without = without or member
        self._turns[group.name] = turn + 1
        return without

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
        return all(self.in_turn(group, 1) is not None for group in route.shared)

    def in_turn(self, group: Shared, count: int) -> Chosen | None:
        """Those that can take a publication now, from the one whose turn it is: as many as there are publications, or
        all of them. None: there are none."""
        sessions, turns = group.sessions, list[int]()
        turn = self._turns.get(group.name, 0) % (len(sessions) or 1)
        members: list[Receiver] = []
        for at in group.places(self._context.comings, turn):
            if sessions[at].can_take and (member := group.member(sessions[at])) is not None:
                members.append(member)
                turns.append(at + 1)
                if len(members) == count:
                    break
        return Chosen(group, members, turns[(count - 1) % len(turns)]) if members else None

    def take(self, group: Shared, turn: int) -> None:
        """From now on it is the turn of that session, or of the first one."""
        if len(self._turns) > _MAX_TURNS:
            self._turns.clear()
        self._turns[group.name] = turn
