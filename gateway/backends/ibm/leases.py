"""Leases of gateways that share state queues: what lies on the queue, and whose lease has expired. Pure.

A lease is renewed by being taken and put again. A gateway that sees the same lease lie there for the length of a lease,
while it renewed its own all the time, knows that the other gateway has stopped. No gateway's clock is compared with
another's: an outage of the queue manager makes every lease old, and none expires by it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.mqtt.json_text import read_object
from gateway.ports.ownership import Message

RENEWALS = 3
"""So often is a lease renewed before it would expire."""
_ATTENTIVE = 0.4
"""The part of a lease in which the queue manager has to answer something: else it was this gateway that stood still, or
nobody could renew."""


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
        """Who acts for sessions that name this instance."""
        return self.successor or self.instance


class Lease(NamedTuple):
    """A lease as it was last renewed."""

    token: bytes
    """Its MsgId: another one after each renewal."""
    ended: bool = False
    """The gateway has ended in order."""


def encode(entry: Entry, host: str = "") -> bytes:
    """As it lies on the queue, to be read by administrators too."""
    body: dict[str, Any] = {"instance": entry.instance, "workers": entry.workers}
    body |= {"host": host} if host else {}
    body |= {"heir": entry.successor} if entry.successor else {}
    body |= {"reads": entry.reads} if entry.reads else {}
    return json.dumps(body, separators=(",", ":")).encode()


def decode(token: bytes, data: bytes) -> Entry | None:
    """None: somebody else's message."""
    try:
        body = read_object(data)
        bytes.fromhex(body["instance"] + body.get("heir", ""))
        reads = int(body.get("reads", 0))
        return Entry(body["instance"], token, int(body["workers"]), body.get("heir", ""), reads)
    except (ValueError, TypeError, KeyError):
        return None


def decode_message(data: bytes) -> Message | None:
    """None: somebody else's message."""
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
        """Since the last look at the leases."""

    def interrupted(self) -> None:
        """Nothing was seen for a while: no lease expires by it."""
        self._stood_still = True

    def heard(self, now: float) -> None:
        """The queue manager has answered something."""
        if now - self._heard > self.seconds * _ATTENTIVE:
            self._stood_still = True
        self._heard = now

    def silence(self, now: float) -> float:
        """For how many seconds the queue manager has answered nothing."""
        return now - self._heard

    def known(self, entries: Iterable[Entry], now: float) -> list[Entry]:
        """The entries that count. One that cannot be seen may only be in somebody's open unit of work: it counts until
        it has been away for the length of a lease. A successor leaves the entry there for as long."""
        for entry in entries:
            self._entries[entry.instance] = entry, now
        self._entries = {name: seen for name, seen in self._entries.items() if now - seen[1] <= self.seconds}
        return [entry for entry, _ in self._entries.values()]

    def forget(self, instance: str) -> None:
        """This gateway has removed the entry itself."""
        self._entries.pop(instance, None)

    def ages(self, now: float) -> dict[str, float]:
        """For how long the lease of each other gateway has been seen as it is."""
        return {instance: now - since for instance, (_, since) in self._leases.items()}

    def expired(self, entries: Iterable[Entry], leases: dict[str, Lease], began: float, now: float) -> list[Entry]:
        """The entries of gateways whose lease has expired and that have no successor yet. The look began then and has
        ended now: a lease lies there as it is for certain from the end of one look to the beginning of another."""
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
