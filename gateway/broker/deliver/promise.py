"""A publication that very many get, each once: what is stored of it until all have it. Pure.

Its record is part of the unit of work that makes the publication available, in the place of all the copies. Each slice
that copies it notes in the same unit of work how far it has come, in the order of the sessions' keys and then of the
shared subscriptions' names: after a crash it goes on there, so that nobody gets it twice and nobody goes without.
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
"""What is under a key: the publication, or how far it has come."""
_SESSION, _GROUP = b"s", b"t"
"""Sessions come first."""


class Promise:
    """One publication."""

    __slots__ = ("careful", "noted", "number", "place", "publication", "reached", "rule")

    def __init__(self, number: int, publication: Publication, rule: str = "_none", place: bytes = b"") -> None:
        self.number = number
        """They are kept in this order."""
        self.publication = publication
        self.rule = rule
        self.place = place
        """Up to here everybody has it."""
        self.noted = bool(place)
        self.careful = False
        """A copy has met a defect: each is a unit of its own from there on."""
        self.reached = b""
        """How far it had come then: what goes out at QoS 0 has gone."""

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return _key(self.number, _RECORD)

    def store(self, batch: Batch) -> None:
        """Keep it, with the open batch."""
        batch.replace(FAN_OUT, self.key, encode_publication(self.publication, 0))

    def note(self, batch: Batch) -> None:
        """How far it has come, with the open batch."""
        if self.place:
            batch.replace(FAN_OUT, _key(self.number, _PLACE), self.place)
            self.noted = True

    def drop(self, batch: Batch) -> None:
        """It is over, with the open batch."""
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
    """The records that are stored, in the order in which they were made: key, record, place."""
    found = dict(queue_manager.load(FAN_OUT))
    for key in sorted(found):
        if key[_NUMBER : _NUMBER + 1] == _RECORD:
            place = found.get(key[:_NUMBER] + _PLACE + key[_NUMBER + 1 :])
            yield key, found[key], place.data if place is not None else b""


def restored_promise(key: bytes, stored: Stored, place: bytes) -> Promise:
    """From its record."""
    return Promise(int.from_bytes(key[:_NUMBER], "big"), decode_publication(stored.data)[0], place=place)
