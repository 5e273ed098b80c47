"""What the fast lane retains: of what a connection has sent in a turn, the last publication on each topic."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gateway.broker.context import MOST_REPLACED
from gateway.broker.publish.columns import length_of
from gateway.broker.publish.qos2 import size_of
from gateway.mqtt.properties import decode_publish
from gateway.session.staged_run import StagedRun

if TYPE_CHECKING:
    from gateway.broker.context import Context
    from gateway.broker.publish.publications import Publications
    from gateway.broker.publish.retained import Latest
    from gateway.broker.publish.route import Route
    from gateway.broker.publish.taking import Arrived, Rest
    from gateway.ports.batch import Replace
    from gateway.session.connection import Connection
    from gateway.session.publication import Publication
    from gateway.session.session import Plain

SHORTEST = 4
"""Bytes of the shortest packet that makes something retained: PUBREL."""
MOST_LOOKED_AT = 500
"""Staged publications of a client whose sizes are added up in a turn, to see whether all could be retained."""
PUBREL_BEGINS = b"\x62\x02"
NOBODYS: tuple[Connection | None, int, int, int] = None, 0, 0, 0


class Keeping:
    """The part of the fast lane that retains."""

    def __init__(self, context: Context, publications: Publications) -> None:
        self.context = context
        self.publications = publications
        self._arrived: Arrived | Rest = []
        """What has arrived in this turn."""
        self._keeps: bool | None = None
        """Whether there is room to retain all of it; None: nobody has asked."""
        self._released = NOBODYS
        """The connection whose PUBRELs were looked at in this turn, up to where, how many they are, and how many bytes
        they release."""

    def _defect(self, connection: Connection, error: Exception) -> None:
        """End a connection that met a defect, and perhaps its session."""
        self.context.defect(connection, error)

    def can_keep(self) -> bool:
        """Whether there is room to retain everything that has arrived: then it is enough to retain the last publication
        on each topic. False also when the open batch is full."""
        if self.context.is_full:
            return False
        if self._keeps is None:
            size, begun = length_of([one[1] for one in self._arrived]), len(self._arrived)  # the beginnings were held
            most = size + begun * self.context.limits.max_packet
            self._keeps = self.publications.retained.has_room(size // SHORTEST + begun, most)
        return self._keeps

    def keeping(self) -> tuple[dict[bytes, Latest], int, dict[tuple[str, bytes], Replace], int] | None:
        """What the compiled lane needs to retain by itself: records by topic, the number of what it retains, where it
        notes what replaces records, and how many there may be. None if `can_keep` is false."""
        context = self.context
        if not self.can_keep():
            return None
        most = sys.maxsize if context.held_since else MOST_REPLACED
        return *self.publications.retained.begin(), context.batch.replaces, most

    def keeps_until(self, connection: Connection, data: bytes, at: int) -> int:
        """Up to where in a client's data there is room to retain all that its PUBRELs release from `at` on, together
        with what its earlier PUBRELs have released in this turn and what its PUBLISHes bring."""
        if self.context.is_full:
            return at
        last, until, count, size = self._released
        if last is not connection:
            until = count = size = 0
        if until > at:
            return until
        until, inbound, whole = at, connection.session.inbound, len(data) - 3
        while until < whole and count < MOST_LOOKED_AT and data[until : until + 2] == PUBREL_BEGINS:
            one = inbound.get(data[until + 2] << 8 | data[until + 3])
            if one is None:
                break
            until, count, size = until + 4, count + 1, size + size_of(one) + _besides(one)
        if not self.publications.retained.has_room(count + len(data) // SHORTEST, size + len(data)):
            until = at
        self._released = connection, until, count, size
        return until

    def have_kept(self, more: int) -> None:
        """Count bytes that the compiled lane has retained."""
        self.publications.retained.bytes += more

    def keep(self, connection: Connection, kept: dict[Route, tuple[bytes, bytes]]) -> None:
        """Retain payload and properties of the last publication on each of some routes."""
        publications, client_id = self.publications, connection.session.client_id
        for route, (payload, block) in kept.items():
            try:
                topic, qos = route.wire_topic, route.first >> 1 & 3
                if not block and publications.retained.again(topic, payload, qos, client_id):
                    continue
                properties = decode_publish(block) if block else {}
                publications.retained.keep(
                    publications.publication(connection, topic, payload, route.first, block, properties)
                )
            except Exception as error:  # noqa: BLE001 -- as in `settle`
                self._defect(connection, error)
                return


def _besides(one: Publication | Plain | StagedRun) -> int:
    """Bytes of a staged publication that are retained beside its payload."""
    if isinstance(one, tuple):
        return len(one[0]) + (len(one[3]) if len(one) == 4 else 0)
    return len(one.topic) + (0 if isinstance(one, StagedRun) else len(one.properties))
