"""Leases of gateways that share state queues: what is on the queue, and whose lease has expired. Pure.

A lease is renewed by being taken and put again. A gateway that sees the same lease unchanged for the length of a lease,
while it renewed its own all the time, knows that the other gateway has stopped. No gateway's clock is compared with
another's: an outage of the queue manager makes every lease old, but none expires because of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.mqtt.json_text import read_object
from gateway.ports.ownership import Message

RENEWALS = 3
"""How often a lease is renewed before it would expire."""
_ATTENTIVE = 0.4
"""The part of a lease in which the queue manager has to answer something; otherwise it was this gateway that stood
still, or nobody could renew."""


class Entry(NamedTuple):
    """A gateway that runs, or has run and still owns sessions."""

    instance: str
    token: bytes = b""
    """The MsgId of its message."""
    workers: int = 0
    """How many connections commit for it, each with its marker."""
    successor: str = ""
    """The gateway that has taken over from it."""
    reads: int = 0
    """See `ports.ownership.READS`."""

    @property
    def owner(self) -> str:
        """The gateway that acts for sessions that name this instance."""
        return self.successor or self.instance


class Lease(NamedTuple):
    """A lease as it was last renewed."""

    token: bytes
    """Its MsgId, which changes with each renewal."""
    ended: bool = False
    """Whether the gateway has ended properly."""


def encode(entry: Entry, host: str = "") -> bytes:
    """Returns the entry as it lies on the queue, where administrators can read it too."""
    body: dict[str, Any] = {"instance": entry.instance, "workers": entry.workers}
    body |= {"host": host} if host else {}
    body |= {"heir": entry.successor} if entry.successor else {}
    body |= {"reads": entry.reads} if entry.reads else {}
    return json.dumps(body, separators=(",", ":")).encode()


def decode(token: bytes, data: bytes) -> Entry | None:
    """Returns the entry; None if it is somebody else's message."""
    try:
        body = read_object(data)
        bytes.fromhex(body["instance"] + body.get("heir", ""))
        reads = int(body.get("reads", 0))
        return Entry(body["instance"], token, int(body["workers"]), body.get("heir", ""), reads)
    except (ValueError, TypeError, KeyError):
        return None


def decode_message(data: bytes) -> Message | None:
    """Returns the message; None if it is somebody else's."""
    try:
        message: Message = read_object(data)
        bytes.fromhex(message["from"])
        return message if isinstance(message["kind"], str) else None
    except (ValueError, TypeError, KeyError):
        return None


class Roster:
    """What one gateway has seen of the others."""

    def __init__(self, instance: str, seconds: float) -> None:
        self.instance = instance
        self.seconds = seconds
        self._leases: dict[str, tuple[bytes, float]] = {}
        self._entries: dict[str, tuple[Entry, float]] = {}
        self._heard = float("-inf")
        self._stood_still = True
        """Whether this gateway has stood still since the last look at the leases."""

    def interrupted(self) -> None:
        """Nothing was seen for a while: no lease expires because of that."""
        self._stood_still = True

    def heard(self, now: float) -> None:
        """The queue manager has answered something."""
        if now - self._heard > self.seconds * _ATTENTIVE:
            self._stood_still = True
        self._heard = now

    def silence(self, now: float) -> float:
        """Returns for how many seconds the queue manager has answered nothing."""
        return now - self._heard

    def known(self, entries: Iterable[Entry], now: float) -> list[Entry]:
        """Returns the entries that count. One that cannot be seen may just be in somebody's open unit of work: it
        counts until it has been away for the length of a lease. A successor leaves the entry there for that long."""
        for entry in entries:
            self._entries[entry.instance] = entry, now
        self._entries = {name: seen for name, seen in self._entries.items() if now - seen[1] <= self.seconds}
        return [entry for entry, _ in self._entries.values()]

    def forget(self, instance: str) -> None:
        """Forget an entry that this gateway has removed itself."""
        self._entries.pop(instance, None)

    def ages(self, now: float) -> dict[str, float]:
        """Returns for how long the lease of each other gateway has been seen unchanged."""
        return {instance: now - since for instance, (_, since) in self._leases.items()}

    def expired(self, entries: Iterable[Entry], leases: dict[str, Lease], began: float, now: float) -> list[Entry]:
        """Returns the entries of gateways whose lease has expired and that have no successor yet. The look at the queue
        began at `began` and has ended now: a lease is certain to be unchanged only from the end of one look to the
        beginning of another."""
        self.heard(now)
        attentive, self._stood_still = not self._stood_still, False
        seen: dict[str, tuple[bytes, float]] = {}
        expired = []
        for entry in entries:
            if entry.successor or entry.instance == self.instance:
                continue
            token, since = self._leases.get(entry.instance, (b"", now))
            lease = leases.get(entry.instance, Lease(token))
            if not attentive or token != lease.token:
                since = now
            seen[entry.instance] = (lease.token, since)
            if lease.ended or began - since >= self.seconds:
                expired.append(entry)
        self._leases = seen
        return expired
