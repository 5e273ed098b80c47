"""Logs when the gateway's own disk is full, and when there is room again; and says what can be done."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping, Sequence

from gateway.observe.logs import EventLog
from gateway.ports.batch import StorageFull

RUNBOOK = "docs/runbooks/disk-full.md"
OF_DAMAGE = "docs/runbooks/damaged-frame.md"
OF_MISSING_FILES = "docs/runbooks/lost-segment.md"
_FAILING = frozenset(map(os.strerror, (
    errno.EIO, errno.EROFS, errno.EUCLEAN, errno.EBADMSG, errno.EREMOTEIO, errno.ENXIO, errno.ENODEV, errno.ESTALE,
    errno.ENOTCONN, errno.ETIMEDOUT, errno.EACCES, errno.EPERM,
)))  # fmt: skip
"""Errors against which more room does not help."""


MOST_NAMED = 20
"""How many messages that cannot be read are named in one line; the same as on the page and in the API."""
PATIENCE_WITH_DISK = 10.0
"""For how many seconds a write may take before that is reported."""


def disk_hangs(where: str, seconds: float) -> str:
    """Returns a sentence that a write does not return, and what to do; empty unless it has taken long."""
    if seconds <= PATIENCE_WITH_DISK:
        return ""
    return (
        f"{where}: the disk has not answered a write for {seconds:.0f} s, and nothing is acknowledged until it does: "
        f"`dmesg` and what the volume is on say more: {RUNBOOK}"
    )


def full_in_words(full: StorageFull) -> str:
    """Returns what is full, since when, and what to do."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(full.since))
    what, runbook, cure = "full", RUNBOOK, "take messages (mqgate queue clear, consumers) or make room on the disk"
    if full.files_missing:
        what, runbook, cure = (
            "not whole",
            OF_MISSING_FILES,
            "do not stop the gateway: it still has its files open",
        )
    elif full.why in _FAILING:
        what, cure = "not writable", "the disk fails or is read-only: `dmesg` says more"
    return (
        f"{what} since {since} UTC: {full.where}: {full.why}: publications are refused (MQTT 5: 0x97) or not "
        f"acknowledged, MQPUT answers 2192; {cure}: {runbook}"
    )


class DiskReports:
    """Logs changes."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._since = 0.0
        self._hung = False

    def look_at_writes(self, hangs: str) -> None:
        """Log whether writes hang; called every second with the result of `disk_hangs`."""
        if hangs and not self._hung:
            self._log.warning("mq.away", f"nothing can be committed: {hangs}")
        elif self._hung and not hangs:
            self._log.info("mq.back", "commits go through again")
        self._hung = bool(hangs)

    def look_at_damage(self, met: Mapping[tuple[str, str], Sequence[int]]) -> int:
        """Log messages that could not be read since the last call, by queue and what is damaged; called every second.
        Returns how many there are."""
        for (queue, why), tokens in met.items():
            self._log.error(
                "message.damaged",
                f"{len(tokens)} messages of {queue} cannot be read, and stay there while the others go on: {why}: "
                f"{OF_DAMAGE}",
                queue=queue,
                count=len(tokens),
                tokens=" ".join(map(str, tokens[:MOST_NAMED])),
            )
        return sum(map(len, met.values()))

    def look(self, full: StorageFull | None) -> None:
        """Log whether the disk is full; called every second."""
        if full is not None and not self._since:
            self._since = full.since
            self._log.error("disk_full", full_in_words(full), directory=full.where)
        elif full is None and self._since:
            self._log.info("disk_room", f"the disk accepts messages again after {time.time() - self._since:.0f} s")
            self._since = 0.0
