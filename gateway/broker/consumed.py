"""Messages that a batch deals with but does not take, because they were got from a queue of a target; and markers.
Pure.

They leave that queue in a unit of work there, after the batch is committed. A marker that is put with the batch names
them, so that a message that comes again, because the gateway or the target was lost in between, is dealt with once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from gateway.mq import mqmd
from gateway.ports.batch import Puts, Stored, Token
from gateway.ports.state_queues import MARKERS

MARKER_EXPIRY = 30 * 24 * 36_000
"""Tenths of a second after which a marker that nobody takes away expires: longer than a device or a target stays
away."""
NAME = 16
"""Length in bytes of a message's name in a marker."""
_HEAD = mqmd.build(persistence=1, expiry=MARKER_EXPIRY)


def marker_of(key: bytes, names: Iterable[bytes]) -> Puts:
    """The marker to be put that names these messages."""
    return Puts(MARKERS, key=key, heads=[_HEAD], bodies=[b"".join(names)])


def names_in(marker: Stored) -> Iterator[bytes]:
    """The names that a marker holds."""
    return (marker.data[at : at + NAME] for at in range(0, len(marker.data), NAME))


def key_of(target: str, queue: str) -> bytes:
    """The key of the markers for what is consumed from a queue of a target."""
    return b"MQGT" + hashlib.blake2b(f"{target}\0{queue}".encode(), digest_size=20).digest()


def name_of(stored: Stored) -> bytes:
    """The name of a message in a marker, made of everything that is the same when the message is got again. Programs
    may give several messages one identifier; two that are alike in everything need not be told apart."""
    md = stored.md
    same = b"".join((md[mqmd.MSG_ID], md[mqmd.CORREL_ID], md[mqmd.PUT_DATE], md[mqmd.PUT_TIME], md[mqmd.GROUP_ID]))
    digest = hashlib.blake2b(same, digest_size=NAME)
    digest.update(md[mqmd.AT_MSG_SEQ_NUMBER : mqmd.AT_MSG_FLAGS])
    digest.update(stored.data)
    return digest.digest()


class Consumed:
    """Messages of one queue of a target that a batch deals with. They leave that queue after the commit; a marker in
    the same unit of work says that they are dealt with, in case that does not happen."""

    __slots__ = ("key", "marker", "names")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.names: dict[Token, bytes] = {}
        """The name of each in the marker, by token."""
        self.marker = Puts(MARKERS, key=key)

    def put(self) -> Puts:
        """Make the marker; returns it, to be put."""
        self.marker = marker_of(self.key, self.names.values())
        return self.marker
