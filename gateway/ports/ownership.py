"""Who owns which session, where several gateways keep theirs on the state queues of one queue manager.

Every gateway has an instance name and a lease. What is stored of a session or will names its owner; only the owner
reads, changes, ends or delivers it. A gateway asks the others for a session that a device wants from it, and the owner
signs it over in one unit of work. What a gateway has left that is gone is another one's heritage, exactly one's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

_INSTANCE_BYTES = 12

Letter = dict[str, Any]
"""What one gateway writes to another: `kind`, `from`, and what the kind needs."""


def entry_key(instance: str) -> bytes:
    """The key of a gateway's entry on `GATEWAYS`: it lies there as long as something names the gateway as its owner."""
    return b"MQGL" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


def beat_key(instance: str) -> bytes:
    """The key of its lease there, which is renewed all the time."""
    return b"MQGB" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


def letter_key(instance: str) -> bytes:
    """The key of letters to a gateway on `GATEWAYS`."""
    return b"MQGM" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


@runtime_checkable
class Owners(Protocol):
    """Implemented by queue managers whose state queues several gateways may use at the same time."""

    instance: str
    """This gateway's name among them, in hexadecimal; empty: it has the state queues for itself."""

    def peers(self) -> frozenset[str]:
        """Every other gateway that may own a session, living or not taken over yet."""

    def heritage(self) -> list[str]:
        """Owners whose sessions and wills are this gateway's now and do not say so yet."""

    def settled(self, owner: str) -> None:
        """All that `owner` left says now whose it is."""

    def attend(self, letter: Callable[[Letter], None], changed: Callable[[], None]) -> None:
        """Have `letter` called with what others write, and `changed` when peers or heritage have; in the reactor."""

    def reached(self, place: str) -> None:
        """A place where a test may end the process: asked, answered, receiving, received, slice, signing,
        taken-over."""
