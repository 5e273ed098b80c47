"""Keeps a gateway that has ended, or only stood still, from putting to a target after others have its sessions.

Every unit of work of a gateway takes its marker and puts another. When the others hear that the gateway has ended, each
of them takes that marker and leaves a note that it is gone. While a unit of work of the gateway is open, neither can be
seen, and they wait. After that the gateway can commit nothing any more, and what it has committed can be seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from gateway.backends.ibm.connection import MARKER_EXPIRY, Connection
from gateway.backends.ibm.unit_of_work import find_marker, marker_key
from gateway.ports.state_queues import MARKERS

_WAIT_SECONDS, _LOOK_AGAIN = 5.0, 0.05
"""How long to wait if neither marker nor note is there, because a gateway that was never connected to the target has
none, and how often to look."""


def key_of(gateway: str) -> bytes:
    """Returns the key of a gateway's marker on targets."""
    return marker_key(0, gateway)


def _note_of(gateway: str) -> bytes:
    return b"MQGN" + bytes.fromhex(gateway)[:12].ljust(20, b"\0")


def take(connection: Connection, gateways: Iterable[str]) -> None:
    """Take the markers of these gateways; returns once none of them can commit anything any more."""
    until = time.monotonic() + _WAIT_SECONDS
    for gateway in gateways:
        while not connection.remove(MARKERS, key_of(gateway)):
            if find_marker(connection, _note_of(gateway)) is not None or time.monotonic() > until:
                break
            time.sleep(_LOOK_AGAIN)
        else:
            connection.exchange(MARKERS, _note_of(gateway), None, MARKER_EXPIRY)
        connection.session.commit()
