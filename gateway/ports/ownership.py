"""Who owns which session, if several gateways keep theirs on the state queues of one queue manager.

Every gateway has an instance name and a lease. What is stored of a session or will names its owner; only the owner
reads, changes, ends or delivers it. If a device wants a session from a gateway that does not own it, that gateway asks
the others for it, and the owner transfers it in one unit of work. The sessions of a gateway whose lease has expired are
orphaned; exactly one other gateway, its successor, takes them over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from gateway.ports.batch import Stored

_INSTANCE_BYTES = 12

LONG_MESSAGES = 2
WHO_GETS_IT = 3
READS = WHO_GETS_IT
"""Which things that other gateways put this release can read, as its entry on `GATEWAYS` says. 0: an earlier release
that says nothing. 1: messages for one device, and how often a publication was forwarded. 2: messages longer than 64
KiB, and publications for sessions that nobody has read yet. 3: with a publication, the former gateways for whose
sessions it was put."""

Message = dict[str, Any]
"""A message from one gateway to another: `kind`, `from`, and what the kind needs."""


def entry_key(instance: str) -> bytes:
    """The key of a gateway's entry on `GATEWAYS`, which stays there as long as something names the gateway as its
    owner."""
    return b"MQGL" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


def lease_key(instance: str) -> bytes:
    """The key of a gateway's lease on `GATEWAYS`, which is renewed all the time."""
    return b"MQGB" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


def message_key(instance: str) -> bytes:
    """The key of messages to a gateway on `GATEWAYS`."""
    return b"MQGM" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


def forward_key(instance: str) -> bytes:
    """The key of publications for a gateway on `FORWARD`."""
    return b"MQGF" + bytes.fromhex(instance)[:_INSTANCE_BYTES].ljust(20, b"\0")


class Forwards(Protocol):
    """The part of `Owners` about publications that other gateways put for this one."""

    instance: str

    def receive(self, key: bytes, arrived: Callable[[], None]) -> None:
        """Have `arrived` called in the reactor when `FORWARD` has something with this key."""

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        """Claim messages; see `Claims.claim`."""


@runtime_checkable
class Owners(Forwards, Protocol):
    """Implemented by queue managers whose state queues several gateways may use at the same time."""

    instance: str
    """This gateway's name among them, in hexadecimal; empty: it has the state queues to itself."""

    def peers(self) -> frozenset[str]:
        """Every other gateway that may own a session, whether it is alive or has not been taken over yet."""

    def knows(self, gateway: str) -> bool:
        """Whether a gateway may be alive, or another one takes over from it, now or later. Nobody else acts for what
        names a gateway of which neither is so."""

    lease_seconds: float
    """For how many seconds a gateway may leave its lease unrenewed."""

    def reads(self, gateway: str) -> int:
        """What a gateway can read of what others put (`READS`); 0 until that is known."""

    def leases(self) -> dict[str, float]:
        """For how many seconds the lease of each other gateway has been unchanged."""

    def expired_owners(self) -> list[str]:
        """Gateways whose lease has expired and whose successor is this gateway: sessions and wills that name them
        belong to this gateway now."""

    def taken_over(self, owner: str) -> None:
        """Note that nothing that is stored names `owner` any more."""

    def listen(self, on_message: Callable[[Message], None], on_change: Callable[[], None]) -> None:
        """Have `on_message` called with what other gateways send, and `on_change` when peers or expired owners have
        changed; in the reactor."""

    def reached(self, place: str) -> None:
        """Called at places where a test may end the process: asked, answered, receiving, received, slice, signing,
        taken-over."""
