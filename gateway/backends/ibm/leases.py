"""Leases of gateways that share state queues: what lies on the queue, and who is found dead. Pure.

A lease is renewed by being taken and put again. Whoever sees the same one lie there for the length of a lease, while it
renewed its own all the time, knows that its gateway is gone. Nobody's clock is compared with another's: an outage of
the queue manager makes every lease old, and condemns nobody.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.ports.ownership import Letter

LEASE_SECONDS = 10.0
RENEWALS = 3
"""So often is a lease renewed before it would be over."""
_ATTENTIVE = 0.75
"""The part of a lease in which one has to look again to be sure that it was not oneself who stood still."""


class Entry(NamedTuple):
    """A gateway that is there, or was."""

    instance: str
    token: bytes = b""
    """The MsgId of its message."""
    workers: int = 0
    """How many connections commit for it, each with its marker."""
    heir: str = ""
    """Whoever has taken over what it left."""

    @property
    def owner(self) -> str:
        """Who acts for sessions that name this instance."""
        return self.heir or self.instance


class Beat(NamedTuple):
    """A lease as it was last renewed."""

    token: bytes
    """Its MsgId: another one after each renewal."""
    over: bool = False
    """The gateway has ended in order."""


def encode(entry: Entry, host: str = "") -> bytes:
    """As it lies on the queue, to be read by administrators too."""
    body: dict[str, Any] = {"instance": entry.instance, "workers": entry.workers}
    body |= {"host": host} if host else {}
    body |= {"heir": entry.heir} if entry.heir else {}
    return json.dumps(body, separators=(",", ":")).encode()


def decode(token: bytes, data: bytes) -> Entry | None:
    """None: somebody else's message."""
    try:
        body = json.loads(data)
        bytes.fromhex(body["instance"] + body.get("heir", ""))
        return Entry(body["instance"], token, int(body["workers"]), body.get("heir", ""))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def decode_letter(data: bytes) -> Letter | None:
    """None: somebody else's message."""
    try:
        letter = json.loads(data)
        bytes.fromhex(letter["from"])
        return letter if isinstance(letter["kind"], str) else None
    except (ValueError, TypeError, KeyError):
        return None


class Roll:
    """What one gateway has seen of the others."""

    def __init__(self, instance: str, seconds: float) -> None:
        self.instance = instance
        self.seconds = seconds
        self._beats: dict[str, tuple[bytes, float]] = {}
        self._entries: dict[str, tuple[Entry, float]] = {}
        self._looked = float("-inf")

    def interrupted(self) -> None:
        """Nothing was seen for a while: nobody is to be judged by it."""
        self._looked = float("-inf")

    def known(self, entries: Iterable[Entry], now: float) -> list[Entry]:
        """Those that are there. One that cannot be seen may only be in somebody's open unit of work: it counts until it
        has been away for the length of a lease. Whoever takes over from it leaves a word for as long."""
        for entry in entries:
            self._entries[entry.instance] = entry, now
        self._entries = {name: seen for name, seen in self._entries.items() if now - seen[1] <= self.seconds}
        return [entry for entry, _ in self._entries.values()]

    def forget(self, instance: str) -> None:
        """This gateway has removed the entry itself."""
        self._entries.pop(instance, None)

    def dead(self, entries: Iterable[Entry], beats: dict[str, Beat], now: float) -> list[Entry]:
        """Those whose gateway is gone and nobody's heritage yet."""
        attentive = now - self._looked <= self.seconds * _ATTENTIVE
        self._looked = now
        seen: dict[str, tuple[bytes, float]] = {}
        gone = []
        for entry in entries:
            if entry.heir or entry.instance == self.instance:
                continue
            token, since = self._beats.get(entry.instance, (b"", now))
            beat = beats.get(entry.instance, Beat(token))
            if not attentive or token != beat.token:
                since = now
            seen[entry.instance] = (beat.token, since)
            if beat.over or now - since >= self.seconds:
                gone.append(entry)
        self._beats = seen
        return gone
