"""Sessions and wills of other gateways as they lie on the state queues. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.broker.refused.set_aside import Aside
from gateway.errors import Refused
from gateway.ports.batch import Stored
from gateway.ports.counters import UnitKind
from gateway.session.record import decode_json


class Unread(NamedTuple):
    """A session whose record nobody can read."""

    stored: Stored
    error: Exception


class Left(NamedTuple):
    """A session as it lies on the state queues."""

    record: dict[str, Any]
    rows: list[Stored]
    staged: list[Stored]
    wills: list[Stored]
    stored: Stored
    """The record, as it is."""


def record_of(what: UnitKind, stored: Stored) -> dict[str, Any]:
    """A record, if it has the form by which it is found out whose it is."""
    record = decode_json(stored.data)
    if not isinstance(record.get("owner", ""), str):
        raise TypeError(f"the record of a {what} names nobody")
    if what == "session" and not isinstance(record.get("client"), str):
        raise TypeError("the record of a session names no client")
    return record


def of_nobody() -> Aside:
    """What keeps a record where it is that nobody can read: it may be another gateway's."""
    raise Refused("another gateway may own it", 0)
