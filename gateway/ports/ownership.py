"""Who owns which session, where several gateways keep theirs on the state queues of one queue manager.

Every gateway has an instance name and a lease. What is stored of a session or will names its owner; only the owner
reads, changes, ends or delivers it. A gateway asks the others for a session that a device wants from it, and the owner
transfers it in one unit of work. The sessions of a gateway whose lease has expired are orphaned; exactly one other
gateway, its successor, takes them over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from gateway.ports.batch import Stored

_INSTANCE_BYTES = 12

LONG_MESSAGES = 2
WHO_GETS_IT = 3
READS = WHO_GETS_IT
"""What this release reads of what other gateways put, as its entry on `GATEWAYS` says. 0: a release before that says
nothing. 1: messages for one device, and how often a publication was sent on. 2: messages longer than 64 KiB,
and publications for sessions that nobody has read yet. 3: with a publication, for the sessions of which gateways that
are no more it was put."""

Message = dict[str, Any]
"""What one gateway tells another: `kind`, `from`, and what the kind needs."""


def entry_key(instance: str) -> bytes:
    """The key of a gateway's entry on `GATEWAYS`: it lies there as long as something names the gateway as its owner."""
    return b"MQGL" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


def lease_key(instance: str) -> bytes:
    """The key of its lease there, which is renewed all the time."""
    return b"MQGB" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


def message_key(instance: str) -> bytes:
    """The key of messages to a gateway on `GATEWAYS`."""
    return b"MQGM" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


def forward_key(instance: str) -> bytes:
    """The key of publications for a gateway on `FORWARD`."""
    return b"MQGF" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


class Forwards(Protocol):
    """Part of `Owners`: publications that other gateways put for this one."""

    instance: str

    def receive(self, key: bytes, arrived: Callable[[], None]) -> None:
        """Have `arrived` called in the reactor when there is something on `FORWARD` with this key."""

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        """What is there, as `Claims.claim`."""


@runtime_checkable
class Owners(Forwards, Protocol):
    """Implemented by queue managers whose state queues several gateways may use at the same time."""

    instance: str
    """This gateway's name among them, in hexadecimal; empty: it has the state queues for itself."""

    def peers(self) -> frozenset[str]:
        """Every other gateway that may own a session, living or not taken over yet."""

    lease_seconds: float
    """How long a gateway may leave its lease unrenewed."""

    def reads(self, gateway: str) -> int:
        """What a gateway reads of what others put (`READS`); 0 as long as that is not known."""

    def leases(self) -> dict[str, float]:
        """For how many seconds the lease of each other gateway has lain there as it is."""

    def expired_owners(self) -> list[str]:
        """Gateways whose lease has expired and whose successor this one is: sessions and wills that name them are this
        gateway's now."""

    def taken_over(self, owner: str) -> None:
        """Nothing that is stored names `owner` any more."""

    def listen(self, on_message: Callable[[Message], None], on_change: Callable[[], None]) -> None:
        """Have `on_message` called with what other gateways send, and `on_change` when peers or expired owners have
        changed; in the reactor."""

    def reached(self, place: str) -> None:
        """A place where a test may end the process: asked, answered, receiving, received, slice, signing,
        taken-over."""
