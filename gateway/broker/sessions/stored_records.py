"""Sessions and wills of other gateways as they lie on the state queues. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.broker.refused.set_aside import Aside
from gateway.errors import Refused
from gateway.ports.batch import Stored, Token
from gateway.ports.counters import UnitKind
from gateway.session.publication import Publication
from gateway.session.record import Decoding, decode_json


class Unread(NamedTuple):
    """A session whose record nobody can read."""

    stored: Stored
    error: Exception


class Looked:
    """What is stored for a session, looked at page by page as it is read: tens of thousands of messages would hold up
    everybody if they were looked at in one turn."""

    def __init__(self) -> None:
        self.count = self.size = 0
        """Messages, and the bytes of their payloads."""
        self.ids: set[int] = set()
        """The packet identifiers that the messages were given."""
        self.expires = 0.0
        """When the first of them expires; 0: none does."""
        self.reports = False
        """Whether any of them asks for a report."""
        self.unread: list[Stored] = []
        """Messages that cannot be read."""
        self._decoding = Decoding()

    def look(self, rows: Iterable[Stored]) -> None:
        """Look at some more messages."""
        decode = self._decoding.decode
        for stored in rows:
            self.count += 1
            try:
                publication, packet_id, _, _ = decode(stored.data)
            except Exception:  # noqa: BLE001 -- whoever restores the session finds out what is wrong, and sets it aside
                self.unread.append(stored)
                continue
            self.ids.add(packet_id)
            self.size += len(publication.payload)
            self.reports |= bool(publication.report)
            if publication.expires:
                self.expires = min(publication.expires, self.expires or publication.expires)


class Staged(NamedTuple):
    """A QoS 2 publication between PUBREC and PUBREL."""

    publication: Publication
    packet_id: int
    name: bytes
    """Its name in markers on targets, if it was staged before."""
    token: Token


class Left(NamedTuple):
    """A session as it lies on the state queues."""

    record: dict[str, Any]
    looked: Looked
    staged: list[Staged]
    unread: Exception | None
    """Why a staged message cannot be read."""
    wills: list[Stored]
    stored: Stored
    """The record as it is stored."""

    def all_staged(self) -> list[Staged]:
        """All staged messages. Raises what one of them met if it cannot be read: the session cannot go on without
        it."""
        if self.unread is not None:
            raise self.unread
        return self.staged


def record_of(what: UnitKind, stored: Stored) -> dict[str, Any]:
    """Decode a record. Raises TypeError if it does not have the fields that tell whose it is."""
    record = decode_json(stored.data)
    if not isinstance(record.get("owner", ""), str):
        raise TypeError(f"the record of a {what} names nobody")
    if what == "session" and not isinstance(record.get("client"), str):
        raise TypeError("the record of a session names no client")
    return record


def of_nobody() -> Aside:
    """Leave a record that nobody can read where it is, by raising Refused: it may be another gateway's."""
    raise Refused("another gateway may own it", 0)
