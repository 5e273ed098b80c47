"""The record of a publication that very many subscribers get, each once; it is stored until all of them have it. Pure.

The record is part of the unit of work that makes the publication available, in place of all the copies. Each slice of
copies notes, in its own unit of work, how far it has come, in the order of the sessions' keys and then of the shared
subscriptions' names: after a crash it goes on there, so that nobody gets the publication twice and nobody goes
without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.ports.state_queues import FAN_OUT
from gateway.session.record import decode_publication, encode_publication

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.broker.batch import Batch
    from gateway.ports.batch import BatchQueueManager, Stored
    from gateway.session.publication import Publication

_NUMBER, _KEY = 8, 24
"""Bytes of the number in a key, and of a key."""
_RECORD, _PLACE = b"\0", b"\1"
"""Whether a key's record is the publication, or the place to which it has come."""
_SESSION, _GROUP = b"s", b"t"
"""Places of sessions come before those of shared subscriptions."""


class Promise:
    """One publication, and how far it has come."""

    __slots__ = ("careful", "noted", "number", "place", "publication", "reached", "rule")

    def __init__(self, number: int, publication: Publication, rule: str = "_none", place: bytes = b"") -> None:
        self.number = number
        """Publications are made available in the order of their numbers."""
        self.publication = publication
        self.rule = rule
        self.place = place
        """Everybody up to this place has it."""
        self.noted = bool(place)
        self.careful = False
        """Whether a copy has met a defect: from there on each copy is a unit of its own."""
        self.reached = b""
        """How far it had come then: up to here, what is sent at QoS 0 has been sent."""

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return _key(self.number, _RECORD)

    def store(self, batch: Batch) -> None:
        """Store the publication with the open batch."""
        batch.replace(FAN_OUT, self.key, encode_publication(self.publication, 0))

    def note(self, batch: Batch) -> None:
        """Store how far it has come, with the open batch."""
        if self.place:
            batch.replace(FAN_OUT, _key(self.number, _PLACE), self.place)
            self.noted = True

    def drop(self, batch: Batch) -> None:
        """Remove what is stored, with the open batch, as the publication is over."""
        batch.replace(FAN_OUT, self.key, None)
        if self.noted:
            batch.replace(FAN_OUT, _key(self.number, _PLACE), None)


def place_of_session(key: bytes) -> bytes:
    """The place of a session among those who get a publication."""
    return _SESSION + key


def place_of_group(name: str) -> bytes:
    """The place of a shared subscription."""
    return _GROUP + name.encode()


def _key(number: int, kind: bytes) -> bytes:
    return (number.to_bytes(_NUMBER, "big") + kind).ljust(_KEY, b"\0")


def stored_promises(queue_manager: BatchQueueManager) -> Iterator[tuple[bytes, Stored, bytes]]:
    """The stored records, in the order in which they were made: key, record, place."""
    found = dict(queue_manager.load(FAN_OUT))
    for key in sorted(found):
        if key[_NUMBER : _NUMBER + 1] == _RECORD:
            place = found.get(key[:_NUMBER] + _PLACE + key[_NUMBER + 1 :])
            yield key, found[key], place.data if place is not None else b""


def restored_promise(key: bytes, stored: Stored, place: bytes) -> Promise:
    """Restore a promise from its record."""
    return Promise(int.from_bytes(key[:_NUMBER], "big"), decode_publication(stored.data)[0], place=place)
