"""Open files: connections may take them up to a number, as the journal, the queue manager and operators need the rest.

The kernel gives out the lowest free descriptor, so a connection with a high descriptor shows how many are open.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, MutableMapping
from typing import Protocol

RESERVED = 2048
"""How many descriptors devices may not take. Programs may take half of these, operators a quarter; the others are for
the journal, the queue manager, logs and logins elsewhere."""
CALM_SECONDS = 60.0
"""When no connection was turned away for this long, the problem is over."""
PROBLEM = "open files"


class Log(Protocol):
    """The methods of a log that are used here."""

    def warning(self, event: str, msg: str, **fields: object) -> None:
        """Write a warning."""

    def info(self, event: str, msg: str, **fields: object) -> None:
        """Write a line."""


def most_for_connections() -> int:
    """How many descriptors connections may take: all that the process may open, except for a reserve."""
    return _limit() - _reserve()


def most_for_programs() -> int:
    """How many descriptors may be in use before programs at the MQI socket are turned away."""
    return _limit() - _reserve() // 2


def connections_of_operators() -> int:
    """How many connections the admin port may have."""
    return _reserve() // 4


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def _reserve() -> int:
    return min(RESERVED, _limit() // 2)


class Descriptors:
    """Connections that were turned away because there were no descriptors left: logs them, and adds them to the
    problems of the gateway."""

    def __init__(self, log: Log, problems: MutableMapping[str, str], monotonic: Callable[[], float]) -> None:
        self._log = log
        self._problems = problems
        self._monotonic = monotonic
        self._last = 0.0

    def exhausted(self, listener: str) -> None:
        """Note that a connection was turned away or not accepted."""
        self._tell(
            listener,
            f"the gateway's own files and connections have taken all {most_for_connections()}",
            "lower `mqtt.max_connections`",
        )

    def exhausted_by_programs(self) -> None:
        """Note that a program at the MQI socket was turned away."""
        self._tell(
            "mqi",
            f"the gateway's own files, programs and connections have taken all {most_for_programs()}",
            "have programs disconnect",
        )

    def _tell(self, listener: str, taken: str, otherwise: str) -> None:
        self._last = self._monotonic()
        if PROBLEM not in self._problems:
            text = (
                f"{taken} descriptors that they may have, and others have to wait: "
                f"raise the limit (`LimitNOFILE` of systemd, `ulimit -n`), or {otherwise}"
            )
            self._problems[PROBLEM] = text
            self._log.warning("descriptors", text, listener=listener)

    def look(self) -> None:
        """Remove the problem once it is over; called every second."""
        if PROBLEM in self._problems and self._monotonic() - self._last > CALM_SECONDS:
            del self._problems[PROBLEM]
            self._log.info("descriptors", "there are descriptors for connections again")
