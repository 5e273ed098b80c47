"""How often `--once` tries, and when a job gives up (`restart.times`). Pure: the time is an argument."""

from __future__ import annotations

from gateway.pipeline.sentences import LATE

PROGRESS_FOR = 60.0
"""After running this many seconds, a query's failure does not count as one in a row with the failure before."""
TRIES = 3
"""Failures in a row after which `--once` ends."""
PASSING = {
    "LeaseHeld": 90.0,  # half as long again as a lease runs without being renewed
    LATE: 180.0,
}
"""Errors that pass by themselves, by their names in Spark's report, and for how many seconds to wait for that."""
HOPELESS = ("GatewayRefuses", "GatewayMissing")
"""Errors that last until somebody does something: `--once` ends with them."""


class Tries:
    """The failures of one command."""

    def __init__(self, most: int = TRIES, *, waits: bool = False) -> None:
        self._most = most
        self._waits = waits
        self._failures = 0
        self._since: float | None = None
        """Since when it has waited for what passes."""

    def over(self, error: Exception, began: float, now: float) -> bool:
        """Whether to give up after an error of a query that began at `began`."""
        said = f"{type(error).__name__}: {error}"
        if not self._waits and any(name in said for name in HOPELESS):
            return True
        passing = next((name for name in PASSING if name in said), None)
        if passing is None:
            self._since = None
            self._failures = 1 if now - began > PROGRESS_FOR else self._failures + 1
            return self._failures >= self._most
        if self._since is None or now - began > PASSING[passing]:
            self._since = now
        return now - self._since > PASSING[passing]
