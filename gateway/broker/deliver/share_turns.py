"""Which member of a shared subscription takes the next message. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.broker.context import Context
from gateway.broker.publish.route import Receiver, Route, Shared
from gateway.session.outflow import NO_LIMIT
from gateway.session.publication import Publication
from gateway.session.session import Session

if TYPE_CHECKING:
    from collections import OrderedDict


_LEAST_PACKET = 4
"""The fewest bytes of a PUBLISH beside topic and payload."""
MOST_ASKED = 100
"""How many members without room in their windows are passed in search of a connected one for a message of QoS 0; and
how many members are asked in vain before what is known of each is used, all at once, to tell which are still worth
asking."""
Could = Callable[[Session], bool]
"""Whether a member is to be asked at all."""


class Chosen(NamedTuple):
    """The members of a shared subscription that take some publications in turn."""

    group: Shared
    members: list[Receiver]
    """The members, each of which takes the next publication; after the last the first is next."""
    last: Session
    """The member that takes the last publication."""


class ShareTurns:
    """Lets the members of shared subscriptions take turns [MQTT-4.8.2]."""

    def __init__(
        self, context: Context, full: Callable[[Receiver, Publication], bool],
        full_from: Callable[[Session, int], int | None],
    ) -> None:  # fmt: skip
        self._context = context
        self._full = full
        """Whether a session has no room for a copy."""
        self._full_from = full_from
        """From which size of payload on a session has no room until something changes for it; None: that is not
        known."""

    def choose(self, group: Shared, publication: Publication) -> Receiver | None:
        """The member that takes this message: first those whose turn it is that can take it now, then those that have
        room, and last those for which it is too large. None if no member may have the topic."""
        if group.is_nobodys:
            return None
        found = self._able(group, 1, publication)
        if found:
            self.take(group, found[0].session)
            return found[0]
        found, without = self._fitting(islice(self._with_room(group, publication), MOST_ASKED), publication)
        if len(without) == MOST_ASKED and (could := self._could(group, publication)):
            found, _ = self._fitting(self._with_room(group, publication, could), publication)
        return found[0] if found else without[0] if without else self._anybody(group)

    def _fitting(
        self, members: Iterable[tuple[Receiver, OrderedDict[Session, Any]]], publication: Publication
    ) -> tuple[list[Receiver], list[Receiver]]:  # fmt: skip
        """The first of these members for which a publication is not too large, if there is one, and the members before
        it."""
        without: list[Receiver] = []
        for member, ring in members:
            if self._fits(member, publication):
                ring.move_to_end(member.session)
                return [member], without
            without.append(member)
        return [], without

    def _could(self, group: Shared, publication: Publication, *, large: bool = False) -> Could | None:
        """A function that tells at once of each member whether it could get a publication. It cannot if all sessions
        together have no room for what would be stored for it, or, unless the publication may be too `large`, if its
        client takes no packets of that size. None if no member could."""
        sharers, stored = group.sharers, self._context.stored
        has_room = not publication.qos or stored.room(self._context.limits, len(publication.payload), 1)
        least = 0 if large else _LEAST_PACKET + len(publication.topic) + len(publication.payload)

        def could(session: Session) -> bool:
            if not has_room and session.durable and sharers[session].qos:
                return False
            return session.connection is None or least <= session.outflow.max_packet

        return could if any(map(could, sharers)) else None

    def is_full(self, group: Shared, publication: Publication) -> bool:
        """Whether a shared subscription has members and none of them has room."""
        if group.is_nobodys or next(self._with_room(group, publication), None) is not None:
            return False
        member = self._anybody(group)
        return member is not None and member.qos > 0

    @staticmethod
    def _anybody(group: Shared) -> Receiver | None:
        """A member that may have the topic, or None; that there is none is remembered."""
        member = next(group.members(), None)
        group.is_nobodys = member is None
        return member

    def _with_room(
        self, group: Shared, publication: Publication, could: Could | None = None
    ) -> Iterator[tuple[Receiver, OrderedDict[Session, Any]]]:  # fmt: skip
        """The members with room, each with the ring in which it stands; those before the first come last next time. A
        member without room is not asked again before it may have some, except for a smaller publication."""
        size, sharers, rings, in_vain = len(publication.payload), group.sharers, group.sharers.rings, 0
        for ring in (rings.turns, rings.passed):
            for _ in range(len(ring) if publication.qos else min(len(ring), MOST_ASKED)):
                session = next(iter(ring))
                if could is not None and not could(session):
                    ring.move_to_end(session)
                    continue
                member, full_from = group.member(session), None
                if member is None or (not publication.qos and session.connection is None):
                    pass
                elif not _gets(member, publication):
                    full_from = 0
                elif not self._full(member, publication):
                    yield member, ring
                else:
                    full_from = self._full_from(session, size)
                if full_from is None:
                    ring.move_to_end(session)
                else:
                    session.be_full(sharers, full_from)
                in_vain += 1
                if in_vain == MOST_ASKED and could is None:
                    could = self._could(group, publication, large=True)
                    if could is None:
                        return
        if not publication.qos or size < sharers.full_from:
            yield from self._with_room_for_less(group, publication)

    def _with_room_for_less(
        self, group: Shared, publication: Publication
    ) -> Iterator[tuple[Receiver, OrderedDict[Session, Any]]]:  # fmt: skip
        """Like `_with_room`, for members that had no room for larger publications."""
        size, full = len(publication.payload), group.sharers.rings.full
        for session, least in islice(full.items(), None if publication.qos else MOST_ASKED):
            member = group.member(session) if size < least or not publication.qos else None
            if member is not None and _gets(member, publication) and not self._full(member, publication):
                yield member, full
            elif member is not None and publication.qos:
                full[session] = size
        if publication.qos:
            group.sharers.full_from = max(full.values(), default=0)

    def _able(self, group: Shared, count: int, publication: Publication | None = None) -> list[Receiver]:
        """Up to `count` members that can take a message now, this one if it is given, beginning with the one whose turn
        it is."""
        members, unable, in_vain, could = list[Receiver](), list[Session](), 0, None
        if group.is_nobodys:
            return members
        for session in group.sharers.rings.turns:
            if not session.can_take:
                unable.append(session)
            elif could is not None and not could(session):
                pass
            elif (member := group.member(session)) and (publication is None or self._suits(member, publication)):
                members.append(member)
                if len(members) == count:
                    break
            elif publication is not None:
                in_vain += 1
                could = self._could(group, publication) if in_vain == MOST_ASKED else could
                if in_vain >= MOST_ASKED and could is None:
                    break
        for session in unable:
            session.be_passed_over(group.sharers)
        return members

    def _suits(self, member: Receiver, publication: Publication) -> bool:
        """Whether a member that can take a message takes this one: what is stored for it may still be on its way."""
        return self._fits(member, publication) and not self._full(member, publication)

    def _fits(self, member: Receiver, publication: Publication) -> bool:
        """Whether a copy is no larger than the member's client accepts; otherwise another member gets it
        [MQTT-3.1.2-25]."""
        session, outflow = member.session, member.session.outflow
        if session.connection is None or outflow.max_packet == NO_LIMIT:
            return True
        first = 0x30 | min(publication.qos, member.qos) << 1
        before, after = publication.wire(outflow.version, first, self._context.now, member.sub_ids)
        return len(before) + (2 if first & 6 else 0) + len(after) <= outflow.max_packet

    def can_take(self, route: Route) -> bool:
        """Whether some member of each shared subscription can take a publication now."""
        return all(self._able(group, 1) for group in route.shared)

    def in_turn(self, group: Shared, count: int) -> Chosen | None:
        """The members that can take a publication now, beginning with the one whose turn it is: as many as there are
        publications, or all. None if there are none."""
        members = self._able(group, count)
        return Chosen(group, members, members[(count - 1) % len(members)].session) if members else None

    def take(self, group: Shared, last: Session) -> None:
        """Give the turn to the member behind this one."""
        turns = group.sharers.rings.turns
        for session in list(takewhile(lambda one: one is not last, turns)):
            turns.move_to_end(session)
        turns.move_to_end(last)


def _gets(member: Receiver, publication: Publication) -> bool:
    """Whether a member is connected, or has stored for it what is sent above QoS 0."""
    session = member.session
    return session.connection is not None or (session.durable and min(publication.qos, member.qos) > 0)
