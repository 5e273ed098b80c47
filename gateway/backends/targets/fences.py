"""What keeps a gateway that has ended, or only stood still, from putting to a target after others have its sessions.

Every unit of work of a gateway takes its marker and puts another. Each of the others takes that marker when they hear
that the gateway has ended, and leaves a note that it is gone. While a unit of work of the gateway is open neither can
be seen: they wait. Afterwards it can commit nothing any more, and what it has committed can be seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from gateway.backends.ibm.connection import MARKER_EXPIRY, Connection
from gateway.backends.ibm.unit_of_work import find_marker, marker_key
from gateway.ports.state_queues import MARKERS

_WAIT_SECONDS, _LOOK_AGAIN = 5.0, 0.05
"""How long neither marker nor note is waited for: a gateway that has never been connected to the target has none."""


def key_of(gateway: str) -> bytes:
    """The key of its marker on targets."""
    return marker_key(0, gateway)


def _note_of(gateway: str) -> bytes:
    return b"MQGN" + bytes.fromhex(gateway)[:12].ljust(20, b"\0")


def take(connection: Connection, gateways: Iterable[str]) -> None:
    """Return when none of these gateways can commit anything any more."""
    until = time.monotonic() + _WAIT_SECONDS
    for gateway in gateways:
        while not connection.remove(MARKERS, key_of(gateway)):
            if find_marker(connection, _note_of(gateway)) is not None or time.monotonic() > until:
                break
            time.sleep(_LOOK_AGAIN)
        else:
            connection.exchange(MARKERS, _note_of(gateway), None, MARKER_EXPIRY)
        connection.session.commit()
