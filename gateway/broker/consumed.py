"""What a batch deals with of messages that it does not take: those got from a queue of a target; and markers. Pure.

They leave that queue in a unit of work there, after the batch is committed. A marker that is put with the batch names
them, so that one that comes again, because the gateway or the target was lost in between, is dealt with once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from gateway.mq import mqmd
from gateway.ports.batch import Puts, Stored, Token
from gateway.ports.state_queues import MARKERS

MARKER_EXPIRY = 30 * 24 * 36_000
"""Tenths of a second after which a marker goes that nobody takes away: longer than a device or a target is away."""
NAME = 16
"""Bytes that name a message in a marker."""
_HEAD = mqmd.build(persistence=1, expiry=MARKER_EXPIRY)


def marker_of(key: bytes, names: Iterable[bytes]) -> Puts:
    """The marker that names these messages, to be put."""
    return Puts(MARKERS, key=key, heads=[_HEAD], bodies=[b"".join(names)])


def names_in(marker: Stored) -> Iterator[bytes]:
    """The names of the messages that a marker names."""
    return (marker.data[at : at + NAME] for at in range(0, len(marker.data), NAME))


def key_of(target: str, queue: str) -> bytes:
    """The key of the markers for what is consumed of a queue of a target."""
    return b"MQGT" + hashlib.blake2b(f"{target}\0{queue}".encode(), digest_size=20).digest()


def name_of(stored: Stored) -> bytes:
    """What a marker calls a message: made of all that is the same when it is got again. Programs may give several
    messages one identifier; two that are alike in everything need not be told apart."""
    md = stored.md
    same = b"".join((md[mqmd.MSG_ID], md[mqmd.CORREL_ID], md[mqmd.PUT_DATE], md[mqmd.PUT_TIME], md[mqmd.GROUP_ID]))
    digest = hashlib.blake2b(same, digest_size=NAME)
    digest.update(md[mqmd.AT_MSG_SEQ_NUMBER : mqmd.AT_MSG_FLAGS])
    digest.update(stored.data)
    return digest.digest()


class Consumed:
    """Messages of a queue of a target that a batch deals with. They leave that queue after the commit; a marker in the
    same unit of work says that they are dealt with, in case that does not happen."""

    __slots__ = ("key", "marker", "names")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.names: dict[Token, bytes] = {}
        """What the marker calls each of them."""
        self.marker = Puts(MARKERS, key=key)

    def put(self) -> Puts:
        """The marker, to be put."""
        self.marker = marker_of(self.key, self.names.values())
        return self.marker
